"""Strategy `tree` in real processes: nodes that are killed, start again or are lost, and topologies that change.

Every update adds one to an element of its own, so each final replica shows which updates it contains, and how often.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from engine import Run, running
from samples import sampled

WORKERS = 4
STEPS = 60

LEDGER = f"""
session = syncline.connect()
rank, life = session.rank, session.incarnation
tables = session.tables({{"w": np.zeros(({WORKERS}, {STEPS})), "b": np.zeros(300_000)}})
while session.iteration < {STEPS}:
    i = session.iteration
    entry = np.zeros(({WORKERS}, {STEPS}))
    entry[rank, i] = {WORKERS}
    session.update("w", entry)
    session.clock()
    session.sync()
    if i == 10:
        say("under way")
    while i == 20 and not there("go"):
        time.sleep(0.005)
    if i == 20:
        AT
session.barrier()
session.close()
np.save(f"final{{rank}}.npy", tables["w"])
"""
"""`AT`: what a worker does in step 20. It waits there until the file `go` exists."""

LANES = ("shm", "tcp")

EVERY = [
    "eventual",
    "ssp:3",
    "approximate:20",
    "bsp",
]


def options(
    lane: str, topology: str, consistency: str, *more: str, durable: bool = True, strategy: str = "tree"
) -> list[str]:
    settings = f"topology={topology},consistency={consistency},period=0.02"
    if durable:
        settings += ",durable=true"
    return ["-n", str(WORKERS), "--lane", lane, "--strategy", f"{strategy}:{settings}", *more]


@contextmanager
def ledger(directory: Path, given: list[str], at: str = "pass", **environment: str) -> Iterator[Run]:
    """A run that has begun, and waits in its middle for the file `go`."""
    with running(directory, LEDGER.replace("AT", at), *given, **environment) as run:
        run.hears("under way", WORKERS)
        yield run
        assert run.ends() == 0, run.story()
        assert "Traceback" not in run.out + run.err, run.story()


def finals(directory: Path) -> list[np.ndarray]:
    return [np.load(directory / f"final{rank}.npy") for rank in range(WORKERS)]


def check_whole(directory: Path) -> None:
    """Every final replica has every update exactly once."""
    for final in finals(directory):
        assert np.allclose(final, 1, atol=1e-5), np.argwhere(np.abs(final - 1) > 1e-5)[:10]


CASES = [(lane, topology, kind) for lane in LANES for topology in ("chain", "star", "twin", "tree:2") for kind in EVERY]


@pytest.mark.parametrize(
    ("lane", "topology", "consistency"),
    sampled(CASES, ("shm", "chain", "ssp:3")),
)
def test_all_replicas_end_with_every_update_once(lane: str, topology: str, consistency: str, tmp_path: Path) -> None:
    with ledger(tmp_path, options(lane, topology, consistency, durable=consistency == "bsp")) as run:
        run.touch("go")
    check_whole(tmp_path)


# Nodes that die. In a chain of four, node 3 is a leaf and node 1 is a cut point.

DEATHS = [(lane, kind, victim) for lane in LANES for kind in EVERY for victim in (0, 1, 3)]


@pytest.mark.parametrize(("lane", "consistency", "victim"), sampled(DEATHS, ("shm", "bsp", 1)))
def test_a_node_that_is_killed_starts_again_and_nothing_is_lost(
    lane: str, consistency: str, victim: int, tmp_path: Path
) -> None:
    with ledger(tmp_path, options(lane, "chain", consistency, "--restarts", "1")) as run:
        run.kill(run.server(victim))
        run.touch("go")
        run.hears(rf"server{victim} ended by signal 9 \(SIGKILL\); it is restarted \(restart 1 of 1\)")
        run.hears(f"server {victim}: has started again, from its checkpoint")
    check_whole(tmp_path)


@pytest.mark.parametrize(("lane", "consistency", "victim"), sampled(DEATHS))
def test_a_node_is_lost_for_good_and_the_others_go_on_with_the_copy_of_what_it_held(
    lane: str, consistency: str, victim: int, tmp_path: Path
) -> None:
    with ledger(tmp_path, options(lane, "chain", consistency)) as run:
        run.kill(run.server(victim))
        run.touch("go")
        run.hears(f"server {victim}: is lost; the others go on without it")
    check_whole(tmp_path)


@pytest.mark.parametrize("lane", sampled(LANES, "shm"))
def test_without_durable_and_copies_the_loss_is_reported_and_the_replicas_agree(lane: str, tmp_path: Path) -> None:
    given = ["-n", str(WORKERS), "--lane", lane, "--strategy", "tree:copies=false,period=0.02"]
    with ledger(tmp_path, given) as run:
        run.kill(run.server(1))
        run.touch("go")
        run.hears("there is no copy of what server 1 held: its updates are lost")
    first, *others = finals(tmp_path)
    assert all(np.allclose(first, other, atol=1e-5) for other in others)
    assert np.allclose(first[:, 40:], 1, atol=1e-5)
    assert not first[1, :5].any()


@pytest.mark.parametrize(("lane", "consistency", "victim"), sampled(DEATHS))
def test_a_node_is_lost_for_good_and_another_one_reads_its_checkpoint_in_the_shared_directory(
    lane: str, consistency: str, victim: int, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with ledger(tmp_path, options(lane, "chain", f"{consistency},copies={shared}")) as run:
        assert [each.is_dir() for each in shared.iterdir()] == [True]
        run.kill(run.server(victim))
        run.touch("go")
        run.hears(f"server {victim}: is lost; the others go on without it")
    check_whole(tmp_path)
    assert list(shared.iterdir()) == []
    assert "are lost" not in run.err


@pytest.mark.slow
@pytest.mark.parametrize("lane", LANES)
def test_without_durable_a_node_that_starts_again_takes_the_copy_of_its_updates(lane: str, tmp_path: Path) -> None:
    """Its first checkpoint would be written after ten seconds; the copy has what is older than a period."""
    with ledger(tmp_path, options(lane, "chain", "ssp:3", "--restarts", "1", durable=False)) as run:
        run.kill(run.server(1))
        run.touch("go")
        run.hears("server 1: has started again, from its checkpoint")
    first, *others = finals(tmp_path)
    assert all(np.allclose(first, other, atol=1e-5) for other in others)
    assert np.allclose(first[:, :3], 1, atol=1e-5), first[:, :12]
    assert np.allclose(first[:, 40:], 1, atol=1e-5)


SECOND = [(lane, restarts) for lane in LANES for restarts in (0, 2)]


@pytest.mark.parametrize(("lane", "restarts"), sampled(SECOND))
def test_two_nodes_die_at_once(lane: str, restarts: int, tmp_path: Path) -> None:
    with ledger(tmp_path, options(lane, "chain", "ssp:3", "--restarts", str(restarts))) as run:
        victims = (0, 3)  # with no restart, neither of them keeps the copy of the other
        for victim in victims:
            run.kill(run.server(victim))
        run.touch("go")
        for victim in victims:
            run.hears(f"server {victim}: " + ("has started again" if restarts else "is lost"))
    check_whole(tmp_path)


@pytest.mark.parametrize("lane", sampled(LANES))
def test_a_node_that_is_stopped_is_started_again(lane: str, tmp_path: Path) -> None:
    given = options(lane, "chain", "eventual", "--restarts", "1")
    with ledger(tmp_path, given, SYNCLINE_PATIENCE="1") as run:
        stopped = run.server(1)
        run.kill(stopped, signal.SIGSTOP)
        run.touch("go")
        run.hears("server 1: has started again, from its checkpoint")
        assert run.server(1) != stopped
    check_whole(tmp_path)


@pytest.mark.slow
def test_the_run_ends_when_its_last_node_is_lost(tmp_path: Path) -> None:
    with running(tmp_path, LEDGER.replace("AT", "pass"), "-n2", "--servers", "1", "--strategy", "tree") as run:
        run.hears("under way", 2)
        run.kill(run.server(0))
        assert run.ends() == 1, run.story()
        assert re.search("server 0 was the only node; the model is lost", run.err), run.story()
        assert "Traceback" not in run.out + run.err, run.story()


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [0, 3])
def test_three_of_four_nodes_die_and_their_checkpoints_are_in_the_shared_directory(
    restarts: int, tmp_path: Path
) -> None:
    given = options("shm", "chain", f"bsp,copies={tmp_path}", "--restarts", str(restarts))
    with ledger(tmp_path, given) as run:
        for victim in (0, 2, 1):
            run.kill(run.server(victim))
        run.touch("go")
        for victim in (0, 1, 2):
            run.hears(f"server {victim}: " + ("has started again" if restarts else "is lost"))
    check_whole(tmp_path)


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("nowhere", "file"):
        with running(tmp_path, LEDGER, "-n2", "--strategy", f"tree:copies={tmp_path / folder}") as run:
            assert run.ends() == 2, run.story()
            assert f"copies: cannot write to {tmp_path / folder}: " in run.err


@pytest.mark.slow
def test_checkpoints_are_removed_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    with ledger(tmp_path, options("shm", "chain", "eventual"), TMPDIR=str(folder)) as run:
        (found,) = folder.glob("syncline-*")
        assert sorted(each.name for each in found.iterdir()) == [f"server{number}" for number in range(WORKERS)]
        assert found.stat().st_mode & 0o77 == 0
        run.touch("go")
    assert list(folder.iterdir()) == []


# Workers.


@pytest.mark.parametrize("lane", sampled(LANES))
def test_a_worker_that_is_killed_starts_again(lane: str, tmp_path: Path) -> None:
    with ledger(tmp_path, options(lane, "chain", "ssp:3", "--restarts", "1")) as run:
        run.kill(run.worker(2))
        run.hears(r"w2 ended by signal 9 \(SIGKILL\); it is restarted")
        run.touch("go")
    first, *others = finals(tmp_path)
    assert all(np.allclose(first, other, atol=1e-5) for other in others)
    assert np.allclose(first[:, 0:10], 1, atol=1e-5)


@pytest.mark.slow
def test_several_workers_per_node(tmp_path: Path) -> None:
    given = ["-n", str(WORKERS), "--strategy", "tree:workers_per_node=2,consistency=bsp,durable=true"]
    with ledger(tmp_path, given) as run:
        assert run.find("server2") is None
        run.kill(run.server(0))
        run.touch("go")
        run.hears("server 0: is lost")
    check_whole(tmp_path)


@pytest.mark.parametrize("lane", sampled(LANES))
def test_a_node_is_asked_to_leave_and_another_one_takes_over_what_it_held(lane: str, tmp_path: Path) -> None:
    with ledger(tmp_path, options(lane, "chain", "ssp:3")) as run:
        run.kill(run.server(1), signal.SIGTERM)
        run.hears("server 1: is leaving; the others take over what it holds")
        run.touch("go")
        run.hears("server 1: has left; the others hold what it held")
    check_whole(tmp_path)


# Reconfiguration.

RESHAPE = """
        if rank == 1:
            for topology in ("star", "tree:3", "0-3 1-3 1-2"):
                session.reshape(topology)
                assert session.settings["topology"] == topology
            for topology in ("0-1 1-2 0-2", "0-1 2-3", "0-1 1-2", "tree:x", "0-1 1-2 2-3 3-9", "ring"):
                try:
                    session.reshape(topology)
                except syncline.UsageError as error:
                    say("refused:", error)
