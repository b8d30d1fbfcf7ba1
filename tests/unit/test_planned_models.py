"""Where the sizes and step times of a plan come from: texts, files, checkpoints, recipes and programs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from zipfile import ZipFile

import pytest

from syncline.errors import UsageError
from syncline.plan.checkpoint import read_checkpoint
from syncline.plan.layers_file import read_layers
from syncline.plan.model import layers_of
from syncline.plan.sources import ModelRequest, find_model
from syncline.recipes.layer_shares import STEP_SECONDS


def shapes(layout: object) -> list[tuple[str, tuple[int, ...]]]:
    return [(table.name, table.shape) for table in layout.tables]  # type: ignore[attr-defined]


def test_layers_as_text() -> None:
    assert shapes(layers_of("conv:1728, fc.weight:64x10")) == [("conv", (1728,)), ("fc.weight", (64, 10))]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("conv", "'conv' is not a layer; write NAME:SIZE"),
        ("conv:", "'conv:' is not a layer"),
        (":3", "':3' is not a layer"),
        ("a:-1", "'a:-1' is not a layer"),
        ("a:1,", "'' is not a layer"),
        ("a:0", "has no values"),
        ("a:1,a:2", "names the layer 'a' twice"),
        ("a:20000000000,b:1", "a plan takes at most"),
        (f"a:{10**30}", "is not a layer"),
    ],
)
def test_layers_that_make_no_sense(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as refused:
        layers_of(text)
    assert refused.value.option == "MODEL"


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_file_with_layers(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"model.{suffix}"
    text = {
        "toml": 'step = "20ms"\nbatch = 16\n[layers]\nconv = [4, 3]\ndense = 7\n',
        "json": json.dumps({"step": "20ms", "batch": 16, "layers": {"conv": [4, 3], "dense": 7}}),
    }
    file.write_text(text[suffix])
    model = read_layers(file)
    assert shapes(model.layout) == [("conv", (4, 3)), ("dense", (7,))]
    assert model.shares == (12 / 19, 7 / 19)
    assert (model.step, model.batch) == (0.02, 16)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.toml", "x", "is not valid TOML"),
        ("a.json", "[1]", "must be an object"),
        ("a.json", "[" * 100_000, "is not valid JSON"),
        ("a.toml", "lairs = 3", "no such key: 'lairs'"),
        ("a.toml", "layers = 3", "layers must map each name"),
        ("a.toml", "[layers]\na = -1", "layer 'a' must have a size or a shape"),
        ("a.toml", "[layers]\na = true", "layer 'a' must have"),
        ("a.toml", 'step = "soon"\n[layers]\na = 1', "'soon' is not a time"),
        ("a.toml", "step = true\n[layers]\na = 1", "step must be a time"),
        ("a.toml", "batch = 1.5\n[layers]\na = 1", "batch must be a whole number"),
        ("a.toml", "[layers]\na = 0", "has no values"),
    ],
)
def test_files_with_layers_that_make_no_sense(name: str, text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=problem):
        read_layers(tmp_path / name)


def safetensors(path: Path, header: dict[str, object], values: int = 0) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(values))
    return path


def tensor(shape: list[int], start: int, kind: str = "F32") -> dict[str, object]:
    return {"dtype": kind, "shape": shape, "data_offsets": [start, start + 1]}


def test_a_safetensors_file_is_read_by_its_header_alone(tmp_path: Path) -> None:
    """The values are not there at all; counters do not count; the order is that of the values in the file."""
    header = {
        "__metadata__": {"format": "pt"},
        "b": tensor([3], 80, "BF16"),
        "steps": tensor([], 40, "I64"),
        "a": tensor([4, 5], 0),
        "scale": tensor([], 90),
    }
    layout = read_checkpoint(safetensors(tmp_path / "m.safetensors", header))
    assert shapes(layout) == [("a", (4, 5)), ("b", (3,)), ("scale", ())]
    assert layout.size == 24


@pytest.mark.parametrize(
    "content",
    [b"", b"12345678", b"\xff" * 64, (5).to_bytes(8, "little") + b"{", (2).to_bytes(8, "little") + b"[]"],
)
def test_damaged_safetensors_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match=r"is not a safetensors file, or it is damaged|has no tensors"):
        read_checkpoint(tmp_path / "m.safetensors")


@pytest.mark.parametrize("about", [{}, {"dtype": "F32", "shape": [-1], "data_offsets": [0, 1]}, 3])
def test_a_header_without_sense(about: object, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="or it is damaged"):
        read_checkpoint(safetensors(tmp_path / "m.safetensors", {"a": about}))


def test_a_torch_checkpoint_counts_every_storage_of_floats_once(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.zeros(6, 5)
    state = {"w": weight, "tied": weight, "half": torch.zeros(7, dtype=torch.float16), "steps": torch.tensor(3)}
    torch.save({"model": state, "epoch": 4}, tmp_path / "m.pt")
    assert [table.size for table in read_checkpoint(tmp_path / "m.pt").tables] == [30, 7]


def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path) -> None:
    """A pickle that would write a file, in the place of that of torch."""
    victim = tmp_path / "written"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (str(victim),)  # type: ignore[return-value]

    with ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil(), protocol=2))
    with pytest.raises(UsageError, match="has no tensors"):
        read_checkpoint(tmp_path / "m.pt")
    assert not victim.exists()


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04"])
def test_damaged_torch_checkpoints(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.pth").write_bytes(content)
    with pytest.raises(UsageError, match=r"is not a file of torch\.save, or it is damaged"):
        read_checkpoint(tmp_path / "m.pth")


def test_a_published_step_time_can_be_replaced() -> None:
    published = find_model(ModelRequest("resnet56"), 4)
    assert (published.step, published.batch) == (STEP_SECONDS["resnet56"], None)
    given = find_model(ModelRequest("resnet56", step=0.5, batch=64, program="mine.py"), 4)
    assert (given.step, given.origin, given.batch, given.program) == (0.5, "given", 64, ("mine.py",))


def test_a_number_of_values() -> None:
    assert find_model(ModelRequest("25_000_000", step=0.1), 4).layout.size == 25_000_000


@pytest.mark.parametrize(
    ("request_", "option", "problem"),
    [
        (ModelRequest("resnet57"), "MODEL", "there is no model 'resnet57'; use one of digits-mlp"),
        (ModelRequest("conv:10"), "--step", "the time of a step cannot be measured; give it, e.g. --step 100ms"),
        (ModelRequest("nothing.safetensors"), "MODEL", "there is no file 'nothing.safetensors'"),
        (ModelRequest("resnet56", ("--x",)), "ARGS", "only a program takes arguments"),
        (ModelRequest("resnet56", data=Path()), "--data", "is for recipes"),
        (ModelRequest("digits-mlp", program="x.py"), "--program", "leave it out"),
        (ModelRequest("mnist-mlp"), "--data", "reads mnist.npz from a folder"),
    ],
)
def test_models_that_make_no_sense(request_: ModelRequest, option: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as refused:
        find_model(request_, 4)
    assert refused.value.option == option


def test_a_recipe_is_measured_in_this_process() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    model = find_model(ModelRequest("digits-mlp"), 2)
    assert model.layout.size == 9_610
    assert model.step is not None
    assert 0 < model.step < 60
    assert (model.origin, model.batch, model.recipe) == ("measured here", 32, "digits-mlp")
