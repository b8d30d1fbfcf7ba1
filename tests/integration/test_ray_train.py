"""Ray Train with `SynclineConfig`, on a Ray cluster of two nodes on this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import ray_digits
from lanes import command, environment
from ray_cluster import RayCluster, RayProgram, eventually, ray_cluster
from remote import Loopback, Running

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    with ray_cluster() as made:
        yield made


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def begin(cluster: RayCluster, stack: ExitStack, folder: Path, **config: object) -> RayProgram:
    return RayProgram(cluster, stack, ray_digits.__file__, folder, repr(config), cluster.address)


def starts(folder: Path, rank: int, size: int) -> int:
    """How many times a worker with this rank has begun to train in a run with so many workers."""
    return len(list(folder.glob(f"start-{rank}-of-{size}-*")))


def test_under_bsp_the_parameters_are_those_of_syncline_run(
    cluster: RayCluster, stack: ExitStack, tmp_path: Path
) -> None:
    """Two workers, one on each node."""
    cluster.add(1)
    scaling = {"placement_strategy": "SPREAD"}
    run = begin(cluster, stack, tmp_path, workers=2, epochs=4, scaling=scaling, settings={"sync": "bsp"}, reports=True)
    assert run.end() == 0, run.text
    assert "RESULT {'epoch': 3} Checkpoint(" in run.text
    (tmp_path / "alone").mkdir()
    words = command("-n", "2", ray_digits.__file__, tmp_path / "alone")
    alone = Running(Loopback(stack), command=words, **{**environment(), "OMP_NUM_THREADS": "1"})
    assert alone.end() == 0, alone.text
    for worker in range(2):
        ours, expected = (np.load(each / f"worker{worker}.npy") for each in (tmp_path, tmp_path / "alone"))
        assert np.array_equal(ours, expected)


@pytest.mark.parametrize("settings", [{"sync": "ssp:3"}, {"strategy": "exchange"}, {"strategy": "tree"}])
def test_every_strategy_trains_digits(
    cluster: RayCluster, stack: ExitStack, tmp_path: Path, settings: dict[str, str]
) -> None:
    cluster.add(2)
    run = begin(cluster, stack, tmp_path, workers=4, epochs=60, settings=settings)
    assert run.end() == 0, run.text
    assert min(float((tmp_path / f"accuracy{rank}").read_text()) for rank in range(4)) >= 0.95


def test_a_worker_that_dies_is_replaced_and_the_others_train_on(
    cluster: RayCluster, stack: ExitStack, tmp_path: Path
) -> None:
    cluster.add(2)
    run = begin(
        cluster, stack, tmp_path, workers=4, until_go=True, failures=2, settings={"sync": "ssp:3"}
    )  # fmt: skip
    for rank in range(4):
        run.line_with(f"training {rank} of 4")
    victims = cluster.processes("ray::RayTrainWorker")
    os.kill(victims[-1], signal.SIGKILL)
    run.line_with("training 4 of 4")
    eventually(lambda: (tmp_path / "members4").exists(), "the steps of the new worker")
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text
    assert [starts(tmp_path, rank, 4) for rank in range(5)] == [1] * 5, "the others were not started again"


@pytest.mark.parametrize("what", ["server", "node"])
def test_training_goes_on_when_a_server_or_a_node_dies(
    cluster: RayCluster, stack: ExitStack, tmp_path: Path, what: str
) -> None:
    """A node takes its workers along, so Ray Train starts all workers again, from the last checkpoint."""
    node = cluster.add(2)
    workers = 4 if what == "server" else (2, 4)
    run = begin(
        cluster, stack, tmp_path, workers=workers, until_go=True, reports=True, failures=3, settings={"sync": "ssp:3"}
    )  # fmt: skip
    for rank in range(4):
        run.line_with(f"training {rank} of 4 from epoch 0")
    eventually(lambda: list((tmp_path / "storage").rglob("model.pt")), "a checkpoint")
    if what == "server":
        os.kill(cluster.processes("syncline.engines.server 1")[0], signal.SIGKILL)
        run.line_with("server 1: is lost; the others go on without it")
    else:
        cluster.kill(node)
        assert "from epoch 0" not in run.line_with("training 0 of 2")
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text


def test_an_elastic_run_grows_from_two_to_four_workers_and_shrinks(
    cluster: RayCluster, stack: ExitStack, tmp_path: Path
) -> None:
    """Ray Train starts all workers again at each change; they go on from the last checkpoint."""
    run = begin(
        cluster, stack, tmp_path, workers=(2, 4), until_go=True, reports=True, failures=3,
        scaling={"elastic_resize_monitor_interval_s": 2}, settings={"sync": "ssp:3"},
    )  # fmt: skip
    run.line_with("training 1 of 2 from epoch 0")
    eventually(lambda: list((tmp_path / "storage").rglob("model.pt")), "a checkpoint")
    node = cluster.add(2)
    assert "from epoch 0" not in run.line_with("training 3 of 4")
    cluster.kill(node)
    eventually(lambda: starts(tmp_path, 1, 2) == 2, "two workers")
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text
