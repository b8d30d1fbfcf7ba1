"""Links that connections share fairly, as TCP lets them: a small message does not wait behind a large one.

A connection is a sender and a receiver; its messages go one after another. All that have something to send do so at the
same time, at rates that are fair: none can have more without taking from one that has no more than it (max-min). Rates
change only when a connection falls idle or has something to send again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf

from syncline.messages import NodeId
from syncline.sim.agenda import NO_WORKER, Agenda
from syncline.sim.network import Colocated, Link, Links, Network, Queue, Shared, Transfer

NOTHING = 1e-6
"""Bytes: less than that is left of a message by rounding only."""


@dataclass(slots=True, eq=False)
class Connection:
    """What one node sends to another: the first message of the queue is under way."""

    out: Link
    door: Link
    """The receiver's link."""
    queue: deque[Transfer] = field(default_factory=deque)
    left: float = 0.0
    """Bytes of the first message that have not been sent."""
    rate: float = 0.0


class Fair(Network):
    """Every node, or with `colocated` every host, has one link, full duplex, into a switch that never blocks."""

    def __init__(self, agenda: Agenda, links: Links, colocated: bool) -> None:
        super().__init__(agenda, links)
        if colocated:
            self._out, self._in = Shared(), Shared()
        self._known: dict[tuple[NodeId, NodeId], Connection] = {}
        self._active: dict[Connection, None] = {}
        """In the order in which they became so."""
        self._since = 0.0
        """When it was last seen how much is left."""
        self._turn = 0
        """Numbers the times at which something may end: only the last one counts."""
        self._asked = False
        """Connections have become active; they are looked at together, once all of this moment are known."""

    def send(self, transfer: Transfer) -> None:
        pair = (transfer.sender, transfer.receiver)
        known = self._known.get(pair)
        if known is None:
            known = self._known[pair] = Connection(self._out[transfer.sender], self._in[transfer.receiver])
        if self._out[transfer.receiver] is known.out:
            self._agenda.at_once((transfer.worker, transfer.arrive, transfer.whom, transfer.what))
            return
        known.queue.append(transfer)
        if len(known.queue) == 1:
            known.left = transfer.size
            self._ask(known)

    def forget(self, node: NodeId) -> None:
        for (sender, _), known in self._known.items():
            while sender == node and len(known.queue) > 1:
                known.queue.pop()

    def _ask(self, known: Connection) -> None:
        known.rate = 0.0
        self._active[known] = None
        if not self._asked:
            self._asked = True
            self._agenda.at_once((NO_WORKER, self._settle, None, None))

    def _settle(self, _: None, __: None) -> None:
        """Divide the links anew among the connections that have something to send."""
        self._asked = False
        self._advance()
        self._finish()
        divide(self._active, self._bandwidth)
        self._plan()

    def _advance(self) -> None:
        """Take from every message what has been sent of it."""
        now = self._agenda.now
        passed = now - self._since
        self._since = now
        for known in self._active:
            known.left -= passed * known.rate

    def _plan(self) -> None:
        """Come back when the next message ends."""
        self._turn += 1
        if self._active:
            soonest = min(known.left / known.rate for known in self._active)
            self._agenda.at(self._agenda.now + soonest, NO_WORKER, self._end, self._turn, None)

    def _end(self, turn: int, _: None) -> None:
        if turn != self._turn or self._asked:
            return
        self._advance()
        if self._finish():
            divide(self._active, self._bandwidth)
        self._plan()

    def _finish(self) -> bool:
        """Let those messages arrive of which nothing is left; whether a connection has fallen idle by that."""
        idle = []
        for known in self._active:
            while known.queue and known.left <= NOTHING:
                self._arrive(known, known.queue.popleft())
                known.left = known.queue[0].size if known.queue else 0.0
            if not known.queue:
                idle.append(known)
        for known in idle:
            del self._active[known]
        return bool(idle)

    def _arrive(self, known: Connection, transfer: Transfer) -> None:
        seconds = transfer.size / self._bandwidth
        known.out.busy += seconds
        known.door.busy += seconds
        self._agenda.at(
            self._agenda.now + self._latency, transfer.worker, transfer.arrive, transfer.whom, transfer.what
        )


def divide(active: Collection[Connection], bandwidth: float) -> None:
    """Give every connection its rate: the link with the least for each of its connections first, then the others."""
    using: dict[Link, list[Connection]] = {}
    for known in active:
        using.setdefault(known.out, []).append(known)
        using.setdefault(known.door, []).append(known)
    room = dict.fromkeys(using, bandwidth)
    count = {link: len(those) for link, those in using.items()}
    open_ = set(active)
    while open_:
        share, link = inf, None
        for each, number in count.items():
            if number and room[each] / number < share:
                share, link = room[each] / number, each
        assert link is not None
        for known in using[link]:
            if known in open_:
                open_.discard(known)
                known.rate = share
                for each in (known.out, known.door):
                    room[each] -= share
                    count[each] -= 1


def network_of(agenda: Agenda, links: Links | None, colocated: bool) -> Network | None:
    """The network of these links; None: messages take no time."""
    if links is None:
        return None
    if links.queue is Queue.FAIR and links.bandwidth < inf:
        return Fair(agenda, links, colocated)
    return Colocated(agenda, links) if colocated else Network(agenda, links)
