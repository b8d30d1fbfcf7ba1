"""Marks: for each range of a sender's updates, the last update that a receiver has."""

from __future__ import annotations

from collections.abc import Iterable


def turn_of(receiver: int, clock: int, parts: int) -> int:
    """The range that a sender sends this receiver after its update number `clock`."""
    return (receiver + clock) % parts


class Marks:
    """The marks of one sender's ranges at one receiver."""

    __slots__ = ("base", "clock", "values")

    def __init__(self, values: Iterable[int], base: int = 0) -> None:
        """`base`: an update up to which the receiver has every range, whatever the marks say."""
        self.values = list(values)
        self.base = base
        self._look()

    @classmethod
    def in_turn(cls, receiver: int, clock: int, parts: int) -> Marks:
        """As if the ranges had been sent in turn after the updates `clock`, `clock` - 1, ..., one range each."""
        values = [0] * parts
        for each in range(clock - parts + 1, clock + 1):
            values[turn_of(receiver, each, parts)] = each
        return cls(values, clock)

    def _look(self) -> None:
        self.clock = min(len(self.values) - 1 + min(self.values), max(self.values))
        """The sender's clock, as far as its ranges show it."""

    @property
    def reached(self) -> tuple[int, ...]:
        """For each range, the last update that the receiver has."""
        return tuple(max(each, self.base) for each in self.values)

    def advance(self, part: int, last: int) -> None:
        self.values[part] = last
        self._look()
