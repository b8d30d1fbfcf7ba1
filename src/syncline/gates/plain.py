"""Gates that count iterations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syncline.gates.protocol import Offer, check_on_skip
from syncline.parts import Part
from syncline.units import whole


@dataclass(frozen=True)
class Always(Part):
    """Send every update, and fetch in every iteration."""

    name = "always"
    skips_fetches = False

    def sends(self, offer: Offer) -> bool:
        return True

    def fetches(self, offer: Offer) -> bool:
        return True


@dataclass(frozen=True)
class Every(Part):
    """Send in every push-th iteration, fetch in every fetch-th iteration (Downpour)."""

    name = "every"
    example = "every:push=2,fetch=4"
    push: int = 1
    fetch: int = 1
    on_skip: Literal["accumulate"] | Literal["reapply"] = "accumulate"

    def __post_init__(self) -> None:
        whole(self.push, "every", 1, name="push")
        whole(self.fetch, "every", 1, name="fetch")
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
    """Send and fetch only when the worker's copy would otherwise be more than s iterations old.

    Until then updates add up. This is the cache of the modularized parameter server.
    """

    name = "cached"
    example = "cached:3"
    s: int

    def __post_init__(self) -> None:
        whole(self.s, "cached", name="s")

    @property
    def skips_fetches(self) -> bool:
        return self.s > 0

    def sends(self, offer: Offer) -> bool:
        return offer.age > self.s

    def fetches(self, offer: Offer) -> bool:
        return offer.age > self.s
