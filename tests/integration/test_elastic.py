"""Servers that come and go while real processes train: nothing is lost, nothing is applied twice, and nobody stops.

Under bsp the final parameters are those of a run with a fixed number of servers, to the bit.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

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
iterations, pauses = int(sys.argv[1]), sys.argv[2:]
while session.iteration < iterations:
    for name, update in draw(rank, session.iteration).items():
        session.update(name, update)
    session.clock()
    session.sync()
    if session.iteration == 3 and rank == 0:
        say("under way")
    if pauses and session.iteration == iterations - 20:  # the last iterations are for after all that happens
        say("nearly done")
        while not there(pauses[0]):
            step_before_the_end = time.sleep(0.002)
session.close()
np.save(f"final{rank}.npy", np.concatenate([table.ravel() for table in tables.values()]))
"""
"""Each worker draws its updates from its number and the iteration."""

ITERATIONS = 1500
SIZE = 13_007


def finals(directory: Path, workers: int = 3) -> Values:
    """The final parameters, which all workers must agree on."""
    found = [np.load(directory / f"final{rank}.npy") for rank in range(workers)]
    for each in found[1:]:
        assert np.array_equal(each.view(np.uint32), found[0].view(np.uint32))
    return found[0]  # type: ignore[no-any-return]


@contextmanager
def listening(directory: Path, body: str, *options: str, words: tuple[str, ...] = ()) -> Iterator[tuple[Run, str]]:
    """A run that others can join, and where."""
    with running(directory, body, "--listen", "127.0.0.1:0", *options, words=words) as run:
        yield run, run.hears(r"--join (\S+)")[1]


def moved(run: Run, numbers: dict[int, bool]) -> None:
    for number, comes in numbers.items():
        run.hears(f"server {number}: has {'joined' if comes else 'left'}")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Values:
    """What the drawn updates come to on servers that stay."""
    directory = tmp_path_factory.mktemp("undisturbed")
    with running(directory, DRAWN, "-n3", "--bucket", "4KiB", words=(str(ITERATIONS),)) as run:
        assert run.ends() == 0, run.story()
    return finals(directory)


@pytest.mark.parametrize("lane", ["shm", "tcp"])
def test_servers_come_and_go_and_bsp_does_not_notice_it(tmp_path: Path, undisturbed: Values, lane: str) -> None:
    options = ("-n3", "--servers", "2", "--bucket", "4KiB", "--lane", lane, "--report", "report.json")
    with listening(tmp_path, DRAWN, *options, words=(str(ITERATIONS), "go")) as (run, where):
        run.hears("under way")
        with running(tmp_path, "", "--join", where, "-n0", "--servers", "2", "--lane", lane) as more:
            run.hears(r"server [23]: has joined", 2)
            run.kill(run.server(0), signal.SIGTERM)
            run.hears("server 0: has left")
            more.kill(more.process.pid, signal.SIGTERM)
            assert more.ends() == 130, more.story()
            run.hears(r"server [23]: has left", 2)
            assert run.find("server0") is None
            run.touch("go")
        assert run.ends() == 0, run.story()
    final = finals(tmp_path)
    assert np.array_equal(final.view(np.uint32), undisturbed.view(np.uint32))
    report = json.loads((tmp_path / "report.json").read_text())
    assert [(each["server"], each["left"]) for each in report["servers"]] == [
        (0, True), (1, False), (2, True), (3, True),
    ]  # fmt: skip
    assert report["train_progress"] == ITERATIONS
