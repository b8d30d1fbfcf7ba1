"""One model of a run as the coordinator sees it: who trains it, how it begins, and its views.

1. It begins when every server has a connection for it and every worker that is expected has declared it, or is known
   not to come.
2. Servers are told first; once all of them know what is trained, workers are told where to find them.
3. All start together: nobody goes before everyone holds the first parameters, which are the leader's. If the leader is
   lost before that, the run is.
4. When the last member has left nothing changes any more: all are told, and may read the final parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from syncline.effects import Effect, Event, Lost, Received, Send
from syncline.engines.control import Begin, Declare, Declared, Ended, Go, Hello, Place, Refused, Seated, layout_of
from syncline.engines.frames import Frame
from syncline.engines.settings import settle, strategy_of
from syncline.engines.wire import Wire
from syncline.errors import PeerError, UsageError
from syncline.layout import Bucket, buckets
from syncline.messages import Join, Leave, Member, NodeId, Report, View
from syncline.nodes.coordinator import Coordinator
from syncline.placement import checked
from syncline.strategy import Mode

OVER = "this run is over"

MOST_BUCKETS = 1 << 20
"""A view with more would not fit into a frame."""

FAR = 1 << 62
"""No round has such a number."""


@dataclass(eq=False, slots=True)
class Peer:
    """A connection of a server or worker; it is about one model at most."""

    id: NodeId
    hello: Hello
    wire: Wire
    incarnation: int = 0
    gathering: Gathering | None = None
    left: float | None = None
    """When it left, if it has: it may still read the final parameters."""


class Run(Protocol):
    """What a gathering needs of the run that it belongs to."""

    expected: int
    """How many workers start the run."""
    count: int
    """How many servers there are."""
    layers: Mapping[str, Mapping[str, str]]
    """The user's settings by where they were said, the strongest first."""

    def absent(self) -> Collection[int]:
        """The workers that nobody need wait for at the beginning."""
        ...

    def fitting(self, peers: Collection[Peer]) -> dict[str, str]:
        """The settings that fit the lane between these workers and the servers."""
        ...

    def out(self, wire: Wire, message: Frame) -> None:
        """Send, unless the peer is gone."""
        ...

    def tell(self, peer: Peer, what: str, usage: bool = False) -> None:
        """Have launchers say what has become of a worker."""
        ...

    def count_out(self, number: int) -> None:
        """Do not wait for this worker at the beginning."""
        ...

    def ended(self) -> None:
        """Nobody trains this model any more."""
        ...

    def abort(self, reason: str) -> None:
        """The run cannot go on."""
        ...


