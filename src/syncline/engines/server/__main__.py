"""`python -m syncline.engines.server` runs a server process (process.py)."""

import sys

from syncline.engines.server.process import main

if __name__ == "__main__":
    sys.exit(main())
