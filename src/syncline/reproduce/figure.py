"""The definition of a figure: the simulations it needs, the claim it checks, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from syncline.recipes import RECIPES
from syncline.sim.curve import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


@dataclass(frozen=True)
class FigureRun:
    """One simulation; `experiment` has the content of an experiment file."""

    name: str
    """Unique within its figure."""
    experiment: Mapping[str, Any]
    points: int = 0
    """How often to evaluate the model, at even intervals."""


class Result(msgspec.Struct, frozen=True):
    """The result of a run."""

    report: dict[str, Any]
    curve: list[Point] = []


Results = Mapping[str, Result]
"""The results by the name of the run."""


@dataclass(frozen=True)
class Verdict:
    """Whether the paper's claim holds, a sentence that says so, and the numbers that the picture shows."""

    holds: bool
    words: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """One figure, or one table, of a paper."""

    name: str
    paper: str
    """The paper and the number of the figure."""
    claim: str
    """The paper's claim about the figure."""
    runs: Callable[[bool], Sequence[FigureRun]]
    """quick -> the simulations; quick ones are fewer and shorter, and show the same with less precision."""
    judge: Callable[[Results], Verdict]
    draw: Callable[[Results, Picture], None]

    def needs_data(self, quick: bool) -> bool:
        """Return True if a run reads files that the user must provide."""
        return any(reads_files(run) for run in self.runs(quick))


def reads_files(run: FigureRun) -> bool:
    """Return True if the recipe of this run reads files that the user must provide."""
    recipe = run.experiment.get("model", {}).get("recipe")
    return recipe is not None and RECIPES[recipe].needs_data
