"""A list of layers in a TOML or JSON file: `layers` maps each name to a size or a shape; `step` and `batch` may follow.

step = "107ms"
[layers]
conv = [64, 3, 7, 7]
dense = 1000
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline import units
from syncline.errors import UsageError
from syncline.plan.model import MOST_VALUES, OPTION, PlannedModel, by_size, checked_layout

MOST_BYTES = 16 << 20
KEYS = ("layers", "step", "batch")


def read_layers(path: Path) -> PlannedModel:
    """Read and check the file."""
    data = _plain(path)
    for key in data:
        if key not in KEYS:
            raise UsageError(OPTION, f"{path}: there is no such key: {key!r}; the keys are {', '.join(KEYS)}")
    layers = data.get("layers")
    if not isinstance(layers, dict):
        raise UsageError(OPTION, f"{path}: layers must map each name to a size or a shape, e.g. dense = [64, 10]")
    layout = checked_layout([(name, _shape(path, name, value)) for name, value in layers.items()])
    step, batch = data.get("step"), data.get("batch")
    if step is not None and (isinstance(step, bool) or not isinstance(step, str | int | float)):
        raise UsageError(OPTION, f'{path}: step must be a time, e.g. "107ms"')
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int)):
        raise UsageError(OPTION, f"{path}: batch must be a whole number")
    return PlannedModel(
        path.name,
        layout,
        by_size(layout),
        None if step is None else units.seconds(step, f"{path}, step"),
        path.name,
        None if batch is None else units.whole(batch, f"{path}, batch", 1),
    )


def _shape(path: Path, name: str, value: object) -> list[int]:
    sizes: list[Any] = value if isinstance(value, list) else [value]
    if any(isinstance(each, bool) or not isinstance(each, int) or not 0 <= each <= MOST_VALUES for each in sizes):
        raise UsageError(OPTION, f"{path}: layer {name!r} must have a size or a shape, e.g. 1728 or [64, 10]")
    return sizes


def _plain(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UsageError(OPTION, f"{str(path)!r} is too large for a list of layers: more than 16 MiB")
        found = json.loads(data) if path.suffix == ".json" else tomllib.loads(data.decode())
    except OSError as error:
        raise UsageError(OPTION, f"cannot read {str(path)!r}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError, TOMLDecodeError and JSONDecodeError are both
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise UsageError(OPTION, f"{str(path)!r} is not valid {kind}: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(OPTION, f"{path}: must be an object with the key layers")
    return found
