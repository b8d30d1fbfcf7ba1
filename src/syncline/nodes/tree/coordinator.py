"""The coordinator of the tree strategy: members, the tree, and who holds the updates of which origin.

1. Every node has an origin of its own: the updates of its workers. If a node leaves or is lost, another one holds its
   origins, and serves its workers. The number of a node is never used again.
2. A link keeps its number while the same two nodes have the same origins on each side of it. Otherwise the view gives
   it another number, and the two begin anew. An origin that is new does not count: no sum contains anything of it yet.
3. A node that leaves stays in the view until it has reported that everything it held is stored elsewhere, and until it
   keeps no copy that is the only one.
4. With copies, every node has a keeper: a node that has a copy of what it holds. If another keeper is needed, both are
   named until the new one has a whole copy. If a node is lost, the keeper of its copy sends it to the node that holds
   its origins from now on. If there is no copy, these origins are orphans: their updates are lost.
5. If checkpoints are in a directory that all hosts share, nobody keeps copies. If a node is lost, the node that holds
   its origins from now on reads them from its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from syncline.effects import Admit, Dismiss, Effect, Event, Received, Reshape, Restarted, ServerLost
from syncline.errors import UsageError
from syncline.messages import Attachment, NodeId, Settled, StoredOrigin, TreeLink, TreeMap, TreeMember, View, server_id
from syncline.nodes.membership import Membership
from syncline.nodes.topologies import OPTION, Edge, beside_next, check_tree, listed, neighbours_of, ordered, side
from syncline.nodes.tree.messages import CopyKept, OriginStored
from syncline.nodes.tree.plans import TreePlan, with_leaf, without

HOLDER, COPY, UNSURE, DISK, MAYBE = "holder", "copy", "unsure", "disk", "maybe"
"""How a node can give an origin: from its checkpoint, from a copy in memory, or perhaps, because it was to take it over
itself and has not reported that it has. If it is lost, others can read its checkpoint, which has it, or perhaps has."""


@dataclass
class _Keeper:
    """A node that keeps a copy for another, or will."""

    number: int
    since: int
    whole: bool = False


class TreeCoordinator(Membership):
    """Makes the views of a run with the tree strategy."""

    def __init__(self, view: View, copies: bool = False, shape: str = "", shared: bool = False) -> None:
        """`copies`: whether nodes keep copies for each other. `shape`: the topology as text; new nodes extend it.

        `shared`: whether a node can read the checkpoints of others.
        """
        super().__init__(view)
        self._shared = shared
        self._shape = shape
        tree = view.topology
        assert isinstance(tree, TreeMap), "the coordinator of a tree needs a tree"
        self._incarnations = {each.number: each.incarnation for each in tree.nodes}
        self._origins = {each.number: set(each.origins) for each in tree.nodes}
        self._since = {each.number: each.since for each in tree.nodes}
        self._links: dict[Edge, int] = {(each.one, each.other): each.number for each in tree.links}
        self._next_link = 1 + max(self._links.values(), default=0)
        self._attached = {each.worker: each for each in tree.workers}
        self._served = {(self._attached[each.worker].node, each) for each in view.members}
        """Every live worker with its node, in the last view."""
        self._leaving: dict[int, set[int]] = {}
        """The nodes that leave, with the origins that they have to give."""
        self._settled: set[int] = set()
        self._gives_since: dict[int, int] = {}
        """The view in which a node that leaves was last asked to give something."""
        self._ready: set[int] = set()
        """Nodes that have been started, and are not in the tree yet."""
        self._ever = set(self._origins)
        self._givers: dict[int, set[tuple[str, int]]] = {}
        """For each origin that its new holder has not stored yet: who can give it, as its holder or from a copy."""
        self._orphans: set[tuple[int, int]] = set()
        self.orphaned: set[int] = set()
        """All origins that ever were orphans; some of them were stored in time."""
        self.lost_origins: set[int] = set()
        """The origins whose updates are lost."""
        self._copies = copies
        self._changed = tree.since
        """The view in which nodes or links last changed."""
        self._keepers: dict[int, list[_Keeper]] = {
            each.number: [_Keeper(keeper, since, True) for keeper, since in each.copies] for each in tree.nodes
        }

    # What engines ask.

    @property
    def servers(self) -> frozenset[int]:
        return frozenset(self._origins)

    @property
    def moving(self) -> bool:
        return bool(self._leaving)

    @property
    def movers(self) -> frozenset[int]:
        return frozenset(self._leaving)

    @property
    def next_number(self) -> int:
        """The number of the next node that starts."""
        return 1 + max(self._ever)

    @property
    def edges(self) -> tuple[Edge, ...]:
        return tuple(sorted(self._links))

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Received(source, Settled(view=number)):
                return self._settle(source.number, number)
            case Received(source, CopyKept(incarnation=incarnation, keeper=keeper, since=since)):
                return self._kept(source.number, incarnation, keeper, since)
            case Received(source, OriginStored(incarnation=incarnation, origin=origin, empty=empty)):
                return self._store(source.number, incarnation, origin, empty=empty)
            case Admit(server):
                self.ready(server)
                return self._change(self.with_leaf(server))
            case Dismiss(server):
                return self._change(self.without(server))
            case Reshape(plan):
                return self._change(plan)
            case Restarted(server, incarnation):
                return self._restart(server, incarnation)
            case ServerLost(server):
                return self._lose(server)
        return super().handle(event, now)

    def ready(self, server: int) -> None:
        """A node has been started: the next plan may name it."""
        if server in self._ever:
            raise UsageError("server", f"number {server} was used before; use {max(self._ever) + 1} for the new server")
        self._ever.add(server)
        self._ready.add(server)

    def _reporters(self) -> Collection[NodeId]:
        return {server_id(number) for number in self._origins}

    def _audience(self) -> Collection[NodeId]:
        return [server_id(number) for number in sorted({*self._origins, *self._leaving})]

    # Plans.

    def with_leaf(self, server: int, beside: int | None = None) -> TreePlan:
        """The tree with one more node, beside this one; None: where the topology has its next node."""
        near = beside_next(self._shape, self._origins) if beside is None else beside
        return with_leaf(self.edges, self._origins, server, near)

    def without(self, server: int, taker: int | None = None) -> TreePlan:
        """The tree without this node."""
        return without(self.edges, self._origins, server, taker)

    def check(self, plan: TreePlan) -> None:
        """Raise `UsageError` if this plan cannot be carried out; nothing has changed then."""
        unknown = plan.nodes - set(self._origins) - self._ready
        if unknown:
            raise UsageError(OPTION, f"names node {listed(unknown)}; the nodes are {listed(self._origins)}")
        check_tree(plan.nodes, plan.edges)
        gone = set(self._origins) - plan.nodes
        without = sorted(gone - set(plan.takers))
        if without:
            raise UsageError(OPTION, f"lacks node {listed(without)}, which is alive; remove it first, or name it")
        for node in gone:
            if plan.takers[node] not in plan.nodes:
                raise UsageError(
                    OPTION, f"node {plan.takers[node]} cannot take the place of {node}: it is not in the tree"
                )

    def _change(self, plan: TreePlan) -> list[Effect]:
        self.check(plan)
        self._shape = plan.shape or self._shape
        gone = set(self._origins) - plan.nodes
        for node in gone:
            self._leaving[node] = set(self._origins[node])
        self._reform(plan)
        return self._publish()

    def _reform(self, plan: TreePlan) -> None:
        """Carry out a checked plan."""
        self._changed = self._number + 1
        before, sides = dict(self._links), self._sides()
        for node in sorted(plan.nodes - set(self._origins)):
            self._ready.discard(node)
            self._incarnations[node], self._since[node] = 0, self._number + 1
            self._origins[node] = {node}
            self._keepers[node] = []
        for node in sorted(set(self._origins) - plan.nodes):
            self._replace(node, plan.takers[node])
        known = set(self._links)
        self._links = dict.fromkeys((ordered(*each) for each in plan.edges), 0)
        new = self._sides()
        old_origins = {origin for one, other in sides.values() for origin in one | other}
        for edge in self._links:
            kept = edge in known and _same(sides[edge], new[edge], old_origins)
            self._links[edge] = before[edge] if kept else self._next_link
            self._next_link += not kept

    def _replace(self, node: int, taker: int) -> None:
        """Give origins and workers of a node to another one."""
        for origin in self._origins.pop(node):
            self._origins[taker].add(origin)
            known = origin in self._givers
            self._givers.setdefault(origin, set()).add((UNSURE if known else HOLDER, node))
        for worker, each in self._attached.items():
            if each.node == node:
                self._attached[worker] = Attachment(worker, taker, self._number + 1)
        self._since[taker] = self._number + 1

    def _sides(self) -> dict[Edge, tuple[frozenset[int], frozenset[int]]]:
        """The origins on each side of every link."""
        found = {}
        for edge in self._links:
            first = side(self._links, edge)
            rest = set(self._origins) - first
            found[edge] = (self._origins_of(first), self._origins_of(rest))
        return found

    def _origins_of(self, nodes: Iterable[int]) -> frozenset[int]:
        return frozenset(origin for node in nodes for origin in self._origins[node])

    # Nodes that end and begin.

    def _settle(self, server: int, number: int) -> list[Effect]:
        if server in self._leaving and number >= self._gives_since.get(server, 0):
            self._settled.add(server)
        return self._release()

    def _release(self) -> list[Effect]:
        """Remove the nodes that have given everything away and keep no copy that is needed."""
        open_owners = {node: keepers for node, keepers in self._keepers.items() if node not in self._settled}
        needed = {
            each.number
            for node, keepers in open_owners.items()
            for each in keepers
            if node in self._leaving or len(keepers) > 1
        }
        done = [each for each in self._leaving if each in self._settled and each not in needed]
        if not done:
            return []
        for node in done:
            self._forget(node)
            self._give_up((HOLDER, node), (COPY, node), (UNSURE, node))
            for keepers in self._keepers.values():
                keepers[:] = [each for each in keepers if each.number != node]
        return self._publish()

    def _forget(self, node: int) -> None:
        self._leaving.pop(node, None)
        self._settled.discard(node)
        self._keepers.pop(node, None)
        self._incarnations.pop(node, None)
        self._orphans = {each for each in self._orphans if each[1] != node}

    def _restart(self, server: int, incarnation: int) -> list[Effect]:
        if incarnation <= self._incarnations.get(server, incarnation):
            return []
        self._incarnations[server] = incarnation
        if server in self._origins:
            self._changed = self._number + 1
        self._settled.discard(server)
        self._give_up((COPY, server))  # what it had in memory only is lost
        for keepers in self._keepers.values():
            for each in keepers:
                if each.number == server:
                    each.since, each.whole = self._number + 1, False
        return self._publish()

    def _lose(self, server: int) -> list[Effect]:
        if server not in self._incarnations:
            return []
        keepers = [each.number for each in self._keepers.get(server, ()) if each.whole]
        unborn = {origin for origin, holder in self._orphans if holder == server}
        if server in self._origins:
            if len(self._origins) == 1:
                raise UsageError("server", f"{server} was the only node; the model is lost")
            near = next((each for each in keepers if each in self._origins), None)
            self._reform(self.without(server, near))
        self._forget(server)
        for keeper_list in self._keepers.values():
            keeper_list[:] = [each for each in keeper_list if each.number != server]
        for givers in self._givers.values():
            if self._shared and (HOLDER, server) in givers:
                givers.add((DISK, server))
            elif self._shared and (UNSURE, server) in givers:
                givers.add((MAYBE, server))
            if (HOLDER, server) in givers:
                givers.update((COPY, each) for each in keepers)
                self._settled.difference_update(keepers)
                self._gives_since.update(dict.fromkeys(keepers, self._number + 1))
        for origin in unborn:  # perhaps it has not begun these origins: then its copy and its checkpoint lack them too
            self._givers[origin] = {(MAYBE, server)} if self._shared else set()
        self._give_up((HOLDER, server), (COPY, server), (UNSURE, server))
        return [*self._publish(), *self._release()]

    def _give_up(self, *who: tuple[str, int]) -> None:
        """These cannot give anything any more. Find the origins that nobody else can give either."""
        for givers in self._givers.values():
            givers.difference_update(who)
        for origin in [each for each, givers in self._givers.items() if not givers]:
            del self._givers[origin]
            holder = next(node for node, origins in self._origins.items() if origin in origins)
            self._orphans.add((origin, holder))
            self.orphaned.add(origin)

    def _stored(self) -> Iterator[StoredOrigin]:
        """The origins that can be read from the checkpoints of lost nodes."""
        for origin, givers in sorted(self._givers.items()):
            gone = [node for how, node in sorted(givers) if how in (DISK, MAYBE)]
            for node in gone:
                yield StoredOrigin(origin, node, len(gone) == len(givers))

    def _store(self, server: int, incarnation: int, origin: int, *, empty: bool) -> list[Effect]:
        if empty:
            self.lost_origins.add(origin)
        if self._incarnations.get(server) != incarnation:
            return []
        if origin in self._origins.get(server, ()):
            self._givers.pop(origin, None)
            self._orphans.discard((origin, server))
        elif (UNSURE, server) in self._givers.get(origin, ()):
            self._givers[origin] = self._givers[origin] - {(UNSURE, server)} | {(HOLDER, server)}
        return []

    # Copies.

    def _kept(self, owner: int, incarnation: int, keeper: int, since: int) -> list[Effect]:
        if self._incarnations.get(owner) != incarnation:
            return []
        found = [each for each in self._keepers.get(owner, ()) if (each.number, each.since) == (keeper, since)]
        if not found or found[0].whole:
            return []
        found[0].whole = True
        if len(self._keepers[owner]) == 1:
            return []
        self._keepers[owner] = found
        return [*self._publish(), *self._release()]

    def _name_keepers(self) -> None:
        """Name a keeper for every node that has none in the tree."""
        around = neighbours_of(self._links)
        for node, keepers in self._keepers.items():
            staying = [each for each in keepers if each.number in self._origins and each.number != node]
            if staying or not self._copies or node not in self._origins:
                continue
            near = sorted(around.get(node, ()))
            self._keepers[node] = [*keepers, *(_Keeper(each, self._number + 1) for each in near[:1])]

    # Members.

    def _join(self, worker: int, incarnation: int) -> list[Effect]:
        attached = self._attached.get(worker)
        if attached is None or attached.node not in self._origins:
            load = dict.fromkeys(sorted(self._origins), 0)
            for each in self._attached.values():
                load[each.node] = load.get(each.node, 0) + 1
            node = min(self._origins, key=lambda each: (load[each], each))
            self._attached[worker] = Attachment(worker, node, self._changed)
        return super()._join(worker, incarnation)

    def _publish(self) -> list[Effect]:
        self._name_keepers()
        number = self._number + 1
        attached = tuple(self._attached[worker] for worker in sorted(self._members) if worker in self._attached)
        served = {(each.node, self._members[each.worker]) for each in attached}
        for node in {node for node, _ in self._served ^ served}:
            self._since[node] = number
        self._served = served
        self._topology = TreeMap(
            tuple(self._member_of(node) for node in sorted(self._origins)),
            tuple(TreeLink(link, *edge) for edge, link in sorted(self._links.items())),
            attached,
            tuple(self._member_of(node) for node in sorted(self._leaving)),
            tuple(sorted(self._orphans)),
            self._changed,
            tuple(self._stored()),
        )
        return super()._publish()

    def _member_of(self, node: int) -> TreeMember:
        origins = self._origins[node] if node in self._origins else self._leaving[node]
        copies = tuple((each.number, each.since) for each in self._keepers.get(node, ()))
        return TreeMember(node, self._incarnations[node], tuple(sorted(origins)), copies, self._since.get(node, 0))


Sides = tuple[frozenset[int], frozenset[int]]


def _same(old: Sides, new: Sides, known: Collection[int]) -> bool:
    """Whether the same origins are on each side, apart from those that are new."""
    return all(before == after.intersection(known) for before, after in zip(old, new, strict=True))


def first_tree(edges: Iterable[Edge], nodes: int, workers: Iterable[int], copies: bool = False) -> TreeMap:
    """The tree at the start of a run; workers are dealt to the nodes in equal shares, neighbours together."""
    pairs = sorted(ordered(*each) for each in edges)
    around, numbers = neighbours_of(pairs), sorted(workers)
    members = tuple(
        TreeMember(node, 0, (node,), tuple((each, 0) for each in sorted(around.get(node, ()))[:copies]))
        for node in range(nodes)
    )
    attached = tuple(Attachment(worker, place * nodes // len(numbers)) for place, worker in enumerate(numbers))
    return TreeMap(members, tuple(TreeLink(1 + place, *edge) for place, edge in enumerate(pairs)), attached)
