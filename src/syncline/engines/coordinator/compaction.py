"""Removes the values of all-gathers from the journal, so that it does not grow with the iterations of a program.

1. A complete all-gather has changed nothing but the counts of frames. So its entries may be removed, together with all
   earlier ones, and their counts are written instead.
2. Its result must have reached every worker that took part, because nobody can make it again: all have acknowledged it,
   or are gone.
3. Every value was answered by exactly one frame on the same connection, unless that connection has ended.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from syncline.engines.coordinator.journal import Entry, Journal, RemovedCounts, Sent
from syncline.engines.net.lasting import LastingConnection

COMPACT_BYTES = 1 << 20
"""The journal is compacted when it can lose this many bytes, and half of its size."""


class Compaction:
    """Knows which entries can be removed."""

    def __init__(self, journal: Journal, least: int = COMPACT_BYTES) -> None:
        self._journal = journal
        self._least = least
        self._bytes = 0
        """The size of the values in the journal."""
        self._taking_part: set[LastingConnection] = set()
        self._complete: deque[tuple[int, dict[LastingConnection, int]]] = deque()
        """All-gathers whose result may still be on its way: the number of entries then, and the frames sent to each."""

    def shared(
        self, wire: LastingConnection, size: int, complete: bool, wires: Mapping[int, LastingConnection]
    ) -> None:
        """A value of this size was handled; `complete`: no all-gather is under way now."""
        self._bytes += size
        self._taking_part.add(wire)
        if complete:
            self._complete.append((self._journal.count, {each: each.sent for each in self._taking_part}))
            self._taking_part.clear()
            if self._bytes > max(self._least, self._journal.size // 2):
                self._remove(wires)

    def _remove(self, wires: Mapping[int, LastingConnection]) -> None:
        """Remove the all-gathers whose result has reached everybody."""
        end = 0
        while self._complete and all(each.ended or each.has_heard(sent) for each, sent in self._complete[0][1].items()):
            end = self._complete.popleft()[0]
        if not end:
            return
        removed: Counter[int] = Counter()

        def keeps(place: int, entry: Entry) -> bool:
            if place >= end or not isinstance(entry, Sent) or not entry.shares:
                return True
            removed[entry.wire] += 1
            self._bytes -= len(entry.header)
            return False

        self._journal.rewrite(
            keeps, lambda: RemovedCounts({each: (n, n) for each, n in removed.items() if each in wires})
        )
        self._bytes = max(self._bytes, 0)  # those of a coordinator before this one were not counted
        gone = removed.total()
        self._complete = deque((count - gone, sent) for count, sent in self._complete)
