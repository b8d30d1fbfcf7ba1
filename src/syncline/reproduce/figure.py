"""What a figure is: the simulations that it needs, what they show, and how it is drawn."""

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
    """One simulation; `experiment`: as it would be written in an experiment file."""

    name: str
    """Unlike that of any other run of its figure."""
    experiment: Mapping[str, Any]
    points: int = 0
    """How often to look, at even distances, how good the model is."""


class Result(msgspec.Struct, frozen=True):
    """What a run has come to."""

    report: dict[str, Any]
    curve: list[Point] = []


Results = Mapping[str, Result]
"""By the name of the run."""


@dataclass(frozen=True)
class Verdict:
    """Does the paper's claim hold here? In one sentence, and with the numbers that the picture shows."""

    holds: bool
    words: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Figure:
    """One figure, or one table, of a paper."""

    name: str
    paper: str
    """Which paper, and which figure."""
    claim: str
    """What the paper says that it shows."""
    runs: Callable[[bool], Sequence[FigureRun]]
    """The simulations; True: few and short ones, which show the same less sharply."""
    judge: Callable[[Results], Verdict]
    draw: Callable[[Results, Picture], None]

    def needs_data(self, quick: bool) -> bool:
        """Does a run read files that the user must have?"""
        return any(reads_files(run) for run in self.runs(quick))


def reads_files(run: FigureRun) -> bool:
    """Does its recipe read files that the user must have? Made-up updates do not."""
    recipe = run.experiment.get("model", {}).get("recipe")
    return recipe is not None and RECIPES[recipe].needs_data
