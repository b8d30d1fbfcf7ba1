"""Runs a user's program for a few steps in one process, and notes how large its model is and how long a step takes.

    python -m syncline.plan.probe FILE STEPS PROGRAM ARGS...

The program runs as it does without `syncline run`: `syncline.connect()` starts a session of one. After STEPS steps this
process writes FILE and ends. Time spent in Syncline does not count.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from time import perf_counter

import msgspec

from syncline.effects import Deliver, Event
from syncline.engines.net.control import Begin, Declare, layout_of
from syncline.engines.worker import session
from syncline.engines.worker.solo_link import SoloLink
from syncline.messages import NodeId


class Probed(msgspec.Struct, frozen=True):
    """What was found."""

    tables: list[tuple[str, list[int]]]
    seconds: list[float]
    """Of each step, without the first."""


class ProbeLink(SoloLink):
    """A session of one that notes the time of every step of its program's first model."""

    first: ProbeLink | None = None
    file = Path()
    steps = 0

    def begin(self, declare: Declare) -> Begin:
        if ProbeLink.first is None:
            ProbeLink.first = self
        self._tables = [(table.name, list(table.shape)) for table in layout_of(declare.tables).tables]
        self._ends: list[float] = []
        self._inside = 0.0
        return super().begin(declare)

    def handle(self, event: Event) -> None:
        began = perf_counter()
        super().handle(event)
        self._inside += perf_counter() - began

    def deliver(self, me: NodeId, deliver: Deliver) -> None:
        super().deliver(me, deliver)
        if deliver.next is not None and self is ProbeLink.first:
            self._ends.append(perf_counter() - self._inside)
            if len(self._ends) > self.steps + 1:
                self.write()
                os._exit(0)

    def write(self) -> None:
        seconds = [after - before for before, after in zip(self._ends, self._ends[1:], strict=False)][1:]
        self.file.write_bytes(msgspec.json.encode(Probed(self._tables, seconds)))


def main() -> None:
    file, steps, program, *arguments = sys.argv[1:]
    ProbeLink.file, ProbeLink.steps = Path(file), int(steps)
    session.solo_link = ProbeLink
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).resolve().parent))
    runpy.run_path(program, run_name="__main__")
    if ProbeLink.first is not None:
        ProbeLink.first.write()


if __name__ == "__main__":
    main()
