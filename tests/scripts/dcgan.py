"""A GAN as in the tutorials: two models without names, and two backward() before a step of the discriminator."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader
from toy import FEATURES, examples, say_ok

import syncline

NOISE = 4


def main() -> None:
    session = syncline.connect()
    torch.manual_seed(session.rank)
    generator = nn.Sequential(nn.Linear(NOISE, 32), nn.ReLU(), nn.Linear(32, FEATURES))
    discriminator = nn.Sequential(nn.Linear(FEATURES, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    judge = nn.BCEWithLogitsLoss()
    discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    session.distribute(discriminator, discriminator_optimizer)
    session.distribute(generator, generator_optimizer)
    data = examples()
    loader = DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))
    for _ in range(2):
        for real, _labels in loader:
            ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
            discriminator.zero_grad()
            judge(discriminator(real), ones).backward()
            fake = generator(torch.randn(len(real), NOISE))
            judge(discriminator(fake.detach()), zeros).backward()
            discriminator_optimizer.step()
            generator.zero_grad()
            judge(discriminator(fake), ones).backward()
            generator_optimizer.step()
    session.close()
    say_ok(session.rank, generator, discriminator)


if __name__ == "__main__":
    main()
