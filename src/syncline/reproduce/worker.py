"""The process of one simulation: it reads an order from stdin, and writes progress and the result to stdout."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic

import msgspec

from syncline.errors import SynclineError
from syncline.recipes.experiments import problem_of
from syncline.reproduce.figure import Result
from syncline.reproduce.kept import Order
from syncline.sim.experiment import experiment_of
from syncline.sim.trace import TraceLog
from syncline.sim.world import World

_OFTEN = 0.2
"""Seconds between two progress messages."""


class FigureStep(msgspec.Struct, tag="step", frozen=True):
    """Progress: `done` of `total` updates."""

    done: int
    total: int


class Done(msgspec.Struct, tag="done", frozen=True):
    """The simulation has finished, with this result."""

    result: Result


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The simulation has failed, for this reason."""

    why: str


Word = FigureStep | Done | Failed


def simulated(order: Order, tell: _Teller) -> Result:
    """Run one simulation."""
    experiment = experiment_of(order.experiment, Path())
    scenario = experiment.scenario
    every = max(1, scenario.cluster.workers * scenario.iterations // order.points) if order.points else None
    trace = TraceLog(pairs=order.pairs)
    outcome = World(scenario, problem_of(experiment), every=every, trace=trace).run(tell.progress)
    sums = sorted((str(source), str(to), size) for (source, to), size in (trace.pairs or {}).items() if size)
    return Result(outcome.report, list(outcome.curve), sums)


class _Teller:
    """Writes progress messages, at most one per `_OFTEN` seconds."""

    def __init__(self) -> None:
        self._last = monotonic()

    def progress(self, done: int, total: int) -> None:
        now = monotonic()
        if now - self._last > _OFTEN:
            self._last = now
            say(FigureStep(done, total))


def say(word: Word) -> None:
    """Write one line to stdout; if the reader is gone, the write fails and this process ends."""
    sys.stdout.buffer.write(msgspec.json.encode(word) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    try:
        say(Done(simulated(order, _Teller())))
    except SynclineError as error:
        say(Failed(str(error)))


if __name__ == "__main__":
    main()
