"""The leader saves the best model; it is loaded again when the loss has grown, and at the end for a last evaluation."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader
from toy import CLASSES, classifier, examples, say_ok

import syncline


def loss_of(model: nn.Module) -> float:
    x, y = examples(64, seed=1).tensors
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(x), y))


def main() -> None:
    session = syncline.connect()
    torch.manual_seed(session.rank)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    session.distribute(model, optimizer)
    data = examples()
    loader = DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))
    best = None
    with tempfile.TemporaryDirectory() as directory:
        folder = session.share("folder", directory.encode())[0].decode()
        checkpoint = Path(folder) / "best.pt"
        for epoch in range(6):
            for x, y in loader:
                optimizer.zero_grad()
                worse = epoch in (2, 4)  # labels that are wrong
                nn.functional.cross_entropy(model(x), (y + worse) % CLASSES).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            found = session.mean(loss_of(model))
            if best is None or found < best:
                best = found
                if session.is_leader:
                    torch.save(model.state_dict(), checkpoint)
                session.barrier()
            elif epoch < 4:
                model.load_state_dict(torch.load(checkpoint, weights_only=True))  # and training goes on from there
                optimizer.param_groups[0]["lr"] /= 4.0
        model.load_state_dict(torch.load(checkpoint, weights_only=True))
        assert loss_of(model) < 0.3
        session.barrier()  # the folder is the leader's, and goes when the leader is done
        session.close()
    assert loss_of(model) < 0.3
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
