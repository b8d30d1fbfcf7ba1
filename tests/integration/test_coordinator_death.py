"""The coordinator is killed with SIGKILL: it is started again, and the run goes on as if nothing had happened.

Under bsp the final parameters are those of a run in which nobody died, to the bit.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from engine import Run, running
from samples import sampled

STEPS = 60

NUMPY = f"""
import hashlib
session = syncline.connect()
rank = session.rank
random = np.random.default_rng(1)
first = {{"a": random.standard_normal(9000).astype(np.float32), "b": random.standard_normal(3000).astype(np.float32)}}
tables = session.tables(first, mode="changes")
while session.iteration < {STEPS}:
    i = session.iteration
    if i in (20, 30, 40):
        say("at", i)
        while not there(f"go{{i}}"):
            time.sleep(0.005)
    if rank == 0 and i == 31 and sys.argv[1:] == ["change"]:
        session.change(release="soft")
        say("changed")
    for name, table in tables.items():
        session.update(name, np.sin(table * (3 + rank) + i) * np.float32(-0.1))
    session.clock()
    session.sync()
    time.sleep(0.01)
say("ends with", hashlib.sha256(b"".join(tables[name].tobytes() for name in sorted(tables))).hexdigest())
session.close()
"""
"""It waits in steps 20, 30 and 40 for a file."""

LISTEN = ("--listen", "127.0.0.1:0")
OPTIONS = ("-n2", "--servers", "2", "--bucket", "4KiB", *LISTEN)
LANES = ("shm", "tcp")

slow = pytest.mark.slow


def dies(run: Run, times: int = 1) -> None:
    """Kill the coordinator, and wait until it is back."""
    run.kill(run.coordinator())
    run.hears("the coordinator is back", times)


def results(run: Run) -> list[str]:
    """What the workers end with, of a run that succeeds."""
    assert run.ends() == 0, run.story()
    assert "Traceback" not in run.out + run.err, run.story()
    return [line.split()[-1] for line in run.out.splitlines() if "ends with" in line]


@cache
def expected() -> str:
    """What all workers end with if nobody dies; the lane changes nothing."""
    with TemporaryDirectory() as folder, running(Path(folder), NUMPY, *OPTIONS) as run:
        for i in (20, 30, 40):
            run.touch(f"go{i}")
        found = results(run)
    assert len(found) == 2
    assert len(set(found)) == 1
    return found[0]


# What happens at step 30, when the coordinator is killed.


def training(run: Run) -> None:
    """The workers train meanwhile: nobody needs the coordinator."""
    run.kill(run.coordinator())
    run.touch("go30")
    run.hears("at 40", 2)
    run.hears("the coordinator is back")


def twice(run: Run) -> None:
    dies(run)
    run.touch("go30")
    run.hears("at 40", 2)
    dies(run, 2)


def at_once_again(run: Run) -> None:
    """It is killed while it starts again."""
    first = run.coordinator()
    run.kill(first)
    run.hears("restart 1 of 3")
    found = first
    while found == first:
        found = run.find("coordinator") or first
    run.kill(found)
    run.hears("the coordinator is back")


def a_server_joins(run: Run) -> None:
    """Buckets move to it, and back when it leaves; the coordinator dies in the middle of both."""
    options = ("--join", run.hears(r"--join (\S+)")[1], "-n0", "--servers", "1")
    with running(run.directory, "", *options) as more:
        run.hears("server 2: has connected")
        dies(run)
        run.touch("go30")
        run.hears("server 2: has joined")
        more.kill(more.process.pid, signal.SIGTERM)
        run.hears("server 2: is leaving")
        dies(run, 2)
        run.touch("go40")
        assert more.ends() == 130, more.story()
    run.hears("server 2: has left")


def a_server_is_asked_to_leave_meanwhile(run: Run) -> None:
    """It waits for the coordinator, and then leaves."""
    run.kill(run.coordinator())
    run.kill(run.server(1), signal.SIGTERM)
    run.hears("the coordinator is back")
    run.hears("server 1: is leaving")
    run.touch("go30")
    run.touch("go40")  # it leaves when the workers ask it nothing more
    run.hears("server 1: has left")


def a_server_dies_at_the_same_time(run: Run) -> None:
    run.kill(run.server(1))
    run.kill(run.coordinator())
    run.touch("go30")
    run.hears("server 1: has started again")


def a_server_recovers(run: Run) -> None:
    """The coordinator dies while the server that was started again gets the copies."""
    run.kill(run.server(1))
    run.hears(r"server1 ended by signal 9 \(SIGKILL\); it is restarted")
    dies(run)
    run.touch("go30")
    run.hears("server 1: has started again")


def the_release_changes(run: Run) -> None:
    run.touch("go30")
    run.kill(run.coordinator())
    run.hears("changed")


SCRIPTS: dict[str, Callable[[Run], None]] = {
    each.__name__: each
    for each in (
        training,
        twice,
        at_once_again,
        a_server_joins,
        a_server_is_asked_to_leave_meanwhile,
        a_server_dies_at_the_same_time,
        a_server_recovers,
        the_release_changes,
    )
}


@pytest.mark.parametrize(("script", "lane"), sampled(product(SCRIPTS, LANES), ("training", "shm")))
def test_the_run_ends_as_if_nobody_had_died(script: str, lane: str, tmp_path: Path) -> None:
    words = ["change"] if script == "the_release_changes" else []
    with running(tmp_path, NUMPY, *OPTIONS, "--restarts", "3", "--lane", lane, words=words) as run:
        run.touch("go20")
        run.hears("at 30", 2)
        SCRIPTS[script](run)
        for i in (30, 40):
            run.touch(f"go{i}")
        assert set(results(run)) == {expected()}


# Other strategies, and workers that join. Every update adds -1 to each parameter, until the file `end` names the last.

COUNTING = """
session = syncline.connect()
rank, made = session.rank, 0
tables = session.tables({"a": np.zeros(9000)}, **eval(sys.argv[1]))
while not there("end") or session.iteration < int(Path("end").read_text()):
    if rank == 0 and there("go") and not there("end"):
        Path("end.new").write_text(str(session.iteration + 30))
        os.rename("end.new", "end")
    session.update("a", np.full(9000, -1.0))
    session.clock()
    session.sync()
    made += 1
    if made == 3:
        say("training")
    time.sleep(0.01)
