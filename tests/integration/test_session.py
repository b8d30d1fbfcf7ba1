"""A program and its session: mistakes raise errors at once, and a mistake that is caught does not stop the run."""

from __future__ import annotations

import os
import re
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import lanes
import syncline
from engine import PATIENCE, PREAMBLE, running, until
from netns import Host, two_hosts
from samples import sampled

WRONG = """
def wrong(call, *words):
    try:
        call()
    except syncline.UsageError as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, (missing, str(error))
    else:
        raise AssertionError(f"nothing is wrong with it, but it should be: {words}")
"""


def ends_well(directory: Path, body: str, *options: str) -> str:
    """The lines that the workers of such a run print."""
    with running(directory, WRONG + body, *options) as run:
        assert run.ends() == 0, run.story()
        return run.out


# Updates that are not sent.

SKIPPED = """
session = syncline.connect()
tables = session.tables({"w": np.zeros(20), "v": np.zeros(3), "b": np.zeros(1)}, bucket="16B")
bad = np.ones(20)
bad[session.rank * 19] = np.inf  # in the first bucket, or in the last one
while session.iteration < 4:
    if session.iteration == 1:
        try:
            session.update("w", bad)
        except syncline.NotFinite as error:
            assert error.table == "w" and error.progress == 1
        else:
            raise AssertionError("it was sent")
        assert session.buffer("w").shape == (20,)
        AGAIN
    else:
        session.update("w", np.ones(20))
    session.update("v", np.ones(3))
    session.update("b", np.ones(1))
    session.clock()
    session.sync()
session.close()
say("final", *(sorted(set(tables[name])) for name in "wvb"))
"""


AGAIN = {"left out": ("pass", 3.0), "replaced": ("session.update('w', 2 * np.ones(20))", 5.0)}


@pytest.mark.parametrize(
    ("how", "lane"), sampled(product(AGAIN, ("shm", "tcp")), ("left out", "tcp"), ("replaced", "shm"))
)
def test_an_update_that_is_not_finite_can_be_left_out_or_replaced(how: str, lane: str, tmp_path: Path) -> None:
    again, w = AGAIN[how]
    out = ends_well(tmp_path, SKIPPED.replace("AGAIN", again), "-n2", "--servers", "2", "--lane", lane)
    finals = [re.sub(r"np\.float32\((.*?)\)", r"\1", each) for each in re.findall("final (.*)", out)]
    assert finals == [f"[{w}] [4.0] [4.0]"] * 2


def test_gradients_are_not_checked_for_nan(tmp_path: Path) -> None:
    body = """
begin(w=3)
session.update("w", [1.0, np.nan, np.inf])
session.clock()
session.sync()
say("mean", tables["w"].tolist())
session.close()
"""
    assert ends_well(tmp_path, body, "-n2", "--mode", "gradients").count("mean [1.0, nan, inf]") == 2


def test_large_updates_cause_no_warning(tmp_path: Path) -> None:
    body = """
import warnings
warnings.simplefilter("error")
begin(w=1000)
step(1e25)
session.close()
"""
    ends_well(tmp_path, body, "-n1")


# Calls out of turn.


def test_a_program_that_declares_nothing(tmp_path: Path) -> None:
    body = """
session = syncline.connect()
for call in (session.clock, session.sync, lambda: session.update("w", 1), lambda: session.buffer("w")):
    wrong(call, "declare tables first")
session.close()
"""
    with running(tmp_path, WRONG + body, "-n1") as run:
        assert run.ends() == 0, run.story()
        assert "Traceback" not in run.out + run.err, run.story()


MISTAKES = """
session = syncline.connect()
rank = session.rank

# Declarations that are refused; then one that is not.
good = {"w": np.zeros(5), "b": np.zeros(2)}
wrong(lambda: session.tables({"w": np.array([1j])}), "'w'", "complex")
wrong(lambda: session.tables({1: np.zeros(5)}), "1 is no")
wrong(lambda: session.tables(good, sync=0.5), "sync", "0.5")
wrong(lambda: session.tables(good, sink="bsp"), "sink", "sync, release, gate")
tables = session.tables(good, seed=7)
assert session.settings["seed"] == "7"

# Tables that are not there.
for clocked in (False, True):
    wrong(lambda: session.sync("nope"), "sync", "'nope'", "w, b")
    wrong(lambda: session.update("nope", 1), "update", "'nope'", "w, b")
    wrong(lambda: session.buffer("nope"), "buffer", "'nope'", "w, b")
    if not clocked:
        session.clock()
step()

# The memory of an update that is under way; what is only written into a buffer is not sent.
for _ in range(3):
    session.buffer("w").fill(1)
    session.update("w")
    wrong(lambda: session.buffer("w"), "buffer", "'w'", "clock()")
    wrong(lambda: session.update("w"), "update", "'w'", "clock()")
    session.buffer("b").fill(1)
    session.clock()
session.sync()

session.END()
for call in (
    session.clock, session.sync, lambda: session.sync("w"), lambda: session.update("w", 1),
    lambda: session.buffer("w"), lambda: session.tables({"w": np.zeros(5)}),
):
    wrong(call, "session", "is closed")
session.close()
session.leave()
say("final", tables["w"].tolist(), tables["b"].tolist())
"""