class Gathering:
    """One model: its servers, its workers, and the node that makes its views."""

    def __init__(self, name: str, run: Run) -> None:
        self.name = name
        self.servers: dict[int, Peer] = {}
        self.workers: dict[int, Peer] = {}
        self.ended = False
        self._run = run
        self._declared: dict[int, Declare] = {}
        self._node: Coordinator | None = None
        self._begun: Begin | None = None
        self._unready: set[Peer] = set()
        """The servers that do not know yet what is trained."""
        self._told: list[tuple[Peer, Begin]] = []
        """Workers that are told as soon as all servers know."""
        self._standing: set[Peer] = set()
        """Those who start together and do not hold the first parameters yet."""

    @property
    def begun(self) -> bool:
        return self._begun is not None

    @property
    def members(self) -> tuple[Member, ...]:
        return () if self._node is None else self._node.view.members

    # What comes in.

    def from_server(self, peer: Peer, message: Report | Seated) -> None:
        if isinstance(message, Seated):
            self._unready.discard(peer)
            self._tell_if_ready()
        elif not 0 <= message.largest < FAR:
            raise PeerError(f"a report of {message.largest} rounds")
        else:
            self._handle(Received(peer.id, message))

    def from_worker(self, peer: Peer, message: Seated | Join | Leave) -> None:
        if isinstance(message, Seated):
            self._sit(peer)
            return
        if message.incarnation != peer.incarnation:
            raise PeerError(f"{type(message).__name__} of incarnation {message.incarnation}")
        if self.ended and isinstance(message, Join):
            self.refuse(peer, OVER, usage=False)
            return
        self._handle(Received(peer.id, message))
        if isinstance(message, Leave):
            peer.left = monotonic()

    def closed(self, peer: Peer, reason: str) -> None:
        """A worker's connection has ended."""
        if self.workers.get(peer.id.number) is peer:
            del self.workers[peer.id.number]
            self._declared.pop(peer.id.number, None)
        if peer.left is None and self._node is not None:
            self.lose(peer, f"its connection ended{reason and ': ' + reason}")

    def lose(self, peer: Peer, what: str) -> None:
        """This worker takes no further part."""
        if self._node is None or not self.is_member(peer):
            return
        self._run.tell(peer, what)
        self._handle(Lost(peer.id.number, peer.incarnation))
        if peer in self._standing and self._begun is not None and peer.id.number == self._begun.leader:
            self._run.abort(f"{peer.id}, whose parameters all start with, is gone before the others had them: {what}")
        self._sit(peer)

    def is_member(self, peer: Peer) -> bool:
        who = (peer.id.number, peer.incarnation)
        return any((member.worker, member.incarnation) == who for member in self.members)

    # The beginning.

    def declare(self, peer: Peer, declare: Declare) -> None:
        """A worker says what it trains."""
        if self.ended:
            self.refuse(peer, OVER, usage=False)
            return
        layout = layout_of(declare.tables)
        first = self._begun or next(iter(self._declared.values()), None)
        difference = None if first is None else layout.difference(layout_of(first.tables))
        if difference is not None:
            self.refuse(peer, f"worker {peer.id.number} trains another model: {difference}")
            return
        self.workers[peer.id.number] = peer
        self._declared[peer.id.number] = declare
        if self._begun is None:
            self.begin_if_ready()
        elif self._begun.settings["mode"] == Mode.GRADIENTS.value:
            self.refuse(peer, "a joiner would need the others' optimizer state; take mode 'changes' or a rule")
        else:
            begun = self._begun
            again = Begin(begun.tables, begun.settings, self._view(), begun.servers, -1, self.name, begun.origins)
            self._told.append((peer, again))
            self._tell_if_ready()

    def _view(self) -> View:
        assert self._node is not None
        return self._node.view

    def refuse(self, peer: Peer, reason: str, usage: bool = True) -> None:
        self._declared.pop(peer.id.number, None)
        self._run.out(peer.wire, Refused(reason, usage))
        self._run.tell(peer, f"refused: {reason}", usage)
        self._run.count_out(peer.id.number)

    def begin_if_ready(self) -> None:
        """Begin, if everyone is there who will come."""
        ready = [self.workers[number] for number in sorted(self._declared)]
        if self._begun is not None or len(self.servers) < self._run.count or not ready:
            return
        if not {*self._run.absent(), *self._declared}.issuperset(range(self._run.expected)):
            return
        try:
            self._begin(ready)
        except UsageError as error:
            self._declared.clear()
            for peer in ready:
                self.refuse(peer, str(error))

    def _begin(self, ready: list[Peer]) -> None:
        run, leader = self._run, ready[0]
        declared = self._declared[leader.id.number]
        layers = {
            **run.layers,
            "the program": declared.wishes if leader.hello.run else {},
            "the lane": run.fitting(ready),
        }
        found = settle(layers, run.count, run.expected)
        words = {key: word for key, (word, _) in found.items()}
        origins = {key: origin for key, (_, origin) in found.items()}
        members = tuple(Member(peer.id.number, peer.incarnation, 0) for peer in ready)
        view = View(0, members, self._holders(declared.tables, words))
        self._node = Coordinator(view)
        places = tuple(
            Place(each.hello.host, each.hello.unix, each.hello.tcp) for _, each in sorted(self.servers.items())
        )
        self._begun = Begin(declared.tables, words, view, places, leader.id.number, self.name, origins)
        self._standing = set(ready)
        self._told = [(peer, self._begun) for peer in ready]
        self._unready = set(self.servers.values())
        for server in self.servers.values():
            run.out(server.wire, self._begun)

    def _holders(self, tables: tuple[Declared, ...], words: Mapping[str, str]) -> tuple[tuple[Bucket, ...], ...]:
        """Which server holds which buckets."""
        layout, strategy = layout_of(tables), strategy_of(words, self._run.count)
        if layout.size > MOST_BUCKETS * strategy.bucket_values:
            raise UsageError("bucket", f"{words['bucket']} makes more than {MOST_BUCKETS:,} of this model")
        ranges = checked(strategy.placement, layout, self._run.count)
        return tuple(buckets(layout, each, strategy.bucket_values) for each in ranges)

    def _tell_if_ready(self) -> None:
        if not self._unready:
            told, self._told = self._told, []
            for peer, begin in told:
                self._run.out(peer.wire, begin)

    def _sit(self, peer: Peer) -> None:
        if peer in self._standing:
            self._standing.discard(peer)
            if not self._standing:
                for each in self.workers.values():
                    self._run.out(each.wire, Go())

    # The node.

    def _handle(self, event: Event) -> None:
        if self._node is None:
            raise PeerError("nothing has begun yet")
        self._perform(self._node.handle(event, monotonic()))
        if not self.ended and not self._node.view.members:
            self.ended = True
            for peer in self.workers.values():
                self._run.out(peer.wire, Ended())
            self._run.ended()

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Send:
                group = self.servers if effect.to.role == "server" else self.workers
                peer = group.get(effect.to.number)
                if peer is not None:
                    self._run.out(peer.wire, effect.message)
