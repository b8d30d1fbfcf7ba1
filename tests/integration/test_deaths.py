"""What happens to a run when its processes die, stop, leave early or join late: real processes on loopback.

Whatever happens, nothing is left behind; `running` sees to that at the end of every test.
"""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pytest

from commands import refused
from engine import Run, listening, running, state, until
from lanes import Line, read_trace
from samples import sampled
from syncline.layout import Layout, buckets
from syncline.placement import checked
from syncline.spec import parse

MODELS = ("bsp", "ssp:2", "asp")
LANES = ("shm", "tcp")

slow = pytest.mark.slow
FIRST_LANE = ("shm", pytest.param("tcp", marks=slow))
FIRST_MODEL = ("bsp", pytest.param("ssp:2", marks=slow), pytest.param("asp", marks=slow))

# 1. A worker is killed in mid-round.

STEPS = 40
SHAPES = {"a": (150_000,), "b": (300, 100), "c": (7,)}
BASE = 256
"""Worker r adds 6 * 256^r per step, whole, a half or a third of it: so the sum shows which updates it has."""

KILLED = f"""
from syncline.engines.net.connection import Connection
from syncline.engines.net.frames import pack

victim, at, frames, half = *map(int, sys.argv[1:4]), sys.argv[4] == "half"
left = -1
send, receive = Connection.send, Connection.receive

def count():
    global left
    left -= 1
    return left == 0

def counted_send(wire, message, payload=None, **more):
    if count():
        if half and not wire.waiting:
            whole = pack(message, 0 if payload is None else payload.nbytes) + bytes(payload or b"")
            wire.sock.send(whole[: len(whole) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    send(wire, message, payload, **more)

def counted_receive(wire, sink):
    for frame in receive(wire, sink):
        if count():
            os.kill(os.getpid(), signal.SIGKILL)
        yield frame

Connection.send, Connection.receive = counted_send, counted_receive
begin(**{SHAPES})
for i in range({STEPS}):
    if rank == victim and i == at:
        left = frames
    step(6 * {BASE}**rank)
session.close()
np.save(f"final{{rank}}.npy", np.concatenate([table.ravel() for table in tables.values()]))
"""
"""The victim dies in step `at` instead of sending, or as it reads, the frame of this number; half of it may leave."""

FRAMES = 20
"""Fewer than a worker sends and receives in one step: a push and an answer for each of the buckets."""


@dataclass(frozen=True)
class Kill:
    """Kill a worker at the n-th frame of a step, of which half may be sent; two others do all their steps."""

    lane: str
    sync: str
    victim: int
    at: int
    frame: int
    half: bool

    def __str__(self) -> str:
        what = f"half-of-frame{self.frame}" if self.half else f"frame{self.frame}"
        return f"{self.lane}-{self.sync}-w{self.victim}-step{self.at}-{what}"


def random_kill(number: int) -> Kill:
    draw = Random(number)
    when = draw.randrange(STEPS), 1 + draw.randrange(FRAMES), draw.random() < 0.5
    return Kill(LANES[number % 2], MODELS[number % 3], draw.randrange(3), *when)


KILLS = [
    pytest.param(random_kill(number), id=str(random_kill(number)), marks=[] if number < 2 else slow)
    for number in range(100)
]


@pytest.mark.parametrize("kill", KILLS)
def test_a_worker_is_killed_and_no_update_is_half_applied(kill: Kill, tmp_path: Path) -> None:
    options = ["-n3", "--servers", "2", "--sync", kill.sync, "--lane", kill.lane, "--bucket", "64KiB"]
    words = [str(kill.victim), str(kill.at), str(kill.frame), "half" if kill.half else "whole"]
    with running(tmp_path, KILLED, *options, words=words) as run:
        assert run.ends() == 0, run.story()
        assert re.search(rf"w{kill.victim} ended by signal 9 \(SIGKILL\)", run.err), run.story()
        assert "Traceback" not in run.out + run.err, run.story()
    others = [rank for rank in range(3) if rank != kill.victim]
    finals = [np.load(tmp_path / f"final{rank}.npy") for rank in others]
    assert np.array_equal(*finals), "those who are left end with the same parameters"
    check_whole(finals[0], kill, others)


