"""Data parallelism on the same network: gloo's `all_reduce`, in buckets of the same size as in PyTorch's DDP.

    python -m benchmarks.cluster.gloo EXPERIMENT SECONDS FILE RANK MEETING

MEETING is a file through which the processes find each other. The values are sent over the host's link.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from time import monotonic

import msgspec
import torch
from benchmarks.cluster.device import Device
from benchmarks.cluster.experiment import Experiment, Overlap, ddp_buckets
from benchmarks.cluster.links import INTERFACE
from benchmarks.cluster.network import count_bytes
from benchmarks.cluster.window import StepTimes, measure
from torch import Tensor, distributed

from syncline.errors import RunError

PATIENCE = timedelta(seconds=60)
"""How long a worker waits for the others."""


class Reducer:
    """Runs the steps of a worker; it reduces zeros, since repeated sums would overflow."""

    def __init__(self, experiment: Experiment) -> None:
        self._device = Device()
        self._first = experiment.first_update
        self._forward = sum(forward for _, forward, _ in experiment.pauses)
        self._overlap = experiment.overlap
        size = {table.name: table.size for table in experiment.layers.layout.tables}
        backward = {name: seconds for name, _, seconds in experiment.pauses}
        self._buckets: list[tuple[float, Tensor]] = [
            (sum(backward[name] for name in names), torch.zeros(sum(size[name] for name in names)))
            for names in ddp_buckets(experiment.layers.layout.tables)
        ]

    def step(self) -> StepTimes:
        begun = monotonic()
        self._device.begin()
        self._device.follow(self._first)
        first, before = monotonic(), count_bytes()
        works, done = [], self._first
        for backward, values in self._buckets:
            if self._overlap is not Overlap.NONE:
                self._device.follow(backward - done)
                done = 0.0
            works.append(distributed.all_reduce(values, async_op=True))
        self._device.wait()
        computed = monotonic()
        for work in works:
            work.wait()
        exchanged, carried = monotonic(), count_bytes() - before
        self._device.begin()
        self._device.feed(self._forward)
        self._device.wait()
        return StepTimes(begun, first, computed, exchanged, carried, [])

    def check(self, rank: int, workers: int) -> None:
        """Run one round on known values; RunError if the result is not their sum."""
        _, values = self._buckets[0]
        values.fill_(rank + 1)
        distributed.all_reduce(values)
        if not torch.equal(values, torch.full_like(values, workers * (workers + 1) / 2)):
            raise RunError("all_reduce returned a wrong sum")
        values.zero_()


def agree(number: float) -> float:
    """The largest of the numbers that all workers pass."""
    said = torch.tensor([number], dtype=torch.float64)
    distributed.all_reduce(said, distributed.ReduceOp.MAX)
    return float(said)


def main() -> None:
    words, seconds, file, rank, meeting = sys.argv[1:]
    experiment = msgspec.json.decode(words, type=Experiment)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
    where = Path(meeting).as_uri()
    distributed.init_process_group(
        "gloo", init_method=where, rank=int(rank), world_size=experiment.hosts, timeout=PATIENCE
    )
    reducer = Reducer(experiment)
    reducer.check(int(rank), experiment.hosts)
    window = measure(reducer.step, float(seconds), agree, experiment.warm)
    distributed.destroy_process_group()
    Path(file).write_bytes(msgspec.json.encode(window))


if __name__ == "__main__":
    main()
