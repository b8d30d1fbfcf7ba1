"""Two hosts: a run listens on one, workers join from the other, and a process without the right key is refused."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine import until
from netns import Host, ip, two_hosts
from remote import Running
from syncline.engines.net.keys import make_key_file

COUNTING = """
import sys
from pathlib import Path
from time import sleep
import numpy as np
import syncline

# Updates of -1 by sgd:1: each parameter counts the updates that were applied to it.
directory, wait_for = Path(sys.argv[1]), sys.argv[2]
session = syncline.connect()
tables = session.tables({"w": np.zeros(3000)}, sync="ssp:2", rule="sgd:1", bucket="4KiB")
sent = 0
while True:
    session.update("w", np.full(3000, -1))
    session.clock()
    session.sync()
    sent += 1
    if sent == 5:
        (directory / f"training{session.rank}").touch()
        print("training", flush=True)
    if sent >= 20 and (directory / wait_for).exists():
        break
    sleep(0.01)  # others start meanwhile
session.close()
(directory / f"sent{session.rank}").write_text(f"{sent} {tables['w'].min():.0f} {tables['w'].max():.0f}")
"""


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with two_hosts() as pair:
        yield pair


def start_run(
    host: Host, directory: Path, wait_for: str, *options: object, listen: str = "", program: str = COUNTING
) -> tuple[Running, list[str]]:
    """A run that trains until the file `wait_for` is there; the words that others paste to join it."""
    (directory / "program.py").write_text(program)
    run = Running(
        host, "-n", 2, "--servers", 2, "--listen", f"{listen or host.address}:0", "--key-file", directory / "key",
        "--report", directory / "report.json", *options, directory / "program.py", directory, wait_for,
    )  # fmt: skip
    words = run.line_with("more workers can join").partition("syncline run ")[2].split()
    return run, words


@pytest.mark.parametrize(
    ("listen", "options"),
    [pytest.param("", [], marks=pytest.mark.slow), ("0.0.0.0", ["--lane", "tcp"])],
    ids=["one", "all"],
)
def test_workers_join_from_another_host(
    hosts: tuple[Host, Host], tmp_path: Path, listen: str, options: list[str]
) -> None:
    """The run listens on one address, or on all; its own workers share memory, or talk TCP as well."""
    here, there = hosts
    run, words = start_run(here, tmp_path, "training2", *options, listen=listen)
    assert words[:2] == ["--join", words[1]]
    assert words[1].startswith(f"{here.address}:")
    assert oct(os.stat(tmp_path / "key").st_mode & 0o777) == "0o600"

    pasted = [str(tmp_path / "program.py") if word == "PROGRAM" else word for word in words]
    join = Running(there, *pasted, tmp_path, "training2")

    assert join.end() == 0, join.text
    assert run.end() == 0, run.text
    counts = [(tmp_path / f"sent{rank}").read_text().split() for rank in range(3)]
    total = str(sum(int(sent) for sent, _, _ in counts))
    assert [(least, most) for _, least, most in counts] == [(total, total)] * 3
    report = json.loads((tmp_path / "report.json").read_text())
    assert [each["updates"] for each in report["servers"]] == [int(total)] * 2


@pytest.mark.parametrize(
    "options", [[], pytest.param(["--lane", "tcp"], marks=pytest.mark.slow)], ids=["both lanes", "tcp"]
)
def test_a_server_joins_from_another_host_and_leaves(
    hosts: tuple[Host, Host], tmp_path: Path, options: list[str]
) -> None:
    """It takes over its part, then all of it: workers that shared memory with their servers go on by TCP, and back."""
    here, there = hosts
    run, words = start_run(here, tmp_path, "go", *options)
    for worker in ("w0", "w1"):
        run.line_with(f"[{worker}] training")
    more = Running(there, *words[: words.index("-n")], "-n", 0, "--servers", 1)
    run.line_with("server 2: has joined")
    for number in (0, 1):
        os.kill(server_of(tmp_path, number), signal.SIGTERM)
        run.line_with(f"server {number}: has left")

    back = Running(here, *words[: words.index("-n")], "-n", 0, "--servers", 1)
    run.line_with("server 3: has joined")
    more.process.send_signal(signal.SIGTERM)
    assert more.end() == 130, more.text
    run.line_with("server 2: has left")
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text
    assert back.end() == 0, back.text
    counts = [(tmp_path / f"sent{rank}").read_text().split() for rank in range(2)]
    total = str(sum(int(sent) for sent, _, _ in counts))
    assert [(least, most) for _, least, most in counts] == [(total, total)] * 2
    report = json.loads((tmp_path / "report.json").read_text())
    assert {each["server"]: each["left"] for each in report["servers"]} == {0: True, 1: True, 2: True, 3: False}


@pytest.mark.parametrize("lane", [[], pytest.param(["--lane", "tcp"], marks=pytest.mark.slow)], ids=["both", "tcp"])
def test_a_node_of_a_tree_joins_from_another_host_with_a_worker(
    hosts: tuple[Host, Host], tmp_path: Path, lane: list[str]
) -> None:
    """The nodes of the first host leave afterwards: the one that joined holds what they held, and serves all."""
    here, there = hosts
    program = COUNTING.replace(', sync="ssp:2", rule="sgd:1", bucket="4KiB"', "").replace("np.full(3000, -1)", "SIX")
    program = program.replace("sent = 0\n", "sent = 0\nSIX = np.full(3000, 6)\n")
    strategy = ("--strategy", "tree:topology=star,consistency=ssp:2,durable=true")
    run, words = start_run(here, tmp_path, "go", *strategy, *lane, program=program)
    for worker in ("w0", "w1"):
        run.line_with(f"[{worker}] training")
    more = Running(there, *words[: words.index("-n")], "-n", 1, "--servers", 1, tmp_path / "program.py", tmp_path, "go")
    run.line_with("server 2: has joined")
    more.line_with("[w2] training")
    for number in (0, 1):
        os.kill(server_of(tmp_path, number), signal.SIGTERM)
        run.line_with(f"server {number}: has left")
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text
    assert more.end() == 0, more.text
    sent = [(tmp_path / f"sent{rank}").read_text().split() for rank in range(3)]
    assert len({(least, most) for _, least, most in sent}) == 1
    total = sum(int(count) for count, _, _ in sent)
    (low, high), (_, least, most) = (2 * total, 6 * total), sent[0]
    assert least == most
    assert low - 1 <= int(most) <= high, "each update counts as 6 by the number of live workers"


def test_a_server_that_a_worker_cannot_reach_gets_nothing(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    here, there = hosts
    run, words = start_run(here, tmp_path, "go", "--lane", "shm")
    for worker in ("w0", "w1"):
        run.line_with(f"[{worker}] training")
    more = Running(there, *words[: words.index("-n")], "-n", 0, "--servers", 1)
    assert more.end() == 1, more.text
    assert "cannot reach it" in more.text
    assert "server 2 is on another host" in run.line_with("server 2: gets no part of the model")
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text


def server_of(directory: Path, number: int) -> int:
    """The process of a server that a run in this directory was started with."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_text().split("\0")
            mine = f"SYNCLINE_KEY_FILE={directory / 'key'}" in environment_of(int(path.parent.name))
            if mine and words[1:4] == ["-m", "syncline.engines.server", str(number)]:
                return int(path.parent.name)
    raise AssertionError(f"there is no server {number}")


