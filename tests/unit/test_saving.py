"""The folder, the files and the schedule of a run's checkpoints, and what is refused before a run starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import refused
from syncline.engines.saving.folder import (
    KEPT,
    MANIFEST,
    Manifest,
    SavedWorker,
    newest_whole,
    prune,
    read_manifest,
    remove_incomplete,
    step_folder,
    steps_in,
    write_manifest,
)
from syncline.engines.saving.schedule import Schedule
from syncline.engines.saving.state_files import (
    DamagedFile,
    Unsaveable,
    mark_of,
    packed,
    read_arrays,
    unpacked,
    write_arrays,
    write_json,
)
from syncline.errors import UsageError


def test_nested_values_come_back() -> None:
    state = {
        "state": {0: {"step": np.float32(3), "exp": np.arange(4.0)}, 1: {}},
        "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "foreach": None, "params": [0, 1]}],
        "large": float("inf"),
        "$odd": True,
    }
    same: dict[str, Any] = {}
    names = packed({"a/b": np.zeros(1), "a": {"b": np.ones(1)}}, same)
    assert unpacked(names, same)["a"]["b"] == 1
    assert unpacked(names, same)["a/b"] == 0
    arrays: dict[str, Any] = {}
    text = json.loads(json.dumps(packed(state, arrays)))
    found = unpacked(text, arrays)
    np.testing.assert_array_equal(found["state"][0].pop("exp"), state["state"][0].pop("exp"))  # type: ignore[index]
    assert found == state
    assert isinstance(found["groups"][0]["betas"], tuple)


def test_a_value_that_is_not_plain_is_refused() -> None:
    with pytest.raises(Unsaveable, match="type object"):
        packed({"f": object()}, {})


def test_arrays_of_every_kind_come_back(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    arrays = {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.zeros(2, dtype=torch.bfloat16), "n": np.arange(3)}
    write_arrays(tmp_path / "x", arrays, {"who": "me"})
    found, metadata = read_arrays(tmp_path / "x", torch=True)
    assert metadata["who"] == "me"
    assert torch.equal(found["a"], arrays["a"])
    assert found["b"].dtype is torch.bfloat16
    assert found["n"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    write_arrays(tmp_path / "x", {"a": np.arange(9)}, {})
    before = mark_of(tmp_path / "x")
    data = bytearray((tmp_path / "x").read_bytes())
    data[-1] ^= 1
    (tmp_path / "x").write_bytes(data)
    assert mark_of(tmp_path / "x") != before
    (tmp_path / "x").write_bytes(b"garbage")
    with pytest.raises(DamagedFile, match="x: "):
        read_arrays(tmp_path / "x", torch=False)


def checkpoint(top: Path, step: int, whole: bool = True, program: str = "program.py") -> Path:
    folder = step_folder(top, step)
    folder.mkdir(parents=True)
    write_json(folder / "worker-0.json", {})
    mark = mark_of(folder / "worker-0.json")
    saved = {"0": SavedWorker("here", step, {"worker-0.json": mark})}
    if whole:
        manifest = Manifest(step=step, host="here", program=program, workers=1, servers=1, models={}, saved=saved)
        write_manifest(folder, manifest)
    return folder


def test_the_last_whole_ones_are_kept(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40, 50):
        checkpoint(tmp_path, step, whole=step != 30)
    strange = step_folder(tmp_path, 10) / "notes.txt"
    strange.write_text("mine")
    checkpoint(tmp_path, 60, whole=False)
    prune(tmp_path, 50)
    assert set(steps_in(tmp_path)) == {10, 20, 40, 50, 60}
    assert KEPT == 3
    assert [path.name for path in strange.parent.iterdir()] == ["notes.txt"]
    assert newest_whole(tmp_path) == step_folder(tmp_path, 50)
    remove_incomplete(tmp_path)
    assert set(steps_in(tmp_path)) == {10, 20, 40, 50}
    assert read_manifest(step_folder(tmp_path, 40)).step == 40


@pytest.mark.parametrize(
    ("every", "before", "after", "due"), [(500, 499, 500, 500), (500, 500, 999, None), (10, 9, 25, 20), (1, 0, 1, 1)]
)
def test_a_number_of_iterations(every: int, before: int, after: int, due: int | None) -> None:
    assert Schedule.parse(str(every)).crossed(before, after) == due


def test_a_time() -> None:
    schedule = Schedule.parse("10min")
    assert schedule.seconds == 600
    assert schedule.crossed(0, 1000) is None


@pytest.mark.parametrize("text", ["", "often", "0", "0s", "-1", "5 parsecs"])
def test_nonsense_is_not_a_schedule(text: str) -> None:
    with pytest.raises(UsageError, match="--checkpoint-every"):
        Schedule.parse(text)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text("")
    (tmp_path / "other.py").write_text("")
    checkpoint(tmp_path / "saved", 10)
    checkpoint(tmp_path / "saved", 20)
    return tmp_path


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


REFUSED = {
    ("--checkpoint-every", "5"): "--checkpoint-every: says how often --checkpoint writes; add --checkpoint DIR",
    ("--checkpoint", "new", "--checkpoint-every", "often"): "--checkpoint-every: 'often' is neither",
    ("--checkpoint", "program.py"): "--checkpoint: 'program.py' cannot be a folder",
    ("--checkpoint", "saved"): "--checkpoint: 'saved' has checkpoints of another run; continue it with --resume saved",
    ("--checkpoint", "saved", "--resume", "saved/step-00000010"): "'saved' has later checkpoints than step-00000010",
    ("--resume", "nowhere"): "--resume: there is no folder 'nowhere'",
    ("--resume", "."): "--resume: '.' has no complete checkpoint",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_request_that_makes_no_sense_is_refused(words: tuple[str, ...], saved: Path) -> None:
    before = content(saved)
    assert REFUSED[words] in refused(saved, "run", *words, "program.py")
    assert content(saved) == before


def test_the_checkpoint_of_another_program_is_refused(saved: Path) -> None:
    said = refused(saved, "run", "--resume", "saved", "other.py")
    assert "step-00000020' is a checkpoint of program.py, and this command runs other.py" in said
    assert "is a checkpoint of program.py" in refused(saved, "train", "--resume", "saved")


@pytest.mark.parametrize("damage", ["manifest", "file", "missing", "schema", "stranger"])
def test_a_damaged_checkpoint_is_refused(damage: str, saved: Path) -> None:
    folder = step_folder(saved / "saved", 20)
    manifest = json.loads((folder / MANIFEST).read_text())
    if damage == "manifest":
        (folder / MANIFEST).write_text("{")
    elif damage == "file":
        (folder / "worker-0.json").write_text("[]")
    elif damage == "missing":
        (folder / "worker-0.json").unlink()
    else:
        change = {"schema": 2} if damage == "schema" else {"made_by": "somebody"}
        (folder / MANIFEST).write_text(json.dumps(manifest | change))
    before = content(saved)
    said = refused(saved, "run", "--checkpoint", "saved", "--resume", "saved", "program.py")
    assert said.startswith("--resume: ")
    if damage == "schema":
        assert "has schema 2; this version of Syncline reads schema 1" in said
    else:
        assert "damaged checkpoint: " in said
        assert "use --resume saved/step-00000010" in said
    assert content(saved) == before


def test_without_safetensors_the_options_are_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.engines.saving.request.find_spec", lambda _: None)
    assert "pip install 'syncline[checkpoints]'" in refused(saved, "run", "--checkpoint", "new", "program.py")


def test_a_comparison_writes_no_checkpoints(saved: Path) -> None:
    assert "--checkpoint: cannot be used with --compare" in refused(saved, "train", "--compare", "--checkpoint", "new")
    said = refused(saved, "train", "--engine", "sim", "--resume", "saved")
    assert "--resume: cannot be used with --engine sim" in said
