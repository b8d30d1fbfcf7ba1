"""FRED's dispatch: there is no clock; the simulator draws the next client among those that are not waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.parts import Part
from syncline.spec import parse_among
from syncline.units import real, whole

WEIGHTS = (1e-30, 1e30)
"""The least and the largest weight, and factor of a weight."""


@runtime_checkable
class Dispatch(Protocol):
    """A part that makes the dealer of a run."""

    def dealer(self, clients: int, draw: Draw) -> Dealer: ...


class Dealer(Protocol):
    """Draws clients one after another."""

    def draw(self, turn: int, ready: Pool) -> int: ...


class Pool:
    """The clients that may be drawn: a set with indexing and a search for the next client in circular order."""

    def __init__(self, clients: int) -> None:
        self._order = list(range(clients))
        self._place = {client: client for client in range(clients)}
        self.mask = np.ones(clients, dtype=bool)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> int:
        return self._order[place]

    def add(self, client: int) -> None:
        if client not in self._place:
            self._place[client] = len(self._order)
            self._order.append(client)
            self.mask[client] = True

    def remove(self, client: int) -> None:
        place = self._place.pop(client)
        last = self._order.pop()
        if last != client:
            self._order[place] = last
            self._place[last] = place
        self.mask[client] = False

    def at_or_after(self, client: int) -> int:
        """The first ready client from this number on; wraps around."""
        ready = np.flatnonzero(self.mask)
        return int(ready[np.searchsorted(ready, client) % len(ready)])


@dataclass(frozen=True)
class UniformDispatch(Part):
    """Every ready client is equally likely."""

    name = "uniform"

    def dealer(self, clients: int, draw: Draw) -> Dealer:
        return _UniformDealer(draw)


@dataclass(frozen=True)
class _UniformDealer:
    source: Draw

    def draw(self, turn: int, ready: Pool) -> int:
        return ready[int(self.source.uniform("dispatch", turn) * len(ready))]


@dataclass(frozen=True)
class InTurn(Part):
    """Clients take turns in the order of their numbers; a client that is waiting is skipped."""

    name = "round-robin"

    def dealer(self, clients: int, draw: Draw) -> Dealer:
        return _InTurnDealer(clients)


class _InTurnDealer:
    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._following = 0

    def draw(self, turn: int, ready: Pool) -> int:
        client = ready.at_or_after(self._following)
        self._following = (client + 1) % self._clients
        return client


@dataclass(frozen=True)
class Weighted(Part):
    """Draws clients by weight. Weights start at 1; every draw multiplies the weight of the drawn client by `after`.

    With after < 1, a client that was drawn is less likely to be drawn again soon. The last `slow` clients start at
    `weight` instead of 1.
    """

    name = "weighted"
    example = "weighted:after=0.5"
    after: float = 1.0
    slow: int = 0
    weight: float = 1.0

    def __post_init__(self) -> None:
        for field, value in (("after", self.after), ("weight", self.weight)):
            real(value, "weighted", *WEIGHTS, name=field)
        whole(self.slow, "weighted", name="slow")

    def dealer(self, clients: int, draw: Draw) -> Dealer:
        if self.slow > clients:
            raise UsageError("dispatch.rule", f"weighted: slow is {self.slow}, but there are only {clients} clients")
        return _WeightedDealer(self, clients, draw)


class _WeightedDealer:
    def __init__(self, rule: Weighted, clients: int, draw: Draw) -> None:
        self._after = rule.after
        self._source = draw
        self._weights = np.ones(clients)
        if rule.slow:
            self._weights[-rule.slow :] = rule.weight

    def draw(self, turn: int, ready: Pool) -> int:
        sums = np.cumsum(np.where(ready.mask, self._weights, 0.0))
        client = int(np.searchsorted(sums, self._source.uniform("dispatch", turn) * sums[-1], side="right"))
        self._weights[client] *= self._after
        if not 1e-100 < self._weights[client] < 1e100:
            self._weights /= self._weights.max()
            np.maximum(self._weights, 1e-200, out=self._weights)
        return client


DISPATCHES: tuple[type[Part], ...] = (UniformDispatch, InTurn, Weighted)


def parse_dispatch(words: str) -> Dispatch:
    """Make a dispatch rule from its text form."""
    part: Dispatch = parse_among(DISPATCHES, Dispatch, words, "dispatch.rule")
    return part
