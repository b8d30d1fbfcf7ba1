"""Servers that join and leave while real processes train: no update is lost or applied twice, and no worker stops.

Under bsp the final parameters are those of a run with a fixed number of servers, to the bit.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

import lanes
from commands import refused
from engine import Run, running
from samples import sampled
from syncline.layout import Values

DRAWN = """
from lanes import drawn_updates, first_values, vector

session = syncline.connect()
rank = session.rank
tables = session.tables(first_values(rank))
told = np.zeros(vector(tables).size)
rest = int(sys.argv[1]) if sys.argv[1:] else 0
while not there("end") or session.iteration < int(Path("end").read_text()) + rest:
    if rank == 0 and there("go") and not there("end"):  # nobody is further than the next iteration
        Path("end.new").write_text(str(session.iteration + 20))
        os.rename("end.new", "end")
    ended = there("end") and session.iteration >= int(Path("end").read_text())
    for name, update in drawn_updates(rank, session.iteration).items():
        session.update(name, 0 * update if ended else update)
    session.clock()
    session.sync()
    told += vector(tables)
    if not there("end"):
        time.sleep(0.01)  # servers take their time, and all of this is done once more without them
    if session.iteration == 3:
        say("training")
np.save(f"told{rank}.npy", told)
session.close()
np.save(f"final{rank}.npy", vector(tables))
"""
"""Each worker draws its updates from its number and the iteration. The end is a file, or comes soon after `go`; then it
hands in as many updates of zero as its argument says. It sums up what it is told in each iteration."""

COUNTING = """
# Updates of -1 by sgd:1: each parameter counts the updates that were applied to it.
begin(w=5000, b=3)
sent = 0
stop = sys.argv[1 + rank] if len(sys.argv) > 1 + rank else "go"
while not there(stop):
    step(-1)
    sent += 1
    if sent == 5:
        say("training")
    time.sleep(0.01)  # others start meanwhile