session.close()
say("has", float(tables["a"].min()), float(tables["a"].max()))
"""

STRATEGIES = {
    "server": (("--servers", "2", "--sync", "ssp:3"), '{"rule": "sgd:1"}'),
    "tree": (("--strategy", "tree:topology=chain,consistency=ssp:3,durable=true,period=0.02"), "{}"),
    "exchange": (("--strategy", "exchange:partitions=2,tau=1"), "{}"),
}
COUNTS = [(strategy, lane) for strategy in STRATEGIES for lane in LANES]


@pytest.mark.parametrize(("strategy", "lane"), sampled(COUNTS))
def test_a_worker_dies_and_another_joins_meanwhile(strategy: str, lane: str, tmp_path: Path) -> None:
    options, words = STRATEGIES[strategy]
    with running(tmp_path, COUNTING, "-n3", "--restarts", "5", "--lane", lane, *LISTEN, *options, words=[words]) as run:
        run.hears("training", 3)
        run.kill(run.coordinator())
        run.kill(run.worker(1))
        run.hears("the coordinator is back")
        run.hears(r"\[w1\] training", 2)
        with running(tmp_path, COUNTING, "--join", run.hears(r"--join (\S+)")[1], "-n1", words=[words]) as other:
            other.hears("training")
            other.kill(other.worker_that_joined())
            dies(run, 2)
            run.touch("go")
            assert other.ends() == 1, other.story()
        assert run.ends() == 0, run.story()
        assert "Traceback" not in run.out + run.err, run.story()
        finals = {line.split("has")[-1] for line in run.out.splitlines() if " has " in line}
        assert len(finals) == 1 or strategy == "exchange", run.story()
