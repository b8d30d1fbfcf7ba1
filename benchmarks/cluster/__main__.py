"""A real network on one machine: hosts as network namespaces, each link held to a rate; run as root.

python -m benchmarks.cluster [OPTIONS]        or: python benchmarks/cluster [OPTIONS]
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a folder, Python puts this folder in front, where `plot` or `network` would hide others of that name.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from benchmarks.cluster.cli import main

    sys.exit(main())
