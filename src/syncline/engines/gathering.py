"""One model of a run as the coordinator sees it: who trains it, how it begins, and its views.

1. It begins when every server has a connection for it and every worker that is expected has declared it, or is known
   not to come.
2. Servers are told first; once all of them know what is trained, workers are told where to find them.
3. All start together: nobody goes before everyone holds the first parameters, which are the leader's. If the leader is
   lost before that, the run is.
4. When the last member has left nothing changes any more: all are told, and may read the final parameters. If something
   moves just then, they are told when it has moved.
5. A server that comes later is told what is trained, then everyone else is told where it is; once all who are there
   have reached it, it is admitted. Whoever cannot reach it is reason enough to refuse it.
6. Servers come and go only while something is trained: not before all have started, nor after all have left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from secrets import token_hex
from time import monotonic
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from syncline.effects import Admit, Dismiss, Effect, Event, Lost, Received, Send
from syncline.engines.control import (
    Begin,
    Declare,
    Declared,
    Ended,
    Go,
    Hello,
    Place,
    Reach,
    Reached,
    Refused,
    Seated,
    layout_of,
)
from syncline.engines.frames import PAYLOAD, Frame
from syncline.engines.settings import contradiction, settle, strategy_in, strategy_of
from syncline.engines.wire import Wire
from syncline.errors import PeerError, UsageError
from syncline.layout import VALUE_BYTES, buckets
from syncline.messages import Join, Leave, Member, NodeId, Report, Settled, View
from syncline.nodes.coordinator import Coordinator
from syncline.nodes.cutting import Holders
from syncline.placement import checked, replaced
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
    """How many servers the run was started with."""
    layers: Mapping[str, Mapping[str, str]]
    """The user's settings by where they were said, the strongest first."""

    def absent(self) -> Collection[int]:
        """The workers that nobody need wait for at the beginning."""
        ...

    def fitting(self, values: int) -> dict[str, str]:
        """The settings that fit the lane to servers that hold so many values each."""
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

    def first_servers(self) -> Collection[int]:
        """The servers that the run was started with, as far as they stay."""
        ...

    def joined(self, number: int) -> None:
        """This server, which has come later, gets its part."""
        ...

    def refuse_server(self, number: int, reason: str) -> None:
        """This server, which has come later, gets no part of this model."""
        ...

    def keep_server(self, number: int, reason: str) -> None:
        """This server cannot leave."""
        ...

    def settled(self) -> None:
        """Something has moved: a server may be free to go."""
        ...


