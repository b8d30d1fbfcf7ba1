"""A moving average of the model, made with copy.deepcopy, and saved and loaded like any other model."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader
from toy import accuracy, classifier, examples, say_ok

import syncline

DECAY = 0.9


def main() -> None:
    session = syncline.connect()
    torch.manual_seed(session.rank)
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    session.distribute(model, optimizer)
    average = copy.deepcopy(model).requires_grad_(False)
    data = examples()
    loader = DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))
    for _ in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            with torch.no_grad():
                for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
                    mean.lerp_(parameter, 1 - DECAY)
    assert accuracy(average, data) > 0.9
    best = copy.deepcopy(average.state_dict())
    average.load_state_dict(best)
    session.close()
    say_ok(session.rank, model, average)


if __name__ == "__main__":
    main()
