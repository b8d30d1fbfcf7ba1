"""Fine-tuning: the head alone first, then everything, with a new optimizer group for what is thawed."""

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
    body, head = model[0], model[2]
    body.requires_grad_(False)
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.02)
    session.distribute(model, optimizer)
    before = body.weight.detach().clone()
    data = examples()
    loader = DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))
    for epoch in range(4):
        if epoch == 2:
            session.barrier()  # under ssp another worker may be an epoch ahead, and its updates would arrive here
            assert torch.equal(body.weight, before), "nobody has touched what is frozen"
            session.barrier()
            body.requires_grad_(True)
            optimizer.add_param_group({"params": list(body.parameters()), "lr": 0.005})
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert not torch.equal(body.weight, before), "what was thawed is trained"
    assert accuracy(model, data) > 0.9
    session.close()
    say_ok(session.rank, model)


if __name__ == "__main__":
    main()
