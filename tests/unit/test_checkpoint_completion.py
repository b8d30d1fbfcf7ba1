"""When the coordinator completes a checkpoint of the run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from syncline.engines.coordinator.outside import Unrecorded
from syncline.engines.coordinator.run_checkpoints import MOST_PENDING, RunCheckpoints
from syncline.engines.net.control import CheckpointWhole, CheckpointWritten, SaveNow
from syncline.engines.net.wiring import Wiring
from syncline.engines.saving.folder import read_manifest, step_folder, steps_in
from syncline.errors import PeerError
from syncline.messages import worker_id


class Office:
    """The checkpoints of a run with three workers."""

    def __init__(self, folder: Path, **wiring: str) -> None:
        self.members = {0, 1, 2}
        self.said: list[str] = []
        self.told: list[object] = []
        self.folder = folder
        models = {"model": {"sync": "bsp", "rule": "mean"}}
        found = Wiring(save_to=str(folder), save_every="10", program="p.py", **wiring)
        self.checkpoints = RunCheckpoints(
            found, (3, 1), lambda: models, lambda: self.members, self.said.append, self.told.append, Unrecorded()
        )

    def hears(self, worker: int, step: int, **more: Any) -> None:
        files = {f"worker-{worker}.json": (2, 7)}
        message = CheckpointWritten(step, step, **{"files": files, "has_models": worker == 0, **more})
        peer: Any = SimpleNamespace(id=worker_id(worker), hello=SimpleNamespace(host="here"))
        self.checkpoints.written(peer, message)

    def dies(self, worker: int) -> None:
        self.members.discard(worker)
        self.checkpoints.complete()


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_it_is_whole_when_all_members_have_written(office: Office) -> None:
    for worker in (2, 0):
        office.hears(worker, 10)
        assert not steps_in(office.folder)
    office.hears(1, 10)
    manifest = read_manifest(step_folder(office.folder, 10))
    assert set(manifest.saved) == {"0", "1", "2"}
    assert manifest.models == {"model": {"sync": "bsp", "rule": "mean"}}
    assert (manifest.step, manifest.workers, manifest.servers, manifest.program) == (10, 3, 1, "p.py")
    assert not office.said
    assert office.told == [CheckpointWhole(10)]


def test_a_worker_that_dies_is_not_waited_for(office: Office) -> None:
    office.hears(0, 10)
    office.hears(1, 10)
    office.dies(2)
    assert set(read_manifest(step_folder(office.folder, 10)).saved) == {"0", "1"}


def test_without_the_models_it_is_not_whole(office: Office) -> None:
    office.hears(1, 10)
    office.hears(2, 10)
    office.dies(0)
    assert not steps_in(office.folder)
    assert office.said == ["the checkpoint of step 10 is not complete: no worker has written the models"]
    office.hears(1, 20, has_models=True)
    office.hears(2, 20)
    assert set(steps_in(office.folder)) == {20}


def test_a_part_that_cannot_be_written_is_named_once(office: Office) -> None:
    for worker in (0, 1, 2):
        office.hears(worker, 10, problem="disk full", files={})
    assert office.said == ["worker 0 could not write its checkpoint of step 10: disk full"]
    assert not steps_in(office.folder)


def test_an_older_one_does_not_come_after_a_newer_one(office: Office) -> None:
    office.hears(0, 10)
    for worker in (0, 1, 2):
        office.hears(worker, 20)
    for worker in (1, 2):
        office.hears(worker, 10)
    assert set(steps_in(office.folder)) == {20}


def test_a_member_cannot_fill_the_memory_or_name_other_files(office: Office) -> None:
    for step in range(1000):
        office.hears(0, step)
    assert len(office.checkpoints._written) == MOST_PENDING
    for name in (
        "../../etc/passwd",
        "worker-1.json",
        "checkpoint.json",
        "model-../x.safetensors",
        ".worker-0.json.new",
    ):
        with pytest.raises(PeerError, match="no file of its checkpoint"):
            office.hears(0, 2000, files={name: (1, 1)})


def test_by_time_all_are_told_to_save(office: Office) -> None:
    office.checkpoints.due(30)
    assert office.told == [SaveNow(30)]


def test_what_has_changed_is_said(tmp_path: Path) -> None:
    office = Office(tmp_path)
    for worker in (0, 1, 2):
        office.hears(worker, 10)
    again = Office(tmp_path, resume=str(step_folder(tmp_path, 10)))
    again.checkpoints.compare("model", {"sync": "ssp:3", "rule": "mean", "bucket": "1MiB"})
    assert again.said == [
        f"resumes from step 10: {step_folder(tmp_path, 10)}",
        "sync is ssp:3; the checkpoint was written with bsp",
    ]
