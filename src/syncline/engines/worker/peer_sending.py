"""Which links between workers are idle: everything that was sent to a peer has been given to the operating system."""

from __future__ import annotations

from collections.abc import Callable

from syncline.effects import Event, Idle
from syncline.engines.worker.traffic import Traffic
from syncline.messages import NodeId


class IdleLinks:
    """Tells a node when a link that it has used is idle, after the event in which it sent and not inside of it."""

    def __init__(self, traffic: Traffic, handle: Callable[[Event], None]) -> None:
        self._traffic = traffic
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
            while idle := [peer for peer in self._used if peer in self._traffic and not self._traffic.waits(peer)]:
                self._used.difference_update(idle)
                for peer in sorted(idle):
                    self._handle(Idle(peer))
        finally:
            self._telling = False
