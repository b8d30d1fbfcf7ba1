"""A coordinator that replays the journal of a real run sends the same frames on every connection, to the byte."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator_record import RECORD, entries, recorded, replayed
from engine import Run, running
from samples import sampled
from syncline.engines.coordinator import launchers
from syncline.engines.coordinator.journal import FactRead

PROGRAM = """
session = syncline.connect()
rank = session.rank
tables = session.tables({"a": np.zeros(9000), "b": np.zeros(700)}, **eval(sys.argv[1]))
changed, made = False, 0
while not there("end") or session.iteration < int(Path("end").read_text()):
    if rank == 0 and there("go") and not there("end"):
        Path("end.new").write_text(str(session.iteration + 10))
        os.rename("end.new", "end")
    step(-1)
    made += 1
    if made == 3:
        say("training")
    if rank == 0 and there("change") and not changed:
        changed = True
        session.change(sync="ssp:2")
        say("changed")
    if rank == 0 and session.iteration % 20 == 0:
        say("at", session.iteration)
    time.sleep(0.01)
session.close()
"""

LISTEN = ("--listen", "127.0.0.1:0")
SERVERS = ("-n2", "--servers", "2", "--restarts", "2", "--bucket", "4KiB", *LISTEN)
TREE = ("-n3", "--strategy", "tree:topology=chain,consistency=ssp:3,durable=true", "--restarts", "2", *LISTEN)
EXCHANGE = ("-n3", "--strategy", "exchange:partitions=2,tau=1", "--restarts", "2", *LISTEN)


def nothing_happens(run: Run) -> None:
    run.hears("at 40")


def a_worker_joins(run: Run) -> None:
    """It runs the same program, which is told what the workers of the run were told."""
    words = [(run.directory / "words").read_text()]
    with running(run.directory, PROGRAM, "--join", run.hears(r"--join (\S+)")[1], "-n1", words=words) as other:
        other.hears("training")
        run.touch("go")
        assert other.ends() == 0, other.story()


def a_server_joins_and_leaves(run: Run) -> None:
    options = ("--join", run.hears(r"--join (\S+)")[1], "-n0", "--servers", "1")
    with running(run.directory, "", *options) as other:
        run.hears("server 2: has joined")
        other.kill(other.process.pid, signal.SIGTERM)
        assert other.ends() == 130, other.story()
    run.hears("server 2: has left")


def a_server_dies(run: Run) -> None:
    run.kill(run.server(1))
    run.hears("server 1: has started again")


def a_worker_dies(run: Run) -> None:
    run.kill(run.worker(1))
    run.hears(r"w1 ended by signal 9 \(SIGKILL\); it is restarted")
    run.hears(r"\[w1\] training", 2)


def the_model_changes(run: Run) -> None:
    run.touch("change")
    run.hears("changed")


CASES: dict[str, tuple[tuple[str, ...], Callable[[Run], None]]] = {
    "plain": (SERVERS, nothing_happens),
    "join": (SERVERS, a_worker_joins),
    "move": (SERVERS, a_server_joins_and_leaves),
    "server loss": (SERVERS, a_server_dies),
    "worker loss": (SERVERS, a_worker_dies),
    "change": ((*SERVERS, "--sync", "bsp"), the_model_changes),
    "tree": (TREE, a_server_dies),
    "tree join": (TREE, a_worker_joins),
    "exchange": (EXCHANGE, a_worker_dies),
    "exchange join": (EXCHANGE, a_worker_joins),
}


@pytest.mark.parametrize("case", sampled(CASES, "move"))
def test_a_replay_sends_the_same(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, happens = CASES[case]
    words = ['{"rule": "sgd:1"}'] if options[2] == "2" else ["{}"]
    (tmp_path / "words").write_text(words[0])
    with running(tmp_path, PROGRAM, *options, words=words, **{RECORD: str(tmp_path)}) as run:
        run.hears("training", int(options[0][2:]))
        happens(run)
        run.touch("go")
        assert run.ends() == 0, run.story()
    monkeypatch.setattr(launchers, "outlive_parent", lambda: None)
    inputs, sent = entries(tmp_path), recorded(tmp_path)
    again = replayed(tmp_path, inputs)
    assert len(again) >= 5
    for number, frames in again.items():
        assert frames == sent[number], number
    whole = [at for at, entry in enumerate(inputs) if at and not isinstance(entry, FactRead)]
    for at in whole[:: max(len(whole) // 7, 1)]:  # and so does one that was killed earlier
        for number, frames in replayed(tmp_path, inputs[:at]).items():
            assert frames == sent[number][: len(frames)], number


def test_nothing_is_written_without_restarts(tmp_path: Path) -> None:
    options = ("-n2", "--servers", "2")
    words = ['{"rule": "sgd:1"}']
    with running(tmp_path, PROGRAM, *options, words=words, TMPDIR=str(tmp_path)) as run:
        run.hears("training", 2)
        assert not list(tmp_path.glob("syncline-*")), run.story()
        run.touch("go")
        assert run.ends() == 0, run.story()
