"""Runs on a Ray cluster of several nodes on this machine: `syncline run --engine ray` and `syncline.ray.run`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import lanes
from ray_cluster import SECONDS, RayCluster, RayProgram, eventually, ray_cluster

FUNCTION = """
import os, sys, time
from pathlib import Path
import numpy as np
import syncline
import syncline.ray

folder, steps = Path(sys.argv[1]), int(sys.argv[2])

def train():
    session = syncline.connect()
    tables = session.tables({"w": np.zeros(3000, np.float32)})
    said = False
    while session.iteration < steps or (steps == 0 and not (folder / "go").exists()):
        session.update("w", np.full(3000, 1.0, np.float32))
        session.clock()
        session.sync()
        if not said and session.iteration > 3:
            print("training with", len(session.members), flush=True)
            said = True
        (folder / f"members{session.rank}").write_text(str(len(session.members)))
        if steps == 0:
            time.sleep(0.01)
    session.close()
    return session.rank, float(tables["w"][0])

if __name__ == "__main__":
    found = syncline.ray.run(train, **eval(sys.argv[3]), address=sys.argv[4])
    print("RETURNED", sorted(found), flush=True)
"""


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    with ray_cluster() as made:
        yield made


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def function_run(cluster: RayCluster, stack: ExitStack, folder: Path, steps: int, **options: object) -> RayProgram:
    program = folder / "function.py"
    program.write_text(FUNCTION)
    return RayProgram(cluster, stack, program, folder, steps, repr(options), cluster.address)


def command_run(cluster: RayCluster, *words: object) -> subprocess.CompletedProcess[str]:
    command = lanes.command("--engine", "ray", "--address", cluster.address, *words)
    return subprocess.run(command, env=cluster.environment, capture_output=True, text=True, timeout=SECONDS)


def test_a_run_on_two_nodes(cluster: RayCluster, tmp_path: Path) -> None:
    """One worker and one server on each. The command prints and writes what it does on one host."""
    cluster.add(2)
    report = tmp_path / "report.json"
    done = command_run(cluster, "-n", 4, "--report", report, lanes.__file__, tmp_path, 5)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert [each["server"] for each in found["servers"]] == [0, 1]
    assert [each["worker"] for each in found["workers"]] == ["w0", "w1", "w2", "w3"]
    assert len({(tmp_path / f"worker{worker}.npy").read_bytes() for worker in range(4)}) == 1
    too_many = command_run(cluster, "-n", 5, lanes.__file__, tmp_path, 5)
    assert too_many.returncode == 2
    assert too_many.stderr.count("\n") == 1, too_many.stderr
    assert "--workers: 5 do not fit: the cluster has 4 CPUs on 2 nodes" in too_many.stderr


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--sync", "bsp"], ["--strategy", "exchange"], ["--strategy", "tree"]])
def test_every_strategy_runs_on_two_nodes(cluster: RayCluster, tmp_path: Path, options: list[str]) -> None:
    """Under bsp, to the bits of a run on one host."""
    cluster.add(2)
    done = command_run(cluster, "-n", 4, "--lane", "tcp", *options, lanes.__file__, tmp_path, 10)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [np.load(tmp_path / f"worker{worker}.npy") for worker in range(4)]
    for other in found[1:]:
        assert np.allclose(found[0], other, rtol=0, atol=0 if "bsp" in options else 1e-4)
    if "bsp" in options:
        (tmp_path / "alone").mkdir()
        alone = lanes.run_drawn(tmp_path / "alone", 10, "-n", 4, *options)
        assert np.array_equal(alone.params(0), found[0])


@pytest.mark.slow
def test_a_function_returns_what_each_worker_returned(cluster: RayCluster, stack: ExitStack, tmp_path: Path) -> None:
    cluster.add(2)
    run = function_run(cluster, stack, tmp_path, 10, workers=4, servers=2, sync="bsp")
    assert run.end() == 0, run.text
    assert "RETURNED [(0, 10.0), (1, 10.0), (2, 10.0), (3, 10.0)]" in run.text


@pytest.mark.slow
def test_a_program_that_fails_ends_the_run_with_its_error(cluster: RayCluster, tmp_path: Path) -> None:
    program = tmp_path / "failing.py"
    program.write_text("import syncline\nsession = syncline.connect()\nraise ValueError(f'worker {session.rank}')\n")
    done = command_run(cluster, "-n", 2, program)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "failing.py:3: ValueError: worker" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_an_interrupt_ends_the_run(cluster: RayCluster, stack: ExitStack, tmp_path: Path) -> None:
    run = function_run(cluster, stack, tmp_path, 0, workers=2)
    run.line_with("[w1] training")
    run.interrupt()
    assert run.end() != 0
    eventually(lambda: not cluster.processes("syncline"), "the end of all processes of the run")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["worker", "server", "actor", "node"])
def test_the_run_goes_on_without_what_dies(cluster: RayCluster, stack: ExitStack, tmp_path: Path, what: str) -> None:
    node = cluster.add(2)
    run = function_run(cluster, stack, tmp_path, 0, workers=4, servers=2, sync="ssp:3")
    for worker in range(4):
        run.line_with(f"[w{worker}] training")
    if what == "node":
        cluster.kill(node)
        run.line_with("host 2 with 2 workers is lost")
    else:
        words = {"worker": "function_worker", "server": "syncline.engines.server 1", "actor": "ray::HostActor"}
        pids = cluster.processes(words[what])
        os.kill(pids[-1], signal.SIGKILL)
        run.line_with({"worker": "ended by signal 9", "server": "server 1: ", "actor": "is lost"}[what])
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text
    assert "RETURNED [(" in run.text


@pytest.mark.slow
def test_lost_workers_are_replaced_if_restarts_are_left(cluster: RayCluster, stack: ExitStack, tmp_path: Path) -> None:
    """Ray still keeps the CPUs of the actor that died, so two workers join there."""
    cluster.add(2)
    run = function_run(cluster, stack, tmp_path, 0, workers=4, servers=2, sync="ssp:3", restarts=2)
    for worker in range(4):
        run.line_with(f"[w{worker}] training")
    os.kill(cluster.processes("ray::HostActor")[-1], signal.SIGKILL)
    for worker in (4, 5):
        run.line_with(f"[w{worker}] training with")
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text


@pytest.mark.slow
def test_a_run_grows_with_the_cluster_and_shrinks_again(cluster: RayCluster, stack: ExitStack, tmp_path: Path) -> None:
    """A second node comes, and Ray takes it away again: no other worker is started again."""

    def members(count: int) -> bool:
        return (tmp_path / "members0").exists() and (tmp_path / "members0").read_text() == str(count)

    run = function_run(cluster, stack, tmp_path, 0, workers=(2, 4), sync="ssp:3", servers=1)
    run.line_with("[w1] training")
    node = cluster.add(2)
    eventually(lambda: members(4), "four workers")
    cluster.drain(node)
    run.line_with("Ray is about to take its node away")
    eventually(lambda: members(2), "two workers")
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text
    assert run.text.count("[w0] training") == 1