@pytest.mark.parametrize("option", ["--listen", "--join"])
def test_off_loopback_nothing_starts_without_a_key(hosts: tuple[Host, Host], tmp_path: Path, option: str) -> None:
    (tmp_path / "program.py").write_text(COUNTING)
    port = 0 if option == "--listen" else 7070
    refused = Running(hosts[0], option, f"{hosts[0].address}:{port}", tmp_path / "program.py", tmp_path, "never")
    assert refused.end() == 2
    assert "--key-file" in refused.text
    assert "Traceback" not in refused.text
    assert len(refused.lines) == 1, refused.text


def test_another_key_is_refused_and_the_run_goes_on(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    here, there = hosts
    make_key_file(tmp_path / "other")
    run, words = start_run(here, tmp_path, "go")
    for worker in ("w0", "w1"):
        run.line_with(f"[{worker}] training")

    stranger = Running(
        there, "--join", words[1], "--key-file", tmp_path / "other", "-n", 1, tmp_path / "program.py", tmp_path, "go"
    )
    assert stranger.end() == 1, stranger.text
    assert "different keys" in stranger.text  # it was refused at once, and did not wait for a timeout
    assert "Traceback" not in stranger.text
    assert "key" in run.line_with("refused a connection")

    (tmp_path / "go").touch()
    assert run.end() == 0, run.text
    assert not (tmp_path / "sent2").exists()
    assert json.loads((tmp_path / "report.json").read_text())["updates"] >= 2 * 2 * 20


@pytest.mark.slow
def test_a_host_that_vanishes_is_found_though_something_was_sent_to_it(
    hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    """The cable is pulled, and before anybody knows, a death on the other side makes a view that is never delivered."""
    here, there = hosts
    run, words = start_run(here, tmp_path, "go")
    pasted = [str(tmp_path / "program.py") if word == "PROGRAM" else word for word in words]
    Running(there, *pasted, tmp_path, "go")
    until((tmp_path / "training2").exists, "the joiner's first steps")
    there.link("down")
    local = [pid for pid in processes_of(tmp_path / "program.py") if "SYNCLINE_WORKER=1" in environment_of(pid)]
    os.kill(local[0], signal.SIGKILL)

    assert "no longer acknowledges data" in run.line_with("worker 2: ")
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text
    assert "w1 ended by signal 9" in run.text


@pytest.mark.slow
def test_the_others_go_on_without_a_host_that_is_cut_off_with_its_server(
    hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    here, there = hosts
    run, words = start_run(here, tmp_path, "go")
    for worker in ("w0", "w1"):
        run.line_with(f"[{worker}] training")
    more = Running(there, *words[: words.index("-n")], "-n", 0, "--servers", 1)
    run.line_with("server 2: has joined")
    there.link("down")
    assert more.end() == 1, more.text
    assert f"cut off from the run at {words[1]}: nothing has come from it for 3" in more.text, more.text
    run.line_with("server 2: is lost; the others go on without it")
    run.line_with("restored from the workers' copies")
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text


@pytest.mark.slow
def test_a_short_cut_of_the_network_ends_nothing(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """The run says that a host is silent, and that it is back; every update is applied exactly once."""
    here, there = hosts
    run, words = start_run(here, tmp_path, "go")
    pasted = [str(tmp_path / "program.py") if word == "PROGRAM" else word for word in words]
    join = Running(there, *pasted, tmp_path, "go")
    until((tmp_path / "training2").exists, "the joiner's first steps")
    there.link("down")
    run.line_with(f"the launcher that joined from {there.address} has sent nothing for 10 s")
    there.link("up")
    run.line_with("on the same connection")
    (tmp_path / "go").touch()
    assert join.end() == 0, join.text
    assert run.end() == 0, run.text
    counts = [(tmp_path / f"sent{rank}").read_text().split() for rank in range(3)]
    total = str(sum(int(sent) for sent, _, _ in counts))
    assert [(least, most) for _, least, most in counts] == [(total, total)] * 3


@pytest.mark.slow
def test_a_host_on_which_everything_is_stopped_is_not_waited_for(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """Its kernel acknowledges data, and nobody there can report: its launcher is stopped as well."""
    here, there = hosts
    run, words = start_run(here, tmp_path, "go")
    pasted = [str(tmp_path / "program.py") if word == "PROGRAM" else word for word in words]
    Running(there, *pasted, tmp_path, "go")
    until((tmp_path / "training2").exists, "the joiner's first steps")
    stopped = [int(pid) for pid in ip("netns", "pids", there.name).split()]
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        run.line_with("waiting for worker 2 for")
        run.line_with("worker 2: stopped for more than 10 s")
        (tmp_path / "go").touch()
        assert run.end() == 0, run.text
    finally:
        for pid in stopped:  # nobody else can end those who are stopped all together
            os.kill(pid, signal.SIGKILL)


def processes_of(program: Path) -> list[int]:
    """Those that run this program."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(program) in path.read_text().split("\0")[1:2]:
                found.append(int(path.parent.name))
    return found


def environment_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")
