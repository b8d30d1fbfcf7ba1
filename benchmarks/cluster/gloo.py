"""What data parallelism does on the same network: `all_reduce` of gloo, in buckets as large as PyTorch's DDP takes.

    python -m benchmarks.cluster.gloo EXPERIMENT SECONDS FILE RANK MEETING

MEETING is a file by which the processes find each other; the values go over the host's link.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import torch
from benchmarks.cluster.device import Device
from benchmarks.cluster.experiment import Experiment, Overlap, ddp_buckets
from benchmarks.cluster.network import INTERFACE
from benchmarks.cluster.window import measure
from torch import Tensor, distributed

from syncline.errors import RunError

PATIENCE = timedelta(seconds=60)
"""How long a worker waits for the others."""


class Reducer:
    """What a worker does in a step; it reduces zeros, since sums of sums would overflow."""

    def __init__(self, experiment: Experiment) -> None:
        self._device = Device()
        self._forward = sum(forward for _, forward, _ in experiment.pauses)
        self._overlap = experiment.overlap
        size = {table.name: table.size for table in experiment.layers.layout.tables}
        backward = {name: seconds for name, _, seconds in experiment.pauses}
        self._buckets: list[tuple[float, Tensor]] = [
            (sum(backward[name] for name in names), torch.zeros(sum(size[name] for name in names)))
            for names in ddp_buckets(experiment.layers.layout.tables)
        ]

    def step(self) -> None:
        self._device.begin()
        if self._overlap is Overlap.NONE:
            self._device.follow(sum(backward for backward, _ in self._buckets))
        works = []
        for backward, values in self._buckets:
            if self._overlap is not Overlap.NONE:
                self._device.follow(backward)
            works.append(distributed.all_reduce(values, async_op=True))
        self._device.wait()
        for work in works:
            work.wait()
        self._device.begin()
        self._device.feed(self._forward)
        self._device.wait()

    def check(self, rank: int, workers: int) -> None:
        """One round on values that are known: it is a sum."""
        _, values = self._buckets[0]
        values.fill_(rank + 1)
        distributed.all_reduce(values)
        if not torch.equal(values, torch.full_like(values, workers * (workers + 1) / 2)):
            raise RunError("all_reduce has given another sum than that of all workers")
        values.zero_()


def agree(number: float) -> float:
    """The largest of what all workers say."""
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
    window = measure(reducer.step, float(seconds), agree)
    distributed.destroy_process_group()
    Path(file).write_bytes(msgspec.json.encode(window))


if __name__ == "__main__":
    main()
