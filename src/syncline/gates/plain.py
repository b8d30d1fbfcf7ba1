"""Gates that count iterations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syncline.errors import UsageError
from syncline.gates.protocol import Offer, check_on_skip
from syncline.parts import Part


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
    on_skip: Literal["accumulate"] | Literal["reapply"] = "accumulate"

    def __post_init__(self) -> None:
        for field, value in (("push", self.push), ("fetch", self.fetch)):
            if value < 1:
                raise UsageError("every", f"{field} must be at least 1, not {value}")
        check_on_skip(self.name, self.on_skip)

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
