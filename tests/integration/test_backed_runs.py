"""Servers with backups are killed with SIGKILL: also what the rule remembers is there, to the bit."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from engine import Run, running
from samples import sampled

NUMPY = """
import hashlib
session = syncline.connect()
rank = session.rank
random = np.random.default_rng(1)
first = {"a": random.standard_normal(9000).astype(np.float32), "b": random.standard_normal(3000).astype(np.float32)}
tables = session.tables(first, rule=sys.argv[1])
done = 0
def go(steps):
    global done
    for _ in range(steps):
        for name, table in tables.items():
            session.update(name, np.sin(table * (3 + rank) + done))
        session.clock()
        session.sync()
        done += 1
        time.sleep(0.01)
def wait_for(name):
    while len(sys.argv) > 2 and not session.any(there(name)):  # empty rounds change nothing
        session.clock()
        session.sync()
        time.sleep(0.01)
go(10)
if rank == 0:
    say("ten")
wait_for("go on")
go(10)
if rank == 0:
    say("twenty")
wait_for("end")
go(20)
say("ends with", hashlib.sha256(b"".join(tables[name].tobytes() for name in sorted(tables))).hexdigest())
session.close()
"""

PYTORCH = """
import hashlib, torch
torch.manual_seed(0)
session = syncline.connect()
rank = session.rank
model = torch.nn.Sequential(torch.nn.Linear(32, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
optimizer = session.distribute(model, rule="adam:0.01")
chance = torch.Generator().manual_seed(rank)
for i in range(40):
    if i == 10 and rank == 0:
        say("ten")
    images, labels = torch.randn(16, 32, generator=chance), torch.randint(0, 10, (16,), generator=chance)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    time.sleep(0.02)
session.wait()
say("ends with", hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters())).hexdigest())
session.close()
"""

OPTIONS = ("-n2", "--bucket", "4KiB", "--report", "report.json")
LANES = ("shm", "tcp")


def result(run: Run, workers: int = 2) -> str:
    """What the workers of a run that succeeds end with."""
    assert run.ends() == 0, run.story()
    assert "Traceback" not in run.out + run.err, run.story()
    found = [line.split()[-1] for line in run.out.splitlines() if "ends with" in line]
    assert len(found) == workers, run.story()
    assert len(set(found)) == 1, run.story()
    assert "restored_buckets" not in json.loads((run.directory / "report.json").read_text()), run.story()
    return found[0]


def calm(tmp_path: Path, body: str, lane: str, *words: str) -> str:
    with running(tmp_path, body, *OPTIONS, "--servers", "2", "--lane", lane, words=words) as run:
        return result(run)


@pytest.mark.parametrize(("lane", "server"), sampled([(lane, n) for lane in LANES for n in (0, 1)], ("tcp", 1)))
def test_numpy_ends_with_the_same_parameters(lane: str, server: int, tmp_path: Path) -> None:
    expected = calm(tmp_path, NUMPY, lane, "momentum:0.1")
    options = (*OPTIONS, "--servers", "2", "--backups", "1", "--lane", lane)
    with running(tmp_path, NUMPY, *options, words=["momentum:0.1"]) as run:
        run.hears("ten")
        run.kill(run.server(server))
        run.hears(f"server{1 - server}: took over .* buckets as the backup of a dead server")
        run.hears(f"server {server}: is lost; the others go on without it")
        assert result(run) == expected


@pytest.mark.slow
@pytest.mark.parametrize("lane", LANES)
def test_pytorch_ends_with_the_same_parameters(lane: str, tmp_path: Path) -> None:
    expected = calm(tmp_path, PYTORCH, lane)
    with running(tmp_path, PYTORCH, *OPTIONS, "--servers", "3", "--backups", "1", "--lane", lane) as run:
        run.hears("ten")
        run.kill(run.server(1))
        assert result(run) == expected


@pytest.mark.slow
@pytest.mark.parametrize("lane", LANES)
def test_both_servers_die_one_after_the_other_and_start_again(lane: str, tmp_path: Path) -> None:
    expected = calm(tmp_path, NUMPY, lane, "adam:0.01")
    options = (*OPTIONS, "--servers", "2", "--backups", "1", "--lane", lane, "--restarts", "2")
    with running(tmp_path, NUMPY, *options, words=["adam:0.01", "waits"]) as run:
        run.hears("ten")
        run.kill(run.server(0))
        run.hears("server 0: has started again\n")
        run.touch("go on")
        run.hears("its backup is complete", 2)
        run.hears("twenty")
        run.kill(run.server(1))
        run.hears("server 1: has started again\n")
        run.touch("end")
        assert result(run) == expected


@pytest.mark.slow
@pytest.mark.parametrize("server", [0, 1, 2])
def test_a_server_dies_while_another_one_leaves(server: int, tmp_path: Path) -> None:
    expected = calm(tmp_path, NUMPY, "tcp", "momentum:0.1")
    with running(tmp_path, NUMPY, *OPTIONS, "--servers", "3", "--backups", "1", words=["momentum:0.1"]) as run:
        run.hears("ten")
        leaving, dying = run.server(1), run.server(server)
        os.kill(leaving, signal.SIGTERM)
        run.hears("server 1: is leaving")
        run.kill(dying)
        assert result(run) == expected


def test_without_a_copy_at_the_workers_the_backup_is_enough(tmp_path: Path) -> None:
    """In mode changes, a gate that skips fetches leaves no worker with a copy."""
    options = ("-n2", "--servers", "2", "--sync", "ssp:2", "--gate", "every:fetch=3", "--backups", "1")
    body = NUMPY.replace("rule=sys.argv[1]", 'mode="changes"')
    with running(tmp_path, body, *options) as run:
        run.hears("ten")
        run.kill(run.server(1))
        run.hears("server 1: is lost; the others go on without it")
        assert run.ends() == 0, run.story()
