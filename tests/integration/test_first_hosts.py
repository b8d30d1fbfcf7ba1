"""Runs that begin on several hosts: `syncline run --hosts N --host-rank R --at ADDRESS:PORT`, the same on each host."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import lanes
from netns import Host, ip, two_hosts
from remote import SECRET, Loopback, Running, free_port, loopback
from several_hosts import STRATEGIES, WAITING, begin, both_train, waiting
from syncline.engines.net.keys import make_key_file

PROGRAM = lanes.__file__


@pytest.fixture
def here() -> Iterator[Loopback]:
    with loopback() as host:
        yield host


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with two_hosts() as pair:
        yield pair


def test_two_launchers_begin_one_run(here: Loopback, tmp_path: Path) -> None:
    """The second host starts first."""
    report = tmp_path / "report.json"
    first, second = begin((here, here), f"127.0.0.1:{free_port()}", "-n", 1, "--report", report, PROGRAM, tmp_path, 5)
    assert (first.end(), second.end()) == (0, 0), first.text + second.text
    found = json.loads(report.read_text())
    assert [each["server"] for each in found["servers"]] == [0, 1]
    assert [each["worker"] for each in found["workers"]] == ["w0"], "each host reports its own workers"
    assert np.array_equal(*(np.load(tmp_path / f"worker{worker}.npy") for worker in range(2)))


@pytest.mark.slow
def test_under_bsp_the_parameters_are_those_of_a_run_on_one_host(here: Loopback, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    alone = Running(here, "-n", 4, "--servers", 2, PROGRAM, tmp_path / "alone", 5)
    assert alone.end() == 0, alone.text
    runs = begin((here, here), f"127.0.0.1:{free_port()}", "-n", 2, PROGRAM, tmp_path, 5)
    assert [run.end() for run in runs] == [0, 0], "".join(run.text for run in runs)
    for worker in range(4):
        ours, expected = (np.load(each / f"worker{worker}.npy") for each in (tmp_path, tmp_path / "alone"))
        assert np.array_equal(ours, expected)


@pytest.mark.parametrize(
    "strategy", ["server", *(pytest.param(name, marks=pytest.mark.slow) for name in ("exchange", "tree"))]
)
def test_two_hosts_begin_one_run(hosts: tuple[Host, Host], tmp_path: Path, strategy: str) -> None:
    """They have nothing but a secret in common. All workers end with the same parameters."""
    at = f"{hosts[0].address}:7070"
    runs = begin(hosts, at, "-n", 2, *STRATEGIES[strategy], PROGRAM, tmp_path, 20, SYNCLINE_KEY=SECRET)
    assert [run.end() for run in runs] == [0, 0], "".join(run.text for run in runs)
    found = [np.load(tmp_path / f"worker{worker}.npy") for worker in range(4)]
    assert np.abs(found[0]).max() > 1
    for other in found[1:]:
        assert np.allclose(found[0], other, rtol=0, atol=1e-4 if strategy != "server" else 0)


@pytest.mark.slow
def test_three_hosts_of_which_only_two_start_servers(here: Loopback, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = ("-n", 1, "--servers", 2, "--server-hosts", 2, "--report", report, PROGRAM, tmp_path, 5)
    runs = begin((here, here, here), f"127.0.0.1:{free_port()}", *words, order=(2, 0, 1))
    assert [run.end() for run in runs] == [0, 0, 0], "".join(run.text for run in runs)
    assert [each["server"] for each in json.loads(report.read_text())["servers"]] == [0, 1, 2, 3]


def test_another_setting_is_refused_and_the_host_may_start_again(here: Loopback, tmp_path: Path) -> None:
    at = f"127.0.0.1:{free_port()}"
    place, words = ("--hosts", 2, "--at", at), ("-n", 1, PROGRAM, tmp_path, 3)
    first = Running(here, *place, "--host-rank", 0, "--sync", "ssp:3", *words)
    wrong = Running(here, *place, "--host-rank", 1, "--sync", "ssp:4", *words)
    assert wrong.end() == 2, wrong.text
    assert "--sync: is 'ssp:4' on host 1, and 'ssp:3' on host 0; start all hosts with the same options" in wrong.text
    assert "Traceback" not in wrong.text
    right = Running(here, *place, "--host-rank", 1, "--sync", "ssp:3", *words)
    assert (first.end(), right.end()) == (0, 0), first.text + right.text


@pytest.mark.slow
def test_two_hosts_with_one_rank(here: Loopback, tmp_path: Path) -> None:
    at, program = f"127.0.0.1:{free_port()}", waiting(tmp_path)
    runs = begin((here, here), at, "-n", 2, program, tmp_path)
    both_train(runs)
    again = Running(here, "--hosts", 2, "--host-rank", 1, "--at", at, "-n", 2, program, tmp_path)
    assert again.end() == 1, again.text
    assert "host 1 is connected already: give every host another --host-rank" in again.text
    (tmp_path / "go").touch()
    assert [run.end() for run in runs] == [0, 0], "".join(run.text for run in runs)


@pytest.mark.slow
def test_another_key_is_refused_at_once(here: Loopback, tmp_path: Path) -> None:
    """The launcher does not try again, as it does while nobody listens."""
    for name in ("key", "other"):
        make_key_file(tmp_path / name)
    at, program = f"127.0.0.1:{free_port()}", waiting(tmp_path)
    place = ("--hosts", 2, "--at", at, "-n", 1)
    first = Running(here, *place, "--host-rank", 0, "--key-file", tmp_path / "key", program, tmp_path)
    other = Running(here, *place, "--host-rank", 1, "--key-file", tmp_path / "other", program, tmp_path)
    assert other.end() == 1, other.text
    assert "key" in other.lines[-1], other.text
    first.line_with("refused a connection")
    first.interrupt()
    assert first.end() == 130, first.text


@pytest.mark.slow
def test_hosts_say_for_which_they_wait(here: Loopback, tmp_path: Path) -> None:
    """Also while they wait, an interrupt ends them."""
    at, words = f"127.0.0.1:{free_port()}", ("-n", 1, waiting(tmp_path), tmp_path)
    second = Running(here, "--hosts", 3, "--host-rank", 1, "--at", at, *words)
    assert "no process listens there" in second.line_with("waiting for host 0 for 1")
    second.line_with("to check the way: syncline doctor --listen on host 0, and syncline doctor --join here")
    second.interrupt()
    assert second.end() == 130, second.text
    first = Running(here, "--hosts", 3, "--host-rank", 0, "--at", at, *words)
    first.line_with("waiting for host 1 and host 2 of 3 to start for 1")
    first.interrupt()
    assert first.end() == 130, first.text


@pytest.mark.parametrize("which", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_worker_that_fails_ends_the_run_everywhere(here: Loopback, tmp_path: Path, which: int) -> None:
    """Both launchers say why, whether the worker was theirs or not."""
    program = waiting(tmp_path)
    if which == 0:
        program.write_text(WAITING.replace("rank == 2", "rank == 0"))
    runs = begin((here, here), f"127.0.0.1:{free_port()}", "-n", 2, program, tmp_path)
    both_train(runs)
    (tmp_path / "fail").touch()
    assert [run.end() for run in runs] == [1, 1], "".join(run.text for run in runs)
    for run in runs:
        assert "worker 2 was told to fail" in run.lines[-1], run.text


@pytest.mark.slow
def test_a_host_that_is_interrupted_leaves(here: Loopback, tmp_path: Path) -> None:
    """Its server hands over what it holds, and the other host trains on alone."""
    runs = begin((here, here), f"127.0.0.1:{free_port()}", "-n", 2, waiting(tmp_path), tmp_path)
    both_train(runs)
    runs[1].interrupt()
    assert runs[1].end() == 130, runs[1].text
    runs[0].line_with("server 1: has left")
    (tmp_path / "go").touch()
    assert runs[0].end() == 0, runs[0].text


@pytest.mark.slow
def test_the_first_host_is_interrupted_and_the_other_ends(here: Loopback, tmp_path: Path) -> None:
    runs = begin((here, here), f"127.0.0.1:{free_port()}", "-n", 2, waiting(tmp_path), tmp_path)
    both_train(runs)
    runs[0].interrupt()
    assert [run.end() for run in runs] == [130, 1], "".join(run.text for run in runs)
    assert "host 0 was interrupted" in runs[1].lines[-1], runs[1].text


@pytest.mark.slow
def test_a_host_dies_and_starts_again(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """What its server held is restored from the workers' copies. The same command brings its workers back."""
    at, words = f"{hosts[0].address}:7070", ("-n", 2, waiting(tmp_path), tmp_path)
    runs = begin(hosts, at, *words, SYNCLINE_KEY=SECRET)
    both_train(runs)
    for pid in ip("netns", "pids", hosts[1].name).split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    runs[0].line_with("server 1: is lost; the others go on without it")
    again = Running(hosts[1], "--hosts", 2, "--host-rank", 1, "--at", at, *words, SYNCLINE_KEY=SECRET)
    again.line_with("this host has been part of the run before: its workers join it again")
    for number in (4, 5):
        again.line_with(f"[w{number}] training {number}")
    (tmp_path / "go").touch()
    assert (runs[0].end(), again.end()) == (0, 0), runs[0].text + again.text
