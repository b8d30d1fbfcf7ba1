"""Measure a change over one link of a tree against a worker's push of the same bytes to a server, in real processes.

    python benchmarks/tree_link.py [--values 100000 1000000 ...] [--samples 15] [--lane shm|tcp] [--report FILE.json]

Two runs are alive at the same time and take turns: a worker with a server (`asp`, `changes`; the server answers without
parameters), and a worker with a chain of two nodes. Times come from the traces that Syncline writes:

- push: from the moment when the worker has its update until it knows that the server has applied all of it.
- link: from the moment when the first node begins to write the change until it knows that the second node has added all
  of it. The first node had the worker's update long before: it waits until `period` has passed since its last change.

`work` is the processor time of all processes of a run, per push or change. The worker's push to the first node, which
is a part of that run's work, is measured in a third run with one node, and subtracted.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from processor_time import busy, family

KINDS: Mapping[str, tuple[str, ...]] = {
    "push": ("--servers", "1", "--sync", "asp", "--mode", "changes", "--gate", "every:push=1,fetch=1000000"),
    "link": ("--servers", "2", "--strategy", "tree:topology=chain,copies=false,period={period}"),
    "node": ("--servers", "1", "--strategy", "tree:copies=false,period={period}"),
}
"""The options of each run."""

NANOSECONDS_PER_VALUE = 100.0
"""A push takes less than this, also on a busy machine; so the worker's next update reaches the node in time."""

LEAST_PERIOD = 0.3


def work(address: str, values: int, period: float) -> None:
    """The program of a worker: whenever it is told to, it pushes an update."""
    import syncline

    with Client(address) as channel, syncline.connect() as session:
        session.tables({"w": np.zeros(values, np.float32)})
        channel.send("ready")
        while channel.recv():
            if period:  # opens the period: nodes tell each other that there was an update, but send no values
                session.clock()
            np.add(session.iteration, np.float32(1.0), out=session.buffer("w"))
            session.update("w")
            session.clock()
            session.sync()
            sleep(2 * period)
            channel.send("done")


class Run:
    """One `syncline run`, whose worker waits for orders."""

    def __init__(self, kind: str, values: int, lane: str, folder: Path) -> None:
        self.folder = folder / kind
        self.folder.mkdir()
        period = 0.0 if kind == "push" else LEAST_PERIOD + values * NANOSECONDS_PER_VALUE * 1e-9
        listener = Listener(str(self.folder / "orders"))
        options = [each.format(period=period) for each in KINDS[kind]]
        program = [__file__, "--work", listener.address, "--values", str(values), "--period", str(period)]
        command = [sys.executable, "-m", "syncline", "run", "-n", "1", "--lane", lane, "--trace", str(self.folder)]
        self._process = subprocess.Popen([*command, *options, *program])
        with listener:
            self._channel: Connection = listener.accept()
        self._channel.recv()
        self._begun = self._used()

    def sample(self) -> None:
        self._channel.send(True)
        self._channel.recv()

    def end(self) -> float:
        """End the run; return the processor time that all samples have taken, in seconds."""
        used = self._used() - self._begun
        self._channel.send(False)
        self._channel.close()
        if self._process.wait(60):
            raise SystemExit("the run failed")
        return used

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def _used(self) -> float:
        """The processor time of all processes of the run so far."""
        return busy(family(self._process.pid))


def spans(trace: Path, values: int, sent: str, answer: str) -> Iterator[float]:
    """The seconds of each time that the whole model was sent, from the first message to the last answer."""
    began, left = 0.0, values
    unanswered: set[str] = set()
    """Where the buckets begin that were sent; a message that is sent again changes nothing."""
    with trace.open() as file:
        for line in csv.DictReader(file):
            now, kind, start = float(line["time"]), line["kind"], line["start"]
            if kind == sent and int(line["bytes"]) and start not in unanswered:
                began = now if left == values else began
                left -= int(line["stop"]) - int(start)
                unanswered.add(start)
            elif kind == answer and start in unanswered:
                unanswered.remove(start)
                if not left and not unanswered:
                    yield now - began
                    left = values


def measured(values: int, lane: str, samples: int) -> dict[str, float]:
    """The results of one size on one lane, in seconds."""
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        runs = {}
        for kind in KINDS:
            runs[kind] = Run(kind, values, lane, folder)
            stack.callback(runs[kind].stop)
        for _ in range(samples + 1):
            for run in runs.values():
                run.sample()
        work = {kind: run.end() / (samples + 1) for kind, run in runs.items()}
        pushes = list(spans(folder / "push" / "worker0.csv", values, "push", "taken"))[1:]
        changes = list(spans(folder / "link" / "server0.csv", values, "tree-sum", "tree-heard"))[1:]
        if len(pushes) != samples or len(changes) != samples:
            raise SystemExit(f"{len(pushes)} pushes and {len(changes)} changes, but {samples} of each were expected")
    return {
        "push": median(pushes),
        "link": median(changes),
        "push_least": min(pushes),
        "link_least": min(changes),
        "push_work": work["push"],
        "link_work": work["link"] - work["node"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, nargs="+", default=[100_000, 1_000_000, 5_000_000, 25_000_000])
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--lane", nargs="+", choices=["shm", "tcp"], default=["shm", "tcp"])
    parser.add_argument("--report", type=Path)
    parser.add_argument("--work", metavar="ADDRESS", help=argparse.SUPPRESS)
    parser.add_argument("--period", type=float, default=0.0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.work, chosen.values[0], chosen.period)
        return
    rows = [
        {"lane": lane, "values": values, **measured(values, lane, chosen.samples)}
        for lane in chosen.lane
        for values in chosen.values
    ]
    show(rows)
    if chosen.report is not None:
        chosen.report.write_text(json.dumps({"schema": 1, "samples": chosen.samples, "rows": rows}, indent=1) + "\n")


def show(rows: list[dict[str, Any]]) -> None:
    heads = (
        "lane",
        "values",
        "push ms",
        "link ms",
        "ratio",
        "least: push",
        "link",
        "ratio",
        "work: push",
        "link",
        "ratio",
    )
    table = Table(
        *heads, title="a push to a server, and a change over a link: median, least, and processor time, in ms"
    )
    for row in rows:
        cells = [row["lane"], f"{row['values']:,}"]
        for end in ("", "_least", "_work"):
            push, link = row[f"push{end}"], row[f"link{end}"]
            cells += [f"{1000 * push:.2f}", f"{1000 * link:.2f}", f"{link / push:.2f}"]
        table.add_row(*cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
