"""Links: FIFO and cut-through, with independent directions (link_turns.py has links that are shared in turns).

1. A message starts when the sender's link is free. It arrives at max(end of sending + latency, time at which the
   receiver's link is free + bytes / bandwidth).
2. Links count payload bytes only.
3. Messages get a link in order of (start at the sender, worker number).
4. Every node has its own link. With colocated nodes, worker k and server k, or the node of a tree and its workers, are
   on one host and share its link; messages between them do not use it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec

from syncline.effects import LinkUse
from syncline.messages import NodeId
from syncline.sim.agenda import Action, Agenda


@dataclass(frozen=True)
class Links:
    """Every node's link: bytes per second in each direction, and seconds of latency."""

    bandwidth: float = inf
    latency: float = 0.0
    turn: int | None = None
    """The bytes that a connection sends in one turn (link_turns.py); None: messages are sent whole."""


class Transfer(msgspec.Struct, frozen=True, gc=False):
    """One message in flight, of `size` payload bytes; on arrival, `arrive(whom, what)` is called."""

    sender: NodeId
    receiver: NodeId
    worker: int
    """The number of the worker at either end."""
    size: int
    arrive: Action
    whom: Any
    what: Any


@dataclass(slots=True, eq=False)
class NetworkLink:
    """One direction of a node's link."""

    free_at: float = 0.0
    busy: float = 0.0
    sent: int = 0
    queue: deque[Transfer] = field(default_factory=deque)


HostOf = Callable[[NodeId], int]
"""The number of the host that a worker or a server is on."""


class HostLinks(defaultdict[NodeId, NetworkLink]):
    """One link for all workers and servers on a host."""

    def __init__(self, host_of: HostOf) -> None:
        super().__init__()
        self._host_of = host_of
        self._hosts: defaultdict[int, NetworkLink] = defaultdict(NetworkLink)

    def __missing__(self, node: NodeId) -> NetworkLink:
        self[node] = link = NetworkLink() if node.role == "coordinator" else self._hosts[self._host_of(node)]
        return link


class Network:
    """Every node has one full-duplex link to a switch that never blocks."""

    def __init__(self, agenda: Agenda, links: Links) -> None:
        self._agenda = agenda
        self._bandwidth = links.bandwidth
        self._latency = links.latency
        self._out: defaultdict[NodeId, NetworkLink] = defaultdict(NetworkLink)
        self._in: defaultdict[NodeId, NetworkLink] = defaultdict(NetworkLink)
        self._requested: Action = self._request

    def send(self, transfer: Transfer) -> None:
        """Send a message."""
        at_once = self._agenda.at_once
        at_once((transfer.worker, self._requested, self._out[transfer.sender], transfer))

    def forget(self, node: NodeId) -> None:
        """Discard the messages that this node has queued but not begun to send."""
        if node in self._out:
            queue = self._out[node].queue
            kept = [transfer for transfer in queue if transfer.sender != node]
            queue.clear()
            queue.extend(kept)

    def busiest(self) -> tuple[float, NodeId | None]:
        """The longest time that one direction of any link was in use, and the node that owns the link."""
        used = [(link.busy, node) for links in (self._in, self._out) for node, link in links.items()]
        return max(used, default=(0.0, None), key=lambda each: (each[0], each[1].role == "server", -each[1].number))

    def use(self, node: NodeId) -> LinkUse | None:
        """What this node has sent so far, and for how long its link was in use; None: as a program would see it."""
        link = self._out[node]
        return LinkUse(link.sent, link.busy)

    def _request(self, link: NetworkLink, transfer: Transfer) -> None:
        if link.queue:
            link.queue.append(transfer)
        elif link.free_at > self._agenda.now:
            link.queue.append(transfer)
            self._agenda.at(link.free_at, transfer.worker, self._next, link, None)
        else:
            self._start(link, transfer)

    def _next(self, link: NetworkLink, _: None) -> None:
        """The link is free: send the first message in its queue."""
        queue = link.queue
        if not queue or link.free_at > self._agenda.now:
            return
        self._start(link, queue.popleft())
        if queue:
            self._agenda.at(link.free_at, queue[0].worker, self._next, link, None)

    def _start(self, link: NetworkLink, transfer: Transfer) -> None:
        agenda, entry = self._agenda, self._in[transfer.receiver]
        seconds = transfer.size / self._bandwidth
        link.free_at = free_at = agenda.now + seconds
        arrival, soonest = free_at + self._latency, entry.free_at + seconds
        if soonest > arrival:
            arrival = soonest
        entry.free_at = arrival
        link.busy += seconds
        link.sent += transfer.size
        entry.busy += seconds
        agenda.at(arrival, transfer.worker, transfer.arrive, transfer.whom, transfer.what)


class Colocated(Network):
    """Workers and servers share hosts, each of which has one link. Messages within a host take no time."""

    def __init__(self, agenda: Agenda, links: Links, host_of: HostOf) -> None:
        super().__init__(agenda, links)
        self._out, self._in = HostLinks(host_of), HostLinks(host_of)

    def send(self, transfer: Transfer) -> None:
        if self._out[transfer.sender] is self._out[transfer.receiver]:
            self._agenda.at_once((transfer.worker, transfer.arrive, transfer.whom, transfer.what))
        else:
            super().send(transfer)
