"""A trainer with callbacks that knows nothing of other workers, used by a program that does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader
from toy import accuracy, classifier, examples, say_ok

import syncline


class Callback:
    """Told of what happens; each method may be left as it is."""

    def on_step(self, trainer: Trainer, loss: float) -> None: ...

    def on_epoch(self, trainer: Trainer) -> None: ...


class History(Callback):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.losses.append(loss)


class Schedule(Callback):
    def __init__(self, optimizer: Optimizer, steps: int) -> None:
        self.scheduler = OneCycleLR(optimizer, max_lr=0.02, total_steps=steps)

    def on_step(self, trainer: Trainer, loss: float) -> None:
        self.scheduler.step()


class Print(Callback):
    def on_epoch(self, trainer: Trainer) -> None:
        print(f"epoch {trainer.epoch} done", flush=True)


@dataclass
class Trainer:
    model: nn.Module
    optimizer: Optimizer
    loss: Callable[[Tensor, Tensor], Tensor]
    callbacks: list[Callback] = field(default_factory=list)
    epoch: int = 0

    def fit(self, batches: Iterable[tuple[Tensor, Tensor]], epochs: int) -> None:
        for self.epoch in range(epochs):
            for x, y in batches:
                self._step(x, y)
            for callback in self.callbacks:
                callback.on_epoch(self)

    def _step(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad()
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        for callback in self.callbacks:
            callback.on_step(self, loss.item())


def main() -> None:
    session = syncline.connect()
    torch.manual_seed(session.rank)
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    session.distribute(model, optimizer)
    data = examples()
    loader = DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))
    history, epochs = History(), 4
    callbacks = [history, Schedule(optimizer, epochs * len(loader))]
    if session.is_leader:
        callbacks.append(Print())
    Trainer(model, optimizer, nn.CrossEntropyLoss(), callbacks).fit(loader, epochs)
    assert session.mean(history.losses[-1]) < session.mean(history.losses[0])
    assert accuracy(model, data) > 0.9
    session.close()
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
