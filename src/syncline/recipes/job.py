"""A training job of `syncline train`: the workers get it, and every engine makes its problem from it."""

from __future__ import annotations

import sys
from math import ceil
from pathlib import Path

import msgspec

from syncline.draw import Draw
from syncline.recipes import build
from syncline.sim.problem import Problem
from syncline.sim.stop import StopAt


class RecipeJob(msgspec.Struct, frozen=True):
    """Which recipe to train, and for how long. The workers receive it as JSON."""

    recipe: str
    workers: int
    iterations: int
    """Iterations of each worker; 0: until its stop."""
    batch: int
    """Examples per worker and iteration."""
    seed: int = 0
    data: str = ""
    """The folder of a recipe that reads files."""
    slow: dict[int, float] = {}
    """For each slowed worker: how many times as long its steps take."""
    directory: str = ""
    """The folder to which workers write their results."""
    compare: bool = False
    """Train under one system after another (comparison.py)."""
    repeats: int = 1
    """How often a comparison runs every system, each time with another seed."""

    stop: StopAt = StopAt()
    """When the run ends, other than after its iterations."""

    later: int = 0
    """How many more workers start while the run trains."""
    restarts: int = 0
    """How many restarts of workers and servers there may be."""

    @property
    def members_change(self) -> bool:
        """Whether workers may join while others train."""
        return bool(self.later or self.restarts)

    @property
    def expected(self) -> int | None:
        """About how many iterations each worker does; None: unknown."""
        if self.stop.updates is not None:
            return ceil(self.stop.updates / self.workers)
        return self.iterations or None

    def problem(self) -> Problem:
        data = Path(self.data) if self.data else None
        return build(self.recipe, draw=Draw(self.seed), workers=self.workers + self.later, batch=self.batch, data=data)

    def command(self) -> list[str]:
        """The command that starts a worker."""
        return [sys.executable, "-m", "syncline.recipes.worker", msgspec.json.encode(self).decode()]
