"""Measure the memory of the nodes of a star under strategy `tree`, in real processes, as a multiple of the model.

    python benchmarks/tree_memory.py [--nodes 4] [--values 2000000] [--report FILE.json]

Each node serves one worker, which trains a model of this many values with numpy. After some steps, while all processes
wait, the program reads the proportional set size (PSS) of each node: memory that two processes share counts by half for
each. The PSS of the same node with a very small model is subtracted. The centre has `nodes - 1` neighbours, the others
have one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean
from time import sleep

import numpy as np
from rich.console import Console
from rich.table import Table

SMALL = 1000
STEPS = 12
WAIT_SECONDS = 1.0
"""After this time nodes have sent each other everything."""

WORD = "pss of the nodes:"
SERVER = re.compile(rb"syncline\.engines\.server\0(\d+)")


def work(values: int) -> None:
    """The program of a worker."""
    import syncline

    with syncline.connect() as session:
        session.tables({"w": np.zeros(values, np.float32)})
        random = np.random.default_rng(session.rank)
        for _ in range(STEPS):
            random.standard_normal(out=session.buffer("w"), dtype=np.float32)
            session.update("w")
            session.clock()
            session.sync()
        sleep(WAIT_SECONDS)
        session.barrier()
        if session.is_leader:
            print(WORD, json.dumps(pss_of_nodes(os.getppid())))
        session.barrier()


def pss_of_nodes(launcher: int) -> dict[str, int]:
    """The PSS of each node that this launcher has started, in bytes."""
    found = {}
    for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        match = SERVER.search(Path(f"/proc/{pid}/cmdline").read_bytes())
        if match:
            pss = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            assert pss is not None, "the kernel reports the PSS"
            found[match[1].decode()] = int(pss[1]) * 1024
    return found


def measured(nodes: int, values: int, lane: str, settings: str) -> tuple[float, float]:
    """The PSS of the centre, and the mean of the others, in bytes."""
    options = ["-n", str(nodes), "--lane", lane, "--strategy", f"tree:topology=star,{settings}"]
    program = [__file__, "--work", "--values", str(values)]
    command = [sys.executable, "-m", "syncline", "run", *options, *program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.search(rf"{WORD} (.*)", done.stdout)
    if done.returncode or match is None:
        raise SystemExit(f"the run failed: {done.stderr}")
    found = json.loads(match[1])
    return found["0"], mean(each for node, each in found.items() if node != "0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--values", type=int, default=2_000_000)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.values)
        return
    rows = []
    for settings in ("copies=false", "copies=true"):
        for lane in ("shm", "tcp"):
            small, large = (measured(chosen.nodes, values, lane, settings) for values in (SMALL, chosen.values))
            leaf, centre = ((large[one] - small[one]) / (4 * chosen.values) for one in (1, 0))
            rows.append({"settings": settings, "lane": lane, "leaf": leaf, "centre": centre})
    table = Table("settings", "lane", "a leaf", f"the centre ({chosen.nodes - 1} neighbours)", title="PSS / model")
    for row in rows:
        table.add_row(str(row["settings"]), str(row["lane"]), f"{row['leaf']:.1f}", f"{row['centre']:.1f}")
    Console().print(table)
    if chosen.report is not None:
        report = {"schema": 1, "nodes": chosen.nodes, "values": chosen.values, "rows": rows}
        chosen.report.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
