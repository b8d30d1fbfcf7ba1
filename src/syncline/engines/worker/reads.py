"""Values that a worker sends or reads outside of any iteration: initial and final parameters, and rule state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from syncline.engines.net.control import Read, Seed
from syncline.engines.net.frames import Frame
from syncline.engines.net.shared_memory import LaneMemory
from syncline.errors import PeerError
from syncline.layout import Bucket, Payload
from syncline.messages import Holders, Moved, NodeId
from syncline.nodes.bucket_map import bucket_map_of


class _Send(Protocol):
    def __call__(self, to: NodeId, message: Frame, place: Payload | None = None) -> None: ...


class PendingReads:
    """The buckets that were requested and have not arrived yet, each with the node that was asked."""

    def __init__(self, view: int, holders: Holders, send: _Send) -> None:
        self._send = send
        self._open: dict[tuple[NodeId, Bucket], Read | Seed] = {}
        self.adopt(view, holders)

    def adopt(self, view: int, holders: Holders) -> None:
        """Use the placement of the view with this number from now on."""
        self._view = max(view, 0)
        self._map = bucket_map_of(holders)

    def __bool__(self) -> bool:
        return bool(self._open)

    def asked(self, source: NodeId, bucket: Bucket) -> bool:
        """Was this node asked for this bucket?"""
        return (source, bucket) in self._open

    def waits_for(self, source: NodeId) -> bool:
        return any(to == source for to, _ in self._open)

    def seed(self, buckets: Iterable[Bucket], memory: LaneMemory, name: str = "") -> None:
        """Send the update memory to the servers, as initial parameters or as the rule's state with this name.

        Servers acknowledge state, because the parameters that follow use the same memory.
        """
        for bucket in buckets:
            server, seed = self._map.holder[bucket], Seed(bucket, name)
            if name:
                self._open[server, bucket] = seed
            self._send(server, seed, memory.update(bucket))

    def seed_copies(self, server: NodeId, buckets: Sequence[Bucket], memory: LaneMemory) -> None:
        """Send the initial parameters also to this server, and read the last bucket, to know when it has them all."""
        for bucket in buckets:
            self._send(server, Seed(bucket), memory.update(bucket))
        self._open[server, buckets[-1]] = read = Read(buckets[-1])
        self._send(server, read)

    def read(self, name: str = "") -> None:
        """Ask the servers for all current parameters, or for the rule's state with this name."""
        self._ask_for(list(self._map.holder), name)

    def read_from(self, worker: NodeId, buckets: Iterable[Bucket]) -> None:
        """Ask another worker for its values of these buckets."""
        for bucket in buckets:
            self._open[worker, bucket] = Read(bucket)
        for (to, _), read in list(self._open.items()):
            self._send(to, read)

    def _ask_for(self, buckets: list[Bucket], name: str) -> None:
        asked = {(self._map.holder[bucket], bucket): Read(bucket, name, self._view) for bucket in buckets}
        self._open |= asked
        for (server, _), read in asked.items():
            self._send(server, read)

    def arrived(self, source: NodeId, bucket: Bucket) -> None:
        self._open.pop((source, bucket), None)

    def moved(self, source: NodeId, moved: Moved) -> None:
        """A bucket that was requested has moved or was split: ask the new holders."""
        asked = self._open.pop((source, moved.bucket))
        if not isinstance(asked, Read) or asked.view >= moved.view:
            raise PeerError(f"it sent Moved for {moved.bucket}, which it holds in view {moved.view}")
        self._ask_for(self._map.inside(moved.bucket), asked.memory)
