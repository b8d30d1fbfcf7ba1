"""Liveness beyond an open connection; who may join; and what the run waits for at its end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from engine import Run, running, until
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello, Refused
from syncline.engines.net.wiring import Wiring, connect_coordinator

DAEMON = """
begin()
if rank == 1:
    step()
    if os.fork() == 0:
        os.setsid()
        say("daemon", os.getpid())
        while not there("go"):
            time.sleep(0.01)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
steps_until("enough")
session.close()
"""


def test_a_worker_is_dead_though_a_daemon_holds_its_connections(tmp_path: Path) -> None:
    """The others continue while the daemon lives: the report of the launcher that started the worker counts."""
    with running(tmp_path, DAEMON, "-n", "2", "--sync", "bsp") as run:
        run.hears("daemon")
        run.hears(r"\[w0\] under way")
        run.touch("enough")
        assert run.ends() == 0, run.story()
        assert "w1 ended by signal 9" in run.err
        run.touch("go")


AFTER = """
begin()
for _ in range(5):
    step()
session.close()
say("closed")
while not there("go"):
    time.sleep(0.01)
say("saved")
"""


def test_a_server_that_dies_when_all_is_done_harms_nobody(tmp_path: Path) -> None:
    with running(tmp_path, AFTER, "-n", "2") as run:
        run.hears("closed", 2)
        run.kill(run.server(0))
        run.hears("server")
        run.touch("go")
        assert run.ends() == 0, run.story()
        assert run.out.count("saved") == 2


STOPPED = """
if os.environ["SYNCLINE_WORKER"] == "1":
    session = syncline.connect()
    say("connected")
    os.kill(os.getpid(), signal.SIGSTOP)
    tables = session.tables({"w": np.zeros(50_000), "b": np.zeros(10)})
begin()
steps_until("go")
session.close()
"""


@pytest.mark.slow
def test_a_worker_that_is_stopped_before_the_run_begins_does_not_delay_it_forever(tmp_path: Path) -> None:
    with running(tmp_path, STOPPED, "-n", "2", SYNCLINE_PATIENCE="1") as run:
        run.hears("connected")
        run.hears(r"\[w0\] under way")
        run.touch("go")
        assert run.ends() == 0, run.story()
        assert "stopped for more than 1 s" in run.err


UNTIL = """
begin()
steps_until("go")
session.close()
"""


def test_a_server_that_is_stopped_ends_the_run(tmp_path: Path) -> None:
    with running(tmp_path, UNTIL, "-n", "2", SYNCLINE_PATIENCE="1") as run:
        run.hears("under way", 2)
        run.kill(run.server(0), signal.SIGSTOP)
        assert run.ends() == 1, run.story()
        assert "server0 has been stopped for more than 1 s" in run.err


GRANDCHILD = """
begin()
if rank == 0:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    say("child", child.pid)
steps_until("never")
"""


def test_the_launcher_is_killed_and_what_its_workers_have_started_is_too(tmp_path: Path) -> None:
    with running(tmp_path, GRANDCHILD, "-n", "2") as run:
        run.hears("under way", 2)
        child = int(run.hears(r"child (\d+)")[1])
        assert child in run.processes()
        run.kill(run.process.pid)
        run.ends()
        run.gone()


def caller(run: Run, hello: Hello) -> Connection:
    """A connection to the coordinator of this run, by its name on this host."""
    pid = run.worker(0)
    words = dict(word.partition("=")[::2] for word in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    return connect_coordinator(Wiring(coordinator=words["SYNCLINE_COORDINATOR"]), hello)


@pytest.mark.parametrize("role", ["worker", "agent"])
def test_nobody_can_join_a_run_that_does_not_listen(role: str, tmp_path: Path) -> None:
    with running(tmp_path, UNTIL, "-n", "1") as run:
        run.hears("under way")
        assert not listens_on_tcp(run)
        wire = caller(run, Hello("", role))
        answers: list[object] = []

        def refused() -> bool:
            try:
                answers.extend(message for message, _ in wire.receive(lambda *_: memoryview(b"")))
            except EOFError:
                return True
            return bool(answers)

        until(refused, "an answer")
        wire.close()
        assert [each for each in answers if isinstance(each, Refused) and "--listen" in each.reason]
        run.touch("go")
        assert run.ends() == 0, run.story()


def listens_on_tcp(run: Run) -> bool:
    """Does any of its processes listen on TCP?"""
    ours = run.sockets()
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return any(line[9] in ours for line in lines if line[3] == "0A")


READER = """
begin()
say("takes part")
steps_until("go")
session._replicas[0].leave()
while rank == 1 and not there("read"):  # a large model takes its time
    time.sleep(0.01)
session._replicas[0].read_final()
say("read", float(tables["b"][0]))
session._cut()
"""


def test_the_run_waits_for_a_worker_that_still_reads_the_final_parameters(tmp_path: Path) -> None:
    """One has joined and reads when the run's own worker has ended, so that nobody else needs the servers."""
    with running(tmp_path, READER, "-n", "1", "--listen", "127.0.0.1:0", "--sync", "asp") as run:
        where = run.hears(r"--join (\S+)")[1]
        with running(tmp_path, READER, "-n", "1", "--join", where) as joined:
            joined.hears("takes part")
            own = run.worker(0)
            run.touch("go")
            until(lambda: not Path(f"/proc/{own}").exists(), "the end of the run's own worker, which its launcher sees")
            run.touch("read")
            assert joined.ends() == 0, joined.story()
        assert run.ends() == 0, run.story()
        finals = {word.split()[-1] for word in (run.out + joined.out).splitlines() if "read" in word}
        assert len(finals) == 1


def test_the_test_finds_a_listener(tmp_path: Path) -> None:
    with running(tmp_path, UNTIL, "-n", "1", "--lane", "tcp") as run:
        run.hears("under way")
        assert listens_on_tcp(run)
        run.touch("go")
        assert run.ends() == 0, run.story()
