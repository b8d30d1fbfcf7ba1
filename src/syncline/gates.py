"""Gates: is this update worth sending now, and is a fetch worth it?

A gate skips bytes, never permission: a skipped push sends its progress alone, a skipped fetch asks for `Taken`, which
is parked and released like `Params`. An update that is held back is added to the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import Bucket, Values
from syncline.parts import Part


@dataclass(frozen=True, slots=True)
class Offer:
    """One bucket's update at one iteration of one worker, about to be sent or not."""

    worker: int
    i: int
    bucket: Bucket
    age: int
    """How many iterations old what the worker holds would be, if it did not fetch: 1, if it has just fetched."""
    update: Values | None
    """What is to be sent, with all that was held back before; None: nothing."""
    draw: Draw


@runtime_checkable
class Gate(Protocol):
    """A part that answers two questions about an offer: is it worth sending, is fetching worth it?

    A gate with `skips_fetches = False` always fetches, so that it can be used in mode `gradients`.
    """

    def sends(self, offer: Offer) -> bool: ...

    def fetches(self, offer: Offer) -> bool: ...


@dataclass(frozen=True)
class Always(Part):
    """Every update and every fetch."""

    name = "always"
    skips_fetches = False

    def sends(self, offer: Offer) -> bool:
        return True

    def fetches(self, offer: Offer) -> bool:
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

    def sends(self, offer: Offer) -> bool:
        return (offer.i + 1) % self.push == 0

    def fetches(self, offer: Offer) -> bool:
        return (offer.i + 1) % self.fetch == 0


@dataclass(frozen=True)
class Cached(Part):
    """The cache of the modularized parameter server: updates add up here, and are sent, and parameters fetched, only
    when what the worker holds would be more than s iterations old."""

    name = "cached"
    example = "cached:3"
    s: int

    def __post_init__(self) -> None:
        if self.s < 0:
            raise UsageError("cached", f"s must be at least 0, not {self.s}")

    @property
    def skips_fetches(self) -> bool:
        return self.s > 0

    def sends(self, offer: Offer) -> bool:
        return offer.age > self.s

    def fetches(self, offer: Offer) -> bool:
        return offer.age > self.s


GATES: tuple[type[Part], ...] = (Always, Every, Cached)
