"""Gates: is this update worth sending now, and is a fetch worth it?

A gate skips bytes, never permission: a skipped push sends its progress alone, a skipped fetch asks for `Taken`, which
is parked and released like `Params`. An update that is held back is added to the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import Bucket
from syncline.parts import Part


@runtime_checkable
class Gate(Protocol):
    """A part that answers two questions for one bucket of one worker at iteration i.

    A gate with `skips_fetches = False` always fetches, so that it can be used in mode `gradients`.
    """

    def sends(self, worker: int, i: int, bucket: Bucket, draw: Draw) -> bool: ...

    def fetches(self, worker: int, i: int, bucket: Bucket, draw: Draw) -> bool: ...


@dataclass(frozen=True)
class Always(Part):
    """Every update and every fetch."""

    name = "always"
    skips_fetches = False

    def sends(self, worker: int, i: int, bucket: Bucket, draw: Draw) -> bool:
        return True

    def fetches(self, worker: int, i: int, bucket: Bucket, draw: Draw) -> bool:
        return True


@dataclass(frozen=True)
class Every(Part):
    """Every push-th update and every fetch-th fetch (Downpour)."""

    name = "every"
    example = "every:push=2,fetch=4"
    push: int = 1
    fetch: int = 1

    def __post_init__(self) -> None:
        for field, value in (("push", self.push), ("fetch", self.fetch)):
            if value < 1:
                raise UsageError("every", f"{field} must be at least 1, not {value}")

    @property
    def skips_fetches(self) -> bool:
        return self.fetch > 1

    def sends(self, worker: int, i: int, bucket: Bucket, draw: Draw) -> bool:
        return (i + 1) % self.push == 0

    def fetches(self, worker: int, i: int, bucket: Bucket, draw: Draw) -> bool:
        return (i + 1) % self.fetch == 0


GATES: tuple[type[Part], ...] = (Always, Every)
