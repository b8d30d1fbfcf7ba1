"""The models: real layer lists, and how long a step takes one worker.

A step takes a GTX 1080 so long, the card of the modularized parameter server's four machines (table 1.1 there):

    resnet56       1/27 s     the paper's ResNet has 1.73 M values and makes 13.5 steps a second with batches of 64;
                              this one has half the depth and half the values, so twice the steps: the same bits/s
    googlenet      0.107 s    the paper has no figure; batches of 16 are published as 39 ms on a Pascal Titan X, which
                              is 1.31 to 1.43 times as fast (jcjohnson/cnn-benchmarks), so about 107 ms for 32
    inception-v4   1/1.47 s   the paper's figure, with batches of 32

Which share of it each layer has is said in recipes/layer_shares.py: by its multiplications.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from syncline.errors import UsageError
from syncline.layout import Layout
from syncline.recipes.layer_lists import LAYER_LISTS
from syncline.recipes.layer_shares import shares


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


MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (Model("resnet56", 1 / 27), Model("googlenet", 0.107), Model("inception-v4", 1 / 1.47))
}


def model(name: str) -> Model:
    """The model of this name."""
    if name not in MODELS:
        raise UsageError("--models", f"{name!r} is none of {', '.join(MODELS)}")
    return MODELS[name]
