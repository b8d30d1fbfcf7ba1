"""Checkpoints of a server: whole or not there, and read back by the next process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from syncline.effects import Save
from syncline.engines.server.checkpoint_folder import CheckpointFolder
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
