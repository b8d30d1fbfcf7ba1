"""Mixed precision: a GradScaler skips a step because one worker's gradient overflows."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader
from toy import accuracy, classifier, examples, say_ok

import syncline

OVERFLOWS = (3, 9)
"""In these steps the first worker's loss is more than a gradient can hold."""


def main() -> None:
    session = syncline.connect()
    torch.manual_seed(session.rank)
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session.distribute(model, optimizer)
    scaler = session.scaler(torch.amp.GradScaler("cpu", init_scale=1024.0))
    data = examples()
    loader = DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))
    step = 0
    for _ in range(5):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x).float(), y)
            if step in OVERFLOWS and session.rank == 0:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
            step += 1
    skips = session.settings["mode"] == "gradients" or session.rank == 0  # all skip the same steps; else each its own
    assert scaler.get_scale() == 1024.0 / 2 ** (len(OVERFLOWS) if skips else 0)
    assert accuracy(model, data) > 0.9
    session.close()
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
