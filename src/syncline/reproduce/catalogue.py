"""All figures, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syncline.errors import UsageError
from syncline.reproduce.figure import Figure
from syncline.reproduce.figures import (
    ako_accumulation,
    ako_allocation,
    ako_partitions,
    ako_scale,
    ako_usage,
    bfasgd,
    fasgd,
    fluent_learning,
    fluent_overlap,
    fluent_pulls,
    mps_accuracy,
    mps_combination,
    mps_placement,
    tree_convergence,
    tree_fanout,
    tree_speedup,
    tree_staleness,
)

FIGURES: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        mps_placement.FIGURE,
        mps_combination.FIGURE,
        mps_accuracy.FIGURE,
        fluent_overlap.FIGURE,
        fluent_pulls.FIGURE,
        *fluent_learning.FIGURES,
        *fasgd.FIGURES,
        *bfasgd.FIGURES,
        ako_scale.FIGURE,
        ako_partitions.FIGURE,
        ako_accumulation.FIGURE,
        ako_allocation.FIGURE,
        ako_usage.FIGURE,
        tree_convergence.FIGURE,
        tree_staleness.FIGURE,
        tree_speedup.FIGURE,
        tree_fanout.FIGURE,
    )
}

ALL = "all"


def chosen(names: Sequence[str]) -> list[Figure]:
    """The figures with these names, each once; `all` selects every figure."""
    for name in names:
        if name not in FIGURES and name != ALL:
            raise UsageError("NAME", f"{name!r} is not a figure; choose one of: {', '.join(FIGURES)}, {ALL}")
    wanted = FIGURES if ALL in names else dict.fromkeys(names)
    return [FIGURES[name] for name in wanted]
