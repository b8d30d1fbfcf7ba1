"""What a user would pick instead: the plain torch loop in one process, and the same loop under DDP with gloo."""

# No `from __future__ import annotations` here: DDP looks at the types of its hook.
import os
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from time import sleep

import numpy as np
import torch
from torch import distributed, nn

from syncline.layout import Values
from syncline.recipes.data import Batches
from syncline.recipes.torch_problem import TorchProblem
from syncline.rules import Momentum, Rule, Sgd

_PATIENCE = timedelta(seconds=120)
_INTERFACES = Path("/sys/class/net")


def join_gloo(meeting: Path, rank: int, size: int) -> None:
    """Find the other processes by a file, and talk over loopback."""
    loopback = [name for name in os.listdir(_INTERFACES) if name.startswith("lo")] if _INTERFACES.is_dir() else []
    if loopback:
        os.environ["GLOO_SOCKET_IFNAME"] = loopback[0]
    place = meeting.resolve().as_uri()
    distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=size, timeout=_PATIENCE)


class TorchLoop:
    """Forward, backward and step of a copy of the problem's model, which starts with `first`; one worker's batches."""

    def __init__(self, problem: TorchProblem, first: Values, batches: Batches, worker: int) -> None:
        self._problem = problem
        self._batches = batches
        self._worker = worker
        self._module = deepcopy(problem.model)
        with torch.no_grad():
            nn.utils.vector_to_parameters(torch.from_numpy(first.copy()), self._module.parameters())
        for value in self._module.parameters():
            value.grad = None
        self._optimizer = _torch_optimizer(problem.optimizer, self._module)
        self._model: nn.Module = self._module
        self.iterations = 0
        """How many it has done."""

    def under_ddp(self, pause: float) -> None:
        """Average gradients over all processes; this one is so many seconds late with each.

        Gradients leave in buckets, so the slow worker sleeps before the last of them, when its gradient is computed.
        """
        model = nn.parallel.DistributedDataParallel(self._module)
        if pause:
            model.register_comm_hook(pause, _late)
        self._model = model

    def step(self) -> None:
        inputs, labels = self._problem.examples(self._batches.indices(self._worker, self.iterations))
        self._optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self._model(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self.iterations += 1

    @property
    def params(self) -> Values:
        """A copy of the parameters."""
        with torch.no_grad():
            flat: Values = nn.utils.parameters_to_vector(self._module.parameters()).numpy()
        return np.array(flat, np.float32)


def _torch_optimizer(rule: Rule, module: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of torch that does the same as a recipe's rule."""
    assert isinstance(rule, Momentum | Sgd), "all recipes take one of them"
    return torch.optim.SGD(module.parameters(), rule.lr, rule.mu if isinstance(rule, Momentum) else 0.0)


def _late(pause: float, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """What DDP does with a bucket by itself, but late."""
    if bucket.is_last():
        sleep(pause)
    values = bucket.buffer().div_(distributed.get_world_size())
    work = distributed.all_reduce(values, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])  # type: ignore[no-any-return]
