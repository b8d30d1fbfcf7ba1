"""The models: the layer lists of real networks, with the times of steps and layers from recipes/layer_shares.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from syncline.errors import UsageError
from syncline.layout import Layout
from syncline.recipes.layer_lists import LAYER_LISTS
from syncline.recipes.layer_shares import STEP_SECONDS, shares


@dataclass(frozen=True)
class Model:
    """A layer list; `seconds` is the time of a whole step of one worker."""

    name: str
    seconds: float

    @cached_property
    def layout(self) -> Layout:
        return LAYER_LISTS[self.name]()

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The fraction of the computing time of each table, for the forward and the backward pass; the sum is 1."""
        return shares(self.name)


MODELS: Mapping[str, Model] = {name: Model(name, seconds) for name, seconds in STEP_SECONDS.items()}


def model(name: str) -> Model:
    """The model with this name."""
    if name not in MODELS:
        raise UsageError("--models", f"{name!r} is unknown; choose from: {', '.join(MODELS)}")
    return MODELS[name]
