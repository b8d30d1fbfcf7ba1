"""Two optimizers of one model, one of which steps more often."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader
from toy import accuracy, classifier, examples, say_ok

import syncline


def main() -> None:
    session = syncline.connect()
    torch.manual_seed(session.rank)
    model = classifier()
    body = torch.optim.AdamW(model[0].parameters(), lr=0.02)
    head = torch.optim.SGD(model[2].parameters(), lr=0.1)
    session.distribute(model, [body, head])
    data = examples()
    loader = DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))
    for _ in range(4):
        for number, (x, y) in enumerate(loader):
            model.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            head.step()
            if number % 2:
                body.step()
    assert accuracy(model, data) > 0.9
    session.close()
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
