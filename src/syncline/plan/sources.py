"""Finds the model that a text names: a recipe, a list of layers, a file, or a program that is run for a few steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from syncline.errors import UsageError
from syncline.layout import Layout
from syncline.plan.checkpoint import SAFETENSORS, TORCH, read_checkpoint
from syncline.plan.layers_file import read_layers
from syncline.plan.measuring import measured_program, measured_recipe
from syncline.plan.model import OPTION, PlannedModel, by_size, checked_layout, layers_of
from syncline.recipes import RECIPES, check
from syncline.recipes.layer_lists import LAYER_LISTS
from syncline.recipes.layer_shares import STEP_SECONDS, shares

GIVEN, MEASURED = "given", "measured here"
LISTS = (".toml", ".json")
DEFAULT_BATCH = 32


@dataclass(frozen=True)
class ModelRequest:
    """What the user has said about the model."""

    text: str
    arguments: tuple[str, ...] = ()
    """Of a program."""
    step: float | None = None
    batch: int | None = None
    data: Path | None = None
    """The folder of a recipe that reads files."""
    program: str | None = None
    """The program in the commands, if the model is not a program itself."""

    @property
    def path(self) -> Path | None:
        """The file that is the model, if it is one."""
        known = self.text in RECIPES or self.text in LAYER_LISTS
        suffix = Path(self.text).suffix in (*LISTS, *SAFETENSORS, *TORCH, ".py")
        return Path(self.text) if not known and suffix else None


def check_request(request: ModelRequest) -> None:
    """Refuse what makes no sense, before anything is measured."""
    recipe = request.text in RECIPES
    if request.data is not None and not recipe:
        raise UsageError("--data", "is for recipes that read files; leave it out")
    if recipe:
        check(request.text, request.data, OPTION, "--data")
    path = request.path
    if request.arguments and (path is None or path.suffix != ".py"):
        raise UsageError("ARGS", f"{request.arguments[0]!r}: only a program takes arguments; leave them out")
    if path is not None:
        _check_file(path)
    if request.program is not None and (recipe or (path is not None and path.suffix == ".py")):
        raise UsageError("--program", "is for models that are not programs themselves; leave it out")


def _check_file(path: Path) -> None:
    if not path.exists():
        raise UsageError(OPTION, f"there is no file {str(path)!r}")
    if not path.is_file():
        raise UsageError(OPTION, f"{str(path)!r} is not a file; name a regular file")


def find_model(request: ModelRequest, workers: int) -> PlannedModel:
    """The model, with its step time; `UsageError` if it has none and none can be measured."""
    check_request(request)
    model = _found(request, workers)
    program = model.program if request.program is None else (request.program,)
    model = replace(model, program=program, batch=request.batch or model.batch)
    if request.step is not None:
        model = replace(model, step=request.step, origin=GIVEN)
    if model.step is None:
        problem = f"is missing: {model.name} is only a list of sizes, so the time of a step cannot be measured"
        raise UsageError("--step", f"{problem}; give it, e.g. --step 100ms, or name a recipe or a program as MODEL")
    if not model.step > 0:
        raise UsageError("--step", "must be above 0; give the seconds in which one worker computes a step")
    return model


def _found(request: ModelRequest, workers: int) -> PlannedModel:
    text, path = request.text, request.path
    if text in RECIPES:
        return _recipe(request, workers)
    if text in LAYER_LISTS:
        origin = "published for a GTX 1080"
        return PlannedModel(text, LAYER_LISTS[text](), shares(text), STEP_SECONDS[text], origin)
    if path is not None and path.suffix == ".py":
        return _program(request, path)
    if path is not None and path.suffix in LISTS:
        return read_layers(path)
    if path is not None:
        return _of(path.name, read_checkpoint(path))
    if text.replace("_", "").isdecimal() and text.isascii():
        return _of("the model", checked_layout([("model", (int(text[:20].replace("_", "")),))]))
    if ":" in text:
        return _of("the model", layers_of(text))
    known = ", ".join((*RECIPES, *LAYER_LISTS))
    forms = "a Python program, a .safetensors, .pt, .toml or .json file, or layers such as conv:1728,dense:640"
    raise UsageError(OPTION, f"there is no model {text!r}; use one of {known}, or {forms}")


def _of(name: str, layout: Layout) -> PlannedModel:
    return PlannedModel(name, layout, by_size(layout))


def _recipe(request: ModelRequest, workers: int) -> PlannedModel:
    batch = request.batch or DEFAULT_BATCH
    layout, step = measured_recipe(request.text, workers, batch, request.data)
    return PlannedModel(request.text, layout, by_size(layout), step, MEASURED, batch, request.text)


def _program(request: ModelRequest, path: Path) -> PlannedModel:
    words: Sequence[str] = (request.text, *request.arguments)
    layout, step = measured_program(words)
    layout = checked_layout([(table.name, table.shape) for table in layout.tables])
    return PlannedModel(path.name, layout, by_size(layout), step, MEASURED, program=tuple(words))
