"""A data set of one's own, read by two processes of a DataLoader."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from toy import accuracy, classifier, examples, say_ok

import syncline


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Augments each example in the process that reads it."""

    def __init__(self) -> None:
        self.data = examples()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = self.data[index]
        return x + 0.01 * torch.randn_like(x), y


def main() -> None:
    session = syncline.connect()
    torch.manual_seed(session.rank)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    session.distribute(model, optimizer)
    data = Noisy()
    loader = DataLoader(data, 16, num_workers=2, persistent_workers=True, sampler=session.sampler(data, shuffle=True))
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert accuracy(model, data.data) > 0.9
    session.close()
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
