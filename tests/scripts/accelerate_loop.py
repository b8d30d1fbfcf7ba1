"""A loop with accelerate: its wrappers, gradient accumulation, a scheduler, and a state that is loaded again."""

from __future__ import annotations

import os
import tempfile

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader
from toy import accuracy, classifier, examples, say_ok

import syncline


def main() -> None:
    session = syncline.connect()
    for variable in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        os.environ.pop(variable, None)  # under torchrun accelerate would use DDP as well
    torch.manual_seed(session.rank)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 16, gamma=0.5)
    data = examples()
    loader = DataLoader(data, 8, sampler=session.sampler(data, shuffle=True))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    session.distribute(model, optimizer)
    with tempfile.TemporaryDirectory() as directory:
        for epoch in range(4):
            for x, y in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(nn.functional.cross_entropy(model(x), y))
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
            if epoch == 1:
                accelerator.save_state(directory)
            if epoch == 2:
                accelerator.load_state(directory)  # on every worker, and training goes on from there
    assert accuracy(model, data) > 0.9
    session.close()
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
