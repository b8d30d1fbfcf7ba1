"""The updates that a node holds, by origin, for one bucket: x in the paper.

1. The updates of the node's own workers are added to its own origin. The other origins are those of nodes that it has
   replaced; these never change. So two copies of such an origin are the same, and the first one that arrives counts.
2. With every origin goes the last push of each worker that it contains. A push that is not newer is a repeat.
3. A position counts everything that the node has taken: an update, or an origin that it has taken over. `stored` is the
   position up to which checkpoint and copy contain everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from syncline.layout import Payload
from syncline.messages import LastPush
from syncline.nodes.tree.messages import OriginState, OriginStates
from syncline.reals import Reals


class OriginUpdates:
    """The updates of one origin: their sum, how many they are, and each worker's last push."""

    __slots__ = ("ahead", "count", "last", "round", "values")

    def __init__(self, values: Reals, count: int = 0, last: Mapping[int, tuple[int, int]] | None = None) -> None:
        self.values = values
        self.count = count
        self.last = dict(last or {})
        """For each worker: incarnation and progress."""
        self.round = -1
        """With rounds, `values` is the replica after this round; without values, that is known otherwise."""
        self.ahead: dict[int, tuple[Reals, int]] = {}
        """With rounds: the sum of the origin's pushes in each later round, and how many they are."""

    def state(self, origin: int) -> OriginState:
        last = tuple(LastPush(worker, *self.last[worker]) for worker in sorted(self.last))
        ahead = tuple((each, self.ahead[each][1]) for each in sorted(self.ahead))
        return OriginState(origin, self.count, last, self.round, ahead, based=bool(self.values.size))

    def arrays(self) -> list[Reals]:
        return [self.values, *(self.ahead[each][0] for each in sorted(self.ahead))]

    def progress(self, worker: int, incarnation: int) -> int:
        """The last iteration of this worker that is contained; -1: none."""
        known = self.last.get(worker)
        return known[1] if known is not None and known[0] == incarnation else -1


def packed(origins: Mapping[int, OriginUpdates]) -> tuple[tuple[OriginState, ...], Payload]:
    """The origins as headers, and all their values one after another."""
    order = sorted(origins)
    arrays = [array for origin in order for array in origins[origin].arrays()]
    return tuple(origins[origin].state(origin) for origin in order), np.concatenate([*arrays, np.zeros(0)])


def unpacked(states: Iterable[OriginState], payload: Payload, size: int) -> dict[int, OriginUpdates]:
    """The inverse of `packed`."""
    found, start = {}, 0
    for state in states:
        rows = state.based + len(state.ahead)
        arrays = list(np.array(payload[start : start + rows * size], np.float64).reshape(rows, size))
        values, later = (arrays[0], arrays[1:]) if state.based else (np.zeros(0), arrays)
        start += rows * size
        last = {each.worker: (each.incarnation, each.progress) for each in state.last}
        made = found[state.origin] = OriginUpdates(values.copy(), state.count, last)
        made.round = state.round
        made.ahead = {each: (raw.copy(), n) for (each, n), raw in zip(state.ahead, later, strict=True)}
    return found


class HeldUpdates:
    """All that a node has taken of one bucket."""

    __slots__ = ("_own", "by_origin", "dirty", "gifts", "position", "saved", "saving", "serial", "size")

    def __init__(self, own: int, size: int, held: Mapping[int, OriginUpdates] | None = None) -> None:
        self.size = size
        self._own = own
        self.by_origin = dict(held or {})
        self.gifts: dict[int, OriginUpdates] = {}
        """The origins that other nodes shall hold, and have not stored yet."""
        self.position = 0
        self.saved = 0
        """Up to which position the checkpoint has everything."""
        self.saving: tuple[int, int] | None = None
        """The serial number and the position of the checkpoint that is being written."""
        self.serial = 0
        self.dirty = False

    @property
    def everything(self) -> dict[int, OriginUpdates]:
        """All that would be lost with this node: what it holds, and what it has to give."""
        return {**self.gifts, **self.by_origin}

    @property
    def own(self) -> OriginUpdates:
        if self._own not in self.by_origin:
            self.by_origin[self._own] = OriginUpdates(np.zeros(self.size))
        return self.by_origin[self._own]

    def progress(self, worker: int, incarnation: int) -> int:
        """The last iteration of a worker that this node has taken; -1: none."""
        return max((each.progress(worker, incarnation) for each in self.by_origin.values()), default=-1)

    def record(self, worker: int, incarnation: int, progress: int) -> None:
        """Count an update of this worker to the node's own origin."""
        self.own.last[worker] = (incarnation, progress)
        self.own.count += 1
        self.took()

    def took(self) -> int:
        """The position of what has just been taken."""
        self.position += 1
        self.dirty = True
        return self.position

    def begin_saving(self) -> tuple[int, OriginStates, Payload]:
        """The next checkpoint: its serial number, headers and values."""
        self.serial += 1
        self.saving, self.dirty = (self.serial, self.position), False
        states, payload = packed(self.everything)
        return self.serial, OriginStates(states), payload

    def end_saving(self, serial: int) -> bool:
        if self.saving is None or self.saving[0] != serial:
            return False
        self.saved = self.saving[1]
        self.saving = None
        return True