def check_whole(final: np.ndarray, kill: Kill, others: list[int]) -> None:
    """Every bucket is uniform, and its value is the sum of whole updates."""
    layout = Layout.of(SHAPES.items())
    held = [buckets(layout, ranges, (64 << 10) // 4) for ranges in checked(parse("placement", "elastic"), layout, 2)]
    taken = []
    for bucket in (bucket for each in held for bucket in each):
        values = final[bucket.start : bucket.stop]
        assert values.min() == values.max(), f"{bucket} holds part of an update"
        parts = digits(float(values[0]))
        taken.append(parts[kill.victim])
        for rank in others:
            assert 2 * STEPS <= parts[rank] <= 6 * STEPS, (
                f"{bucket}: an update of worker {rank} is lost, or there twice"
            )
        if kill.sync == "bsp":
            shared, odd = divmod(parts[kill.victim], 2)  # the rounds in which a third came from each
            assert not odd
            assert shared in (kill.at, kill.at + 1)
            assert {parts[rank] for rank in others} == {2 * shared + 3 * (STEPS - shared)}
    assert len(taken) > 10
    assert max(taken) - min(taken) <= 6, "buckets differ in the last update of the dead alone"


def digits(value: float) -> list[int]:
    """What each worker has added, in sixths of its update."""
    assert value == int(value)
    return [int(value) // BASE**rank % BASE for rank in range(3)]


@pytest.mark.parametrize("lane", FIRST_LANE)
def test_several_workers_are_killed_at_once(lane: str, tmp_path: Path) -> None:
    body = """
begin()
steps_until("stop")
session.close()
"""
    with running(tmp_path, body, "-n4", "--servers", "2", "--lane", lane) as run:
        run.hears("under way", times=4)
        for number in (0, 1, 3):
            run.kill(run.worker(number))
        run.hears("by signal 9", times=3)
        run.touch("stop")
        assert run.ends() == 0, run.story()


def test_a_worker_is_killed_whose_children_hold_its_connections(tmp_path: Path) -> None:
    body = """
begin()
if rank == 1 and os.fork() == 0:
    signal.pause()
steps_until("stop")
session.close()
"""
    with running(tmp_path, body) as run:
        run.hears("under way", times=2)
        run.kill(run.worker(1))
        run.hears("w1 ended by signal 9")
        run.touch("stop")
        assert run.ends() == 0, run.story()


BEFORE = {
    "before it connects": "if os.environ['SYNCLINE_WORKER'] == '{who}': os.kill(os.getpid(), 9)\nbegin()",
    "before it declares": "open_only()\nif rank == {who}: os.kill(os.getpid(), 9)\ndeclare()",
    "without ever connecting, and well": "if os.environ['SYNCLINE_WORKER'] == '{who}': sys.exit()\nbegin()",
}


@pytest.mark.parametrize("who", [0, pytest.param(2, marks=slow)])
@pytest.mark.parametrize("when", BEFORE)
def test_a_worker_ends_before_the_run_begins(when: str, who: int, tmp_path: Path) -> None:
    body = """
def open_only():
    global session, rank
    session = syncline.connect()
    rank = session.rank

def declare():
    global tables
    tables = session.tables({"w": np.zeros(10)})
"""
    body += BEFORE[when].format(who=who) + "\nfor _ in range(5): step()\nsession.close()\nsay('done', tables['w'][0])"
    with running(tmp_path, body, "-n3") as run:
        assert run.ends() == 0, run.story()
        assert len(re.findall("done 5.0", run.out)) == 2, run.story()


ANYONE = ("worker0", "worker1", "server0", "server1", "coordinator")

BRIEF = """
say("begins")
session = syncline.connect()
say("has connected")
tables = session.tables({"w": np.zeros(50_000), "b": np.zeros(10)})
say("has declared")
for i in range(30):
    step()
    say("has done", i)
session.close()
"""

MOMENTS = ("begins", "has connected", "has declared", *(f"has done {i}" for i in range(30)))
"""The line that the first worker prints when it has come this far."""


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=slow) for number in range(1, 30))])
def test_anyone_is_killed_at_any_moment_from_the_start(number: int, tmp_path: Path) -> None:
    """As soon as the process exists, or when a worker has come this far. The run must end by itself."""
    draw = Random(number)
    who, lane, sync = draw.choice(ANYONE), draw.choice(LANES), draw.choice(MODELS)
    moment = draw.choice(MOMENTS[:3] if draw.random() < 0.4 else MOMENTS) if draw.random() < 0.9 else ""
    with running(tmp_path, BRIEF, "-n3", "--servers", "2", "--lane", lane, "--sync", sync) as run:
        pid = until(lambda: run.find(who), who)
        if moment:
            run.hears(f"{moment}\n")
        with suppress(ProcessLookupError):
            run.kill(pid)
        code = run.ends()
        under_way = moment.startswith("has done")
        assert code in ((0,) if under_way and who.startswith("worker") else (0, 1)), run.story()
        assert code == 0 or who in run.err or who.startswith("worker"), run.story()
        assert "Traceback" not in run.err, run.story()
        assert "During handling" not in run.out, run.story()


