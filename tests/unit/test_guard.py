"""The guard: when the process that it watches ends or stays stopped, no process of its sessions is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from engine import state, until
from syncline.engines import guard as module
from syncline.engines.guard import kill_session, parent_of_session, processes_of
from syncline.engines.launch.guard_link import GuardLink

FAMILY = """
import os, signal, sys
if os.fork() == 0:
    os.setpgid(0, 0)
    signal.pause()
print("there", flush=True)
signal.pause()
"""
"""The leader of a session, and a child of it in another process group."""

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that leads a session, and return its id once it says something."""
    started: list[subprocess.Popen[bytes]] = []

    def make(code: str = FAMILY) -> int:
        command = [sys.executable, "-I", "-S", "-c", code]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
        assert started[-1].stdout is not None
        assert started[-1].stdout.readline()
        return started[-1].pid

    yield make
    for each in started:
        kill_session(each.pid)
        assert each.stdout is not None
        each.stdout.close()
        each.wait()


@pytest.fixture
def guard() -> Iterator[Callable[[int, float], GuardLink]]:
    made: list[GuardLink] = []

    def make(watched: int, patience: float = 600.0) -> GuardLink:
        made.append(GuardLink(watched, patience))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.close()


def over(session: int) -> bool:
    return not list(processes_of(session))


def test_a_session_is_killed_in_all_its_process_groups(start: Start) -> None:
    leader = start()
    assert len(list(processes_of(leader))) == 2
    kill_session(leader)
    until(lambda: over(leader), "the end of the session")


def test_the_sessions_that_a_process_has_started(start: Start) -> None:
    assert parent_of_session(start()) == os.getpid()
    assert parent_of_session(1 << 30) == 0


def test_when_the_watched_process_is_killed_its_sessions_are(start: Start, guard: Callable[..., GuardLink]) -> None:
    watched, first, second = start(), start(), start()
    link = guard(watched)
    for each in (first, second):
        link.add(each, wait=each == second)
        os.kill(each, signal.SIGSTOP)
    os.kill(watched, signal.SIGKILL)
    until(lambda: over(first) and over(second), "the end of both sessions, though they were stopped")


def test_a_watched_process_that_stays_stopped_is_killed_and_its_sessions(
    start: Start, guard: Callable[..., GuardLink]
) -> None:
    watched, session = start(), start()
    guard(watched, 0.1).add(session)
    os.kill(watched, signal.SIGSTOP)
    until(lambda: over(session), "the end of the session")
    assert state(watched) == "Z"


def test_a_session_that_has_ended_is_left_alone(start: Start, guard: Callable[..., GuardLink]) -> None:
    watched, former, session = start(), start(), start()
    link = guard(watched)
    link.add(former)
    link.add(session)
    link.remove(former)
    os.kill(watched, signal.SIGKILL)
    until(lambda: over(session), "the end of the session")
    assert not over(former)


def test_a_guard_that_is_told_to_quit_leaves_everything(start: Start, guard: Callable[..., GuardLink]) -> None:
    watched, session = start(), start()
    link = guard(watched)
    link.add(session)
    link.close()
    os.kill(watched, signal.SIGKILL)
    assert not over(session)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_guard_that_is_killed_or_stopped_is_replaced(
    number: int, start: Start, guard: Callable[..., GuardLink]
) -> None:
    watched, session = start(), start()
    link = guard(watched)
    link.add(session)
    first = link.pid
    os.kill(first, number)
    until(lambda: state(first) in "ZT", "the signal")
    link.check()
    assert link.pid != first
    os.kill(watched, signal.SIGKILL)
    until(lambda: over(session), "the end of the session")


STARTER = """
import os, signal, subprocess, sys
guard = subprocess.Popen(
    [sys.executable, "-I", "-S", sys.argv[2], sys.argv[1], str(os.getpid()), "600"], stdin=subprocess.PIPE)
if os.fork() == 0:
    signal.pause()  # holds the pipe to the guard
print(guard.pid, flush=True)
"""


def test_a_guard_ends_with_the_process_that_has_started_it(start: Start) -> None:
    words = [sys.executable, "-I", "-S", "-c", STARTER, str(start()), module.__file__]
    starter = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    starter.wait()
    until(lambda: state(pid) in ("", "Z"), "the end of the guard")
    kill_session(starter.pid)
    starter.stdout.close()