@pytest.mark.parametrize("end", ["close", pytest.param("leave", marks=pytest.mark.slow)])
def test_mistakes_that_are_caught_do_not_stop_the_run(end: str, tmp_path: Path) -> None:
    out = ends_well(tmp_path, MISTAKES.replace("END", end), "-n2")
    assert out.count("final [4.0, 4.0, 4.0, 4.0, 4.0] [1.0, 1.0]") == 2


def test_a_second_connect_returns_the_open_session(tmp_path: Path) -> None:
    body = """
begin(w=3)
step()
assert syncline.connect() is session
step()
session.close()
say("final", tables["w"].tolist())
"""
    assert ends_well(tmp_path, body, "-n2").count("final [2.0, 2.0, 2.0]") == 2


CONNECTS_AGAIN = """
begin(w=3)
step()
session.END()
wrong(syncline.connect, "connect: ", "cannot be opened again within this run")
say("trained", tables["w"].tolist())
"""


@pytest.mark.parametrize("end", ["close", "leave"])
def test_a_session_that_has_ended_cannot_be_opened_again_within_its_run(end: str, tmp_path: Path) -> None:
    """The run itself ends well, as its workers had closed it."""
    assert ends_well(tmp_path, CONNECTS_AGAIN.replace("END", end), "-n2").count("trained") == 2


@pytest.mark.slow
def test_under_torchrun_too_a_session_cannot_be_opened_again(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    torchrun = ("torch.distributed.run", "--nproc-per-node", "2")
    with running(tmp_path, WRONG + CONNECTS_AGAIN.replace("END", "close"), module=torchrun) as run:
        assert run.ends() == 0, run.story()
        assert run.out.count("trained [1.0, 1.0, 1.0]") == 2, run.story()


def test_alone_a_program_may_connect_again() -> None:
    with syncline.connect({}) as first:
        first.tables({"w": np.zeros(3)})
    with syncline.connect({}) as second:
        assert second is not first
        assert second.tables({"w": np.ones(3)})["w"].tolist() == [1.0] * 3


WAITING = """
from syncline.engines.worker import traffic
traffic.NOTICE_SECONDS = traffic.LOOK_SECONDS = 0.1
SLEEPS
begin()
step()
if rank == 1:
    while not there("go"):
        time.sleep(0.01)
step()
session.close()
"""


@pytest.mark.parametrize("sleeps", ["before it connects", "between two steps"])
def test_the_run_says_for_whom_it_waits(sleeps: str, tmp_path: Path) -> None:
    """Worker 1 only sleeps; one line says so."""
    early = "while os.environ['SYNCLINE_WORKER'] == '1' and not there('go'):\n    time.sleep(0.01)"
    body = WAITING.replace("SLEEPS", early if sleeps == "before it connects" else "")
    with running(tmp_path, body, "-n2") as run:
        heard = run.hears(r"(waiting for worker 1( \(not connected\))? for) \d+ s")
        run.touch("go")
        assert run.ends() == 0, run.story()
        assert run.err.count(heard[1]) == 1, run.story()


def test_workers_that_wait_for_each_other_are_named(tmp_path: Path) -> None:
    """Worker 0 is done and waits for all; worker 1 waits at the server for an update of worker 0."""
    quick = WAITING[: WAITING.index("SLEEPS")]
    body = quick + "begin()\nfor _ in range(2 if rank == 0 else 9):\n    step()\nsession.barrier()\n"
    with running(tmp_path, body, "-n2", "--sync", "ssp:2") as run:
        run.hears(r"waiting for worker 0 \(in barrier, where it waits for all\) for \d+ s")
        run.process.terminate()
        run.ends()


# Exceptions.


def test_an_exception_ends_the_membership_though_a_thread_goes_on(tmp_path: Path) -> None:
    body = """
from threading import Thread

def linger():
    while not there("stop"):
        time.sleep(0.01)

begin()
if rank == 0:
    Thread(target=linger).start()
    step()
    raise ValueError("by mistake")
for _ in range(5):
    step()
session.close()
say("done")
"""
    with running(tmp_path, body, "-n2") as run:
        run.hears("ValueError: by mistake")
        run.hears("done")
        assert run.find("worker0") is not None, run.story()
        run.touch("stop")
        assert run.ends() == 1, run.story()


@pytest.mark.slow
def test_the_programs_own_hook_is_called_and_comes_back(tmp_path: Path) -> None:
    body = """
def own(kind, error, trace):
    say("own:", error)

sys.excepthook = own
with syncline.connect() as session:
    assert sys.excepthook != own
    tables = session.tables({"w": np.zeros(3)})
assert sys.excepthook is own
say("back")
"""
    assert ends_well(tmp_path, body, "-n1").count("back") == 1
    body = body.replace("with syncline.connect() as session:", "session = syncline.connect()\nif True:")
    with running(tmp_path, body.replace("assert sys.excepthook is own", "raise ValueError('late')"), "-n1") as run:
        assert run.ends() != 0, run.story()
        assert "own: late" in run.out, run.story()


# Other users and other hosts.

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user takes root")
@pytest.mark.parametrize("lane", ["", pytest.param("shm", marks=pytest.mark.slow)])
def test_a_joiner_of_another_user_of_this_host(lane: str, tmp_path: Path) -> None:
    """It goes by TCP, unless it is told not to."""
    body = """
begin()
steps_until("stop")
session.close()
"""
    joins = f"""
syncline.connect  # after the change to the user nobody, modules may not be readable any more
os.setuid({NOBODY})
begin()
say("in")
while not there("stop"):
    step()
session.close()
"""
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:2]:  # those that pytest has made
        parent.chmod(0o755)
    with running(tmp_path, body, "-n1", "--servers", "2", "--listen", "127.0.0.1:0") as run:
        run.hears("under way")
        address = run.hears(r"--join (127\.0\.0\.1:\d+)")[1]
        options = ("--lane", lane) if lane else ()
        with running(tmp_path, joins, "--join", address, "-n1", *options) as other:
            if not lane:
                other.hears(r"\] in")
            else:
                other.hears("--lane: shm is not possible: server 0 belongs to another user of this host")
                assert other.ends() != 0, other.story()
            run.touch("stop")
            other.ends()
            assert run.ends() == 0, run.story()


