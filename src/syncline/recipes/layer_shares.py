"""How long a step of a layer list takes one machine, and which share of it each table has.

A table's share is its multiplications: its values times the positions of the map that they are applied to. The machine
has a GTX 1080, the card of the modularized parameter server's four machines (table 1.1 there):

    resnet56       1/27 s     the paper's ResNet has 1.73 M values and makes 13.5 steps a second with batches of 64;
                              this one has half the depth and half the values, so twice the steps: the same bits/s
    googlenet      0.107 s    the paper has no figure; batches of 16 are published as 39 ms on a Pascal Titan X, which
                              is 1.31 to 1.43 times as fast (jcjohnson/cnn-benchmarks), so about 107 ms for 32
    inception-v4   1/1.47 s   the paper's figure, with batches of 32
"""

from __future__ import annotations

from collections.abc import Mapping

from syncline.recipes.layer_lists import LAYER_LISTS

STEP_SECONDS: Mapping[str, float] = {"resnet56": 1 / 27, "googlenet": 0.107, "inception-v4": 1 / 1.47}

SIDES: Mapping[str, Mapping[str, int]] = {
    "resnet56": {"stem": 32, "stage0": 32, "stage1": 16, "stage2": 8, "head": 1},
    "googlenet": {"stem.0": 112, "stem": 56, "inception3": 28, "inception4": 14, "inception5": 7, "head": 1},
    "inception-v4": {
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
}
"""Of each layer's map, by the start of its name; the longest that fits counts."""


def multiplications(name: str) -> tuple[int, ...]:
    """Of each table of this layer list, for one image, forward."""
    return tuple(table.size * _side(name, table.name) ** 2 for table in LAYER_LISTS[name]().tables)


def shares(name: str) -> tuple[float, ...]:
    """Of each table of this layer list, in a pass in either direction; together 1."""
    found = multiplications(name)
    total = sum(found)
    return tuple(each / total for each in found)


def _side(name: str, table: str) -> int:
    known = [start for start in SIDES[name] if table.startswith(start)]
    return SIDES[name][max(known, key=len)]
