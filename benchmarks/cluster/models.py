"""The models: real layer lists; how long a step takes one worker, and which share each layer has of it, is said in
recipes/layer_shares.py."""

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
    """A layer list; `seconds`: a whole step of one worker."""

    name: str
    seconds: float

    @cached_property
    def layout(self) -> Layout:
        return LAYER_LISTS[self.name]()

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """Of each table, in a pass in either direction; together 1."""
        return shares(self.name)


MODELS: Mapping[str, Model] = {name: Model(name, seconds) for name, seconds in STEP_SECONDS.items()}


def model(name: str) -> Model:
    """The model of this name."""
    if name not in MODELS:
        raise UsageError("--models", f"{name!r} is none of {', '.join(MODELS)}")
    return MODELS[name]
