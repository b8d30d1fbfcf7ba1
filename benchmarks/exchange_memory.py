"""Measure the memory of a worker under strategy `exchange`, as a multiple of the model, by the number of ranges.

    python benchmarks/exchange_memory.py [--workers 4] [--values 2000000] [--parts 1 4 20] [--report FILE.json]

For each number of ranges and each lane, real workers train a model of this many values with numpy. Every worker prints
how much its resident memory (the largest RSS) has grown since it connected; the largest of these is divided by the size
of the model. The row of one worker without any exchange contains what every run needs: the table, the buffer for the
update, and the temporary arrays of the program.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import numpy as np
from rich.console import Console
from rich.table import Table

WORD = "grown by"


def work(values: int, steps: int) -> None:
    """The program of one worker."""
    import syncline

    with syncline.connect() as session:
        before = _largest()
        tables = session.tables({"w": np.zeros(values, np.float32)})
        random = np.random.default_rng(session.rank)
        while session.iteration < steps:
            random.standard_normal(out=session.buffer("w"), dtype=np.float32)
            session.update("w")
            session.clock()
            session.sync()
        after = _largest()
    print(WORD, after - before, float(tables["w"][0]))


def _largest() -> int:
    """The largest RSS of this process so far, in bytes."""
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024


def measured(workers: int, values: int, parts: int, lane: str) -> float:
    """The largest growth of a worker, as a multiple of the model; without `parts`, of a worker that is alone."""
    strategy = ["--strategy", f"exchange:partitions={parts}"] if parts else ["--sync", "bsp"]
    options = ["-n", str(workers if parts else 1), "--lane", lane, *strategy]
    program = [__file__, "--work", "--values", str(values), "--steps", str(3 * parts + 20)]
    done = subprocess.run(
        [sys.executable, "-m", "syncline", "run", *options, *program], capture_output=True, text=True, check=False
    )
    found = [int(each) for each in re.findall(rf"{WORD} (\d+)", done.stdout)]
    if done.returncode or not found:
        raise SystemExit(f"the run failed: {done.stderr}")
    return max(found) / (4 * values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--values", type=int, default=2_000_000)
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 4, 20])
    parser.add_argument("--report", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.values, chosen.steps)
        return
    rows = {
        parts: {lane: measured(chosen.workers, chosen.values, parts, lane) for lane in ("shm", "tcp")}
        for parts in (0, *chosen.parts)
    }
    table = Table("ranges", "shared memory", "tcp", title="resident memory of a worker, as a multiple of the model")
    for parts, row in rows.items():
        table.add_row(str(parts or "one worker, no exchange"), *(f"{row[lane]:.1f}" for lane in ("shm", "tcp")))
    Console().print(table)
    if chosen.report is not None:
        report = {"workers": chosen.workers, "values": chosen.values, "multiples": rows}
        chosen.report.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
