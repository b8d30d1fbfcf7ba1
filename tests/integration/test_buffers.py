"""Buffers that are shared: the mean of all workers', or the leader's, step by step, in both modes that allow it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from engine import running
from samples import sampled

BODY = """
import torch
from torch import nn

class Counting(nn.Module):
    '''Its buffers change with what it has seen; one of them counts, one never changes, one holds truth values.'''

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("seen", torch.full((2,), float(RANK) - 5))  # the leader's -5 at the start
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("mask", torch.ones(1000))
        self.register_buffer("flag", torch.tensor(RANK == 0))

    def forward(self, x):
        self.seen += RANK + 1
        self.count += 1
        return self.linear(x)

session = syncline.connect()
RANK = session.rank
dies = sys.argv[1] == "dies"
for kind, mode in (words.split("-") for words in sys.argv[2:]):
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    session.distribute(model, optimizer, mode=mode, buffers=kind, name=f"{kind}-{mode}")
    flag = bool(model.flag)
    for step in range(6):
        if step == 4 and dies and RANK == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(torch.ones(4, 3) * (RANK + step)).square().mean().backward()
        optimizer.step()
        same = bool((model.mask == 1).all()), bool(model.flag) == flag
        say(f"{kind}-{mode} step {step}:", model.seen.tolist(), int(model.count), *same)
session.close()
"""
"""Its arguments: whether the leader dies, and one model after another, by how its buffers are shared and its mode."""


def lines_of(out: str, step: str) -> set[str]:
    return {line.split("] ", 1)[1] for line in out.splitlines() if f"{step}:" in line}


MODES = ("gradients", "changes")
BY = {"mean": 1.5, "leader": 1.0}


def test_everyone_has_the_same_buffers_after_every_step(tmp_path: Path) -> None:
    words = [f"{kind}-{mode}" for kind, mode in product(BY, MODES)]
    with running(tmp_path, BODY, "-n2", "--servers", "2", words=["lives", *words]) as run:
        assert run.ends() == 0, run.story()
        for (kind, mode), step in product(product(BY, MODES), range(6)):
            seen = -5 + BY[kind] * (step + 1)
            said = lines_of(run.out, f"{kind}-{mode} step {step}")
            assert all(line.endswith(f"] {step + 1} True True") for line in said), run.story()
            assert _only(said, run.story()) == pytest.approx(seen, abs=1e-5)


@pytest.mark.parametrize("mode", sampled(MODES, "gradients"))
def test_when_the_leader_dies_the_next_one_leads(tmp_path: Path, mode: str) -> None:
    with running(tmp_path, BODY, "-n3", "--servers", "2", words=["dies", f"leader-{mode}"]) as run:
        assert run.ends() == 0, run.story()
        seen = {step: _only(lines_of(run.out, f"leader-{mode} step {step}"), run.story()) for step in range(6)}
        assert seen[3] == -1
        assert seen[5] - seen[4] == pytest.approx(2, abs=1e-4), run.story()  # worker 1 counts by twos


def _only(lines: set[str], story: str) -> float:
    """The values that all workers printed, which must be equal."""
    assert len(lines) == 1, story
    return float(lines.pop().split("[")[1].split(",")[0])
