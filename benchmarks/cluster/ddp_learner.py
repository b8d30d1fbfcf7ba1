"""A worker of PyTorch's DistributedDataParallel with gloo that learns on one host.

python -m benchmarks.cluster.ddp_learner TASK FOLDER RANK
"""

# No `from __future__ import annotations` here: DDP looks at the types of its hook.
import os
import sys
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep

import msgspec
import torch
from benchmarks.cluster.learning import LearningTask
from benchmarks.cluster.links import INTERFACE
from benchmarks.cluster.saves import Saves
from torch import distributed, nn

from syncline.layout import Bucket
from syncline.recipes.torch_loop import TorchLoop
from syncline.recipes.torch_problem import TorchProblem

PATIENCE = timedelta(seconds=120)


class StepEnd:
    """When the computing of the current step ends."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = monotonic()

    def begin(self) -> None:
        self._begun = monotonic()

    def wait(self) -> None:
        sleep(max(0.0, self._begun + self._seconds - monotonic()))


def reduce_late(end: StepEnd, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """What DDP does with a bucket by itself, but the last one is ready only when the computing ends."""
    if bucket.is_last():
        end.wait()
    values = bucket.buffer().div_(distributed.get_world_size())
    work = distributed.all_reduce(values, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])  # type: ignore[no-any-return]


class DdpLoop(TorchLoop):
    """The plain loop under DDP, in which a step computes for a given time."""

    def under(self, seconds: float) -> None:
        self._end = StepEnd(seconds)
        model = nn.parallel.DistributedDataParallel(self._module)
        model.register_comm_hook(self._end, reduce_late)
        self._model = model

    def step(self) -> None:
        self._end.begin()
        super().step()


def main() -> None:
    words, folder, rank = sys.argv[1:]
    task = msgspec.json.decode(words, type=LearningTask)
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
    where = (Path(folder) / "meeting").as_uri()
    distributed.init_process_group("gloo", init_method=where, rank=int(rank), world_size=task.hosts, timeout=PATIENCE)
    problem = task.problem()
    assert isinstance(problem, TorchProblem)
    (first,) = problem.start([Bucket(0, problem.layout.size)])
    loop = DdpLoop(problem, first, problem.batches, int(rank))
    loop.under(task.step)
    distributed.barrier()
    saves = Saves(task, int(rank), first)
    for step in range(1, task.steps + 1):
        loop.step()
        if saves.wants and step % saves.wants == 0:
            saves.keep(loop.params)
    notes = saves.end()
    distributed.barrier()
    distributed.destroy_process_group()
    saves.write(Path(folder), notes)


if __name__ == "__main__":
    main()
