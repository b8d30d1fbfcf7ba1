"""torch.compile before distribute(), and after it."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader
from toy import accuracy, classifier, examples, say_ok

import syncline


def train(model: nn.Module, optimizer: Optimizer, loader: DataLoader) -> None:
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def main() -> None:
    session = syncline.connect()
    torch.manual_seed(session.rank)
    data = examples()
    loader = DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))

    first = torch.compile(classifier(), backend="aot_eager")
    optimizer = SGD(first.parameters(), lr=0.1, momentum=0.9)
    session.distribute(first, optimizer, name="compiled, then distributed")
    train(first, optimizer, loader)

    plain = classifier()
    optimizer = SGD(plain.parameters(), lr=0.1, momentum=0.9)
    session.distribute(plain, optimizer, name="distributed, then compiled")
    second = torch.compile(plain, backend="aot_eager")
    train(second, optimizer, loader)

    for model in (first, second):
        assert accuracy(model, data) > 0.9
    session.close()
    say_ok(session.rank, first, second)


if __name__ == "__main__":
    main()
