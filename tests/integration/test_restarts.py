"""`syncline run --restarts`: a worker that dies is started again, and joins the run as the same worker."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from engine import running
from samples import sampled

LANES = ("shm", "tcp")
STEPS = 40

slow = pytest.mark.slow

LEDGER = f"""
session = syncline.connect()
rank, life = session.rank, session.incarnation
tables = session.tables({{"w": np.zeros((3, 2, {STEPS}))}})
say("starts", rank, life, session.iteration)
if life:
    Path("back").touch()
while session.iteration < {STEPS}:
    i = session.iteration
    if rank == 1 and life == 0 and i == 8:
        session.update("w", np.zeros((3, 2, {STEPS})))
        DIES
    while i == 12 and not there("back"):
        time.sleep(0.01)
    entry = np.zeros((3, 2, {STEPS}))
    entry[rank, life, i] = -1
    session.update("w", entry)
    session.clock()
    session.sync()
session.close()
np.save(f"final{{rank}}.npy", tables["w"])
"""
"""Every update adds one to a place of its own (rule sgd:1), so an update that is lost or applied twice can be seen."""

DEATHS = {
    "signal": ("os.kill(os.getpid(), signal.SIGKILL)", r"w1 ended by signal 9 \(SIGKILL\)", "ssp:2", "sgd:1"),
    "exit code": ("os._exit(3)", "w1 ended with exit code 3", "psp:sample=2,s=2", "dc-asgd:1,lam=0"),
}


@pytest.mark.parametrize(("how", "lane"), sampled(product(DEATHS, LANES), ("signal", "shm"), ("exit code", "tcp")))
def test_a_worker_that_dies_is_restarted_and_no_update_is_lost_or_applied_twice(
    lane: str, how: str, tmp_path: Path
) -> None:
    dies, said, sync, rule = DEATHS[how]
    options = ["-n3", "--servers", "2", "--lane", lane, "--sync", sync, "--rule", rule, "--bucket", "64B"]
    options += ["--restarts", "2", "--report", "report.json", "--log-dir", "logs"]
    with running(tmp_path, LEDGER.replace("DIES", dies), *options) as run:
        assert run.ends() == 0, run.story()
        assert re.fullmatch(rf"syncline: \S+ s: {said}; it is restarted \(restart 1 of 2\)\n", run.err), run.story()
        first = int(re.search(r"\[w1\] starts 1 1 (\d+)", run.out)[1])  # type: ignore[index]
        assert "Traceback" not in run.out, run.story()
    finals = [np.load(tmp_path / f"final{rank}.npy") for rank in range(3)]
    assert np.array_equal(finals[0], finals[1])
    assert np.array_equal(finals[0], finals[2])
    expected = np.zeros((3, 2, STEPS))
    expected[[0, 2], 0] = 1
    expected[1, 0, :8] = 1
    expected[1, 1, first:] = 1
    assert 8 < first <= 15
    assert np.array_equal(finals[0], expected)
    report = json.loads((tmp_path / "report.json").read_text())
    assert [each["restarts"] for each in report["workers"]] == [0, 1, 0]
    log = (tmp_path / "logs" / "w1.log").read_text()
    assert log == f"syncline: output of w1\nstarts 1 0 0\nstarts 1 1 {first}\n"


def test_restarts_are_counted_over_all_workers(tmp_path: Path) -> None:
    body = "say('starts')\nos._exit(3)"
    with running(tmp_path, body, "-n2", "--restarts", "3") as run:
        assert run.ends() == 1, run.story()
        assert len(re.findall("it is restarted", run.err)) == 3, run.story()
        assert "(restart 3 of 3)" in run.err
        assert re.fullmatch(r"syncline: w\d ended with exit code 3 after \S+ s", run.err.splitlines()[-1])
        assert run.out.count("starts") <= 5, run.story()


def test_a_failure_that_repeats_is_told_once(tmp_path: Path) -> None:
    """The line about each restart names it again."""
    with running(tmp_path, "raise ValueError('no data')", "-n2", "--restarts", "3") as run:
        assert run.ends() == 1, run.story()
        assert run.out.count("Traceback") == 1, run.story()
        assert len(re.findall(r"py:\d+: ValueError: no data; it is restarted \(", run.err)) == 3, run.story()


BEFORE = {
    "before it connects": "once()\nsession = syncline.connect()\nrank = session.rank",
    "before it declares": "session = syncline.connect()\nrank = session.rank\nonce()",
}


@pytest.mark.parametrize("who", [0, pytest.param(2, marks=slow)])
@pytest.mark.parametrize("when", BEFORE)
def test_a_worker_that_dies_before_the_run_begins_is_waited_for(when: str, who: int, tmp_path: Path) -> None:
    body = f"""
def once():
    if os.environ["SYNCLINE_WORKER"] == "{who}" and not there("died"):
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)