PULLED = """
from syncline.engines.net import tcp_liveness
from syncline.engines.worker import traffic

directory = Path(sys.argv[1])

def impatient():
    (directory / f"impatient{rank}").touch()
    return tcp_liveness.TcpLiveness(2.0)  # else it takes longer, but not otherwise

traffic.TcpLiveness = impatient
begin()
step()
if rank == 1:
    (directory / "joined").touch()
    while not there(directory / "pulled"):
        time.sleep(0.01)
while True:
    step()
"""


@pytest.mark.slow
def test_a_joiner_finds_out_that_the_head_host_has_vanished(tmp_path: Path) -> None:
    """The cable is pulled, and then the joiner sends something that nobody acknowledges."""
    program = tmp_path / "program.py"
    program.write_text(PREAMBLE + PULLED)

    def start(host: Host, name: str, *options: str) -> subprocess.Popen[str]:
        words = lanes.command(*options, "--key-file", tmp_path / "key", program, tmp_path)
        with (tmp_path / name).open("w") as out:
            return host.start(*words, env=lanes.environment(), cwd=tmp_path, stdout=out, stderr=subprocess.STDOUT)

    def address() -> str | None:
        found = re.search(r"--join (\S+)", (tmp_path / "head").read_text())
        return found and found[1]

    with two_hosts() as (here, there):
        start(here, "head", "-n", "1", "--listen", f"{here.address}:0")
        joiner = start(there, "joiner", "-n", "1", "--join", until(address, "an address to join"))
        until((tmp_path / "joined").exists, "the joiner's first step")
        here.link("down")
        (tmp_path / "pulled").touch()
        until(lambda: "its host no longer acknowledges data" in (tmp_path / "joiner").read_text(), "the joiner's end")
        assert joiner.wait(PATIENCE) == 1
        assert (tmp_path / "impatient1").exists()


# While the program computes.

HIDDEN = """
session = syncline.connect()
tables = session.tables({"w": np.zeros(8 << 20)})
session.update("w", np.ones(8 << 20))  # 32 MiB: no socket takes as much at once
while not np.all(tables["w"] == 1):  # the program calls nothing of the session
    time.sleep(0.01)
session.clock()
session.sync()
session.close()
"""


def test_updates_leave_and_answers_come_while_the_program_computes(tmp_path: Path) -> None:
    ends_well(tmp_path, HIDDEN, "-n1", "--sync", "asp", "--lane", "tcp")


# A program that ends without `close`.


def test_a_program_that_exits_with_a_code_in_the_middle_ends_the_run(tmp_path: Path) -> None:
    body = """
begin()
for _ in range(3):
    step()
if rank == 1:
    sys.exit(5)
steps_until("never")
"""
    with running(tmp_path, body, "-n2") as run:
        assert run.ends() == 1, run.story()
        assert "w1 ended with exit code 5" in run.err, run.story()


def test_a_program_that_cannot_leave_the_run_exits_with_code_1(tmp_path: Path) -> None:
    """The coordinator is dead, and the program ends without `close` and without an error of its own."""
    body = """
begin()
steps_until("go")
"""
    with running(tmp_path, body, "-n2") as run:
        run.hears("under way", 2)
        run.kill(run.coordinator())
        run.hears("coordinator ended by signal 9")
        run.touch("go")
        assert run.ends() == 1, run.story()
        assert re.search(r"\[w\d\] syncline: worker \d ended without session.close\(\), and could not leave", run.out)
        assert "Traceback" not in run.out, run.story()
        assert "w0 ended with exit code 0" not in run.err
