"""Servers that come and go while real processes train: nothing is lost, nothing is applied twice, and nobody stops.

Under bsp the final parameters are those of a run with a fixed number of servers, to the bit.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import lanes
from engine import Run, running
from syncline.layout import Values

DRAWN = """
shapes = {"w": (90, 100), "v": (4000,), "b": (7,)}

def draw(*key):
    random = np.random.default_rng(key)
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}

session = syncline.connect()
rank = session.rank
tables = session.tables(draw(rank))
while not there("end") or session.iteration < int(Path("end").read_text()):
    if rank == 0 and there("go") and not there("end"):  # nobody is further than the next iteration
        Path("end.new").write_text(str(session.iteration + 20))
        os.rename("end.new", "end")
    for name, update in draw(rank, session.iteration).items():
        session.update(name, update)
    session.clock()
    session.sync()
    if session.iteration == 3:
        say("under way")
session.close()
np.save(f"final{rank}.npy", np.concatenate([table.ravel() for table in tables.values()]))
"""
"""Each worker draws its updates from its number and the iteration. The end is a file, or comes soon after `go`."""

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
def listening(
    directory: Path, body: str, *options: str, words: tuple[str, ...] = (), **environment: str
) -> Iterator[tuple[Run, str]]:
    """A run that others can join, and where."""
    with running(directory, body, "--listen", "127.0.0.1:0", *options, words=words, **environment) as run:
        yield run, run.hears(r"--join (\S+)")[1]


@contextmanager
def more_servers(run: Run, where: str, count: int = 1, *options: str) -> Iterator[Run]:
    """Servers that join a run."""
    with running(run.directory, "", "--join", where, "-n0", "--servers", str(count), *options) as more:
        yield more


def leaves(more: Run) -> None:
    """A host that has joined goes, and takes its servers with it."""
    more.kill(more.process.pid, signal.SIGTERM)
    assert more.ends() == 130, more.story()


def counted(run: Run, workers: int) -> None:
    """All updates of all workers are in, each once."""
    run.hears(r"sent \d+", workers)
    said = [line.split() for line in run.out.splitlines() if "sent" in line]
    total = sum(int(words[2]) for words in said)
    assert [words[4:] for words in said] == [[str(total)] * 2] * workers, run.out


# To the bit.


def undisturbed(directory: Path, end: str, *options: str) -> Values:
    """What as many drawn updates come to on a server that stays."""
    directory.mkdir()
    (directory / "end").write_text(end)
    with running(directory, DRAWN, "-n3", *options) as run:
        assert run.ends() == 0, run.story()
    return finals(directory)


@pytest.mark.parametrize("lane", ["shm", "tcp"])
@pytest.mark.parametrize(
    "how",
    [
        (),
        ("--rule", "fasgd:0.01"),
        ("--codec", "fp16"),
        pytest.param(("--rule", "momentum:0.01"), marks=pytest.mark.slow),
    ],
    ids=["changes", "fasgd", "fp16", "momentum"],
)
def test_servers_come_and_go_and_bsp_does_not_notice_it(tmp_path: Path, lane: str, how: tuple[str, ...]) -> None:
    options = ("--bucket", "4KiB", "--lane", lane, *how)
    outputs = ("--report", "report.json", "--trace", ".")
    with listening(tmp_path, DRAWN, "-n3", "--servers", "2", *options, *outputs) as (run, where):
        run.hears("under way", 3)
        with more_servers(run, where, 2, "--lane", lane) as more:
            run.hears(r"server [23]: has joined", 2)
            run.kill(run.server(0), signal.SIGTERM)
            run.hears("server 0: has left")
            leaves(more)
            run.hears(r"server [23]: has left", 2)
            assert run.find("server0") is None
        run.touch("go")
        assert run.ends() == 0, run.story()

    final, end = finals(tmp_path), (tmp_path / "end").read_text()
    assert np.array_equal(final.view(np.uint32), undisturbed(tmp_path / "alone", end, *options).view(np.uint32))
    report = json.loads((tmp_path / "report.json").read_text())
    left = {each["server"]: each["left"] for each in report["servers"]}
    assert left == {0: True, 1: False, 2: True, 3: True}
    assert report["train_progress"] == int(end)
    assert moved_under_load(lanes.read_trace(tmp_path / "server1.csv"))


def moved_under_load(trace: list[lanes.Line]) -> int:
    """How often a server went over from training to moving and back, with pushes before and after."""
    kinds = [line.kind for line in trace if line.kind in ("push", "handover")]
    return sum(pair == ("handover", "push") for pair in pairwise(kinds))


# Nothing lost, nothing twice.


@pytest.mark.parametrize("sync", ["asp", pytest.param("ssp:2", marks=pytest.mark.slow), "bsp"])
@pytest.mark.parametrize("lane", ["shm", "tcp"])
def test_every_update_counts_once(tmp_path: Path, lane: str, sync: str) -> None:
    options = ("-n3", "--sync", sync, "--rule", "sgd:1", "--bucket", "2KiB", "--lane", lane)
    with listening(tmp_path, COUNTING, *options) as (run, where):
        run.hears("training", 3)
        with more_servers(run, where, 1, "--lane", lane) as first:
            run.hears("server 1: has joined")
            with more_servers(run, where, 1, "--lane", lane) as second:
                run.hears("server 2: has joined")
                leaves(first)
                run.hears("server 1: has left")
                run.kill(run.server(0), signal.SIGTERM)
                run.hears("server 0: has left")
                run.touch("go")
                assert run.ends() == 0, run.story()
                assert second.ends() == 0, second.story()
    if sync == "bsp":  # a round is one mean, and whoever stops first leaves fewer to it
        return
    counted(run, 3)


def test_who_has_left_reads_the_end_from_servers_that_came_later(tmp_path: Path) -> None:
    """Worker 0 is done early, and waits for the others; meanwhile every server that it knew goes."""
    options = ("-n2", "--sync", "asp", "--rule", "sgd:1", "--bucket", "2KiB")
    with listening(tmp_path, COUNTING, *options, words=("early", "late")) as (run, where):
        run.hears("training", 2)
        run.touch("early")
        with more_servers(run, where) as more:
            run.hears("server 1: has joined")
            run.kill(run.server(0), signal.SIGTERM)
            run.hears("server 0: has left")
            run.touch("late")
            assert run.ends() == 0, run.story()
            assert more.ends() == 0, more.story()
    counted(run, 2)


def test_a_server_that_comes_before_the_workers_is_given_its_part_when_they_train(tmp_path: Path) -> None:
    waiting = "while not there('begin'):\n    time.sleep(0.002)\n" + COUNTING
    options = ("-n2", "--sync", "asp", "--rule", "sgd:1", "--report", "report.json")
    with listening(tmp_path, waiting, *options) as (run, where), more_servers(run, where) as more:
        run.hears("server 1: has come")
        run.touch("begin")
        run.hears("server 1: has joined")
        run.kill(run.server(0), signal.SIGTERM)
        run.hears("server 0: has left")
        run.touch("go")
        assert run.ends() == 0, run.story()
        assert more.ends() == 0, more.story()
    counted(run, 2)
    report = json.loads((tmp_path / "report.json").read_text())
    assert [each["left"] for each in report["servers"]] == [True, False]


def test_workers_and_servers_join_together(tmp_path: Path) -> None:
    options = ("-n1", "--sync", "asp", "--rule", "sgd:1")
    with listening(tmp_path, COUNTING, *options) as (run, where):
        run.hears("training")
        with running(tmp_path, COUNTING, "--join", where, "-n2", "--servers", "1") as more:
            more.hears("training", 2)
            run.hears("server 1: has joined")
            run.touch("go")
            assert more.ends() == 0, more.story()
        assert run.ends() == 0, run.story()
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
session.close()
for model in models:
    say("sent", sent, "has", int(model.arrays["w"].min()), int(model.arrays["w"].max()))
"""


