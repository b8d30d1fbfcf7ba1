"""Coordinator, launcher and guard watch each other: they are stopped or killed, alone and in pairs.

No process is left behind; `running` checks that at the end of every test.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from engine import running, until
from samples import sampled

UNTIL = """
begin()
steps_until("go")
session.close()
"""

SOON = "1"
"""The patience of these runs, in seconds."""


@pytest.mark.slow
def test_a_coordinator_that_is_stopped_counts_as_dead_at_the_end(tmp_path: Path) -> None:
    with running(tmp_path, UNTIL, "-n", "2", SYNCLINE_PATIENCE=SOON) as run:
        run.hears("under way", 2)
        run.kill(run.coordinator(), signal.SIGSTOP)
        run.touch("go")
        run.hears("the coordinator was stopped for more than 1 s; it counts as dead")
        assert run.ends() == 1, run.story()
        assert "the coordinator was stopped for too long" in run.err.splitlines()[-1], run.story()


def test_a_coordinator_is_stopped_and_then_a_worker_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, UNTIL, "-n", "3", SYNCLINE_PATIENCE=SOON) as run:
        run.hears("under way", 3)
        run.kill(run.coordinator(), signal.SIGSTOP)
        run.kill(run.worker(1))
        assert run.ends() == 1, run.story()
        assert "the membership must change, but the coordinator is dead" in run.out, run.story()


@pytest.mark.parametrize("who", sampled(["worker1", "server0"], "server0"))
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_the_coordinator_is_lost_and_then_another_process_is_stopped(number: int, who: str, tmp_path: Path) -> None:
    with running(tmp_path, UNTIL, "-n", "2", SYNCLINE_PATIENCE=SOON) as run:
        run.hears("under way", 2)
        victim = run.find(who)
        assert victim is not None
        run.kill(run.coordinator(), number)
        run.kill(victim, signal.SIGSTOP)
        assert run.ends() == 1, run.story()
        name = who.replace("worker", "w")
        assert f"{name} has been stopped for more than 1 s, and the coordinator is dead" in run.err, run.story()


def test_a_coordinator_that_is_stopped_at_the_start(tmp_path: Path) -> None:
    with running(tmp_path, UNTIL, "-n", "2", SYNCLINE_PATIENCE=SOON) as run:
        pid = until(lambda: run.find("coordinator"), "the coordinator")
        run.kill(pid, signal.SIGSTOP)
        assert run.ends() == 1, run.story()
        assert "coordinator" in run.err, run.story()


GRANDCHILDREN = """
begin()
if rank == 0:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if os.fork() == 0:
        os.setpgid(0, 0)  # another process group, as a shell with job control makes
        signal.pause()
steps_until("go")
"""

PAIRS = {
    "launcher killed, coordinator stopped": ("launcher", signal.SIGKILL, "coordinator", signal.SIGSTOP),
    "launcher and coordinator killed": ("launcher", signal.SIGKILL, "coordinator", signal.SIGKILL),
    "launcher stopped": ("launcher", signal.SIGSTOP, "", 0),
    "launcher and coordinator stopped": ("launcher", signal.SIGSTOP, "coordinator", signal.SIGSTOP),
    "launcher stopped, coordinator killed": ("launcher", signal.SIGSTOP, "coordinator", signal.SIGKILL),
    "launcher killed, guard stopped": ("launcher", signal.SIGKILL, "guard", signal.SIGSTOP),
    "launcher and guard killed": ("launcher", signal.SIGKILL, "guard", signal.SIGKILL),
    "launcher stopped, guard killed": ("launcher", signal.SIGSTOP, "guard", signal.SIGKILL),
    "launcher and guard stopped": ("launcher", signal.SIGSTOP, "guard", signal.SIGSTOP),
}


@pytest.mark.parametrize(
    "case",
    sampled(PAIRS, "launcher and coordinator killed", "launcher and coordinator stopped"),
)
def test_nothing_is_left_when_those_who_watch_are_lost_in_pairs(case: str, tmp_path: Path) -> None:
    """Not even what the workers have started: a child, and a forked one in a process group of its own."""
    with running(tmp_path, GRANDCHILDREN, "-n", "2", SYNCLINE_PATIENCE=SOON) as run:
        run.hears("under way", 2)
        assert len(run.processes()) == 8, run.story()
        pids = {"launcher": run.process.pid, "coordinator": run.coordinator(), "guard": run.guard()}
        first, number, second, other = PAIRS[case]
        run.kill(pids[first], number)
        if second:
            run.kill(pids[second], other)
        assert run.ends() == -signal.SIGKILL, run.story()
        run.gone()


def test_a_guard_that_is_killed_is_replaced_and_the_run_continues(tmp_path: Path) -> None:
    with running(tmp_path, UNTIL, "-n", "2") as run:
        run.hears("under way", 2)
        first = run.guard()
        run.kill(first)
        until(lambda: run.find("guard") not in (None, first), "another guard")
        run.touch("go")
        assert run.ends() == 0, run.story()
        assert run.err == "", run.story()


@pytest.mark.slow
def test_a_launcher_that_joined_is_killed_and_nothing_is_left_on_its_host(tmp_path: Path) -> None:
    with running(tmp_path, UNTIL, "-n", "1", "--sync", "asp", "--listen", "127.0.0.1:0") as run:
        run.hears("under way")
        where = run.hears(r"--join (\S+)")[1]
        body = GRANDCHILDREN.replace("if rank == 0", "say('in')\nif True")
        with running(tmp_path, body, "-n", "1", "--join", where) as joined:
            joined.hears(r"\] in")
            joined.kill(joined.process.pid)
            joined.ends()
            joined.gone()
        run.hears("worker 1: its connection ended")
        run.touch("go")
        assert run.ends() == 0, run.story()
        assert re.search("worker 1", run.err)


TORCHRUN = """
begin()
if os.fork() == 0:
    signal.pause()
steps_until("go")
"""


def test_torchrun_is_killed_and_nothing_is_left(tmp_path: Path) -> None:
    """Workers, what they have forked, and coordinator and server, which the first worker has started."""
    module, options = ("torch.distributed.run",), ("--nproc-per-node", "2")
    with running(tmp_path, TORCHRUN, *options, module=module) as run:
        run.hears("under way", 2)
        run.kill(run.process.pid)
        run.ends()
        run.gone()