# 2. A server is killed.

STEADY = """
begin()
steps_until("stop")
session.close()
"""


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=slow)])
@pytest.mark.parametrize("lane", LANES)
def test_a_server_is_killed(lane: str, number: int, tmp_path: Path) -> None:
    """The other one takes over; when that dies too, the run ends."""
    with running(tmp_path, STEADY, "-n3", "--servers", "2", "--lane", lane) as run:
        run.hears("under way", times=3)
        run.kill(run.server(number))
        run.hears(f"server {number}: is lost; the others go on without it")
        run.hears("restored from the workers' copies")
        run.kill(run.server(1 - number))
        assert run.ends() == 1, run.story()
        assert f"server{1 - number} " in run.err.splitlines()[-1], run.story()
        assert "Traceback" not in run.out, run.story()


@pytest.mark.slow
def test_a_server_is_killed_while_a_worker_computes(tmp_path: Path) -> None:
    body = """
begin()
for _ in range(3): step()
if rank == 0:
    say("computes")
    compute_until("never")
steps_until("stop")
"""
    with running(tmp_path, body) as run:
        run.hears("computes")
        run.kill(run.server(0))
        assert run.ends() == 1, run.story()
        assert "server0" in run.err.splitlines()[-1]


def test_a_program_that_catches_the_error_ends_as_well(tmp_path: Path) -> None:
    body = """
begin()
try:
    steps_until("stop")
except syncline.RunError as error:
    say("caught", error)
"""
    with running(tmp_path, body) as run:
        run.hears("under way", times=2)
        run.kill(run.server(0))
        assert run.ends() == 1, run.story()
        assert len(re.findall("caught server0 is gone", run.out)) == 2, run.story()
        assert "Traceback" not in run.out, run.story()


# 3. The launcher or the coordinator is killed.


@pytest.mark.parametrize("lane", FIRST_LANE)
def test_the_launcher_is_killed(lane: str, tmp_path: Path) -> None:
    body = """
begin()
if rank == 0:
    say("under way")
    compute_until("never")
steps_until("stop")
"""
    with running(tmp_path, body, "-n3", "--servers", "2", "--lane", lane) as run:
        run.hears("under way")
        sockets = run.sockets()
        assert sockets
        run.kill(run.process.pid)
        run.gone()
        assert run.ends() == -signal.SIGKILL
        until(lambda: not sockets & listening(), "the end of all that listens")


@pytest.mark.slow
def test_the_launcher_is_killed_at_the_start(tmp_path: Path) -> None:
    with running(tmp_path, STEADY, "-n3") as run:
        until(lambda: len(run.processes()) > 1, "the first child")
        run.kill(run.process.pid)
        run.gone()
        run.ends()


COUNTING = """
begin()
while not there("stop") or rank != 1:
    step()
    say("at", session.iteration)
    time.sleep(0.01)
session.close()
"""


def without_coordinator(run: Run) -> None:
    """Kill the coordinator, and check that the workers continue."""
    run.hears("at 3\n")
    run.kill(run.coordinator())
    run.hears("coordinator ended by signal 9")
    here = max(int(found) for found in re.findall(r"at (\d+)\n", run.out))
    run.hears(f"at {here + 20}\n")


