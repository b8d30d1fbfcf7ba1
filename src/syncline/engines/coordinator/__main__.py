"""`python -m syncline.engines.coordinator` runs the coordinator process (process.py)."""

import sys

from syncline.engines.coordinator.process import main

if __name__ == "__main__":
    sys.exit(main())
