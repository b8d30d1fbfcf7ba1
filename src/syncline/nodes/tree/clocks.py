"""How far all nodes are: the vector U of the paper.

Every node publishes a value of its own: with `ssp` the least number of iterations that its live workers have finished,
with `approximate` the number of updates that its replica contains. Nodes pass on to their neighbours what is new, at
once, while updates wait for the period. Of two values of a node the newer one counts.
"""

from __future__ import annotations

from syncline.effects import Effect, Send
from syncline.messages import NodeId, server_id
from syncline.nodes.tree.link_end import Session
from syncline.nodes.tree.messages import Clocks, ClocksHeard, NodeClock
from syncline.nodes.tree.tree_terms import APPROXIMATE, TreeTerms

Out = list[Effect]


class ClockLink:
    """What the neighbour at the other end of a link has heard."""

    __slots__ = ("next_number", "peer", "session", "told", "unheard")

    def __init__(self, peer: int, session: Session) -> None:
        self.peer: NodeId = server_id(peer)
        self.session = session
        self.told: dict[int, tuple[int, int]] = {}
        self.next_number = 0
        self.unheard: Clocks | None = None


class NodeClocks:
    """The newest clocks that a node knows of, and which of them its neighbours have."""

    def __init__(self, terms: TreeTerms) -> None:
        self._terms = terms
        self.entries: dict[int, NodeClock] = {}
        self._links: dict[int, ClockLink] = {}
        self.highest = 0
        """The highest least clock that workers have been answered by."""
        self.limit: int | None = None
        """While a worker joins: the least clock does not count as more than this."""

    def adopt(self) -> None:
        """Follow the links of the view that the terms have adopted."""
        terms, before = self._terms, self._links
        self._links = {}
        if terms.place is None:
            return
        for each in terms.tree.links:
            if terms.me in (each.one, each.other):
                peer = each.one + each.other - terms.me
                session = (each.number, terms.place.incarnation, terms.incarnations[peer])
                link = before.get(each.number)
                kept = link is not None and link.session == session
                self._links[each.number] = link if kept and link is not None else ClockLink(peer, session)

    def publish(self, value: int, out: Out) -> None:
        """Set this node's own clock, and tell the neighbours everything that is new."""
        terms = self._terms
        known = self.entries.get(terms.me)
        mine = terms.incarnations.get(terms.me, 0)
        if known is None or (known.incarnation, known.value, known.view) != (mine, value, terms.view):
            number = 0 if known is None or known.incarnation != mine else known.number + 1
            self.entries[terms.me] = NodeClock(terms.me, mine, number, value, terms.view)
        self.tell(out)

    def tell(self, out: Out) -> None:
        for link in self._links.values():
            if link.unheard is not None:
                continue
            news = tuple(each for each in self.entries.values() if link.told.get(each.node, (-1, -1)) < _age(each))
            if news:
                link.unheard = Clocks(self._terms.view, *link.session, link.next_number, news)
                link.next_number += 1
                out.append(Send(link.peer, link.unheard))

    def repeat(self, out: Out) -> None:
        for link in self._links.values():
            if link.unheard is not None:
                out.append(Send(link.peer, link.unheard))

    @property
    def is_quiet(self) -> bool:
        return all(link.unheard is None for link in self._links.values())

    def hear(self, source: NodeId, message: Clocks, out: Out) -> bool:
        """Take in a neighbour's clocks; returns whether any of them was news."""
        link = self._links.get(message.link)
        if link is None or link.peer != source or (message.link, message.yours, message.mine) != link.session:
            return False
        out.append(Send(source, ClocksHeard(self._terms.view, *link.session, message.number)))
        changed = False
        for each in message.entries:
            known = self.entries.get(each.node)
            if each.node != self._terms.me and (known is None or _age(known) < _age(each)):
                self.entries[each.node] = each
                changed = True
            if link.told.get(each.node, (-1, -1)) < _age(each):
                link.told[each.node] = _age(each)
        return changed

    def heard(self, source: NodeId, message: ClocksHeard, out: Out) -> None:
        link = self._links.get(message.link)
        if link is None or link.peer != source or (message.link, message.yours, message.mine) != link.session:
            return
        if link.unheard is not None and link.unheard.number == message.number:
            for each in link.unheard.entries:
                link.told[each.node] = max(_age(each), link.told.get(each.node, (-1, -1)))
            link.unheard = None
            self.tell(out)

    def least(self, own: int | None) -> int | None:
        """The least clock of all nodes with live workers; `own`: this node's clock. None: no worker lives."""
        terms, found = self._terms, list[int]()
        for node in terms.tree.nodes:
            workers = [each for each in terms.workers_of(node.number) if each.first is not None]
            if not workers:
                continue
            if node.number == terms.me:
                found.append(own or 0)
                continue
            known = self.entries.get(node.number)
            approximate = terms.settings.consistency.kind == APPROXIMATE
            if (
                known is not None
                and known.view >= node.since
                and (not approximate or known.incarnation == node.incarnation)
            ):
                found.append(known.value)
            else:
                found.append(0 if approximate else min(each.first or 0 for each in workers))
        least = min(found, default=None)
        if least is None:
            return None
        if self.limit is not None:
            return min(least, self.limit)
        self.highest = max(self.highest, least)
        return least


def _age(clock: NodeClock) -> tuple[int, int]:
    return clock.incarnation, clock.number