@pytest.mark.parametrize("sync", ["asp", pytest.param("bsp", marks=slow)])
def test_the_coordinator_is_killed_and_a_worker_leaves(sync: str, tmp_path: Path) -> None:
    with running(tmp_path, COUNTING, "-n3", "--servers", "2", "--sync", sync) as run:
        without_coordinator(run)
        run.touch("stop")
        assert run.ends() == 1, run.story()
        assert "the membership cannot change without it" in run.out, run.story()
        assert len(re.findall("the membership must change, but the coordinator is dead", run.out)) == 1, run.story()
        assert "the coordinator ended by signal 9" in run.err.splitlines()[-1], run.story()


def test_the_coordinator_is_killed_and_all_leave_together(tmp_path: Path) -> None:
    body = COUNTING.replace("or rank != 1", "")
    with running(tmp_path, body, "--servers", "2", "--sync", "asp") as run:
        without_coordinator(run)
        run.touch("stop")
        assert run.ends() == 1, run.story()
        assert "coordinator" in run.err.splitlines()[-1], run.story()


@pytest.mark.slow
def test_the_coordinator_is_killed_and_then_a_worker(tmp_path: Path) -> None:
    with running(tmp_path, COUNTING, "-n3") as run:
        without_coordinator(run)
        run.kill(run.worker(2))
        assert run.ends() == 1, run.story()
        assert "worker2 is gone, so the membership must change, but the coordinator is dead" in run.out, run.story()
        assert "coordinator" in run.err.splitlines()[-1], run.story()


def test_the_coordinator_is_killed_before_the_run_begins(tmp_path: Path) -> None:
    body = """
session = syncline.connect()
say("waits")
if session.rank == 0:
    session.tables({"w": np.zeros(10)})
signal.pause()
"""
    with running(tmp_path, body) as run:
        run.hears("waits", times=2)
        run.kill(run.coordinator())
        run.hears("the membership cannot change without it")
        run.kill(run.worker(1))
        assert run.ends() == 1, run.story()


# 4. A worker is stopped.

STOPPED = """
begin()
for i in range(40):
    if rank == 1 and i == 10:
        while not (there("ahead0") and there("ahead2")):
            time.sleep(0.01)
        say("stops")
        os.kill(os.getpid(), signal.SIGSTOP)
    step()
    if rank != 1 and i == 11:
        Path(f"ahead{rank}").touch()
    if rank != 1:
        say("did", i)
while not there("stop"):
    time.sleep(0.01)
session.close()
"""
"""Worker 1 is stopped when the others are as far ahead of it as ssp:2 allows."""

AHEAD = ("-n3", "--sync", "ssp:2", "--release", "soft")


@pytest.mark.parametrize("lane", sampled(LANES, "shm"))
def test_a_worker_that_is_stopped_is_declared_dead_and_learns_it(lane: str, tmp_path: Path) -> None:
    options = ["--servers", "2", "--lane", lane, "--trace", "."]
    with running(tmp_path, STOPPED, *AHEAD, *options, SYNCLINE_PATIENCE="1") as run:
        run.hears("stops")
        stopped = run.worker(1)
        until(lambda: state(stopped) == "T", "the stop")
        run.hears("worker 1: stopped for more than 1 s")
        run.hears("did 39\n", times=2)
        run.kill(stopped, signal.SIGCONT)
        run.hears("w1 ended with exit code 1")
        assert re.search(r"\[w1\] program-\w+\.py:\d+: GoneError: worker 1 .* is no longer a member", run.out), (
            run.story()
        )
        assert "Traceback" not in run.out, run.story()
        run.touch("stop")
        assert run.ends() == 0, run.story()
    for server in range(2):
        trace = read_trace(tmp_path / f"server{server}.csv")
        without = next(place for place, line in enumerate(trace) if line.kind == "view")
        assert last_answer(trace[:without]) == 11, "the others wait until worker 1 is no member"
        assert last_answer(trace) == 39


def last_answer(trace: Sequence[Line]) -> int:
    """The latest iteration for which a worker got an answer."""
    return max(line.progress for line in trace if line.kind == "params")


