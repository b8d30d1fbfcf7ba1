"""Links: FIFO and cut-through, each direction by itself.

A message starts when the sender's link is free and ends at max(sender's end + latency, receiver's link free + bytes /
bandwidth). Links count payload bytes only and are taken in order of (sender's start, worker number).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec

from syncline.messages import NodeId
from syncline.sim.agenda import Agenda

Route = tuple[NodeId, NodeId, int]
"""(sender, receiver, the number of the worker at either end)"""

Arrive = Callable[..., None]
"""What happens when a message has arrived."""


@dataclass(frozen=True)
class Links:
    """Every node's link: bytes per second in each direction, and seconds of latency."""

    bandwidth: float = inf
    latency: float = 0.0


class Transfer(msgspec.Struct, frozen=True):
    """One message on its way."""

    sender: NodeId
    receiver: NodeId
    worker: int
    size: int
    arrive: Arrive
    args: tuple[Any, ...]


@dataclass(slots=True)
class _Link:
    """One direction of a node's link."""

    free_at: float = 0.0
    busy: float = 0.0
    queue: deque[Transfer] = field(default_factory=deque)


class Network:
    """Every node has one link, full duplex, into a switch that never blocks."""

    def __init__(self, agenda: Agenda, links: Links) -> None:
        self._agenda = agenda
        self._links = links
        self._out: dict[NodeId, _Link] = {}
        self._in: dict[NodeId, _Link] = {}

    def send(self, route: Route, size: int, arrive: Arrive, args: tuple[Any, ...]) -> None:
        """Have `arrive(*args)` happen when this many payload bytes have arrived."""
        transfer = Transfer(*route, size, arrive, args)
        self._agenda.at_once(transfer.worker, self._request, (transfer,))

    def forget(self, node: NodeId) -> None:
        """Lose what this node has queued but not begun to send."""
        if node in self._out:
            self._out[node].queue.clear()

    def busiest(self) -> tuple[float, NodeId | None]:
        """The longest time that one direction of a link was in use, and whose link."""
        used = [(link.busy, node) for links in (self._in, self._out) for node, link in links.items()]
        return max(used, default=(0.0, None), key=lambda each: (each[0], each[1].role == "server", -each[1].number))

    def _request(self, transfer: Transfer) -> None:
        link = self._out.setdefault(transfer.sender, _Link())
        if link.queue:
            link.queue.append(transfer)
        elif link.free_at > self._agenda.now:
            link.queue.append(transfer)
            self._agenda.at(link.free_at, transfer.worker, self._next, (link,))
        else:
            self._start(link, transfer)

    def _next(self, link: _Link) -> None:
        if not link.queue or link.free_at > self._agenda.now:
            return
        self._start(link, link.queue.popleft())
        if link.queue:
            self._agenda.at(link.free_at, link.queue[0].worker, self._next, (link,))

    def _start(self, link: _Link, transfer: Transfer) -> None:
        seconds = transfer.size / self._links.bandwidth
        door = self._in.setdefault(transfer.receiver, _Link())
        link.free_at = self._agenda.now + seconds
        door.free_at = max(link.free_at + self._links.latency, door.free_at + seconds)
        link.busy += seconds
        door.busy += seconds
        self._agenda.at(door.free_at, transfer.worker, transfer.arrive, transfer.args)
