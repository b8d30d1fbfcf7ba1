"""The same trainings under DDP with gloo and under Syncline: `python ddp_cases.py ddp|syncline FILE.pt [CASE]...`.

Every case trains for 50 steps, LBFGS for 10. The first worker writes the parameters at the end of each case.
"""

from __future__ import annotations

import copy
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import syncline

STEPS = 50
WORDS, WIDTH, LENGTH, BATCH = 40, 16, 6, 8


class Model(nn.Module):
    """Tied embeddings, a layer that is never used, and one that only some batches use."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.first = nn.Linear(WIDTH, 32)
        self.sometimes = nn.Linear(32, 32)
        self.never = nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)
        self.last = nn.Linear(32, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor, more: bool) -> Tensor:
        h = torch.relu(self.first(self.embedding(x)))
        if more:
            h = h + self.sometimes(h)
        return self.head(self.last(self.norm(h)))


@dataclass(frozen=True)
class Case:
    name: str
    optimizer: Callable[[list[nn.Parameter]], Optimizer]
    clip: float | None = None
    accumulate: int = 1
    autocast: bool = False
    schedule: bool = False
    pauses: bool = True
    """Whether it accumulates without an exchange; otherwise every backward() is one."""
    loads: bool = False
    """Whether it loads other values on the way."""


CASES = (
    Case("sgd", lambda each: torch.optim.SGD(each, 0.1)),
    Case("momentum", lambda each: torch.optim.SGD(each, 0.05, momentum=0.9, weight_decay=1e-4)),
    Case("adamw", lambda each: torch.optim.AdamW(each, 1e-2)),
    Case("adafactor", lambda each: torch.optim.Adafactor(each, 1e-2)),
    Case("clip", lambda each: torch.optim.AdamW(each, 1e-2), clip=0.5),
    Case("accumulate", lambda each: torch.optim.SGD(each, 0.1, momentum=0.9), accumulate=4),
    Case("autocast", lambda each: torch.optim.SGD(each, 0.1), autocast=True),
    Case("schedule", lambda each: torch.optim.AdamW(each, 1e-2), schedule=True),
    Case("twice", lambda each: torch.optim.SGD(each, 0.1, momentum=0.9), accumulate=2, pauses=False),
    Case("load", lambda each: torch.optim.AdamW(each, 1e-2), loads=True),
    Case(
        "everything", lambda each: torch.optim.AdamW(each, 1e-2), clip=1.0, accumulate=4, autocast=True, schedule=True
    ),
)


def batches(rank: int) -> Iterator[tuple[Tensor, bool]]:
    """Batches of this worker, without end; only worker 1 uses the layer that is used sometimes, and not always."""
    generator = torch.Generator().manual_seed(100 + rank)
    while True:
        x = torch.randint(WORDS, (BATCH, LENGTH), generator=generator)
        yield x, rank == 1 and bool(torch.rand((), generator=generator) < 0.5)


def rate(step: int) -> float:
    """Ten steps of warm-up, then a cosine."""
    return (step + 1) / 10 if step < 10 else 0.5 * (1 + math.cos(math.pi * (step - 10) / (STEPS - 10)))


def train(case: Case, model: nn.Module, optimizer: Optimizer, rank: int, pause: Callable[[], Any]) -> None:
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate) if case.schedule else None
    source, first = batches(rank), copy.deepcopy(model.state_dict())
    for step in range(STEPS):
        if case.loads and step % 20 == 10:
            model.load_state_dict(first)
        for part in range(case.accumulate):
            x, more = next(source)
            last: AbstractContextManager[Any] = (
                nullcontext() if part == case.accumulate - 1 or not case.pauses else pause()
            )
            with last:
                with torch.autocast("cpu", torch.bfloat16, enabled=case.autocast):
                    out = model(x, more)
                loss = nn.functional.cross_entropy(out.float().flatten(0, 1), x.roll(1, 1).flatten())
                (loss / case.accumulate).backward()
        if case.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), case.clip)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        optimizer.zero_grad()


def with_ddp(case: Case, model: Model) -> None:
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    train(case, wrapped, case.optimizer(list(model.parameters())), dist.get_rank(), wrapped.no_sync)


def with_syncline(case: Case, model: Model, session: syncline.Session) -> None:
    optimizer = case.optimizer(list(model.parameters()))
    session.distribute(model, optimizer, name=case.name)
    train(case, model, optimizer, session.rank, lambda: session.no_sync(case.name))


Prepare = Callable[[nn.Module, Any], nn.Module]
"""Distributes a model with its optimizer or optimizers, and returns what to call."""


def optimizers_in_turn(rank: int, prepare: Prepare) -> nn.Module:
    """Two optimizers of one model, one of which steps twice as often."""
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, WIDTH))
    body, head = torch.optim.AdamW(model[0].parameters(), 1e-2), torch.optim.SGD(model[2].parameters(), 0.1)
    called = prepare(model, [body, head])
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        model.zero_grad()
        x = torch.randn(BATCH, WIDTH, generator=generator)
        (called(x) - x.roll(1, 1)).square().mean().backward()
        head.step()
        if step % 2:
            body.step()
    return model


def gan(rank: int, prepare: Prepare) -> nn.Module:
    """Two models; the loss of one has gradients for both, and the other one's backward() is called twice a step."""
    generator, judge = nn.Linear(4, WIDTH), nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizers = [torch.optim.Adam(each.parameters(), 1e-2) for each in (generator, judge)]
    makes, judges = (prepare(*each) for each in zip((generator, judge), optimizers, strict=True))
    source = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        judge.zero_grad()
        nn.functional.softplus(-judges(torch.rand(BATCH, WIDTH, generator=source))).mean().backward()
        fake = makes(torch.randn(BATCH, 4, generator=source))
        nn.functional.softplus(judges(fake.detach())).mean().backward()
        optimizers[1].step()
        generator.zero_grad()
        nn.functional.softplus(-judges(fake)).mean().backward()
        optimizers[0].step()
    return nn.ModuleList([generator, judge])


