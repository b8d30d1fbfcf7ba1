"""The turns of `syncline train --compare`, in order. Every system trains on the same number of images.

1. A round is one batch of each worker. One process trains on a round's examples in a single step.
2. A system has two turns: a short one with equal workers, and one with the slow worker. One process has one turn.
3. `--repeats` runs all turns again with another seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from syncline.recipes.job import RecipeJob
from syncline.spec import parse
from syncline.sync import Drop, applies_at_close

ALONE = "one process"
DDP = "DDP (gloo)"

_EQUAL_PART = 4
"""A turn with equal workers, which shows a rate only, has a quarter of the rounds."""


class Turn(NamedTuple):
    """One run of one system."""

    system: str
    sync: str
    """Syncline's sync model; empty for another system."""
    slow: bool
    """Does the slow worker pause?"""
    repeat: int
    batches: int
    """How many batches, each of one worker's size, all workers together train on."""
    round: int | None
    """How many batches a round takes; None if the sync model has no rounds and applies every update on arrival."""

    @property
    def name(self) -> str:
        return f"{self.system}{', one worker slow' if self.slow else ''}{_again(self.repeat)}"

    @property
    def rounds(self) -> int:
        """The number of rounds that hold all batches."""
        return ceil(self.batches / (self.round or self.batches))

    @property
    def trained(self) -> int:
        """How many batches the workers have trained on at the end, in whole rounds."""
        return self.rounds * self.round if self.round else self.batches


def syncs(job: RecipeJob) -> tuple[str, ...]:
    """The sync models that are compared. `drop` does not wait for the slow workers."""
    return "bsp", "ssp:3", f"drop:{max(1, job.workers - len(job.slow))}", "asp"


def turns(job: RecipeJob) -> Iterator[Turn]:
    """All turns of a comparison, in order."""
    return (turn for repeat in range(job.repeats) for turn in _once(job, repeat))


def _once(job: RecipeJob, repeat: int) -> Iterator[Turn]:
    batches = job.iterations * job.workers
    short = max(1, job.iterations // _EQUAL_PART) * job.workers
    yield Turn(ALONE, "", False, repeat, batches, job.workers)
    for sync in ("", *syncs(job)):
        for slow in (False, True):
            system = f"Syncline, {sync}" if sync else DDP
            yield Turn(system, sync, slow, repeat, batches if slow else short, _round(sync, job.workers))


def _again(repeat: int) -> str:
    return f", repeat {repeat}" if repeat else ""


def _round(sync: str, workers: int) -> int | None:
    """How many batches a round of this sync model takes."""
    model = parse("sync", sync or "bsp")
    if isinstance(model, Drop):
        return min(model.k, workers)
    return workers if applies_at_close(model) else None
