"""Gradients of four small batches for each step."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import nn
from torch.utils.data import DataLoader
from toy import accuracy, classifier, examples, say_ok

import syncline

ACCUMULATE = 4


def main() -> None:
    session = syncline.connect()
    torch.manual_seed(session.rank)
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    session.distribute(model, optimizer)
    data = examples()
    loader = DataLoader(data, 8, sampler=session.sampler(data, shuffle=True))
    for _ in range(4):
        for number, (x, y) in enumerate(loader, 1):
            last = number % ACCUMULATE == 0
            with nullcontext() if last else session.no_sync():
                loss = nn.functional.cross_entropy(model(x), y) / ACCUMULATE
                loss.backward()
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    assert accuracy(model, data) > 0.9
    session.close()
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
