"""Links that connections share in turns, so that a small message does not wait for every large one ahead of it.

A connection is a pair of sender and receiver; it sends its messages in order. The connections that have something to
send take turns; in its turn a connection sends at most `turn` bytes. This models TCP, which limits the bytes in flight
of a connection to a window, with a FIFO queue in front of the link. At the receiver's link, the bytes of one turn queue
like a message. A message arrives when its last byte does.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass

from syncline.messages import NodeId
from syncline.sim.agenda import Agenda
from syncline.sim.network import Colocated, HostLinks, HostOf, Links, Network, NetworkLink, Transfer

Pair = tuple[NodeId, NodeId]


@dataclass(slots=True, eq=False)
class Going:
    """A message in flight, and how many of its bytes are still to be sent."""

    transfer: Transfer
    left: int


class Turns(Network):
    """Every node (with `host_of`, every host) has one full-duplex link to a switch that never blocks."""

    def __init__(self, agenda: Agenda, links: Links, turn: int, host_of: HostOf | None) -> None:
        super().__init__(agenda, links)
        self._turn = turn
        if host_of is not None:
            self._out, self._in = HostLinks(host_of), HostLinks(host_of)
        self._lines: defaultdict[NetworkLink, OrderedDict[Pair, deque[Going]]] = defaultdict(OrderedDict)
        """For each link: the connections that have something to send, in the order of their turns."""
        self._served: dict[NetworkLink, Pair] = {}
        """For each link: the connection whose turn it is, if it has more to send; afterwards it goes to the end."""

    def send(self, transfer: Transfer) -> None:
        if self._out[transfer.sender] is self._out[transfer.receiver]:
            self._agenda.at_once((transfer.worker, transfer.arrive, transfer.whom, transfer.what))
        else:
            super().send(transfer)

    def use(self, node: NodeId) -> None:
        """Between real hosts a program sees only when its messages arrive."""
        return

    def forget(self, node: NodeId) -> None:
        line = self._lines[self._out[node]]
        for pair, queue in list(line.items()):
            if pair[0] == node:
                begun = [going for going in queue if going.left < going.transfer.size]
                if begun:
                    line[pair] = deque(begun)
                else:
                    del line[pair]

    def _request(self, link: NetworkLink, transfer: Transfer) -> None:
        line, pair = self._lines[link], (transfer.sender, transfer.receiver)
        going = Going(transfer, transfer.size)
        if pair in line:
            line[pair].append(going)
            return
        first = not line
        line[pair] = deque([going])
        if first and link.free_at > self._agenda.now:
            self._agenda.at(link.free_at, transfer.worker, self._next, link, None)
        elif first:
            self._take_turn(link, line)

    def _next(self, link: NetworkLink, _: None) -> None:
        """The link is free: the first connection in line takes its turn."""
        line = self._lines[link]
        if not line or link.free_at > self._agenda.now:
            return
        served = self._served.pop(link, None)
        if served is not None and served in line:
            line.move_to_end(served)
        self._take_turn(link, line)

    def _take_turn(self, link: NetworkLink, line: OrderedDict[Pair, deque[Going]]) -> None:
        pair, queue = next(iter(line.items()))
        going = queue[0]
        size = min(self._turn, going.left)
        going.left -= size
        arrival = self._occupy(link, self._in[pair[1]], size)
        if not going.left:
            queue.popleft()
            transfer = going.transfer
            self._agenda.at(arrival, transfer.worker, transfer.arrive, transfer.whom, transfer.what)
        if queue:
            self._served[link] = pair
        else:
            del line[pair]
        if line:
            worker = next(iter(line.values()))[0].transfer.worker
            self._agenda.at(link.free_at, worker, self._next, link, None)

    def _occupy(self, link: NetworkLink, entry: NetworkLink, size: int) -> float:
        """Send `size` bytes from now on; return when the receiver has them."""
        seconds = size / self._bandwidth
        link.free_at = self._agenda.now + seconds
        entry.free_at = max(link.free_at + self._latency, entry.free_at + seconds)
        link.busy += seconds
        entry.busy += seconds
        return entry.free_at


def network_of(agenda: Agenda, links: Links | None, host_of: HostOf | None) -> Network | None:
    """Make the network with these links; None: messages take no time. `host_of`: if nodes share hosts."""
    if links is None:
        return None
    if links.turn is not None:
        return Turns(agenda, links, links.turn, host_of)
    return Network(agenda, links) if host_of is None else Colocated(agenda, links, host_of)
