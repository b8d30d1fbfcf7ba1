"""A worker of Syncline on one host: one table per layer, and pauses instead of computation.

    python -m benchmarks.cluster.worker EXPERIMENT SECONDS FILE

Environment variables say how to reach the coordinator. A step is the backward pass, from the last layer to the first,
the exchange, and the forward pass.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
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


def main() -> None:
    words, seconds, file = sys.argv[1:]
    experiment = msgspec.json.decode(words, type=Experiment)
    with syncline.connect() as session:
        tables = session.tables({t.name: np.zeros(t.shape, np.float32) for t in experiment.layers.layout.tables})
        window = measure(Stepper(session, experiment).step, float(seconds), agreement(session), experiment.period)
    digest = blake2b()
    for table in tables.values():
        digest.update(table.data)
    Path(file).write_bytes(msgspec.json.encode(replace(window, digest=digest.hexdigest())))


if __name__ == "__main__":
    main()
