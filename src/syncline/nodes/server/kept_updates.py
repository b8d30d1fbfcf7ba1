"""Updates that are not applied yet, or that may be applied again.

An update that waits for the close of its round stays encoded. It stays in the worker's memory as long as possible.
"""

from __future__ import annotations

import msgspec

from syncline.layout import Payload

Who = tuple[int, int]
"""(worker, incarnation)"""


class WaitingUpdate(msgspec.Struct, eq=False, gc=False):
    """One update of a worker; `payload` is None if it was empty."""

    worker: int
    payload: Payload | None
    lr: float | None
    read: int
    owned: bool = False

    def own(self) -> None:
        """Copy the update, so that its worker may write to its memory again."""
        if self.payload is not None and not self.owned:
            self.payload, self.owned = self.payload.copy(), True


class KeptUpdates:
    """The updates that wait for the close of their round, by round and by worker."""

    __slots__ = ("by_round",)

    def __init__(self) -> None:
        self.by_round: dict[int, dict[Who, WaitingUpdate]] = {}

    def keep(self, i: int, who: Who, update: WaitingUpdate) -> None:
        there = self.by_round.get(i)
        if there is None:
            there = self.by_round[i] = {}
        there[who] = update

    def own(self, i: int, who: Who) -> None:
        """Copy this update, because its push is about to be answered."""
        there = self.by_round.get(i)
        if there is not None and who in there:
            there[who].own()

    def own_all(self, worker: int) -> None:
        """Copy all updates of this worker, because it was removed and its memory is no longer valid."""
        for each in self.by_round.values():
            for who, kept in each.items():
                if who[0] == worker:
                    kept.own()

    def everything(self) -> list[tuple[int, Who, WaitingUpdate]]:
        """(round, who, update) for each kept update."""
        return [(i, who, kept) for i, there in self.by_round.items() for who, kept in there.items()]

    def rounds(self) -> list[int]:
        return sorted(self.by_round)

    def take(self, i: int) -> list[WaitingUpdate]:
        """Remove and return the updates of a round, in worker order."""
        kept = self.by_round.pop(i, None)
        return [kept[who] for who in sorted(kept)] if kept else []


class Last(msgspec.Struct, gc=False):
    """A worker's last update of a bucket, in the shard's own memory."""

    incarnation: int
    payload: Payload
    read: int


class LastUpdates:
    """The last update of each worker, applied again where a gate skips an update (`on_skip=reapply`)."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, Last] = {}

    def keep(self, who: Who, payload: Payload, read: int, anew: bool) -> Payload:
        """Copy an update and return the copy. `anew`: do not reuse the previous copy, which may still be in use."""
        last = self._of.get(who[0])
        if anew or last is None or last.payload.shape != payload.shape or last.payload.dtype != payload.dtype:
            self._of[who[0]] = last = Last(who[1], payload.copy(), read)
        else:
            last.payload[:] = payload
            last.incarnation, last.read = who[1], read
        return last.payload

    def of(self, who: Who) -> Last | None:
        """The last update; None if this incarnation has sent none."""
        last = self._of.get(who[0])
        return last if last is not None and last.incarnation == who[1] else None

    def forget(self, worker: int) -> None:
        self._of.pop(worker, None)

    def everything(self) -> list[tuple[int, Last]]:
        return list(self._of.items())