def lbfgs(rank: int, prepare: Prepare) -> nn.Module:
    """Without a line search and without tolerances, so that DDP's workers call their closures equally often."""
    model = nn.Linear(WIDTH, 4)
    options = {"lr": 0.1, "max_iter": 4, "tolerance_grad": 0.0, "tolerance_change": 0.0}
    optimizer = torch.optim.LBFGS(model.parameters(), **options)
    called = prepare(model, optimizer)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(10):
        x = torch.randn(BATCH, WIDTH, generator=generator)

        def closure(x: Tensor = x) -> Tensor:
            optimizer.zero_grad()
            loss = (called(x) - x[:, :4]).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    return model


LOOPS: dict[str, Callable[[int, Prepare], nn.Module]] = {"optimizers": optimizers_in_turn, "gan": gan, "lbfgs": lbfgs}
"""Training loops of other shapes."""


def _prepare(session: syncline.Session, model: nn.Module, optimizer: Any) -> nn.Module:
    session.distribute(model, optimizer)
    return model


def _prepare_with_ddp(model: nn.Module, optimizer: Any) -> nn.Module:
    return DistributedDataParallel(model)


def _copied(model: nn.Module) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in model.named_parameters()}


def main() -> None:
    system, file, *names = sys.argv[1:]
    torch.set_num_threads(1)
    session = syncline.connect() if system == "syncline" else None
    if session is None:
        rendezvous, rank = os.environ["RENDEZVOUS"], int(os.environ["RANK"])
        dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
    rank = session.rank if session is not None else dist.get_rank()
    found = {}
    for case in (each for each in CASES if not names or each.name in names):
        torch.manual_seed(rank)  # all take the first worker's parameters
        model = Model()
        if session is not None:
            with_syncline(case, model, session)
        else:
            with_ddp(case, model)
        found[case.name] = _copied(model)
    for name in (each for each in LOOPS if not names or each in names):
        torch.manual_seed(rank)
        found[name] = _copied(LOOPS[name](rank, _prepare_with_ddp if session is None else partial(_prepare, session)))
    if rank == 0:
        torch.save(found, file)
    if session is not None:
        session.close()
    else:
        dist.barrier()
        dist.destroy_process_group()
        os._exit(0)  # without the end of the interpreter, in which threads of gloo sometimes abort the process


if __name__ == "__main__":
    main()
