"""Strategy `tree` in real processes: nodes and workers that join a run that is already training.

A worker adds 6 to an element of its own in every iteration. A node divides that by the number of live workers. So in
the final replicas an element is 3 if two workers were there, 2 if three were, and anything else if an update is lost
or counts twice.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from engine import Run, running
from samples import sampled

MOST = 20_000
"""More iterations than any of these runs has."""

LEDGER = f"""
def last():
    # The iteration after which all end: worker 0 names it when the file `end` is there.
    if rank == 0 and there("end") and not there("last"):
        Path("last.new").write_text(str(session.iteration + 50))
        os.replace("last.new", "last")
    return int(Path("last").read_text()) if there("last") else {MOST}

session = syncline.connect()
rank = session.rank
tables = session.tables({{"w": np.full((3, {MOST}), 0.5), "b": np.zeros(300_000)}})
first = session.iteration
say("begins at", first)
while session.iteration < last():
    i = session.iteration
    entry = np.zeros((3, {MOST}))
    entry[rank, i] = 6
    session.update("w", entry)
    session.clock()
    session.sync()
    if i == first + 10:
        say("under way")
    time.sleep(0.003)
session.barrier()
count = session.iteration
session.close()
np.savez(f"final{{rank}}.npz", final=tables["w"] - 0.5, first=first, count=count)
"""

LANES = ("shm", "tcp")
KINDS = ("eventual", "ssp:3", "approximate:20", "bsp")


def options(lane: str, consistency: str, *more: str, topology: str = "chain") -> list[str]:
    settings = f"topology={topology},consistency={consistency},period=0.02,durable=true"
    return ["-n", "2", "--listen", "127.0.0.1:0", "--lane", lane, "--strategy", f"tree:{settings}", *more]


@contextmanager
def joined_by_a_node(directory: Path, given: list[str]) -> Iterator[tuple[Run, Run]]:
    """A run of two workers, and a node with a worker that joins it."""
    with running(directory, LEDGER, *given) as run:
        run.hears("under way", 2)
        place = run.hears(r"--join (\S+)")[1]
        with running(directory, LEDGER, "-n1", "--servers", "1", "--join", place) as joined:
            joined.hears("under way")
            run.hears("server 2: has joined")
            yield run, joined
            run.touch("end")
            assert joined.ends() == 0, joined.story()
            assert run.ends() == 0, run.story()
        story = run.story() + joined.story()
        assert "Traceback" not in story, story


def check_once(directory: Path, ranks: int = 3) -> None:
    """Every final replica has every update of every worker exactly once."""
    found = [np.load(directory / f"final{rank}.npz") for rank in range(ranks)]
    steps = np.arange(MOST)
    done = np.array([(each["first"] <= steps) & (steps < each["count"]) for each in found])
    assert [int(each["first"]) > 0 for each in found] == [False, False, True][:ranks]
    for each in found:
        final = each["final"][:ranks]
        assert np.allclose(final, found[0]["final"][:ranks], atol=1e-5)
        assert np.allclose(final[~done], 0, atol=1e-5)
        once = np.isclose(final, 3, atol=1e-4) | np.isclose(final, 2, atol=1e-4)
        assert once[done].all(), np.argwhere(done & ~once)[:10]
    assert np.allclose(found[0]["final"][:2, :10], 3, atol=1e-4)  # before anyone had joined
    if ranks == 3:
        assert np.isclose(found[0]["final"][2], 2, atol=1e-4).sum() > 10


CASES = [(lane, kind) for lane in LANES for kind in KINDS]


@pytest.mark.parametrize(("lane", "consistency"), sampled(CASES, ("shm", "ssp:3")))
def test_a_node_joins_with_a_worker_and_nothing_is_lost(lane: str, consistency: str, tmp_path: Path) -> None:
    with joined_by_a_node(tmp_path, options(lane, consistency)):
        pass
    check_once(tmp_path)


@pytest.mark.parametrize("lane", sampled(LANES))
def test_a_node_that_joined_is_lost_and_the_others_go_on_with_the_copy(lane: str, tmp_path: Path) -> None:
    with running(tmp_path, LEDGER, *options(lane, "ssp:3")) as run:
        run.hears("under way", 2)
        place = run.hears(r"--join (\S+)")[1]
        with running(tmp_path, LEDGER, "-n1", "--servers", "1", "--join", place) as joined:
            run.hears("server 2: has joined")
            joined.hears("under way")
            joined.kill(joined.server_that_joined())
            run.hears("server 2: is lost; the others go on without it")
            run.touch("end")
            assert joined.ends() == 1, joined.story()  # one of its processes was killed
            assert run.ends() == 0, run.story()
        assert "Traceback" not in run.story() + joined.story(), run.story() + joined.story()
    check_once(tmp_path)


@pytest.mark.parametrize(("lane", "consistency"), sampled(CASES))
def test_a_node_that_joined_is_lost_and_another_one_reads_its_checkpoint_in_the_shared_directory(
    lane: str, consistency: str, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with running(tmp_path, LEDGER, *options(lane, f"{consistency},copies={shared}")) as run:
        run.hears("under way", 2)
        place = run.hears(r"--join (\S+)")[1]
        with running(tmp_path, LEDGER, "-n1", "--servers", "1", "--join", place) as joined:
            run.hears("server 2: has joined")
            joined.hears("under way")
            joined.kill(joined.server_that_joined())
            run.hears("server 2: is lost; the others go on without it")
            run.touch("end")
            assert joined.ends() == 1, joined.story()  # one of its processes was killed
            assert run.ends() == 0, run.story()
        assert "Traceback" not in run.story() + joined.story(), run.story() + joined.story()
        assert "are lost" not in run.err
    check_once(tmp_path)
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("lane", sampled(LANES))
def test_the_first_nodes_leave_after_a_node_has_joined(lane: str, tmp_path: Path) -> None:
    with joined_by_a_node(tmp_path, options(lane, "bsp")) as (run, _):
        for number in (0, 1):
            run.kill(run.server(number), signal.SIGTERM)
            run.hears(f"server {number}: has left; the others hold what it held")
    check_once(tmp_path)


@pytest.mark.slow
def test_a_node_that_joined_leaves(tmp_path: Path) -> None:
    with joined_by_a_node(tmp_path, options("tcp", "eventual")) as (run, joined):
        joined.kill(joined.server_that_joined(), signal.SIGTERM)
        run.hears("server 2: has left; the others hold what it held")
    check_once(tmp_path)


@pytest.mark.slow
def test_a_worker_joins_without_a_node(tmp_path: Path) -> None:
    with running(tmp_path, LEDGER, *options("tcp", "ssp:3")) as run:
        run.hears("under way", 2)
        place = run.hears(r"--join (\S+)")[1]
        with running(tmp_path, LEDGER, "-n1", "--join", place) as joined:
            joined.hears("under way")
            run.touch("end")
            assert joined.ends() == 0, joined.story()
            assert run.ends() == 0, run.story()
    check_once(tmp_path)


@pytest.mark.slow
def test_a_node_joins_without_a_worker(tmp_path: Path) -> None:
    with running(tmp_path, LEDGER, *options("tcp", "bsp")) as run:
        run.hears("under way", 2)
        place = run.hears(r"--join (\S+)")[1]
        with running(tmp_path, LEDGER, "-n0", "--servers", "1", "--join", place) as joined:
            run.hears("server 2: has joined")
            run.touch("end")
            assert run.ends() == 0, run.story()
            assert joined.ends() == 0, joined.story()
    check_once(tmp_path, 2)


# Staged growth.

GROWTH = [(lane, kind) for lane in LANES for kind in ("eventual", "bsp")]


@pytest.mark.parametrize(("lane", "consistency"), sampled(GROWTH))
def test_a_run_grows_by_a_node_and_its_worker(lane: str, consistency: str, tmp_path: Path) -> None:
    settings = f"tree:topology=star,consistency={consistency},period=0.02,durable=true"
    given = ["-n2", "--lane", lane, "--strategy", settings, "--grow", "at=500ms", "--grow", "at=3600"]
    with running(tmp_path, LEDGER, *given) as run:
        run.hears("--grow at=0.5s,nodes=1,workers=1: 1 more worker")
        run.hears("server 2: has joined")
        run.hears("under way", 3)
        run.touch("end")
        run.hears("--grow at=3600s,nodes=1,workers=1: nothing was started, because the run ended before that")
        assert run.ends() == 0, run.story()
        assert "Traceback" not in run.story(), run.story()
    check_once(tmp_path)


@pytest.mark.slow
def test_what_has_joined_by_growth_starts_again(tmp_path: Path) -> None:
    settings = "tree:consistency=ssp:3,period=0.02,durable=true"
    given = ["-n2", "--strategy", settings, "--grow", "at=100ms", "--restarts", "2"]
    with running(tmp_path, LEDGER, *given) as run:
        run.hears("under way", 3)
        run.kill(run.server(2))
        run.hears("server 2: has started again, from its checkpoint")
        run.kill(run.worker(2))
        run.hears(r"w2 ended by signal 9 \(SIGKILL\); it is restarted")
        run.hears("begins at", 4)
        run.hears("under way", 4)
        run.touch("end")
        assert run.ends() == 0, run.story()
    finals = [np.load(tmp_path / f"final{rank}.npz")["final"] for rank in range(3)]
    assert all(np.allclose(final, finals[0], atol=1e-5) for final in finals)
    counted = finals[0][np.abs(finals[0]) > 1e-4]
    assert (np.isclose(counted, 3, atol=1e-4) | np.isclose(counted, 2, atol=1e-4)).all()


@pytest.mark.parametrize("options", [("--sync", "ssp:3"), ("--strategy", "exchange")])
def test_runs_with_other_strategies_grow_too(options: tuple[str, str], tmp_path: Path) -> None:
    body = """
begin()
while len(session.members) < 3:
    step()
    time.sleep(0.002)
say("three")
for _ in range(5):
    step()
session.close()
"""
    with running(tmp_path, body, "-n1", *options, "--grow", "at=100ms,workers=2") as run:
        run.hears("--grow at=0.1s,workers=2: 2 more workers")
        run.hears("three", 3)
        assert run.ends() == 0, run.story()


def test_a_program_in_mode_gradients_cannot_grow(tmp_path: Path) -> None:
    body = 'session = syncline.connect()\nsession.tables({"w": np.zeros(3)}, mode="gradients")\n'
    with running(tmp_path, body, "-n2", "--grow", "at=1s") as run:
        assert run.ends() == 2, run.story()
        assert "--grow: in mode 'gradients' a worker that joins would need" in run.err
        assert "Traceback" not in run.story(), run.story()
