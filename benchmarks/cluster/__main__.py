"""Measure Syncline and gloo on an emulated network, with links of a limited rate. Needs root.

python -m benchmarks.cluster [OPTIONS]        or: python benchmarks/cluster [OPTIONS]
python -m benchmarks.cluster learn [OPTIONS]  train on that network: seconds to a given accuracy
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # `python benchmarks/cluster` puts this folder first in sys.path; its `plot` or `network` could hide other modules.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from benchmarks.cluster.cli import main

    sys.exit(main())
