"""The first worker evaluates for much longer than a step takes, and saves the best model; the others go on."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader
from toy import accuracy, classifier, examples, say_ok

import syncline

PASSES = 2000


def evaluate(model: nn.Module) -> float:
    model.eval()
    held_out = examples(64, seed=1)
    found = sum(accuracy(model, held_out) for _ in range(PASSES)) / PASSES
    model.train()
    return found


def main() -> None:
    session = syncline.connect()
    torch.manual_seed(session.rank)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    session.distribute(model, optimizer)
    data = examples()
    loader = DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))
    best = 0.0
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = Path(directory) / "best.pt"
        for epoch in range(4):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            if session.rank == 0 and (found := evaluate(model)) > best:
                best = found
                torch.save({"epoch": epoch, "model": model.state_dict()}, checkpoint)
        if session.rank == 0:
            saved = torch.load(checkpoint, weights_only=True)
            fresh = classifier()
            fresh.load_state_dict(saved["model"])
            assert accuracy(fresh, data) > 0.9
    session.close()
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
