"""Workers that join a run under way: where they are refused they are told what to do, and else they get their share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine import Run, running

LISTENING = ("--listen", "127.0.0.1:0")

NUMPY = """
session = syncline.connect()
rank = session.rank
tables = session.tables({"w": np.zeros(9)}, mode="gradients")
steps_until("stop")
session.close()
"""

PYTORCH = """
import torch

session = syncline.connect()
model = torch.nn.Linear(4, 2)
optimizer = session.distribute(model, torch.optim.SGD(model.parameters(), 0.1))
while not there("stop"):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
    if session.iteration == 3:
        say("under way")
session.close()
"""


def address_of(run: Run) -> str:
    return run.hears(r"--join (\S+) -n 1 PROGRAM")[1]


@pytest.mark.parametrize("body", [NUMPY, PYTORCH], ids=["numpy", "pytorch"])
def test_a_joiner_in_mode_gradients_is_told_what_to_do(body: str, tmp_path: Path) -> None:
    with running(tmp_path, body, "-n1", *LISTENING) as run:
        run.hears("under way")
        with running(tmp_path, body, "-n1", "--join", address_of(run)) as other:
            assert other.ends() == 2, other.story()
            last = other.err.splitlines()[-1]
            assert last.startswith("syncline: worker 1: refused: mode: worker 1 cannot join: in mode 'gradients'"), last
            for words in (
                'mode="changes"',
                'rule="sgd:0.1"',
                "--mode changes",
                "session.distribute(",
                "session.tables(",
            ):
                assert words in last, other.story()
            assert re.search(r"UsageError: run: mode: worker 1 cannot join: .* mode=.changes.", other.out), (
                other.story()
            )
        run.touch("stop")
        assert run.ends() == 0, run.story()
