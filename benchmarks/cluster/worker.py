"""A worker of Syncline on one host: one table per layer, and pauses instead of computation.

    python -m benchmarks.cluster.worker EXPERIMENT SECONDS FILE

Environment variables say how to reach the coordinator. A step is the backward pass, from the last layer to the first,
the exchange, and the forward pass.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from time import monotonic

import msgspec
import numpy as np
from benchmarks.cluster.device import Device
from benchmarks.cluster.experiment import Experiment, Overlap
from benchmarks.cluster.network import Count, count_bytes
from benchmarks.cluster.window import StepTimes, measure

import syncline
from syncline.layout import Values

SAMPLED = 8
"""About how many parameters of each table are compared at the end, if they are equal only up to rounding."""


class Stepper:
    """Runs the steps of a worker."""

    def __init__(self, session: syncline.Session, experiment: Experiment) -> None:
        self._session = session
        self._device = Device()
        self._pauses = experiment.pauses
        self._overlap = experiment.overlap
        draw = np.random.default_rng(session.rank)
        self._updates: dict[str, Values] = {
            table.name: 1e-6 * draw.standard_normal(table.shape, np.float32)
            for table in experiment.layers.layout.tables
        }

    def step(self) -> StepTimes:
        begun = monotonic()
        self._device.begin()
        if self._overlap is Overlap.NONE:
            self._device.follow(sum(backward for _, _, backward in self._pauses))
        ready: list[float] = []
        before = Count(0, 0)
        for name, _, backward in reversed(self._pauses):
            if self._overlap is not Overlap.NONE:
                self._device.follow(backward)
            if not ready:
                before = count_bytes()
            ready.append(monotonic())
            self._session.update(name, self._updates[name])
        self._device.wait()
        computed = monotonic()
        self._session.clock()
        if self._overlap is not Overlap.FORWARD:
            self._session.sync()
        exchanged, carried = monotonic(), count_bytes() - before
        self._device.begin()
        for name, forward, _ in self._pauses:
            if self._overlap is Overlap.FORWARD:
                self._session.sync(name)
                exchanged = monotonic()
            self._device.feed(forward)
        if self._overlap is Overlap.FORWARD:
            carried = count_bytes() - before
        self._device.wait()
        return StepTimes(begun, ready[0], computed, exchanged, carried, ready)


def agreement(session: syncline.Session) -> Callable[[float], float]:
    """A function that returns the largest of the numbers that all workers pass to it."""

    def agree(number: float) -> float:
        said = session.share("agree", struct.pack("d", number))
        return max(float(struct.unpack("d", data)[0]) for data in said)

    return agree


def partitions(session: syncline.Session) -> int:
    """The number of ranges into which this worker cuts the model; 0 if its strategy does not cut it."""
    return getattr(session._own.link.node, "parts", 0)


def digest(tables: Mapping[str, Values]) -> str:
    """A hash of all parameters."""
    found = blake2b()
    for table in tables.values():
        found.update(table.data)
    return found.hexdigest()


def sample(tables: Mapping[str, Values]) -> list[float]:
    """A few parameters of each table."""
    return [float(each) for table in tables.values() for each in table.ravel()[:: table.size // SAMPLED + 1]]


def main() -> None:
    words, seconds, file = sys.argv[1:]
    experiment = msgspec.json.decode(words, type=Experiment)
    with syncline.connect() as session:
        tables = session.tables({t.name: np.zeros(t.shape, np.float32) for t in experiment.layers.layout.tables})
        step, agree = Stepper(session, experiment).step, agreement(session)
        window = measure(step, float(seconds), agree, experiment.warm, experiment.period)
        window = replace(window, partitions=partitions(session))
    end = {"digest": digest(tables)} if experiment.same_bits else {"sample": sample(tables)}
    Path(file).write_bytes(msgspec.json.encode(replace(window, **end)))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
