"""A loader of one's own, with another number of batches on every worker: a worker that runs out of data leaves."""

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
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    session.distribute(model, optimizer)
    shard = examples(256 - 100 * session.rank, seed=session.rank)  # this worker's own file
    for _ in range(3):
        for x, y in DataLoader(shard, 16, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    session.leave()
    assert accuracy(model, shard) > 0.9
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