def test_a_server_has_a_part_of_every_model(tmp_path: Path) -> None:
    with listening(tmp_path, TWO_MODELS, "-n2", "--bucket", "1KiB", "--report", "report.json") as (run, where):
        run.hears("training", 2)
        with more_servers(run, where) as more:
            run.hears("server 1: has joined")
            run.kill(run.server(0), signal.SIGTERM)
            run.hears("server 0: has left")
            run.touch("go")
            assert run.ends() == 0, run.story()
            assert more.ends() == 0, more.story()
    said = [line.split() for line in run.out.splitlines() if "sent" in line]
    total = str(sum(int(words[2]) for words in said) // 2)
    assert [words[4:] for words in said] == [[total] * 2] * 4
    report = json.loads((tmp_path / "report.json").read_text())
    assert sorted((each["server"], each["model"], each["left"]) for each in report["servers"]) == [
        (0, "first", True), (0, "second", True), (1, "first", False), (1, "second", False),
    ]  # fmt: skip


# Deaths, and refusals.


def test_a_worker_that_dies_during_a_move_costs_nobody_anything(tmp_path: Path) -> None:
    """Who is to take over is stopped, so that the move cannot end; then a worker is killed."""
    options = ("-n3", "--servers", "2", "--bucket", "4KiB")
    with running(tmp_path, DRAWN, *options, SYNCLINE_PATIENCE="120") as run:
        run.hears("under way", 3)
        taker = run.server(1)
        run.kill(taker, signal.SIGSTOP)
        run.kill(run.server(0), signal.SIGTERM)
        run.hears("server 0: is leaving")
        run.kill(run.worker(2))
        run.hears("w2 ended by signal 9")
        run.kill(taker, signal.SIGCONT)
        run.hears("server 0: has left")
        run.touch("go")
        assert run.ends() == 0, run.story()
    finals(tmp_path, 2)


def test_the_last_server_cannot_leave(tmp_path: Path) -> None:
    with running(tmp_path, COUNTING, "-n2", "--sync", "asp", "--rule", "sgd:1") as run:
        run.hears("training", 2)
        run.kill(run.server(0), signal.SIGTERM)
        run.hears("server 0: cannot leave: it is the last one, and somebody must hold the model")
        run.touch("go")
        assert run.ends() == 0, run.story()
    counted(run, 2)


def test_a_server_that_has_joined_and_dies_ends_the_run(tmp_path: Path) -> None:
    with listening(tmp_path, COUNTING, "-n2", "--servers", "1", "--report", "report.json", "--trace", ".") as (
        run,
        where,
    ):
        run.hears("training", 2)
        with more_servers(run, where) as more:
            run.hears("server 1: has joined")
            run.kill(run.server(0), signal.SIGTERM)
            run.hears("server 0: has left")
            more.kill(more.server_that_joined())
            assert run.ends() == 1, run.story()
            assert "server1 is gone" in run.err
            assert more.ends() == 1, more.story()


def test_a_server_gets_no_part_between_different_sync_models(tmp_path: Path) -> None:
    options = ("-n2", "--servers", "2", "--sync", "asp", "--sync", "ssp:2", "--rule", "sgd:1")
    with listening(tmp_path, COUNTING, *options) as (run, where):
        run.hears("training", 2)
        with more_servers(run, where) as more:
            assert more.ends() == 1, more.story()
            assert "different sync models" in more.err
        run.hears("server 2: holds nothing: its range would come from servers with different sync models")
        run.kill(run.server(1), signal.SIGTERM)  # its part goes on under the model of whoever takes it
        run.hears("server 1: has left")
        run.touch("go")
        assert run.ends() == 0, run.story()
    counted(run, 2)


def test_no_worker_and_no_server_is_nobody(tmp_path: Path) -> None:
    with running(tmp_path, "", "--join", "127.0.0.1:1", "-n0") as nobody:
        assert nobody.ends() == 2
        assert "--servers" in nobody.err


def test_whoever_brings_nobody_or_no_program_is_told(tmp_path: Path) -> None:
    with running(tmp_path, "", "--join", "127.0.0.1:1", "-n0", "--servers", "-1") as less:
        assert less.ends() == 2
        assert "--servers" in less.err
    done = subprocess.run(lanes.command("-n", 0), env=lanes.environment(), capture_output=True, text=True)
    assert done.returncode == 2
    assert "PROGRAM" in done.stderr
    done = subprocess.run(
        lanes.command("--join", "127.0.0.1:1", "-n", 1), env=lanes.environment(), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "PROGRAM" in done.stderr