session.close()
values = np.concatenate([table.ravel() for table in tables.values()])
say("sent", sent, "has", int(values.min()), int(values.max()))
"""


def finals(directory: Path, workers: int = 3) -> Values:
    """The final parameters, which all workers must agree on."""
    found = [np.load(directory / f"final{rank}.npy") for rank in range(workers)]
    for each in found[1:]:
        assert np.array_equal(each.view(np.uint32), found[0].view(np.uint32))
    return found[0]  # type: ignore[no-any-return]


@contextmanager
def training(directory: Path, body: str, workers: int, *options: str, words: tuple[str, ...] = ()) -> Iterator[Run]:
    """A run that others can join, whose workers train."""
    options = (f"-n{workers}", "--listen", "127.0.0.1:0", *options)
    with running(directory, body, *options, words=words) as run:
        run.hears("training", workers)
        yield run


@contextmanager
def more_servers(run: Run, *numbers: int, lane: str = "") -> Iterator[Run]:
    """Servers that join a run and are given these numbers; without numbers, one that need not be given its part."""
    options = ("-n0", "--servers", str(len(numbers) or 1), *(("--lane", lane) if lane else ()))
    with running(run.directory, "", "--join", run.hears(r"--join (\S+)")[1], *options) as more:
        for number in numbers:
            run.hears(f"server {number}: has joined")
        yield more


def let_go(run: Run, number: int) -> None:
    """Ask a server that the run was started with to leave, and wait until it has."""
    run.kill(run.server(number), signal.SIGTERM)
    run.hears(f"server {number}: has left")


def leaves(more: Run) -> None:
    """A host that has joined leaves, together with its servers."""
    more.kill(more.process.pid, signal.SIGTERM)
    assert more.ends() == 130, more.story()


def end(*runs: Run) -> None:
    """Let the workers finish, and with them everything that has joined."""
    runs[0].touch("go")
    for run in runs:
        assert run.ends() == 0, run.story()


def counted(run: Run, workers: int, *, rounds: bool = False) -> None:
    """All updates of all workers are in, each once; `rounds`: those of a round count as one."""
    run.hears(r"sent \d+", workers)
    said = [line.split() for line in run.out.splitlines() if "sent" in line]
    total = (max if rounds else sum)(int(words[2]) for words in said)
    assert [words[4:] for words in said] == [[str(total)] * 2] * workers, run.out


# To the bit.


def undisturbed(directory: Path, last: str, *options: str) -> Values:
    """What as many drawn updates come to on a server that stays."""
    directory.mkdir()
    (directory / "end").write_text(last)
    with running(directory, DRAWN, "-n3", *options) as run:
        assert run.ends() == 0, run.story()
    return finals(directory)


LANES = ("shm", "tcp")

HOW: dict[str, tuple[str, ...]] = {
    "changes": (),
    "fasgd": ("--rule", "fasgd:0.01"),
    "fp16": ("--codec", "fp16"),
    "replies of topk": ("--reply-codec", "topk:0.1"),
    "replies of onebit": ("--reply-codec", "onebit"),
    "momentum": ("--rule", "momentum:0.01"),
}


@pytest.mark.parametrize(("how", "lane"), sampled(product(HOW, LANES), ("fasgd", "tcp")))
def test_under_bsp_servers_that_join_and_leave_do_not_change_the_result(tmp_path: Path, lane: str, how: str) -> None:
    options = ("--bucket", "4KiB", "--lane", lane, *HOW[how])
    outputs = ("--report", "report.json", "--trace", ".")
    with training(tmp_path, DRAWN, 3, "--servers", "2", *options, *outputs) as run:
        with more_servers(run, 2, 3, lane=lane) as more:
            let_go(run, 0)
            leaves(more)
            run.hears(r"server [23]: has left", 2)
            assert run.find("server0") is None
        end(run)

    final, last = finals(tmp_path), (tmp_path / "end").read_text()
    assert np.array_equal(final.view(np.uint32), undisturbed(tmp_path / "alone", last, *options).view(np.uint32))
    report = json.loads((tmp_path / "report.json").read_text())
    left = {each["server"]: each["left"] for each in report["servers"]}
    assert left == {0: True, 1: False, 2: True, 3: True}
    assert report["train_progress"] == int(last)
    assert moved_under_load(lanes.read_trace(tmp_path / "server1.csv"))


def moved_under_load(trace: list[lanes.Line]) -> int:
    """How often a server went over from training to moving and back, with pushes before and after."""
    kinds = [line.kind for line in trace if line.kind in ("push", "handover")]
    return sum(pair == ("handover", "push") for pair in pairwise(kinds))


REST = {"topk:0.1": 0.0001, "onebit": 0.02}


@pytest.mark.parametrize(("codec", "lane"), sampled(product(REST, LANES)))
def test_nothing_is_lost_of_means_that_come_back_in_few_bytes(tmp_path: Path, lane: str, codec: str) -> None:
    """What a reply leaves out is part of the next, wherever its bucket is by then. Rounds of zero bring it, up to a
    rest: about 0.4 of each value before them, and so much less after a hundred."""
    options = ("--servers", "2", "--bucket", "4KiB", "--lane", lane, "--mode", "gradients", "--reply-codec", codec)
    with training(tmp_path, DRAWN, 3, *options, words=("100",)) as run, more_servers(run, 2, lane=lane) as more:
        let_go(run, 0)
        end(run, more)
    told = [np.load(tmp_path / f"told{rank}.npy") for rank in range(3)]
    assert all(np.array_equal(each, told[0]) for each in told)
    rounds = range(int((tmp_path / "end").read_text()))
    means = sum(lanes.vector(lanes.drawn_updates(rank, i)).astype(float) / 3 for rank in range(3) for i in rounds)
    assert np.abs(told[0] - means).mean() < REST[codec]


# Nothing lost, nothing twice.


@pytest.mark.parametrize(
    ("lane", "sync"),
    sampled(product(LANES, ("asp", "ssp:2", "bsp", "psp:sample=1,s=1")), ("tcp", "bsp")),
)
def test_every_update_counts_once(tmp_path: Path, lane: str, sync: str) -> None:
    rule = "dc-asgd:1,lam=0" if sync.startswith("psp") else "sgd:1"  # the same, but with copies that move as well
    options = ("--sync", sync, "--rule", rule, "--bucket", "2KiB", "--lane", lane)
    with (
        training(tmp_path, COUNTING, 3, *options) as run,
        more_servers(run, 1, lane=lane) as first,
        more_servers(run, 2, lane=lane) as second,
    ):
        leaves(first)
        run.hears("server 1: has left")
        let_go(run, 0)
        end(run, second)
    counted(run, 3, rounds=sync == "bsp")


def test_a_worker_that_left_reads_the_final_parameters_from_later_servers(tmp_path: Path) -> None:
    """Worker 0 is done early, and waits for the others; meanwhile every server that it knew goes."""
    options = ("--sync", "asp", "--rule", "sgd:1", "--bucket", "2KiB")
    with training(tmp_path, COUNTING, 2, *options, words=("early", "go")) as run:
        run.touch("early")
        with more_servers(run, 1) as more:
            let_go(run, 0)
            end(run, more)
    counted(run, 2)


@pytest.mark.slow
def test_a_server_that_comes_before_the_workers_is_given_its_part_when_they_train(tmp_path: Path) -> None:
    waiting = "while not there('begin'):\n    time.sleep(0.002)\n" + COUNTING
    options = ("-n2", "--sync", "asp", "--rule", "sgd:1", "--report", "report.json", "--listen", "127.0.0.1:0")
    with running(tmp_path, waiting, *options) as run, more_servers(run) as more:
        run.hears("server 1: has connected")
        run.touch("begin")
        run.hears("server 1: has joined")
        let_go(run, 0)
        end(run, more)
    counted(run, 2)
    report = json.loads((tmp_path / "report.json").read_text())
    assert [each["left"] for each in report["servers"]] == [True, False]


@pytest.mark.slow
def test_workers_and_servers_join_together(tmp_path: Path) -> None:
    with training(tmp_path, COUNTING, 1, "--sync", "asp", "--rule", "sgd:1") as run:
        where = run.hears(r"--join (\S+)")[1]
        with running(tmp_path, COUNTING, "--join", where, "-n2", "--servers", "1") as more:
            more.hears("training", 2)
            run.hears("server 1: has joined")
            end(run, more)
    said = [line.split() for line in (run.out + more.out).splitlines() if "sent" in line]
    assert [words[4:] for words in said] == [[str(sum(int(words[2]) for words in said))] * 2] * 3


TWO_MODELS = """
session = syncline.connect()
rank = session.rank
models = [session.replica(name) for name in ("first", "second")]
for model, size in zip(models, (3000, 2000)):
    model.declare({"w": np.zeros(size, np.float32)}, {"sync": "asp", "rule": "sgd:1"})
