"""Checkpoints of a server: whole or not there, and read back by the next process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from syncline.effects import Save
from syncline.engines.server.checkpoint_folder import CheckpointFolder, remove
from syncline.errors import RunError
from syncline.layout import Bucket
from syncline.messages import server_id
from syncline.nodes.tree.messages import LastPush, OriginState, OriginStates

FIRST, SECOND = Bucket(0, 3), Bucket(3, 5)
STATE = OriginStates((OriginState(1, 7, (LastPush(2, 0, 41),)),))


def folder(path: Path, server: int = 1) -> CheckpointFolder:
    return CheckpointFolder(str(path / "run"), server_id(server), "a model/with a name", OriginStates)


def test_the_last_checkpoint_of_a_bucket_is_read_back(tmp_path: Path) -> None:
    folder(tmp_path).write(Save(FIRST, 1, STATE, np.zeros(3)))
    folder(tmp_path).write(Save(FIRST, 2, STATE, np.array([1.0, 2.0, 1e-300])))
    found = folder(tmp_path).read(FIRST)
    assert found == Save(FIRST, 2, STATE)
    assert found.payload is not None
    assert found.payload.dtype == np.float64
    assert found.payload.tolist() == [1.0, 2.0, 1e-300]
    assert folder(tmp_path).read(SECOND) is None
    assert folder(tmp_path, server=2).read(FIRST) is None


def test_a_checkpoint_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    kept = folder(tmp_path)
    kept.write(Save(FIRST, 1, STATE, np.ones(3)))
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    file.with_name(f"{file.name}.new").write_bytes(b"half")
    found = kept.read(FIRST)
    assert found is not None
    assert found.serial == 1


def test_initial_values(tmp_path: Path) -> None:
    values = {SECOND: np.array([4, 5], np.float32), FIRST: np.array([1, 2, 3], np.float32)}
    folder(tmp_path).write_first(values)
    found = folder(tmp_path).read_first([SECOND, FIRST])
    assert {bucket: each.tolist() for bucket, each in found.items()} == {FIRST: [1, 2, 3], SECOND: [4, 5]}
    with pytest.raises(RunError, match="of another model"):
        folder(tmp_path).read_first([FIRST])
    with pytest.raises(RunError, match="cannot start again"):
        folder(tmp_path, server=2).read_first([FIRST])


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    folder(tmp_path).write(Save(FIRST, 1, STATE, np.ones(3)))
    assert (tmp_path / "run").stat().st_mode & 0o77 == 0


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("not a folder")
    with pytest.raises(RunError, match="cannot write the checkpoint"):
        folder(tmp_path).write(Save(FIRST, 1, STATE, np.ones(3)))


def shared(path: Path, server: int, host: str, run: str = "one") -> CheckpointFolder:
    """The checkpoints of a server in a directory that all hosts share."""
    (path / "shared").mkdir(exist_ok=True)
    return CheckpointFolder(str(path / host), server_id(server), "model", OriginStates, str(path / "shared"), run)


def test_servers_of_all_hosts_read_what_one_has_written_in_the_shared_directory(tmp_path: Path) -> None:
    shared(tmp_path, 1, "here").write(Save(FIRST, 1, STATE, np.ones(3)))
    there = shared(tmp_path, 2, "there")
    assert there.read(FIRST) is None
    found = there.read(FIRST, server_id(1))
    assert found == Save(FIRST, 1, STATE)
    assert found.payload is not None
    assert found.payload.tolist() == [1, 1, 1]
    assert shared(tmp_path, 2, "there", run="another").read(FIRST, server_id(1)) is None


def test_what_a_run_has_in_the_shared_directory_is_removed_with_its_folder(tmp_path: Path) -> None:
    for run, host in (("one", "here"), ("another", "there")):
        shared(tmp_path, 1, host, run).write(Save(FIRST, 1, STATE, np.ones(3)))
        shared(tmp_path, 2, host, run).write(Save(FIRST, 1, STATE, np.ones(3)))
    remove(str(tmp_path / "here"))
    assert not (tmp_path / "here").exists()
    assert shared(tmp_path, 1, "here").read(FIRST) is None
    assert shared(tmp_path, 1, "there", "another").read(FIRST) == Save(FIRST, 1, STATE)
    remove(str(tmp_path / "there"))
    assert list((tmp_path / "shared").iterdir()) == []
    remove(str(tmp_path / "never made"))


def test_a_server_that_joins_must_see_the_folder_of_the_run(tmp_path: Path) -> None:
    folder(tmp_path).check_joined()  # without a shared directory there is nothing to see
    joined = shared(tmp_path, 2, "there")
    with pytest.raises(RunError, match="is not the directory of the other hosts"):
        joined.check_joined()
    shared(tmp_path, 1, "here").write(Save(FIRST, 1, STATE, np.ones(3)))
    joined.check_joined()
    joined.write(Save(FIRST, 1, STATE, np.ones(3)))
