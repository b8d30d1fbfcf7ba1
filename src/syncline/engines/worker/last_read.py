"""What a worker has read last of each bucket, in case a server dies.

1. An answer arrives in the lane's memory. Its values stay there until the next answer, unless the application changes
   them there, as an optimizer does in mode `changes`. Then the application keeps a base: a copy of what it has read.
2. From the delivery of an answer until the application has taken a table over, the lane's memory has its newest values;
   after that the base has.
3. A server that dies may leave a part of an answer in the lane's memory. In shared memory it marks a bucket before it
   writes to it, and the worker removes the mark when the message has arrived. Over a connection the worker knows what
   it is receiving.
"""

from __future__ import annotations

from collections.abc import Iterable

from syncline.engines.net.shared_memory import LaneMemory
from syncline.layout import Bucket, Table, Values
from syncline.messages import NodeId


class LastRead:
    """Knows where the values of each bucket are, and whether they are complete."""

    def __init__(self, memory: LaneMemory) -> None:
        self._memory = memory
        self._bases: dict[str, tuple[Table, Values]] = {}
        self._untaken: dict[str, set[Bucket]] = {}
        """For each table that the application has not taken over: the buckets that were delivered since it did."""
        self._based: dict[Bucket, tuple[str, ...]] = {}
        """The tables with a base that lie in a bucket."""
        self._receiving: dict[NodeId, Bucket] = {}
        self._cut_off: set[Bucket] = set()
        """Buckets whose server died while their values arrived."""

    # The application.

    def keep_base(self, table: Table, base: Values) -> None:
        """The application keeps what it has read of this table here."""
        self._bases[table.name] = (table, base)
        self._based.clear()

    def taken(self, name: str) -> None:
        """The application has copied all new values of this table to its base."""
        self._untaken.pop(name, None)

    # Answers.

    def receiving(self, source: NodeId, bucket: Bucket) -> None:
        """Values of this bucket begin to arrive in the lane's memory."""
        self._receiving[source] = bucket

    def arrived(self, source: NodeId, bucket: Bucket) -> None:
        """All values of this bucket have arrived in the lane's memory."""
        if self._receiving:
            self._receiving.pop(source, None)
        self._memory.unmark(bucket)

    def delivered(self, bucket: Bucket) -> None:
        """The node has accepted the values of this bucket."""
        if self._cut_off:
            self._cut_off.discard(bucket)
        if not self._bases:
            return
        names = self._based.get(bucket)
        if names is None:
            names = tuple(table.name for table, _ in self._bases.values() if _overlap(bucket, table))
            self._based[bucket] = names
        for name in names:
            self._untaken.setdefault(name, set()).add(bucket)

    def lost(self, source: NodeId) -> None:
        """The connection to this server has ended."""
        bucket = self._receiving.pop(source, None)
        if bucket is not None:
            self._cut_off.add(bucket)

    # Copies.

    def is_whole(self, bucket: Bucket, names: Iterable[Bucket]) -> bool:
        """Whether the worker has all values that it has read last of this bucket.

        `names`: the bucket, and the buckets of earlier views that contain it or lie in it.
        """
        if not self._in_lane(bucket):
            return True
        return not any(self._memory.is_marked(name) or name in self._cut_off for name in names)

    def values(self, bucket: Bucket) -> Values:
        """A copy of the values."""
        found = self._memory.param(bucket).copy()
        for table, base in self._bases.values():
            start, stop = max(bucket.start, table.start), min(bucket.stop, table.stop)
            if start < stop:
                found[start - bucket.start : stop - bucket.start] = base[start - table.start : stop - table.start]
        for name, others in self._untaken.items():
            table = self._bases[name][0]
            for other in others:
                start, stop = max(bucket.start, other.start, table.start), min(bucket.stop, other.stop, table.stop)
                if start < stop:
                    found[start - bucket.start : stop - bucket.start] = self._memory.params[start:stop]
        return found

    def _in_lane(self, bucket: Bucket) -> bool:
        """Whether some of the values are in the lane's memory, not in a base."""
        based = sum(_overlap(bucket, table) for table, _ in self._bases.values())
        return based < bucket.size or any(_overlap(bucket, other) for each in self._untaken.values() for other in each)


def _overlap(one: Bucket, other: Bucket | Table) -> int:
    """How many values both have."""
    return max(0, min(one.stop, other.stop) - max(one.start, other.start))
