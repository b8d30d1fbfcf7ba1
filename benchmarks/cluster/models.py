"""The models: real layer lists, how long a step takes one worker, and which share of it each layer has.

A step takes a GTX 1080 so long, the card of the modularized parameter server's four machines (table 1.1 there):

    resnet56       1/27 s     the paper's ResNet has 1.73 M values and makes 13.5 steps a second with batches of 64;
                              this one has half the depth and half the values, so twice the steps: the same bits/s
    googlenet      0.107 s    the paper has no figure; batches of 16 are published as 39 ms on a Pascal Titan X, which
                              is 1.31 to 1.43 times as fast (jcjohnson/cnn-benchmarks), so about 107 ms for 32
    inception-v4   1/1.47 s   the paper's figure, with batches of 32

A table's share is its multiplications: its values times the positions of the map that they are applied to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from syncline.errors import UsageError
from syncline.layout import Layout
from syncline.recipes.layer_lists import LAYER_LISTS

BACKWARD = 2 / 3
"""The backward pass has twice the multiplications of the forward pass."""


@dataclass(frozen=True)
class Model:
    """A layer list; `seconds`: a whole step of one worker; `sides`: of each layer's map, by the start of its name."""

    name: str
    seconds: float
    sides: Mapping[str, int]

    @cached_property
    def layout(self) -> Layout:
        return LAYER_LISTS[self.name]()

    @cached_property
    def multiplications(self) -> tuple[int, ...]:
        """Of each table, for one image, forward."""
        return tuple(table.size * self._side(table.name) ** 2 for table in self.layout.tables)

    @property
    def shares(self) -> tuple[float, ...]:
        """Of each table, in a pass in either direction; together 1."""
        total = sum(self.multiplications)
        return tuple(each / total for each in self.multiplications)

    def _side(self, table: str) -> int:
        known = [start for start in self.sides if table.startswith(start)]
        return self.sides[max(known, key=len)]


MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model("resnet56", 1 / 27, {"stem": 32, "stage0": 32, "stage1": 16, "stage2": 8, "head": 1}),
        Model(
            "googlenet",
            0.107,
            {"stem.0": 112, "stem": 56, "inception3": 28, "inception4": 14, "inception5": 7, "head": 1},
        ),
        Model(
            "inception-v4",
            1 / 1.47,
            {
                "stem.0": 149,
                "stem": 147,
                "mixed3a": 73,
                "mixed4a": 73,
                "mixed4a.branch0.1": 71,
                "mixed4a.branch1.3": 71,
                "mixed5a": 35,
                "a": 35,
                "reduction_a": 35,
                "reduction_a.branch0": 17,
                "reduction_a.branch1.2": 17,
                "b": 17,
                "reduction_b": 17,
                "reduction_b.branch0.1": 8,
                "reduction_b.branch1.3": 8,
                "c": 8,
                "head": 1,
            },
        ),
    )
}


def model(name: str) -> Model:
    """The model of this name."""
    if name not in MODELS:
        raise UsageError("--models", f"{name!r} is none of {', '.join(MODELS)}")
    return MODELS[name]
