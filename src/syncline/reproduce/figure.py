"""The definition of a figure: the simulations it needs, the claim it checks, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
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
    pairs: bool = False
    """Whether to add up the bytes between every pair of nodes."""


class Result(msgspec.Struct, frozen=True):
    """The result of a run."""

    report: dict[str, Any]
    curve: list[Point] = []
    pairs: list[tuple[str, str, int]] = []
    """From whom, to whom, and how many payload bytes; empty unless the run asks for it."""


Results = Mapping[str, Result]
"""The results by the name of the run."""


class ClaimStatus(StrEnum):
    """How far a paper's claim holds here."""

    HOLDS = "holds"
    IN_PART = "in part"
    DOES_NOT_HOLD = "does not hold"


@dataclass(frozen=True)
class Compared:
    """A number of the paper and the same number here; where the paper only says that something is so, True."""

    what: str
    paper: float
    ours: float
    no_effect: float = 1.0
    """The number that would show no effect: 1 for a ratio, 0 for a share or for what is true or false."""
    enough: float = 0.5
    """The share of the paper's effect that must show here."""

    @property
    def share(self) -> float:
        """How much of the paper's effect shows here; 1: all of it, 0: none."""
        return (self.ours - self.no_effect) / (self.paper - self.no_effect)

    @property
    def holds(self) -> bool:
        return self.share >= self.enough


def is_true(what: str, ours: bool) -> Compared:
    """What the paper says is so, and whether it is so here."""
    return Compared(what, True, ours, no_effect=0.0, enough=1.0)


VISIBLE = 0.1
"""The least share of an effect that counts as one."""


@dataclass(frozen=True)
class Verdict:
    """The paper's numbers and ours, a sentence that tells them, and the numbers that the picture shows.

    A claim holds if every number does. It does not hold if no number shows a tenth of the paper's effect.
    """

    compared: Sequence[Compared]
    words: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> ClaimStatus:
        if all(each.holds for each in self.compared):
            return ClaimStatus.HOLDS
        seen = any(each.share >= VISIBLE for each in self.compared)
        return ClaimStatus.IN_PART if seen else ClaimStatus.DOES_NOT_HOLD


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
