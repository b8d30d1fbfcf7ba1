"""A training job: what the workers of a run are told, and what all engines take the problem from."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from syncline.draw import Draw
from syncline.recipes import build
from syncline.sim.problem import Problem


class RecipeJob(msgspec.Struct, frozen=True):
    """Which recipe is trained, and for how long; it travels to the workers as JSON."""

    recipe: str
    workers: int
    iterations: int
    """Of each worker."""
    batch: int
    """Of each worker."""
    seed: int = 0
    data: str = ""
    """The folder of a recipe that reads files."""
    slow: dict[int, float] = {}
    """How many times as long the steps of a worker take."""
    directory: str = ""
    """Where workers leave what they have come to."""
    compare: bool = False
    """Train under one system after another (comparison.py)."""

    def problem(self) -> Problem:
        data = Path(self.data) if self.data else None
        return build(self.recipe, draw=Draw(self.seed), workers=self.workers, batch=self.batch, data=data)

    def command(self) -> list[str]:
        """What starts a worker of it."""
        return [sys.executable, "-m", "syncline.recipes.worker", msgspec.json.encode(self).decode()]