@pytest.mark.slow
def test_a_worker_that_is_stopped_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    with running(tmp_path, STOPPED, *AHEAD, "--trace", ".", SYNCLINE_PATIENCE="600") as run:
        run.hears("stops")
        stopped = run.worker(1)
        until(lambda: state(stopped) == "T", "the stop")
        run.kill(stopped, signal.SIGCONT)
        run.touch("stop")
        assert run.ends() == 0, run.story()
        assert "ended" not in run.err
        assert "stopped" not in run.err
    trace = read_trace(tmp_path / "server0.csv")
    back = next(place for place, line in enumerate(trace) if (line.source, line.progress) == ("worker1", 10))
    assert last_answer(trace[:back]) == 11
    assert last_answer(trace) == 39


@pytest.mark.slow
def test_a_worker_that_is_never_continued_does_not_keep_the_run(tmp_path: Path) -> None:
    with running(tmp_path, STOPPED, *AHEAD, SYNCLINE_PATIENCE="1") as run:
        run.touch("stop")
        assert run.ends() == 0, run.story()
        assert "worker 1: stopped for more than 1 s" in run.err


# 5. A worker computes for long.

COMPUTING = """
begin()
for i in range(6):
    if rank == 1 and i == 3:
        Path("computing").touch()
        compute_until("computed")
    if rank == 2 and i == 3:
        while not there("computing"):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGSTOP)
    step()
session.close()
say("done")
"""


@pytest.mark.parametrize("patience", ["1", pytest.param("10", marks=slow)])
@pytest.mark.parametrize("lane", sampled(LANES, "tcp"))
def test_a_worker_that_computes_is_not_dead(lane: str, patience: str, tmp_path: Path) -> None:
    """Worker 1 computes when worker 2 is stopped, and still does when worker 2 is dead."""
    os.mkfifo(tmp_path / "computed")
    with running(tmp_path, COMPUTING, "-n3", "--lane", lane, SYNCLINE_PATIENCE=patience) as run:
        run.hears(f"worker 2: stopped for more than {patience} s")
        release(tmp_path / "computed")
        assert run.ends() == 0, run.story()
        assert run.out.count("done") == 2
        deaths = [line for line in run.err.splitlines() if "waiting for" not in line]
        assert len(deaths) == 1, run.story()


def release(fifo: Path) -> None:
    """End a computation that blocks its interpreter until this can be read."""

    def opened() -> int | None:
        with suppress(OSError):  # nobody reads it yet
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        return None

    os.close(until(opened, "somebody who computes"))


# 6. The user, or the program, ends it.


@pytest.mark.parametrize("number", sampled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), signal.SIGTERM))
def test_the_run_is_interrupted(number: int, tmp_path: Path) -> None:
    with running(tmp_path, STEADY, "-n3", "--servers", "2", "--report", "report.json") as run:
        run.hears("under way", times=3)
        run.kill(run.process.pid, number)
        assert run.ends() == 130, run.story()
        assert run.err.splitlines()[-1] == "syncline: interrupted"
        assert "Traceback" not in run.err, run.story()
    assert not (tmp_path / "report.json").exists()


def test_the_run_is_interrupted_at_the_start(tmp_path: Path) -> None:
    with running(tmp_path, STEADY, "-n3") as run:
        until(lambda: len(run.processes()) > 2, "the first children")
        run.kill(run.process.pid, signal.SIGINT)
        assert run.ends() == 130, run.story()
        assert "Traceback" not in run.err, run.story()


@pytest.mark.slow
def test_workers_that_do_not_heed_an_interrupt_are_ended(tmp_path: Path) -> None:
    body = """
signal.signal(signal.SIGINT, signal.SIG_IGN)
begin()
if rank == 0: subprocess.Popen(["sleep", "600"])
steps_until("stop")
"""
    with running(tmp_path, body) as run:
        run.hears("under way", times=2)
        run.kill(run.process.pid, signal.SIGINT)
        assert run.ends() == 130, run.story()