def _place(server: Peer) -> Place:
    return Place(server.hello.host, server.hello.unix, server.hello.tcp)


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
        self._wishes: dict[str, str] = {}
        """What the leader's program asks for."""
        self._unready: set[Peer] = set()
        """The servers that do not know yet what is trained."""
        self._told: list[tuple[Peer, Begin]] = []
        """Workers that are told as soon as all servers know."""
        self._standing: set[Peer] = set()
        """Those who start together and do not hold the first parameters yet."""
        self._word = token_hex(16)
        """What servers of this model say to each other."""
        self._leaving: set[int] = set()
        """The servers that are to be dismissed as soon as may be."""
        self._arriving: dict[int, set[Peer]] = {}
        """The servers that know what is trained, and who has not reached each of them yet."""
        self._all_told = False

    @property
    def begun(self) -> bool:
        return self._begun is not None

    @property
    def members(self) -> tuple[Member, ...]:
        return () if self._node is None else self._node.view.members

    # What comes in.

    def from_server(self, peer: Peer, message: Report | Seated | Settled | Reached) -> None:
        if isinstance(message, Seated):
            if peer in self._unready:
                self._unready.discard(peer)
                self._tell_if_ready()
            else:
                self._introduce(peer)
        elif isinstance(message, Reached):
            self.reached(peer, message)
        elif isinstance(message, Settled):
            self._handle(Received(peer.id, message))
            self._run.settled()
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
        self._excuse(peer)
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
            try:
                self._check_wishes(peer, {**begun.settings, **self._wishes})
            except UsageError as error:
                self.refuse(peer, str(error))
                return
            again = Begin(begun.tables, begun.settings, self._view(), self._places(), -1, self.name, begun.origins)
            self._told.append((peer, again))
            self._tell_if_ready()
            self._mention(peer)

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
        first = self._run.first_servers()
        if self._begun is not None or not self.servers or not ready or not set(first).issubset(self.servers):
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
            "the lane": run.fitting(layout_of(declared.tables).size // len(self._first())),
        }
        found = settle(layers, run.count, run.expected)
        words = {key: word for key, (word, _) in found.items()}
        origins = {key: origin for key, (_, origin) in found.items()}
        self._wishes = dict(declared.wishes)
        for peer in ready:
            self._check_wishes(peer, {**words, **self._wishes})
        members = tuple(Member(peer.id.number, peer.incarnation, 0) for peer in ready)
        view = View(0, members, self._holders(declared.tables, words))
        self._node = Coordinator(view, self._replace)
        self._begun = Begin(declared.tables, words, view, self._places(), leader.id.number, self.name, origins)
        self._standing = set(ready)
        self._told = [(peer, self._begun) for peer in ready]
        self._unready = {self.servers[number] for number, held in enumerate(view.holders) if held}
        for server in self._unready:
            run.out(server.wire, replace(self._begun, word=self._word))
        for number in self.servers:
            self.invite(number)

    def _check_wishes(self, peer: Peer, words: Mapping[str, str]) -> None:
        """Refuse a worker whose program asks for something else than the leader's; who asks for nothing takes that."""
        said = [key for layer in self._run.layers.values() for key in layer]
        wishes = self._declared[peer.id.number].wishes
        key = contradiction(wishes, words, said)
        if key is not None:
            others = (
                f"worker {peer.id.number} asks for {wishes[key]}, and the run has {words.get(key, 'no such thing')}"
            )
            raise UsageError(key, f"{others}; all workers must ask for the same")

    def _holders(self, tables: tuple[Declared, ...], words: Mapping[str, str]) -> Holders:
        """Which server holds which buckets: those that were there from the start; the others are admitted later."""
        layout, strategy = layout_of(tables), strategy_of(words, self._run.count)
        if layout.size > MOST_BUCKETS * strategy.bucket_values:
            raise UsageError("bucket", f"{words['bucket']} makes more than {MOST_BUCKETS:,} of this model")
        numbers = self._first()
        ranges = dict(zip(numbers, checked(strategy.placement, layout, len(numbers)), strict=True))
        return tuple(
            buckets(layout, ranges.get(number, ()), strategy.bucket_values) for number in range(numbers[-1] + 1)
        )

    def _first(self) -> list[int]:
        """The servers that hold something from the beginning."""
        return sorted(self._run.first_servers()) or sorted(self.servers)

    def _places(self) -> tuple[Place, ...]:
        """Where the servers of the present view are."""
        return tuple(
            _place(self.servers[number]) if number in self.servers else Place("", "", "")
            for number in range(len(self._view().holders))
        )

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
                self._arrange()

    # Servers that come and go.

    def invite(self, number: int) -> None:
        """Tell a server that has come later what is trained, unless it knows."""
        if self._begun is None or self.ended or self._holds(number):
            return
        problem = self._cannot_move(self._view().members)
        if problem is None and len(self._begun.settings["sync"].split()) > 1:
            problem = "its range would come from servers with different sync models"
        if problem is not None:
            self._run.refuse_server(number, problem)
            return
        begin = replace(self._begun, view=self._view(), servers=self._places(), leader=-1, word=self._word)
        self._run.out(self.servers[number].wire, begin)
        self._mention(self.servers[number])

    def _mention(self, peer: Peer) -> None:
        """Whoever comes now also learns of the servers that have come, and hold nothing yet."""
        assert self._node is not None
        holders = self._node.view.holders
        for number, server in self.servers.items():
            holds = number < len(holders) and bool(holders[number])
            if holds or server is peer or number not in {*self._arriving, *self._node.servers}:
                continue
            if number in self._arriving:
                self._arriving[number].add(peer)
            self._run.out(peer.wire, Reach(number, _place(server)))

    def _holds(self, number: int) -> bool:
        """Does this server hold something, or is it about to?"""
        if self._node is None:
            return False
        holders = self._node.view.holders
        return number in self._node.servers or (number < len(holders) and bool(holders[number]))

    def _introduce(self, peer: Peer) -> None:
        """A server knows what is trained: everybody else is told where it is."""
        number = peer.id.number
        if self._begun is None or self._holds(number) or number in self._arriving:
            raise PeerError("Seated a second time")
        others = {each for each in (*self.servers.values(), *self.workers.values()) if each is not peer}
        self._arriving[number] = others
        for each in others:
            self._run.out(each.wire, Reach(number, _place(peer)))
        self._arrange()

    def reached(self, peer: Peer, message: Reached) -> None:
        """Somebody says whether it has a connection to a server that has come."""
        waiting = self._arriving.get(message.server)
        if waiting is None or peer not in waiting:
            return  # the server has gone again
        if message.problem:
            del self._arriving[message.server]
            self._run.refuse_server(message.server, f"{peer.id} cannot reach it: {message.problem}")
            return
        self._excuse(peer, message.server)

    def _excuse(self, peer: Peer, number: int | None = None) -> None:
        """Nobody need wait for this one to reach a server."""
        for each, waiting in self._arriving.items():
            if number in (None, each):
                waiting.discard(peer)
        self._arrange()

    def _arrange(self) -> None:
        """Admit and dismiss whom it is time for."""
        if self._node is None or self._standing or self.ended:
            return
        for number in [number for number, waiting in self._arriving.items() if not waiting]:
            del self._arriving[number]
            self._run.out(self.servers[number].wire, self._node.view)
            try:
                self._handle(Admit(number))
                self._run.joined(number)
            except UsageError as error:
                self._run.refuse_server(number, error.problem)
        for number in sorted(self._leaving):
            if self._node.servers == {number}:
                break  # until another is there
            self._leaving.discard(number)
            try:
                if number in self._node.servers:
                    self._handle(Dismiss(number))
            except UsageError as error:
                self._run.keep_server(number, error.problem)

    def check_leaving(self, number: int) -> None:
        """`UsageError`: others cannot take over what this server holds."""
        if self._node is None or self.ended or not self._holds(number):
            return
        problem = self._cannot_move(self._view().members)
        if problem is not None:
            raise UsageError("server", problem)
        left = self._node.servers - {number} - self._leaving
        if left:  # else it leaves when those that have come are admitted
            self._replace(self._node.view.holders, left)

    def leave(self, number: int) -> None:
        """Have the others take over what this server holds."""
        self._arriving.pop(number, None)
        if self._node is None:
            self.servers.pop(number, None)
        else:
            self._leaving.add(number)
            self._arrange()

    def stay(self, number: int) -> bool:
        """Do not dismiss this server after all; False: it was already."""
        waits = number in self._leaving
        self._leaving.discard(number)
        return waits

    def is_free(self, number: int) -> bool:
        """Does this server hold nothing, and is nothing on its way?"""
        return self._node is None or not (self._holds(number) or number in self._node.movers)

    def is_known_to_joiners(self, number: int) -> bool:
        """May somebody still look for this server, who was told of a view and is no member yet?"""
        return number in self.servers and any(
            peer.left is None and not self.is_member(peer) for peer in self.workers.values()
        )

    def server_closed(self, number: int) -> None:
        """A server has gone that held nothing."""
        peer = self.servers.pop(number, None)
        self._arriving.pop(number, None)
        if peer is not None:
            self._excuse(peer)

    def _replace(self, held: Holders, servers: Collection[int]) -> Holders:
        assert self._begun is not None
        placement = strategy_in(self._begun.settings).placement
        return replaced(placement, layout_of(self._begun.tables), held, servers)

    def _cannot_move(self, members: Collection[Member]) -> str | None:
        """Why buckets of this model cannot be handed over: a handover is one message, with all that waits in it."""
        assert self._begun is not None
        strategy = strategy_in(self._begun.settings)
        residual = strategy.reply is not None and strategy.mode is Mode.GRADIENTS
        arrays = 1 + len(strategy.rule.start(np.zeros(0, np.float32))) + residual + len(members)
        largest = max(bucket.size for held in self._view().holders for bucket in held)
        if arrays * largest * VALUE_BYTES > PAYLOAD:
            size = self._begun.settings["bucket"]
            return (
                f"a bucket of {size} is too large to move with the updates of {len(members)} workers; take smaller ones"
            )
        return None

    # The node.

    def _handle(self, event: Event) -> None:
        if self._node is None:
            raise PeerError("nothing has begun yet")
        self._perform(self._node.handle(event, monotonic()))
        self.ended |= not self._node.view.members
        if self.ended and not self._all_told and not self._node.moving:
            self._all_told = True
            for peer in self.workers.values():
                self._run.out(peer.wire, self._node.view)  # whoever has left was told of no view since
                self._run.out(peer.wire, Ended())
            self._run.ended()

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Send:
                group = self.servers if effect.to.role == "server" else self.workers
                peer = group.get(effect.to.number)
                if peer is not None:
                    self._run.out(peer.wire, effect.message)