sent = 0
while not there("go"):
    for model in models:
        model.update("w", np.full_like(model.arrays["w"], -1))
        model.clock()
        model.sync()
    sent += 1
    if sent == 5:
        say("training")
    time.sleep(0.01)  # others start meanwhile
session.close()
for model in models:
    say("sent", sent, "has", int(model.arrays["w"].min()), int(model.arrays["w"].max()))
"""


@pytest.mark.slow
def test_a_server_has_a_part_of_every_model(tmp_path: Path) -> None:
    with (
        training(tmp_path, TWO_MODELS, 2, "--bucket", "1KiB", "--report", "report.json") as run,
        more_servers(run, 1) as more,
    ):
        let_go(run, 0)
        end(run, more)
    said = [line.split() for line in run.out.splitlines() if "sent" in line]
    total = str(sum(int(words[2]) for words in said) // 2)
    assert [words[4:] for words in said] == [[total] * 2] * 4
    report = json.loads((tmp_path / "report.json").read_text())
    assert sorted((each["server"], each["model"], each["left"]) for each in report["servers"]) == [
        (0, "first", True), (0, "second", True), (1, "first", False), (1, "second", False),
    ]  # fmt: skip


# Deaths, and refusals.


def test_a_worker_that_dies_during_a_move_does_not_disturb_the_others(tmp_path: Path) -> None:
    """The server that should take over is stopped, so that the move cannot end; then a worker is killed."""
    options = ("-n3", "--servers", "2", "--bucket", "4KiB")
    with running(tmp_path, DRAWN, *options, SYNCLINE_PATIENCE="120") as run:
        run.hears("training", 3)
        taker = run.server(1)
        run.kill(taker, signal.SIGSTOP)
        run.kill(run.server(0), signal.SIGTERM)
        run.hears("server 0: is leaving")
        run.kill(run.worker(2))
        run.hears("w2 ended by signal 9")
        run.kill(taker, signal.SIGCONT)
        run.hears("server 0: has left")
        end(run)
    finals(tmp_path, 2)


def test_the_last_server_cannot_leave(tmp_path: Path) -> None:
    with training(tmp_path, COUNTING, 2, "--sync", "asp", "--rule", "sgd:1") as run:
        run.kill(run.server(0), signal.SIGTERM)
        run.hears("server 0: cannot leave: it is the last server, and one server must hold the model")
        end(run)
    counted(run, 2)


def test_a_server_that_has_joined_and_dies_as_the_last_one_ends_the_run(tmp_path: Path) -> None:
    outputs = ("--report", "report.json", "--trace", ".")
    with training(tmp_path, COUNTING, 2, *outputs) as run, more_servers(run, 1) as more:
        let_go(run, 0)
        more.kill(more.server_that_joined())
        assert run.ends() == 1, run.story()
        assert "server1 is gone" in run.err
        assert more.ends() == 1, more.story()


@pytest.mark.slow
def test_a_server_gets_no_part_between_different_sync_models(tmp_path: Path) -> None:
    options = ("--servers", "2", "--sync", "asp", "--sync", "ssp:2", "--rule", "sgd:1")
    with training(tmp_path, COUNTING, 2, *options) as run:
        with more_servers(run) as more:
            assert more.ends() == 1, more.story()
            assert "different sync models" in more.err
        run.hears("server 2: gets no part of the model: the servers that would give it a part have different")
        let_go(run, 1)  # its part continues under the model of the server that takes it
        end(run)
    counted(run, 2)


def test_zero_workers_and_zero_servers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "program.py").touch()
    assert "--servers" in refused(tmp_path, "run", "--join", "127.0.0.1:1", "-n0", "program.py")


def test_joining_without_workers_or_without_a_program_is_explained(tmp_path: Path) -> None:
    (tmp_path / "program.py").touch()
    assert "--servers" in refused(tmp_path, "run", "--join", "127.0.0.1:1", "-n0", "--servers", "-1", "program.py")
    assert "PROGRAM" in refused(tmp_path, "run", "-n", 0)
    assert "PROGRAM" in refused(tmp_path, "run", "--join", "127.0.0.1:1", "-n", 1)
