"""Each worker watches its own loss; all stop when one has seen enough."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader
from toy import accuracy, classifier, examples, say_ok

import syncline

ENOUGH = 0.15


def main() -> None:
    with syncline.connect() as session:
        torch.manual_seed(session.rank)
        model = classifier()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        session.distribute(model, optimizer)
        data = examples()
        loader = DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))
        epochs, enough = 0, False
        while not enough and epochs < 100:
            losses = []
            for x, y in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            epochs += 1
            enough = session.any(sum(losses) / len(losses) < ENOUGH)
        assert epochs < 100
        assert session.mean(epochs) == epochs, "all have stopped in the same epoch"
    assert accuracy(model, data) > 0.9
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
