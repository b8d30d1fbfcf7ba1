"""The progress of a comparison: which turn runs, and how long the rest may take."""

from __future__ import annotations

from itertools import accumulate

from syncline.recipes.job import RecipeJob
from syncline.recipes.turns import turns


class ComparisonProgress:
    """The turns of a comparison by name, weighted by their batches."""

    def __init__(self, job: RecipeJob) -> None:
        planned = list(turns(job))
        self.total = len(planned)
        self._places = {turn.name: place for place, turn in enumerate(planned)}
        self._before = [0, *accumulate(turn.batches for turn in planned)]

    def place(self, name: str) -> int:
        """How many turns are done when the turn with this name runs; 0 before the first turn."""
        return self._places.get(name, 0)

    def words(self, name: str, seconds: float) -> str:
        """The running turn, and the time left, estimated from the batches done in `seconds`."""
        place = self.place(name)
        done, all_of_them = self._before[place], self._before[-1]
        left = f"; about {seconds * (all_of_them - done) / done:.0f} s left" if place > 1 else ""
        return f"{place + 1} of {self.total}: {name}{left}"
