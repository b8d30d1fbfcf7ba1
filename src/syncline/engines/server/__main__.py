"""`python -m syncline.engines.server`: the process itself (process.py)."""

import sys

from syncline.engines.server.process import main

if __name__ == "__main__":
    sys.exit(main())
