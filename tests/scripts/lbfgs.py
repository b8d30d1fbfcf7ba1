"""An optimizer that calls its closure several times a step."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from toy import accuracy, classifier, examples, say_ok

import syncline


def main() -> None:
    session = syncline.connect()
    torch.manual_seed(session.rank)
    model = classifier()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5, line_search_fn="strong_wolfe")
    session.distribute(model, optimizer)
    data = examples()
    loader = DataLoader(data, 128, sampler=session.sampler(data, shuffle=True))
    for _ in range(4):
        for x, y in loader:

            def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)
    assert accuracy(model, data) > 0.9
    session.close()
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
