"""The memory of workers that servers of one host have all mapped, so that a log needs no copies of their updates.

1. A worker shares one segment with all servers of its host. A server tells every server that has connected to it from
   this host whose memory it has mapped (`Mapped`).
2. A server that knows this of its backup sends the entry of a push without the payload. The backup reads the update in
   the worker's memory. The worker does not change it there before it has the answer, and the answer waits until the
   backup has handled the entry.
3. The memory of a worker whose connection has ended stays mapped for a while, because entries about its last pushes can
   still be on their way. If one came even later, the connection would be closed and the log begin anew.
"""

from __future__ import annotations

from collections.abc import Callable

from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Mapped
from syncline.engines.net.shared_memory import LaneMemory
from syncline.engines.server.worker_peer import Out, WorkerPeer
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Payload
from syncline.messages import Message, NodeId, Push

KEPT_SECONDS = 30.0
"""How long the memory of a worker stays mapped after its connection has ended."""

Who = tuple[int, int]
"""A worker and its incarnation."""


class MappedWorkers:
    """Which workers' memory this server has mapped, and which of them other servers have mapped too."""

    def __init__(
        self,
        out: Out,
        later: Callable[[float, Callable[[], None]], None],
        passed_on: Callable[[Message], tuple[NodeId, Push] | None],
    ) -> None:
        """`passed_on`: the push, and its worker, that a message between servers passes on."""
        self._out = out
        self._passed_on = passed_on
        self._later = later
        self._memory: dict[Who, LaneMemory] = {}
        self._told: list[Connection] = []
        """The connections of other servers of this host, which learn whose memory is mapped here."""
        self._theirs: dict[Connection, set[Who]] = {}
        """For each connection to another server: whose memory that server has mapped."""

    def enter(self, peer: WorkerPeer) -> None:
        """A worker has connected."""
        if peer.shared:
            self._memory[peer.who] = peer.memory
            for wire in self._told:
                self._out(wire, Mapped(*peer.who))

    def leave(self, peer: WorkerPeer) -> None:
        """A worker's connection has ended."""

        def forget() -> None:
            if self._memory.get(peer.who) is peer.memory:
                del self._memory[peer.who]

        self._later(KEPT_SECONDS, forget)

    def tell(self, wire: Connection) -> None:
        """Another server has connected."""
        if wire.is_near:
            self._told.append(wire)
            for who in self._memory:
                self._out(wire, Mapped(*who))

    def hear(self, wire: Connection, message: Mapped) -> None:
        """Another server has mapped the memory of a worker."""
        self._theirs.setdefault(wire, set()).add((message.worker, message.incarnation))

    def ended(self, wire: Connection) -> None:
        """A connection to or from another server has ended."""
        self._theirs.pop(wire, None)
        self._told = [each for each in self._told if each is not wire]

    def has(self, wire: Connection, message: Message, payload: Payload) -> bool:
        """Whether the server at the other end can read this payload itself."""
        passed = self._passed_on(message)
        if passed is None:
            return False
        worker, push = passed
        who = (worker.number, push.incarnation)
        memory = self._memory.get(who)
        if memory is None or who not in self._theirs.get(wire, ()):
            return False
        return memory.update(push.bucket).ctypes.data == payload.ctypes.data

    def payload(self, message: Message) -> memoryview | None:
        """The payload of a push that was passed on without it; None: it has none."""
        passed = self._passed_on(message)
        if passed is None or passed[1].empty:
            return None
        worker, push = passed
        memory = self._memory.get((worker.number, push.incarnation))
        if memory is None:
            raise PeerError(f"it passed on a push of {worker} without a payload, and its memory is not mapped here")
        place, size = memory.update(push.bucket).data.cast("B"), push.size or push.bucket.size * VALUE_BYTES
        if place.nbytes < size:
            raise PeerError(f"it passed on a push of {push.bucket} with {size:,} bytes")
        return place[:size]