"""

REFUSALS = (
    "has a loop: 0-1-2-0",
    "is in 2 pieces: 0, 1; 2, 3",
    "lacks node 3, which is alive",
    "the fan-out must be a whole number",
    "names node 9; the nodes are 0 to 3",
    "'ring' is not a topology",
)

SHAPED = [(lane, kind) for lane in LANES for kind in EVERY]


@pytest.mark.parametrize(("lane", "consistency"), sampled(SHAPED, ("shm", "eventual")))
def test_the_topology_changes_in_mid_run_and_nothing_is_lost(lane: str, consistency: str, tmp_path: Path) -> None:
    given = options(lane, "chain", consistency, durable=consistency == "bsp")
    with ledger(tmp_path, given, RESHAPE.strip()) as run:
        run.touch("go")
        for line in REFUSALS:
            run.hears(f"refused: topology: .*{re.escape(line)}")
    check_whole(tmp_path)


MERGE = """
        if rank == 1:
            for nodes in ([0, 2], [0, 9], [1], []):
                try:
                    session.merge(nodes)
                except syncline.UsageError as error:
                    say("refused:", error)
            session.merge([2, 1])
            session.merge([0, 2])
"""

UNMERGED = (
    "nodes 0, 2 are not connected with each other",
    "there is no node 9; the nodes are 0 to 3",
    "must name at least two nodes",
)


@pytest.mark.parametrize(("lane", "consistency"), sampled(SHAPED, ("tcp", "bsp")))
def test_nodes_are_merged_in_mid_run_and_nothing_is_lost(lane: str, consistency: str, tmp_path: Path) -> None:
    with ledger(tmp_path, options(lane, "chain", consistency, durable=consistency == "bsp"), MERGE.strip()) as run:
        run.touch("go")
        for line in UNMERGED:
            run.hears(f"refused: merge: .*{re.escape(line)}")
        for number, taker in ((1, 2), (2, 0)):
            run.hears(f"server {number}: is leaving; server {taker} takes over what it holds")
        for number in (1, 2):
            run.hears(f"server {number}: has left; the others hold what it held")
    check_whole(tmp_path)


@pytest.mark.parametrize(("lane", "consistency"), sampled(SHAPED, ("shm", "bsp")))
def test_nothing_waits_for_a_repeat_when_no_message_is_lost(lane: str, consistency: str, tmp_path: Path) -> None:
    """Nodes that never send a message again: merges and a node that leaves need no repeat."""
    given = options(lane, "chain", consistency, durable=consistency == "bsp", strategy="patient_tree.PatientTree")
    with ledger(tmp_path, given, MERGE.strip()) as run:
        run.kill(run.server(3), signal.SIGTERM)
        run.touch("go")
        for number in (1, 2, 3):
            run.hears(f"server {number}: has left; the others hold what it held")
    check_whole(tmp_path)


@pytest.mark.slow
def test_a_merged_node_that_is_killed_before_it_has_given_all_away_loses_nothing(tmp_path: Path) -> None:
    given = options("tcp", "chain", "ssp:3", "--restarts", "1")
    with ledger(tmp_path, given, MERGE.strip(), SYNCLINE_PATIENCE="5") as run:
        run.kill(run.server(1), signal.SIGSTOP)  # so it cannot give anything away, and is killed after 5 s
        run.touch("go")
        run.hears("server 1: is leaving; server 2 takes over what it holds")
        run.hears("server 1: has started again, from its checkpoint")
        run.hears("server 1: has left; the others hold what it held")
    check_whole(tmp_path)
