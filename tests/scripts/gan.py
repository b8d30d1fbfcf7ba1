"""Two models that train against each other, each with its own optimizer and its own progress."""

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
    critic = nn.Sequential(nn.Linear(FEATURES, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
    session.distribute(generator, generator_optimizer, name="generator")
    session.distribute(critic, critic_optimizer, name="critic")
    judge = nn.BCEWithLogitsLoss()
    data = examples()
    loader = DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))
    for _ in range(2):
        for number, (real, _) in enumerate(loader):
            count = len(real)
            critic_optimizer.zero_grad()
            fake = generator(torch.randn(count, NOISE))
            loss = judge(critic(real), torch.ones(count, 1)) + judge(critic(fake.detach()), torch.zeros(count, 1))
            loss.backward()
            critic_optimizer.step()
            if number % 2:  # the critic is trained twice as often
                continue
            generator_optimizer.zero_grad()
            with session.no_sync("critic"):  # the critic's gradients are thrown away
                judge(critic(fake), torch.ones(count, 1)).backward()
            generator_optimizer.step()
    session.close()
    say_ok(session.rank, generator, critic)


if __name__ == "__main__":
    main()
