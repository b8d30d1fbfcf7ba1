"""A server is killed with SIGKILL: the run goes on, and under bsp the final parameters are the same to the bit."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from engine import Run, running
from samples import sampled

STEPS = 60

NUMPY = f"""
import hashlib
mode = sys.argv[1]
session = syncline.connect()
rank, words = session.rank, {{"rule": "sgd:0.1"}} if mode == "rule" else {{"mode": mode}}
random = np.random.default_rng(1)
first = {{"a": random.standard_normal(9000).astype(np.float32), "b": random.standard_normal(3000).astype(np.float32)}}
tables = session.tables(first, **words)
own = {{name: values.copy() for name, values in tables.items()}}
for i in range({STEPS}):
    if i == 20 and rank == 0:
        say("twenty")
    if i == 40 and rank == 0:
        say("forty")
    for name, table in tables.items():
        update = np.sin((own[name] if mode == "gradients" else table) * (3 + rank) + i)
        session.update(name, update * np.float32(-0.1 if mode == "changes" else 1))
    session.clock()
    session.sync()
    for name in tables if mode == "gradients" else ():
        own[name] -= np.float32(0.1) * tables[name]
    time.sleep(0.02)
found = own if mode == "gradients" else tables
say("ends with", hashlib.sha256(b"".join(found[name].tobytes() for name in sorted(found))).hexdigest())
session.close()
"""

PYTORCH = f"""
import hashlib, torch
torch.manual_seed(0)
session = syncline.connect()
rank, mode = session.rank, sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(32, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = session.distribute(model, optimizer, mode=mode)
chance = torch.Generator().manual_seed(rank)
for i in range({STEPS}):
    if i == 20 and rank == 0:
        say("twenty")
    images, labels = torch.randn(16, 32, generator=chance), torch.randint(0, 10, (16,), generator=chance)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    time.sleep(0.02)
session.wait()
say("ends with", hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in model.parameters())).hexdigest())
session.close()
"""

OPTIONS = ("-n2", "--servers", "2", "--bucket", "4KiB", "--report", "report.json")
LANES = ("shm", "tcp")


def result(run: Run) -> set[str]:
    """What the workers end with, of a run that succeeds."""
    assert run.ends() == 0, run.story()
    assert "Traceback" not in run.out + run.err, run.story()
    found = [line.split()[-1] for line in run.out.splitlines() if "ends with" in line]
    assert len(found) == 2, run.story()
    return set(found)


def calm(tmp_path: Path, body: str, mode: str, lane: str) -> set[str]:
    with running(tmp_path, body, *OPTIONS, "--lane", lane, words=[mode]) as run:
        found = result(run)
    assert len(found) == 1
    assert "restored_buckets" not in json.loads((tmp_path / "report.json").read_text())
    return found


def report(tmp_path: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((tmp_path / "report.json").read_text())
    return found


@pytest.mark.parametrize(("mode", "lane"), sampled(product(["gradients", "changes"], LANES)))
def test_pytorch_ends_with_the_same_parameters(mode: str, lane: str, tmp_path: Path) -> None:
    expected = calm(tmp_path, PYTORCH, mode, lane)
    with running(tmp_path, PYTORCH, *OPTIONS, "--lane", lane, words=[mode]) as run:
        run.hears("twenty")
        run.kill(run.server(1))
        run.hears("server 1: is lost; the others go on without it")
        assert result(run) == expected
    assert report(tmp_path)["restored_buckets"] > 0
    assert report(tmp_path)["lost_updates"] == 0


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("mode", ["rule", pytest.param("gradients", marks=pytest.mark.slow)])
def test_numpy_ends_with_the_same_parameters(mode: str, lane: str, tmp_path: Path) -> None:
    expected = calm(tmp_path, NUMPY, mode, lane)
    with running(tmp_path, NUMPY, *OPTIONS, "--lane", lane, words=[mode]) as run:
        run.hears("twenty")
        run.kill(run.server(0))
        run.hears("buckets were restored from the workers' copies")
        assert result(run) == expected


@pytest.mark.parametrize("lane", sampled(LANES, "tcp"))
def test_both_servers_die_one_after_the_other_and_start_again(lane: str, tmp_path: Path) -> None:
    expected = calm(tmp_path, NUMPY, "changes", lane)
    with running(tmp_path, NUMPY, *OPTIONS, "--lane", lane, "--restarts", "2", words=["changes"]) as run:
        run.hears("twenty")
        run.kill(run.server(0))
        run.hears("server 0: has started again\n")
        run.hears("forty")
        run.kill(run.server(1))
        run.hears("server 1: has started again\n")
        assert result(run) == expected


def test_the_only_server_dies_and_comes_back(tmp_path: Path) -> None:
    """One worker more, so that an answer that was cut off at one of them is whole at another."""
    options = ("-n3", "--servers", "1", "--restarts", "1", "--bucket", "4KiB")
    with running(tmp_path, NUMPY, *options, words=["changes"]) as run:
        run.hears("twenty")
        run.kill(run.server(0))
        run.hears("server 0: has started again\n")
        assert run.ends() == 0, run.story()
        assert len({line.split()[-1] for line in run.out.splitlines() if "ends with" in line}) == 1, run.story()


def test_without_copies_the_run_ends(tmp_path: Path) -> None:
    """In mode changes, a gate that skips fetches leaves no worker with a copy."""
    options = ("-n2", "--servers", "2", "--sync", "asp", "--gate", "every:fetch=3")
    with running(tmp_path, NUMPY, *options, words=["changes"]) as run:
        run.hears("twenty")
        run.kill(run.server(1))
        assert run.ends() == 1, run.story()
        assert "server1" in run.err.splitlines()[-1], run.story()