@pytest.mark.parametrize("lane", FIRST_LANE)
def test_an_exception_in_one_worker(lane: str, tmp_path: Path) -> None:
    body = """
begin()
for i in range(10):
    if rank == 1 and i == 4:
        session.update("w", np.ones(50_000))
        raise ValueError("a mistake")
    step()
steps_until("never")
"""
    with running(tmp_path, body, "-n3", "--servers", "2", "--lane", lane) as run:
        assert run.ends() == 1, run.story()
        assert "[w1] ValueError: a mistake" in run.out
        assert run.out.count("ValueError: a mistake") == 1, run.story()
        why = r"program-\w+\.py:\d+: ValueError: a mistake"
        assert re.fullmatch(rf"syncline: w1 ended with exit code 1 after \S+ s: {why}\n", run.err), run.story()


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_exception_in_all_workers(when: str, tmp_path: Path) -> None:
    raises = 'raise ValueError("a mistake")\n'
    body = "begin()\nfor _ in range(3): step()\n" + raises if when == "after" else raises
    with running(tmp_path, body, "-n3") as run:
        assert run.ends() == 1, run.story()
        assert "ValueError: a mistake" in run.out, run.story()
        why = r"program-\w+\.py:\d+: ValueError: a mistake( \(.*: the same\))?"
        assert re.fullmatch(rf"syncline: w\d ended with exit code 1 after \S+ s: {why}\n", run.err), run.story()
        assert run.out.count("Traceback") == 1, run.story()


def test_all_that_a_worker_says_before_its_end_is_heard(tmp_path: Path) -> None:
    body = "print('line\\n' * 100_000 + 'last', end='', flush=True)\nos._exit(3)"
    with running(tmp_path, body, "-n1") as run:
        assert run.ends() == 1, run.story()
        assert run.out.count("[w0] line") == 100_000
        assert run.out.splitlines()[-1] == "[w0] last"


def test_a_program_with_an_invalid_setting(tmp_path: Path) -> None:
    body = "syncline.connect().tables({'w': np.zeros(3)}, sync='sometimes')"
    with running(tmp_path, body, "-n2") as run:
        assert run.ends() == 2, run.story()
        assert "sometimes" in run.err, run.story()


# 7. A worker leaves early.

LEAVING = {
    "leaves": "session.leave()",
    "closes": "session.close()",
    "just ends": "sys.exit()",
    "leaves in the middle of an update": "session.update('w', np.ones(50_000))\n    session.leave()",
    "leaves before it has synchronised": (
        "session.update('w', np.ones(50_000))\n    session.update('b', np.ones(10))\n    session.clock()\n"
        "    session.leave()"
    ),
}


@pytest.mark.parametrize("sync", FIRST_MODEL)
@pytest.mark.parametrize("how", sampled(LEAVING, "leaves", "just ends", "leaves before it has synchronised"))
def test_a_worker_leaves_early(how: str, sync: str, tmp_path: Path) -> None:
    body = f"""
begin()
for _ in range(5 if rank == 1 else 30): step()
if rank == 1:
    {LEAVING[how]}
else:
    session.close()
    say("done", session.iteration)
"""
    with running(tmp_path, body, "-n3", "--servers", "2", "--sync", sync) as run:
        assert run.ends() == 0, run.story()
        assert run.out.count("done 30") == 2, run.story()
        assert run.err == "", run.story()


# 8. Others join.

JOINABLE = ("--listen", "127.0.0.1:0")


def address_of(run: Run) -> str:
    """The command to join, as the run prints it."""
    return run.hears(r"more workers can join: syncline run --join (127\.0\.0\.1:\d+) -n 1 PROGRAM")[1]


@pytest.mark.parametrize("sync", FIRST_MODEL)
@pytest.mark.parametrize("lane", FIRST_LANE)
def test_a_second_launcher_joins(lane: str, sync: str, tmp_path: Path) -> None:
    body = """
begin()
say("is", rank)
steps_until("stop")
session.close()
say("final", tables["w"][0], tables["w"].min() == tables["w"].max())
"""
    with running(tmp_path, body, "-n2", "--servers", "2", "--sync", sync, "--lane", lane, *JOINABLE) as run:
        run.hears("under way", times=2)
        address = address_of(run)
        with running(tmp_path, body, "--join", address, "-n2", "--lane", lane) as other:
            other.hears("is [23]", times=2)
            run.touch("stop")
            assert other.ends() == 0, other.story()
            assert run.ends() == 0, run.story()
            finals = re.findall("final (.*)", run.out + other.out)
            assert len(finals) == 4
            assert len(set(finals)) == 1, "all end with the same parameters"
            assert "Traceback" not in run.out + other.out


