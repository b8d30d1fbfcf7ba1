"""Runs that begin on several hosts: the commands on all of them, and a program that trains until it is told to end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from netns import Host
from remote import Loopback, Running

WAITING = """
import sys
from pathlib import Path
from time import sleep
import numpy as np
import syncline

# Trains until the file `go` is there.
directory = Path(sys.argv[1])
session = syncline.connect()
tables = session.tables({"w": np.zeros(3000)}, sync="asp", bucket="4KiB")
steps = 0
while not (directory / "go").exists():
    session.update("w", np.full(3000, 1.0))
    session.clock()
    session.sync()
    steps += 1
    if steps == 5:
        print("training", session.rank, flush=True)
    if session.rank == 2 and (directory / "fail").exists():
        raise RuntimeError("worker 2 was told to fail")
    sleep(0.01)
session.close()
print("done with", len(session.members), flush=True)
"""

STRATEGIES = {
    "server": ["--sync", "ssp:3"],
    "exchange": ["--strategy", "exchange:partitions=2"],
    "tree": ["--strategy", "tree:topology=chain"],
}


def begin(
    on: Sequence[Host | Loopback], at: str, *words: object, order: Sequence[int] = (1, 0), **environment: str
) -> list[Running]:
    """One command on each host, by rank; `order`: in which they start."""
    started = {}
    for rank in order:
        options = ("--hosts", len(on), "--host-rank", rank, "--at", at)
        started[rank] = Running(on[rank], *options, *words, **environment)
    return [started[rank] for rank in range(len(on))]


def waiting(directory: Path) -> Path:
    program = directory / "waiting.py"
    program.write_text(WAITING)
    return program


def both_train(runs: Sequence[Running]) -> None:
    for rank, run in enumerate(runs):
        for number in (2 * rank, 2 * rank + 1):
            run.line_with(f"[w{number}] training {number}")
