"""Which links between workers are idle, and how much the link of this host has carried.

A link is idle when everything that was sent over it has been given to the operating system, and the peer has read what
is in shared memory. Over TCP, the operating system takes little more than it can send at once (peer_lanes.py).
"""

from __future__ import annotations

from collections.abc import Callable

from syncline.effects import Event, Idle, LinkUse
from syncline.engines.net.link_use import ConnectionUse
from syncline.engines.worker.peer_lanes import PeerLanes
from syncline.engines.worker.traffic import Traffic
from syncline.messages import NodeId


class HostUse:
    """How much this host has sent to workers on other hosts, and how long its link was in use, from kernel counts.

    A connection begins to be in use only when something is sent, and `look` is called then. So between two calls, the
    link was in use for as long as the connection that was in use for longest.
    """

    def __init__(self, use_of: Callable[[NodeId], ConnectionUse | None]) -> None:
        self._use_of = use_of
        self._known: dict[NodeId, ConnectionUse] = {}
        self._busy: set[NodeId] = set()
        self.total: LinkUse | None = None
        """None: nothing was sent, or the kernel does not say."""

    def look(self, *sent_to: NodeId) -> None:
        """Count what has happened since the last call; something was just sent to these peers."""
        self._busy.update(sent_to)
        arrived, longest = 0, 0.0
        for peer in tuple(self._busy):
            use = self._use_of(peer)
            if use is None:
                self._busy.discard(peer)
                self._known.pop(peer, None)
                continue
            before = self._known.get(peer, use)  # what was sent before the first range does not count
            self._known[peer] = use
            arrived += max(0, use.arrived - before.arrived)
            longest = max(longest, use.seconds - before.seconds)
            if not use.busy:
                self._busy.discard(peer)
        if self._known:
            total = self.total or LinkUse(0, 0.0)
            self.total = LinkUse(total.arrived + arrived, total.seconds + longest)


class IdleLinks:
    """Tells a node when a link that it has used is idle, after the event in which it sent and not inside of it."""

    def __init__(self, traffic: Traffic, lanes: PeerLanes, handle: Callable[[Event], None]) -> None:
        self._traffic = traffic
        self._lanes = lanes
        self._handle = handle
        self._host = HostUse(traffic.use)
        self._used: set[NodeId] = set()
        self._telling = False

    def used(self, peer: NodeId) -> None:
        """Something was sent to this peer."""
        self._used.add(peer)
        if not self._lanes.shares(peer):
            self._host.look(peer)

    def tell(self) -> None:
        """Tell the node of each link that has become idle; what it sends then counts too."""
        if self._telling:
            return
        self._telling = True
        try:
            while idle := [peer for peer in self._used if self._is_idle(peer)]:
                self._used.difference_update(idle)
                self._host.look()
                for peer in sorted(idle):
                    near = self._lanes.shares(peer)
                    self._handle(Idle(peer, near, None if near else self._host.total))
        finally:
            self._telling = False

    def _is_idle(self, peer: NodeId) -> bool:
        return peer in self._traffic and not self._traffic.waits(peer) and not self._lanes.is_full(peer)
