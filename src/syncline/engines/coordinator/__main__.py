"""`python -m syncline.engines.coordinator`: the process itself (process.py)."""

import sys

from syncline.engines.coordinator.process import main

if __name__ == "__main__":
    sys.exit(main())
