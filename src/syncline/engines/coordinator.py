"""The coordinator process: it gathers servers and workers, makes the views, and watches who lives.

    python -m syncline.engines.coordinator WORKERS SERVERS [NAME=WORDS ...]

1. A run begins when every server is there and every worker that is expected has declared what it trains, or is known
   not to come.
2. A worker whose connection ends without a word is lost at once: the kernel ends it when the process dies. One that is
   stopped (SIGSTOP) for longer than the patience is lost as well. One that computes, however long, is not.
3. A server that is lost, or the launcher, ends the run. So does the leader, before its parameters are with all servers.
4. When the last member has left nothing changes any more: all are told, and may read the final parameters.
5. Told to stop, it lets those who have joined finish, and those who still read; then it stops the servers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from math import inf
from time import monotonic

from syncline.effects import Effect, Event, Lost, Received, Send
from syncline.engines.control import (
    PROTOCOL,
    Abort,
    Begin,
    Declare,
    Declared,
    Ended,
    Figures,
    Frozen,
    Go,
    Hello,
    Place,
    Refused,
    Seated,
    Seen,
    Stop,
    Welcome,
    layout_of,
)
from syncline.engines.frames import DECLARATION, STRANGER, Frame
from syncline.engines.process import run, say
from syncline.engines.reactor import BACKLOG, Reactor
from syncline.engines.settings import settle, strategy_of
from syncline.engines.watch import Stopped, host, patience
from syncline.engines.wire import Wire
from syncline.engines.wiring import Wiring, listen
from syncline.errors import PeerError, UsageError
from syncline.layout import buckets
from syncline.messages import Join, Leave, Member, NodeId, Report, View, server_id, worker_id
from syncline.nodes.coordinator import Coordinator
from syncline.placement import checked
from syncline.strategy import Mode

OVER = "this run is over"

TICK = 0.5
"""Seconds between two looks at who is stopped."""

MOST_BUCKETS = 1 << 20
"""A view with more would not fit into a frame."""

MOST_WORKERS = 1 << 16
"""Whoever was ever there has a number of its own."""

GRACE = 5.0
"""Seconds that the last workers have to read the final parameters, and servers to end."""


@dataclass(eq=False, slots=True)
class Peer:
    """A server or worker as the coordinator knows it."""

    id: NodeId
    hello: Hello
    wire: Wire
    incarnation: int = 0
    tables: tuple[Declared, ...] | None = None
    wishes: Mapping[str, str] | None = None
    left: bool = False


class Office:
    """The node, and everyone who is connected to it."""

    def __init__(self, workers: int, servers: int, words: Mapping[str, str], wiring: Wiring) -> None:
        self.over = False
        self._expected = workers
        self._count = servers
        self._words = words
        self._wiring = wiring
        self._patience = patience(os.environ)
        self._host = host()
        self._reactor = Reactor(self)
        self._servers: dict[int, Peer] = {}
        self._workers: dict[int, Peer] = {}
        self._peers: dict[Wire, Peer] = {}
        self._launcher: Wire | None = None
        self._agents: set[Wire] = set()
        """The launcher, and those of other hosts whose workers have joined."""
        self._latest: dict[int, int] = {}
        self._node: Coordinator | None = None
        self._begun: Begin | None = None
        self._ended = False
        self._stopping = False
        self._aborted: str | None = None
        self._servers_told = False
        self._until = inf
        """When whatever is under way at the end is no longer waited for."""
        self._stopped = Stopped()
        self._never: set[int] = set()
        """Those who will not be there when the run begins."""
        self._unready: set[Peer] = set()
        """The servers that do not know yet what is trained."""
        self._told: list[tuple[Peer, Begin]] = []
        """Workers that are told as soon as all servers know."""
        self._standing: set[Peer] = set()
        """Those who start together and do not hold the first parameters yet."""

    def run(self) -> int:
        port = int(os.environ.get("SYNCLINE_PORT", "0"))
        unix, tcp = listen(self._reactor, self._wiring, port)
        print(unix, tcp, flush=True)
        look = monotonic() + TICK
        while not self.over:
            self._reactor.turn(max(look - monotonic(), 0.0))
            if monotonic() >= look:
                look = monotonic() + TICK
                self._watch()
                self._stop_if_idle()
        self._reactor.close()
        return 0

    # Frames.

    def sink(self, wire: Wire, message: Frame, size: int) -> memoryview:
        raise PeerError(f"{type(message).__name__} with a payload; the coordinator takes none")

    def frame(self, wire: Wire, message: Frame, payload: memoryview | None) -> None:
        if wire is self._launcher:
            self._from_launcher(message)
        elif wire in self._agents:
            self._from_agent(message)
        elif wire not in self._peers:
            self._greet(wire, message)
        elif self._peers[wire].id.role == "server":
            self._from_server(self._peers[wire], message)
        else:
            self._from_worker(self._peers[wire], message)

    def closed(self, wire: Wire, reason: str) -> None:
        peer = self._peers.pop(wire, None)
        if wire in self._agents:
            self._agents.discard(wire)
            if wire is self._launcher:
                self._abort("the launcher is gone")
                self.over = True
        elif peer is None:
            if reason:
                say(f"coordinator: sent a stranger away: {reason}")
        elif peer.id.role == "server":
            self._server_closed(peer, reason)
        elif self._workers.get(peer.id.number) is peer:
            del self._workers[peer.id.number]
            self._worker_closed(peer, reason)
            self._stop_if_idle()

    def _greet(self, wire: Wire, message: Frame) -> None:
        if not isinstance(message, Hello):
            raise PeerError("the first frame must say who this is")
        reason = self._why_not(message)
        if reason is not None:
            wire.send(Refused(reason))
            raise PeerError(reason)
        self._reactor.known(wire, DECLARATION if message.role == "worker" else STRANGER)
        if message.role in ("launcher", "agent"):
            self._agents.add(wire)
            if message.role == "launcher":
                self._launcher = wire
            self._out(wire, Welcome(self._wiring.run, -1, 0, self._expected))
        elif message.role == "server":
            peer = Peer(server_id(message.number), message, wire)
            self._peers[wire] = self._servers[message.number] = peer
            self._begin_if_ready()
        else:
            self._admit(wire, message)

    def _why_not(self, hello: Hello) -> str | None:
        joins = hello.role in ("worker", "agent") and not hello.run
        if hello.protocol != PROTOCOL:
            return f"this run speaks protocol {PROTOCOL}, and you speak {hello.protocol}; install the same version"
        if hello.run != self._wiring.run and not joins:
            return "this is another run"
        if hello.role == "server":
            taken = hello.number in self._servers or not 0 <= hello.number < self._count
            return f"there is no room for server {hello.number}" if taken else None
        if hello.role == "launcher":
            return "there is a launcher already" if self._launcher is not None else None
        if hello.role not in ("worker", "agent"):
            return f"{hello.role!r} has no part in a run"
        if joins and hello.number >= 0:
            return "whoever joins is given a number here; ask for none"
        return OVER if self._ended or self._stopping else self._aborted

    def _admit(self, wire: Wire, hello: Hello) -> None:
        """A worker is there: give it a number and an incarnation."""
        number = hello.number
        if number < 0:
            number = next(each for each in count(self._expected) if each not in self._latest)
        reason = f"worker {number} is there already" if number in self._workers else None
        if number >= MOST_WORKERS:
            reason = f"{MOST_WORKERS:,} workers have been there; there is no number left"
        if reason is not None:
            wire.send(Refused(reason))
            raise PeerError(reason)
        incarnation = self._latest.get(number, -1) + 1
        self._latest[number] = incarnation
        self._never.discard(number)
        peer = Peer(worker_id(number), hello, wire, incarnation)
        self._peers[wire] = self._workers[number] = peer
        self._out(wire, Welcome(self._wiring.run, number, incarnation, self._expected))

    def _from_launcher(self, message: Frame) -> None:
        if isinstance(message, Stop):
            self._stopping = True
            self._until = monotonic() + GRACE
            self._stop_if_idle()
        elif isinstance(message, Abort):
            self._abort(message.reason)
        elif isinstance(message, Seen):
            if message.number not in self._latest:  # it never came
                self._count_out(message.number)
        else:
            raise PeerError(f"{type(message).__name__} from the launcher")

    def _stop_if_idle(self) -> None:
        """Stop the servers once nobody needs them, and go when they are gone."""
        now = monotonic()
        if not self._stopping:
            return
        if self._servers_told:
            self.over |= now > self._until
        elif self._node is not None and self._node.view.members:
            self._until = now + GRACE
        elif now > self._until or not any(peer.left for peer in self._workers.values()):
            self._servers_told = True
            self._until = now + GRACE
            for server in self._servers.values():
                self._out(server.wire, Stop())
            self.over = not self._servers

    def _from_agent(self, message: Frame) -> None:
        if not isinstance(message, Frozen):
            raise PeerError(f"{type(message).__name__} from an agent")
        if message.host == self._host:
            return  # those of this host are watched from here
        for peer in list(self._workers.values()):
            at = (peer.hello.host, peer.hello.pid)
            if at == (message.host, message.pid) and message.seconds > self._patience:
                self._lose(peer, f"stopped for more than {self._patience:g} s")

    def _from_server(self, peer: Peer, message: Frame) -> None:
        if isinstance(message, Report):
            if not 0 <= message.largest < 1 << 62:
                raise PeerError(f"a report of {message.largest} rounds")
            self._handle(Received(peer.id, message))
        elif isinstance(message, Seated):
            self._server_ready(peer)
        elif isinstance(message, Figures) and self._launcher is not None:
            self._out(self._launcher, message)
        elif isinstance(message, Abort):
            self._abort(message.reason)
        else:
            raise PeerError(f"{type(message).__name__} from a server")

    def _from_worker(self, peer: Peer, message: Frame) -> None:
        if isinstance(message, Declare):
            self._declare(peer, message)
        elif isinstance(message, Seated):
            self._sit(peer)
        elif isinstance(message, Join | Leave):
            if message.incarnation != peer.incarnation:
                raise PeerError(f"{type(message).__name__} of incarnation {message.incarnation}")
            if self._ended and isinstance(message, Join):
                self._refuse(peer, OVER, usage=False)
                return
            self._handle(Received(peer.id, message))
            peer.left = isinstance(message, Leave)
        else:
            raise PeerError(f"{type(message).__name__} from a worker")

    # The beginning.

    def _declare(self, peer: Peer, declare: Declare) -> None:
        if self._ended or self._stopping:
            self._refuse(peer, OVER, usage=False)
            return
        layout = layout_of(declare.tables)
        first = self._begun or next((each for each in self._workers.values() if each.tables is not None), None)
        if first is not None and first.tables is not None:
            difference = layout.difference(layout_of(first.tables))
            if difference is not None:
                self._refuse(peer, f"worker {peer.id.number} trains another model: {difference}")
                return
        peer.tables, peer.wishes = declare.tables, declare.wishes
        if self._begun is None:
            self._begin_if_ready()
        elif self._begun.settings["mode"] == Mode.GRADIENTS.value:
            self._refuse(peer, "a joiner would need the others' optimizer state; take mode 'changes' or a rule")
        else:
            assert self._node is not None
            self._told.append((peer, self._beginning(self._begun.settings, self._node.view, -1)))
            self._tell_if_ready()

    def _refuse(self, peer: Peer, reason: str, usage: bool = True) -> None:
        self._out(peer.wire, Refused(reason, usage))
        self._tell(peer, f"refused: {reason}", usage)
        peer.tables = None
        self._count_out(peer.id.number)

    def _count_out(self, number: int) -> None:
        """Do not wait for this worker at the beginning."""
        self._never.add(number)
        if self._begun is None and self._never.issuperset({*range(self._expected), *self._workers}):
            self._abort("every worker is gone before the run began")
        self._begin_if_ready()

    def _begin_if_ready(self) -> None:
        ready = {number: peer for number, peer in sorted(self._workers.items()) if peer.tables is not None}
        if self._begun or len(self._servers) < self._count or not ready:
            return
        if not self._never.union(ready).issuperset(range(self._expected)):
            return
        try:
            self._begin(list(ready.values()))
        except UsageError as error:
            for peer in ready.values():
                peer.tables = None
            for peer in ready.values():
                self._refuse(peer, str(error))

    def _begin(self, ready: list[Peer]) -> None:
        leader = ready[0]
        layers = {
            "the command line": self._words,
            "the program": (leader.hello.run and leader.wishes) or {},
            "the lane": self._fitting(ready),
        }
        found = settle(layers, self._count, self._expected)
        words = {key: word for key, (word, _) in found.items()}
        strategy = strategy_of(words, self._count)
        layout = layout_of(leader.tables or ())
        if layout.size > MOST_BUCKETS * strategy.bucket_values:
            raise UsageError("bucket", f"{words['bucket']} makes more than {MOST_BUCKETS:,} of this model")
        ranges = checked(strategy.placement, layout, self._count)
        holders = tuple(buckets(layout, each, strategy.bucket_values) for each in ranges)
        members = tuple(Member(peer.id.number, peer.incarnation, 0) for peer in ready)
        view = View(0, members, holders)
        self._node = Coordinator(view)
        self._begun = self._beginning(words, view, leader.id.number, leader.tables or ())
        self._standing = set(ready)
        self._told = [(peer, self._begun) for peer in ready]
        self._unready = set(self._servers.values())
        for server in self._servers.values():
            self._out(server.wire, self._begun)

    def _server_ready(self, server: Peer) -> None:
        self._unready.discard(server)
        self._tell_if_ready()

    def _tell_if_ready(self) -> None:
        """Once all servers know what is trained, workers are told where to find them."""
        if not self._unready:
            told, self._told = self._told, []
            for peer, begin in told:
                self._out(peer.wire, begin)

    def _fitting(self, ready: list[Peer]) -> dict[str, str]:
        """Where no link is slow, a bucket costs little more than its message, so it may be larger."""
        if not all(peer.hello.host == self._host for peer in ready):
            return {}
        return {"bucket": "2MiB" if self._wiring.lane == "tcp" else "4MiB"}

    def _sit(self, peer: Peer) -> None:
        if peer in self._standing:
            self._standing.discard(peer)
            if not self._standing:
                for each in self._workers.values():
                    self._out(each.wire, Go())

    def _beginning(
        self, words: dict[str, str], view: View, leader: int, tables: tuple[Declared, ...] | None = None
    ) -> Begin:
        places = tuple(
            Place(each.hello.host, each.hello.unix, each.hello.tcp) for _, each in sorted(self._servers.items())
        )
        if tables is None:
            assert self._begun is not None
            tables = self._begun.tables
        return Begin(tables, words, view, places, leader)

    # The node.

    def _handle(self, event: Event) -> None:
        if self._node is None:
            raise PeerError("nothing has begun yet")
        self._perform(self._node.handle(event, monotonic()))
        if not self._ended and not self._node.view.members:
            self._ended = True
            for peer in (*self._servers.values(), *self._workers.values()):
                self._out(peer.wire, Ended())

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Send:
                group = self._servers if effect.to.role == "server" else self._workers
                peer = group.get(effect.to.number)
                if peer is not None:
                    self._out(peer.wire, effect.message)

    def _out(self, wire: Wire, message: Frame) -> None:
        if wire.fileno() < 0:
            return
        if wire.backlog > BACKLOG:
            wire.cut()  # it does not read; it is found gone at the next look
            return
        try:
            wire.send(message)
        except OSError:
            return  # it is gone; its end is read as such
        self._reactor.write(wire)

    # Life and death.

    def _watch(self) -> None:
        now = monotonic()
        for peer in list(self._workers.values()):
            if peer.hello.host == self._host and self._stopped.seconds(peer.hello.pid, now) > self._patience:
                self._lose(peer, f"stopped for more than {self._patience:g} s")

    def _worker_closed(self, peer: Peer, reason: str) -> None:
        if peer.left:
            return
        if self._node is None:
            self._tell(peer, f"gone before the run began{reason and ': ' + reason}")
            self._count_out(peer.id.number)
        else:
            self._lose(peer, f"its connection ended{reason and ': ' + reason}")

    def _lose(self, peer: Peer, what: str) -> None:
        if self._node is None or not self._is_member(peer):
            return
        self._tell(peer, what)
        self._handle(Lost(peer.id.number, peer.incarnation))
        if peer in self._standing and self._begun is not None and peer.id.number == self._begun.leader:
            self._abort(f"{peer.id}, whose parameters all start with, is gone before the others had them: {what}")
        self._sit(peer)

    def _is_member(self, peer: Peer) -> bool:
        assert self._node is not None
        who = (peer.id.number, peer.incarnation)
        return any((member.worker, member.incarnation) == who for member in self._node.view.members)

    def _server_closed(self, peer: Peer, reason: str) -> None:
        del self._servers[peer.id.number]
        if not self._stopping:
            self._abort(f"{peer.id} is gone: its connection ended{reason and ': ' + reason}")
        elif not self._servers:
            self.over = True

    def _tell(self, peer: Peer, what: str, usage: bool = False) -> None:
        ours = peer.id.number < self._expected
        for agent in self._agents:
            mine = ours == (agent is self._launcher)
            self._out(agent, Seen(peer.id.role, peer.id.number, peer.incarnation, what, usage and mine))

    def _abort(self, reason: str) -> None:
        self._aborted = self._aborted or reason
        for wire in (*(peer.wire for peer in self._workers.values()), *self._agents):
            self._out(wire, Abort(reason))


def main() -> int:
    workers, servers, *words = sys.argv[1:]
    settings = dict(word.split("=", 1) for word in words)
    return run(Office(int(workers), int(servers), settings, Wiring.read(os.environ)).run)


if __name__ == "__main__":
    sys.exit(main())
