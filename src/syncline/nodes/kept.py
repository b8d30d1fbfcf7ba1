"""Updates that wait for the close of their round. They stay encoded, and stay the worker's memory as long as may be."""

from __future__ import annotations

import msgspec

from syncline.layout import Payload

Who = tuple[int, int]
"""(worker, incarnation)"""


class Kept(msgspec.Struct, eq=False, gc=False):
    """One update; `payload` is None if it was empty."""

    payload: Payload | None
    lr: float | None
    read: int
    owned: bool = False

    def own(self) -> None:
        """Copy the update: from now on its worker may write the memory again."""
        if self.payload is not None and not self.owned:
            self.payload, self.owned = self.payload.copy(), True


class KeptUpdates:
    """By round, and within a round by worker."""

    __slots__ = ("by_round",)

    def __init__(self) -> None:
        self.by_round: dict[int, dict[Who, Kept]] = {}

    def keep(self, i: int, who: Who, update: Kept) -> None:
        there = self.by_round.get(i)
        if there is None:
            there = self.by_round[i] = {}
        there[who] = update

    def own(self, i: int, who: Who) -> None:
        """The push of this update is about to be answered."""
        there = self.by_round.get(i)
        if there is not None and who in there:
            there[who].own()

    def own_all(self, worker: int) -> None:
        """This worker is gone, and its memory with it."""
        for each in self.by_round.values():
            for who, kept in each.items():
                if who[0] == worker:
                    kept.own()

    def everything(self) -> list[tuple[int, Who, Kept]]:
        """(round, who, update) of all that is kept."""
        return [(i, who, kept) for i, there in self.by_round.items() for who, kept in there.items()]

    def rounds(self) -> list[int]:
        return sorted(self.by_round)

    def take(self, i: int) -> list[Kept]:
        """Take out a round, in worker order."""
        kept = self.by_round.pop(i, None)
        return [kept[who] for who in sorted(kept)] if kept else []
