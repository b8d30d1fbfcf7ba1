"""What a worker does when a server dies whose buckets are restored from the workers' copies.

1. The view that names lost buckets waits until the connections to the dead servers have ended, because what these
   servers sent last may not be read yet. It waits for at most `LAST_WORDS_SECONDS`. Later messages of the coordinator
   wait behind it.
2. When the connection to a server has ended, the node is told (`ServerLost`).
3. Before the node gets that view, it is told of which lost buckets this worker has no complete copy (`CopySpoiled`).
"""

from __future__ import annotations

from collections.abc import Callable, Set

from syncline.effects import CopySpoiled, Event, ServerLost
from syncline.engines.net.frames import Frame
from syncline.engines.net.shared_memory import LaneMemory
from syncline.engines.worker.last_read import LastRead
from syncline.engines.worker.server_lanes import ServerLanes
from syncline.engines.worker.traffic import Traffic
from syncline.messages import COORDINATOR, Holders, NodeId, View
from syncline.nodes.bucket_map import bucket_map_of

LAST_WORDS_SECONDS = 2.0
"""Seconds after which a worker closes the connection to a server that is said to be dead."""


class LostServers:
    """The dead servers of one worker, and what waits for their last answers."""

    def __init__(
        self,
        memory: LaneMemory,
        holders: Holders,
        connections: tuple[Traffic, ServerLanes],
        told: tuple[Callable[[Event], None], Callable[[Frame], None]],
        adds_own_changes: bool,
    ) -> None:
        """`told`: passes an event to the node; handles a message of the coordinator that has waited.

        `adds_own_changes`: the worker adds its own changes to the values, so they are no copy.
        """
        self.last_read = LastRead(memory)
        self._cuts = [bucket_map_of(holders)]
        """All placements so far."""
        self._traffic, self._servers = connections
        self._handle, self._hear = told
        self._adds_own_changes = adds_own_changes
        self._dying: set[NodeId] = set()
        """The dead servers whose connections have not ended yet."""
        self._held_back: list[Frame] = []

    def holds_back(self, message: Frame, serving: Callable[[View], Set[NodeId]]) -> bool:
        """Whether this message of the coordinator has to wait; then it is handled later."""
        if not self._held_back and isinstance(message, View) and message.lost:
            before = {self._cuts[-1].holder_of(loss.bucket) for loss in message.lost}
            gone = before - serving(message)
            self._dying = {each for each in gone if each is not None and each in self._traffic}
            if self._dying:
                self._traffic.loop.call_later(LAST_WORDS_SECONDS, self._stop_waiting)
        if self._held_back or self._dying:
            self._held_back.append(message)
            return True
        return False

    def _stop_waiting(self) -> None:
        """Close the connections to dead servers that have not ended."""
        for server in list(self._dying):
            self._servers.let_go(server)
            self.died(server)

    def died(self, server: NodeId) -> None:
        """The connection to a server has ended: handle what has waited for its last answers.

        Without a coordinator nothing can be restored.
        """
        if COORDINATOR not in self._traffic:
            return
        self.last_read.lost(server)
        self._handle(ServerLost(server.number))
        if server in self._dying:
            self._dying.discard(server)
            if not self._dying:
                held, self._held_back = self._held_back, []
                for message in held:
                    self._hear(message)

    def check_copies(self, view: View, holders: Holders) -> None:
        """Tell the node of which lost buckets this worker has no complete copy."""
        placement = bucket_map_of(holders)
        if placement is not self._cuts[-1]:
            self._cuts.append(placement)
        for loss in view.lost:
            names = {name for cut in self._cuts for name in (cut.around(loss.bucket), *cut.inside(loss.bucket))}
            whole = self.last_read.is_whole(loss.bucket, [name for name in names if name is not None])
            if self._adds_own_changes or not whole:
                self._handle(CopySpoiled(loss.bucket))