{BEFORE[when]}
tables = session.tables({{"w": np.zeros(10)}})
say("begins", rank, session.iteration, len(session.members))
for _ in range(5): step()
session.close()
say("done", tables["w"][0])
"""
    with running(tmp_path, body, "-n3", "--restarts", "1") as run:
        assert run.ends() == 0, run.story()
        assert run.out.count("done 5.0") == 3, run.story()
        for rank in range(3):
            assert f"begins {rank} 0 3" in run.out, run.story()


def test_what_the_only_worker_has_done_is_there_when_it_comes_back(tmp_path: Path) -> None:
    body = """
begin(w=10)
say("goes on with", tables["w"][0], session.iteration)
while session.iteration < 10:
    if session.incarnation == 0 and session.iteration == 4:
        raise ValueError("a mistake")
    step()
session.close()
say("final", tables["w"][0])
"""
    with running(tmp_path, body, "-n1", "--restarts", "1") as run:
        assert run.ends() == 0, run.story()
        first = int(re.search(r"goes on with 4.0 (\d+)", run.out)[1])  # type: ignore[index]
        assert f"final {4.0 + 10 - first}" in run.out, run.story()


@pytest.mark.slow
def test_a_worker_that_has_joined_from_elsewhere_keeps_its_number(tmp_path: Path) -> None:
    steady = "begin()\nsteps_until('stop')\nsession.close()"
    joins = "begin()\nsay('is', rank, session.incarnation)\nsteps_until('stop')\nsession.close()\nsay('done')"
    with running(tmp_path, steady, "-n2", "--listen", "127.0.0.1:0") as run:
        run.hears("under way", times=2)
        address = run.hears(r"--join (\S+) -n 1 PROGRAM")[1]
        with running(tmp_path, joins, "-n1", "--join", address, "--restarts", "1") as other:
            other.hears("is 2 0")
            other.kill(other.worker_that_joined())
            other.hears(r"\[w2\] is 2 1")
            assert "w2 ended by signal 9 (SIGKILL); it is restarted (restart 1 of 1)" in other.err
            run.touch("stop")
            assert other.ends() == 0, other.story()
            assert "[w2] done" in other.out
            assert run.ends() == 0, run.story()


@pytest.mark.parametrize("options", [["--mode", "gradients"], ["--rule", "mean"]])
def test_restarts_are_refused_before_anything_starts_where_nobody_can_join(options: list[str], tmp_path: Path) -> None:
    with running(tmp_path, "begin()", "--restarts", "1", *options) as run:
        assert run.ends() == 2, run.story()
        assert run.err.startswith("syncline: --restarts: in mode 'gradients'"), run.story()
        assert "--sync ssp:3 or asp, --mode changes, or a rule" in run.err
        assert run.err.count("\n") == 1


def test_restarts_are_refused_before_training_where_the_program_asks_for_gradients(tmp_path: Path) -> None:
    body = "session = syncline.connect()\nsession.tables({'w': np.zeros(9)}, mode='gradients')\nsay('training')"
    with running(tmp_path, body, "-n2", "--restarts", "1") as run:
        assert run.ends() == 2, run.story()
        last = run.err.splitlines()[-1]
        assert re.match(r"syncline: worker \d: refused: --restarts: in mode 'gradients'", last), run.story()
        assert "--sync ssp:3 or asp, --mode changes, or a rule" in last
        assert "training" not in run.out


def test_a_negative_number_of_restarts(tmp_path: Path) -> None:
    with running(tmp_path, "begin()", "--restarts", "-1") as run:
        assert run.ends() == 2, run.story()
        assert run.err == "syncline: --restarts: must be at least 0 and at most 1,000,000,000, not -1\n"


MODEL = """
import torch
from torch import nn

session = syncline.connect()
torch.manual_seed(session.rank)
model = nn.Linear(4, 2)
optimizer = session.distribute(model, torch.optim.SGD(model.parameters(), 0.1), WORDS)
say("starts", session.rank, session.incarnation, session.iteration)
if session.incarnation:
    Path("back").touch()
while session.iteration < 30 or not there("back"):
    if session.rank == 1 and session.incarnation == 0 and session.iteration == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
session.close()
say("final", [each.tolist() for each in model.parameters()])
"""


@slow
@pytest.mark.parametrize("words", ["sync='ssp:2'", "mode='changes'"])
@pytest.mark.parametrize("lane", LANES)
def test_a_model_of_pytorch_goes_on_with_a_worker_that_came_back(lane: str, words: str, tmp_path: Path) -> None:
    with running(tmp_path, MODEL.replace("WORDS", words), "-n2", "--lane", lane, "--restarts", "1") as run:
        assert run.ends() == 0, run.story()
        assert re.search(r"starts 1 1 \d+", run.out), run.story()
        finals = re.findall("final (.*)", run.out)
        assert len(finals) == 2, run.story()
        assert len(set(finals)) == 1, run.story()