def test_those_who_have_joined_go_on_alone(tmp_path: Path) -> None:
    body = """
begin()
say("is", rank)
steps_until("stop" if rank == 0 else "end")
session.leave() if rank == 0 else session.close()
"""
    with running(tmp_path, body, "-n1", *JOINABLE) as run:
        run.hears("under way")
        with running(tmp_path, body, "--join", address_of(run), "-n1") as other:
            other.hears("is 1")
            first = run.worker(0)
            run.touch("stop")
            until(lambda: first not in run.processes(), "the end of the first worker")
            run.touch("end")
            assert other.ends() == 0, other.story()
            assert run.ends() == 0, run.story()


def test_the_launcher_that_joined_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, STEADY, "-n2", *JOINABLE) as run:
        run.hears("under way", times=2)
        with running(tmp_path, STEADY.replace("begin()", "begin()\nsay('in')"), "--join", address_of(run)) as other:
            other.hears(r"\] in", times=2)
            other.kill(other.process.pid)
            other.ends()
            other.gone()
        run.hears("worker [23]: its connection ended", times=2)
        run.touch("stop")
        assert run.ends() == 0, run.story()


@pytest.mark.slow
def test_the_first_launcher_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, STEADY, "-n1", *JOINABLE) as run:
        run.hears("under way")
        with running(tmp_path, STEADY.replace("begin()", "begin()\nsay('in')"), "--join", address_of(run)) as other:
            other.hears(r"\] in", times=2)
            run.kill(run.process.pid)
            run.ends()
            assert other.ends() == 1, other.story()


def test_a_joiner_with_another_layout(tmp_path: Path) -> None:
    with running(tmp_path, STEADY, "-n2", *JOINABLE) as run:
        run.hears("under way", times=2)
        with running(tmp_path, "begin(w=50_000, b=11)", "--join", address_of(run), "-n1") as other:
            assert other.ends() == 2, other.story()
            assert re.search(r"trains another model: .*b \(11,\) here, b \(10,\) there", other.err), other.story()
        run.touch("stop")
        assert run.ends() == 0, run.story()


def test_a_joiner_of_a_finished_run(tmp_path: Path) -> None:
    with running(tmp_path, "begin()\nstep()\nsession.close()", "-n1", *JOINABLE) as run:
        address = address_of(run)
        assert run.ends() == 0, run.story()
    with running(tmp_path, STEADY, "--join", address) as other:
        assert other.ends() == 1, other.story()
        assert f"cannot reach the coordinator at {address}" in other.err, other.story()
        assert len(other.err.splitlines()) == 1


@pytest.mark.slow
def test_a_joiner_of_something_else(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        with running(tmp_path, STEADY, "--join", address) as other:
            assert other.ends() == 1, other.story()
            assert f"{address} accepts connections but does not answer as a coordinator" in other.err, other.story()


NONSENSE = {
    "no workers": (["--workers", "0"], "--workers"),
    "no servers": (["--servers", "0"], "--servers"),
    "an unknown lane": (["--lane", "pigeon"], "--lane"),
    "an address of somebody else": (["--listen", "192.0.2.1:0", "--insecure"], "--listen"),
    "no key off loopback": (["--listen", "0.0.0.0:0"], "--listen"),
    "no port to join": (["--join", "127.0.0.1"], "--join"),
    "a key is needed to join": (["--join", "192.0.2.1:7070"], "--key-file"),
    "settings of a run that is joined": (["--join", "127.0.0.1:7070", "--sync", "asp"], "--sync"),
    "both ends at once": (["--join", "127.0.0.1:7070", "--listen", "127.0.0.1:0"], "--join"),
    "an unknown model": (["--sync", "sometimes"], "sync"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_an_invalid_request(case: str, tmp_path: Path) -> None:
    options, named = NONSENSE[case]
    (tmp_path / "program.py").touch()
    assert refused(tmp_path, "run", *options, "program.py").startswith(named)


def test_an_invalid_request_in_a_process_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path, STEADY, "--sync", "sometimes") as run:
        assert run.ends() == 2, run.story()
        assert run.err.startswith("syncline: sync: "), run.story()
        assert len(run.err.splitlines()) == 1


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "program.py").touch()
        said = refused(tmp_path, "run", "--listen", f"127.0.0.1:{port}", "program.py")
        assert said.startswith(f"--listen: port {port}")
