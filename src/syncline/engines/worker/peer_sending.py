"""Which links between workers are idle.

A link is idle when everything that was sent over it has been given to the operating system, and the peer has read what
is in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable

from syncline.effects import Event, Idle
from syncline.engines.worker.peer_lanes import PeerLanes
from syncline.engines.worker.traffic import Traffic
from syncline.messages import NodeId


class IdleLinks:
    """Tells a node when a link that it has used is idle, after the event in which it sent and not inside of it."""

    def __init__(self, traffic: Traffic, lanes: PeerLanes, handle: Callable[[Event], None]) -> None:
        self._traffic = traffic
        self._lanes = lanes
        self._handle = handle
        self._used: set[NodeId] = set()
        self._telling = False

    def used(self, peer: NodeId) -> None:
        """Something was sent to this peer."""
        self._used.add(peer)

    def tell(self) -> None:
        """Tell the node of each link that has become idle; what it sends then counts too."""
        if self._telling:
            return
        self._telling = True
        try:
            while idle := [peer for peer in self._used if self._is_idle(peer)]:
                self._used.difference_update(idle)
                for peer in sorted(idle):
                    self._handle(Idle(peer, self._lanes.shares(peer), self._traffic.use(peer)))
        finally:
            self._telling = False

    def _is_idle(self, peer: NodeId) -> bool:
        return peer in self._traffic and not self._traffic.waits(peer) and not self._lanes.is_full(peer)
