"""Workers that join a run that is training: they get their share of the examples, or are refused with what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from engine import Run, running, until
from samples import sampled

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


@pytest.mark.parametrize("body", [NUMPY, pytest.param(PYTORCH, marks=pytest.mark.slow)], ids=["numpy", "pytorch"])
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


# Who sees what.

DEALT = """
import torch
from torch.utils.data import DataLoader

session = syncline.connect()
model = torch.nn.Linear(1, 1)
optimizer = session.distribute(model, torch.optim.SGD(model.parameters(), 0.001), mode="changes")
sampler = session.sampler(range(24))
loader = DataLoader(torch.arange(24.0), 4, sampler=sampler)
while not there("stop"):
    epoch, members, seen = sampler.epoch, session.members, []
    for x in loader:
        optimizer.zero_grad()
        model(x[:, None]).square().mean().backward()
        optimizer.step()
        time.sleep(0.005)
        seen += [int(each) for each in x]
    say("dealt", (session.rank, epoch, members, seen))
session.close()
"""

Dealt = tuple[int, int, tuple[int, ...], list[int]]
"""Worker, epoch, the members that it knew when the epoch began, and the examples that it saw."""


def common(dealt: list[Dealt], members: tuple[int, ...]) -> list[list[Dealt]]:
    """The epochs that all of these workers began with these members."""
    epochs = {epoch for _, epoch, _, _ in dealt}
    found = [[each for each in dealt if each[1:3] == (epoch, members)] for epoch in sorted(epochs)]
    return [each for each in found if len(each) == len(members)]


def dealt_in(*runs: Run) -> list[Dealt]:
    lines = [line for run in runs for line in re.findall(r"\] dealt (\(.*\))\n", run.out)]
    return [ast.literal_eval(line) for line in lines]


def assert_shared(epochs: list[list[Dealt]]) -> None:
    """In each of these epochs every example was seen by exactly one worker, and all saw equally many."""
    assert epochs
    for epoch in epochs:
        assert sorted(index for *_, seen in epoch for index in seen) == list(range(24)), epoch
        assert len({len(seen) for *_, seen in epoch}) == 1, epoch


@pytest.mark.parametrize("lane", sampled(["shm", "tcp"], "tcp"))
def test_a_worker_that_joins_gets_examples_of_its_own(lane: str, tmp_path: Path) -> None:
    with running(tmp_path, DEALT, "-n2", "--lane", lane, *LISTENING) as run:
        run.hears(r"dealt \(1, 2, \(0, 1\)")
        with running(tmp_path, DEALT, "-n1", "--lane", lane, "--join", address_of(run)) as other:
            until(lambda: len(common(dealt_in(run, other), (0, 1, 2))) > 2, "epochs that all three have begun")
            run.touch("stop")
            assert other.ends() == 0, other.story()
            assert run.ends() == 0, run.story()
            dealt = dealt_in(run, other)
    assert_shared(common(dealt, (0, 1)))
    assert_shared(common(dealt, (0, 1, 2)))
    first = min(epoch for worker, epoch, _, _ in dealt if worker == 2)
    assert first >= 2, "it begins with an epoch that the others are in"


@pytest.mark.slow
def test_a_restarted_worker_gets_its_share_again(tmp_path: Path) -> None:
    body = DEALT.replace(
        "    epoch, members",
        "    if session.rank == 1 and sampler.epoch == 3 and not session.incarnation:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n    epoch, members",
    )
    with running(tmp_path, body, "-n3", "--restarts", "1") as run:
        until(lambda: len(dealt_after(run, 3)) > 2, "epochs that all have begun after one came back")
        run.touch("stop")
        assert run.ends() == 0, run.story()
        assert_shared(common(dealt_in(run), (0, 1, 2)))


def dealt_after(run: Run, epoch: int) -> list[list[Dealt]]:
    return [each for each in common(dealt_in(run), (0, 1, 2)) if each[0][1] > epoch]
