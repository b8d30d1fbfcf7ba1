"""How long a step of a layer list takes on one machine, and each table's share of it.

A table's share is proportional to its multiplications: its values times the positions of the feature map to which they
are applied. The machine has a GTX 1080, like the four machines of the modularized parameter server (table 1.1 there):

    resnet56       1/27 s     the paper's ResNet has 1.73 M values and does 13.5 steps per second with batches of 64;
                              this one has half the depth and half the values, so twice the steps: the same bits/s
    googlenet      0.107 s    the paper has no figure; published: batches of 16 take 39 ms on a Pascal Titan X, which
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
"""The side length of each layer's feature map, by the prefix of its name; the longest matching prefix counts."""


def multiplications(name: str) -> tuple[int, ...]:
    """The multiplications of each table of this layer list, for one image in the forward pass."""
    return tuple(table.size * _side(name, table.name) ** 2 for table in LAYER_LISTS[name]().tables)


def shares(name: str) -> tuple[float, ...]:
    """Each table's share of a pass in either direction; the sum is 1."""
    found = multiplications(name)
    total = sum(found)
    return tuple(each / total for each in found)


def _side(name: str, table: str) -> int:
    known = [start for start in SIDES[name] if table.startswith(start)]
    return SIDES[name][max(known, key=len)]
