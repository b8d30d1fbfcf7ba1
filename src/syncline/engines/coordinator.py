"""The coordinator process: whoever takes part in a run is known here, and it watches who lives.

    python -m syncline.engines.coordinator WORKERS SERVERS [NAME=WORDS ...]

1. A connection is about one model at most (gathering.py); whoever trains several opens several.
2. A worker whose connection ends without a word is lost at once: the kernel ends it when the process dies. So is one
   whose process has ended, by its launcher's word; one whose host acknowledges nothing any more; and one that is
   stopped (SIGSTOP) for longer than the patience. One that computes, however long, is not.
3. A server that is lost or stopped ends the run, unless nobody needs it any more; so does the loss of the launcher, and
   then everything is killed that the launcher has started.
4. Told to stop, it lets those who have joined finish, and those who still read; then it stops the servers.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from itertools import count
from math import inf
from time import monotonic

from syncline.engines.control import (
    PROTOCOL,
    Abort,
    Another,
    Declare,
    Ended,
    Figures,
    Frozen,
    Hello,
    Refused,
    Seated,
    Seen,
    Share,
    Started,
    Stop,
    Welcome,
)
from syncline.engines.frames import DECLARATION, STRANGER, Frame
from syncline.engines.gathering import OVER, Gathering, Peer
from syncline.engines.meeting import Meeting
from syncline.engines.process import outlive_parent, run
from syncline.engines.reactor import BACKLOG, Reactor
from syncline.engines.silence import Silence
from syncline.engines.strangers import Strangers
from syncline.engines.watch import Stopped, host, patience
from syncline.engines.wire import Wire
from syncline.engines.wiring import Wiring, listen
from syncline.errors import PeerError
from syncline.messages import Join, Leave, Report, server_id, worker_id

TICK = 0.5
"""Seconds between two looks at who is stopped or silent."""

MOST_WORKERS = 1 << 16
"""Whoever was ever there has a number of its own."""

MOST_MODELS = 64

GRACE = 5.0
"""Seconds that servers have to end."""

READING = 600.0
"""Seconds that a worker which has left may read the final parameters, if others have to wait for it."""


@dataclass(eq=False, slots=True)
class Guest:
    """A server or worker process; `peers` are its connections."""

    hello: Hello
    incarnation: int = 0
    peers: list[Peer] = field(default_factory=list)
    asked: int = 0
    """How many further connections it was asked for."""
    began: bool = False
    """Something that it trains has begun."""


class Office:
    """Everyone who takes part, and the models that they train."""

    def __init__(self, workers: int, servers: int, words: Mapping[str, str], wiring: Wiring) -> None:
        self.over = False
        self.expected = workers
        self.count = servers
        self.words = words
        self._wiring = wiring
        self._patience = patience(os.environ)
        self._host = host()
        self._reactor = Reactor(self)
        self._strangers = Strangers("coordinator")
        self._models: dict[str, Gathering] = {}
        self._servers: dict[int, Guest] = {}
        self._workers: dict[int, Guest] = {}
        self._peers: dict[Wire, Peer] = {}
        self._launcher: Wire | None = None
        self._agents: set[Wire] = set()
        """The launcher, and those of other hosts whose workers have joined."""
        self._groups: set[int] = set()
        """The process groups that the launcher has started."""
        self._latest: dict[int, int] = {}
        self._stopping = False
        self._aborted: str | None = None
        self._servers_told = False
        self._until = inf
        """When servers that were told to end are no longer waited for."""
        self._meeting = Meeting(self.out)
        self._stopped = Stopped()
        self._silence = Silence()
        self._never: set[int] = set()
        """Those who will not be there when a model begins."""

    def run(self) -> int:
        port = int(os.environ.get("SYNCLINE_PORT", "0"))
        unix, tcp = listen(self._reactor, self._wiring, port)
        print(unix, tcp or "-", flush=True)
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
        self._silence.forget(wire)
        peer = self._peers.pop(wire, None)
        if wire in self._agents:
            self._agents.discard(wire)
            if wire is self._launcher:
                self._orphaned()
        elif peer is None:
            if reason:
                self._strangers.sent_away(reason)
        elif peer.id.role == "server":
            self._server_closed(peer, reason)
        else:
            self._worker_closed(peer, reason)
            self._stop_if_idle()

    def _from_launcher(self, message: Frame) -> None:
        if isinstance(message, Stop):
            self._stopping = True
            self._stop_if_idle()
        elif isinstance(message, Abort):
            self.abort(message.reason)
        elif isinstance(message, Started):
            self._groups.add(message.pid)
        elif isinstance(message, Seen):
            self._process_ended(message)
        else:
            raise PeerError(f"{type(message).__name__} from the launcher")

    def _from_agent(self, message: Frame) -> None:
        if isinstance(message, Started):
            return  # its processes are its own affair
        if not isinstance(message, Frozen):
            raise PeerError(f"{type(message).__name__} from an agent")
        if message.host == self._host:
            return  # those of this host are watched from here
        for guest in list(self._workers.values()):
            if (guest.hello.host, guest.hello.pid) == (message.host, message.pid) and message.seconds > self._patience:
                self._frozen(guest)

    def _from_server(self, peer: Peer, message: Frame) -> None:
        if isinstance(message, Report | Seated) and peer.gathering is not None:
            peer.gathering.from_server(peer, message)
        elif isinstance(message, Figures) and self._launcher is not None:
            self.out(self._launcher, message)
        elif isinstance(message, Abort):
            self.abort(message.reason)
        else:
            raise PeerError(f"{type(message).__name__} from a server")

    def _from_worker(self, peer: Peer, message: Frame) -> None:
        if isinstance(message, Declare):
            self._declare(peer, message)
        elif isinstance(message, Seated | Join | Leave) and peer.gathering is not None:
            peer.gathering.from_worker(peer, message)
            self._meet()
        elif isinstance(message, Share):
            self._meeting.say(peer, message)
            self._meet()
        else:
            raise PeerError(f"{type(message).__name__} from a worker")

    def out(self, wire: Wire, message: Frame) -> None:
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

    # Who comes.

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
                outlive_parent()
            self.out(wire, Welcome(self._wiring.run, -1, 0, self.expected))
        elif message.role == "server":
            self._admit_server(wire, message)
        else:
            self._admit_worker(wire, message)

    def _why_not(self, hello: Hello) -> str | None:
        if hello.protocol != PROTOCOL:
            return f"this run speaks protocol {PROTOCOL}, and you speak {hello.protocol}; install the same version"
        joins = hello.role in ("worker", "agent") and not hello.run
        if joins and not self._wiring.listen:
            return "this run takes nobody in; start it with --listen"
        if not joins and not compare_digest(hello.run.encode(), self._wiring.run.encode()):
            return "this is another run"
        if hello.role == "server":
            return self._why_no_server(hello)
        if hello.role == "launcher":
            return "there is a launcher already" if self._launcher is not None else None
        if hello.role not in ("worker", "agent"):
            return f"{hello.role!r} has no part in a run"
        if joins and hello.number >= 0:
            return "whoever joins is given a number here; ask for none"
        return OVER if self._is_over() or self._stopping else self._aborted

    def _why_no_server(self, hello: Hello) -> str | None:
        there = self._servers.get(hello.number)
        expected = 0 <= hello.number < self.count and (there is not None) == hello.again
        if not expected or (there is not None and there.hello.pid != hello.pid):
            return f"there is no room for server {hello.number}"
        return None

    def _admit_server(self, wire: Wire, hello: Hello) -> None:
        peer = Peer(server_id(hello.number), hello, wire)
        guest = self._servers.setdefault(hello.number, Guest(hello))
        guest.peers.append(peer)
        guest.asked -= hello.again
        self._peers[wire] = peer
        self._assign_servers()

    def _assign_servers(self) -> None:
        """Give every model a connection of each server; ask for another where there is none left."""
        for number, guest in self._servers.items():
            free = [peer for peer in guest.peers if peer.gathering is None]
            lacking = [each for each in self._models.values() if number not in each.servers]
            for peer, gathering in zip(free, lacking, strict=False):
                peer.gathering = gathering
                gathering.servers[number] = peer
            while guest.asked < len(lacking) - len(free):
                guest.asked += 1
                self.out(guest.peers[0].wire, Another())
        for gathering in self._models.values():
            gathering.begin_if_ready()

    def _admit_worker(self, wire: Wire, hello: Hello) -> None:
        """A worker is there: give it a number and an incarnation, unless it has them."""
        number = hello.number
        if number < 0:
            number = next(each for each in count(self.expected) if each not in self._latest)
        guest = self._workers.get(number)
        reason = None
        if hello.again:
            if guest is None or guest.incarnation != hello.incarnation:
                reason = f"worker {number} is gone"
            elif (guest.hello.host, guest.hello.pid) != (hello.host, hello.pid) or len(guest.peers) >= MOST_MODELS:
                reason = f"worker {number} is another process, or has too many connections"
        elif guest is not None:
            reason = f"worker {number} is there already"
        elif number >= MOST_WORKERS:
            reason = f"{MOST_WORKERS:,} workers have been there; there is no number left"
        if reason is not None:
            wire.send(Refused(reason))
            raise PeerError(reason)
        if guest is None:
            self._latest[number] = self._latest.get(number, -1) + 1
            guest = self._workers[number] = Guest(hello, self._latest[number])
            self._never.discard(number)
        peer = Peer(worker_id(number), hello, wire, guest.incarnation)
        guest.peers.append(peer)
        self._peers[wire] = peer
        self.out(wire, Welcome(self._wiring.run, number, guest.incarnation, self.expected))

    def _declare(self, peer: Peer, declare: Declare) -> None:
        if peer.gathering is not None:
            raise PeerError("a connection is about one model")
        gathering = self._models.get(declare.model)
        if gathering is None:
            if len(self._models) == MOST_MODELS:
                raise PeerError(f"more than {MOST_MODELS} models")
            gathering = self._models[declare.model] = Gathering(declare.model, self)
        peer.gathering = gathering
        if self._stopping:
            gathering.refuse(peer, OVER, usage=False)
            return
        gathering.declare(peer, declare)
        self._assign_servers()

    def fitting(self, peers: Collection[Peer]) -> dict[str, str]:
        """Where no link is slow, a bucket costs little more than its message, so it may be larger."""
        if not all(peer.hello.host == self._host for peer in peers):
            return {}
        return {"bucket": "2MiB" if self._wiring.lane == "tcp" else "4MiB"}

    def absent(self) -> Collection[int]:
        return self._never

    def count_out(self, number: int) -> None:
        self._never.add(number)
        begun = any(gathering.begun for gathering in self._models.values())
        if not begun and self._never.issuperset({*range(self.expected), *self._workers}):
            self.abort("every worker is gone before the run began")
        for gathering in self._models.values():
            gathering.begin_if_ready()

    def _meet(self) -> None:
        """Let those hear each other who have something to say, once nobody is missing."""
        if self._meeting.said:
            self._meeting.end_if_all({number for number, guest in self._workers.items() if self._takes_part(guest)})

    def _takes_part(self, guest: Guest) -> bool:
        """Is this worker a member of something, or about to be, from the start?"""
        gatherings = [peer.gathering for peer in guest.peers if peer.gathering is not None and peer.left is None]
        if any(gathering.begun for gathering in gatherings):
            return any(peer.gathering is not None and peer.gathering.is_member(peer) for peer in guest.peers)
        return guest.hello.number in range(self.expected) and all(peer.left is None for peer in guest.peers)

    # Life and death.

    def _watch(self) -> None:
        now = monotonic()
        for guest in list(self._workers.values()):
            if guest.hello.host == self._host and self._stopped.seconds(guest.hello.pid, now) > self._patience:
                self._frozen(guest)
        for guest in self._servers.values():
            if self._stopped.seconds(guest.hello.pid, now) > self._patience and self._aborted is None:
                self.abort(f"server{guest.hello.number} is stopped for more than {self._patience:g} s")
        for wire in [*self._peers, *self._agents]:
            if self._silence.gone(wire, now):
                self._reactor.lose(wire, "its host acknowledges nothing any more")
        self._meet()

    def _frozen(self, guest: Guest) -> None:
        """A worker is stopped: it is lost as a member, and learns so when it wakes up."""
        what = f"stopped for more than {self._patience:g} s"
        for peer in list(guest.peers):
            if peer.gathering is None or not peer.gathering.begun or peer.left is not None:
                self.out(peer.wire, Refused(f"worker {peer.id.number} was {what}"))
                self._reactor.lose(peer.wire, what)
            else:
                peer.gathering.lose(peer, what)

    def _process_ended(self, seen: Seen) -> None:
        """A process that the launcher has started is over, whoever may still hold its connections."""
        self._groups.discard(seen.pid)
        guest = self._workers.get(seen.number)
        if guest is not None and (guest.hello.host, guest.hello.pid) == (self._host, seen.pid):
            for peer in list(guest.peers):
                self._reactor.lose(peer.wire, f"its process {seen.what}")
        elif seen.number not in self._latest:  # it never came
            self.count_out(seen.number)

    def _worker_closed(self, peer: Peer, reason: str) -> None:
        number = peer.id.number
        guest = self._workers[number]
        guest.peers.remove(peer)
        if peer.gathering is not None:
            guest.began |= peer.gathering.begun
            peer.gathering.closed(peer, reason)
            self._forget_if_empty(peer.gathering)
        if not guest.peers:
            del self._workers[number]
            if not guest.began:
                self.tell(peer, f"gone before the run began{reason and ': ' + reason}")
            self.count_out(number)
            self._meeting.leave(number)
        self._meet()

    def _forget_if_empty(self, gathering: Gathering) -> None:
        """What nobody trains, and nobody has trained, is no model of this run."""
        if not gathering.begun and not gathering.workers:
            self._models.pop(gathering.name, None)
            for server in gathering.servers.values():
                server.gathering = None

    def _server_closed(self, peer: Peer, reason: str) -> None:
        guest = self._servers[peer.id.number]
        guest.peers.remove(peer)
        what = f"its connection ended{reason and ': ' + reason}"
        if not guest.peers:
            del self._servers[peer.id.number]
        if self._stopping:
            self.over = not self._servers
        elif not self._is_over() or self._readers():
            self.abort(f"{peer.id} is gone: {what}")
        elif not guest.peers:
            self.tell(peer, f"{what}, when all was done")

    def _is_over(self) -> bool:
        """Has everything ended that was ever trained here?"""
        return bool(self._models) and all(gathering.ended for gathering in self._models.values())

    def _readers(self) -> list[Peer]:
        """Those who have left, and may still read the final parameters."""
        now = monotonic()
        peers = (peer for guest in self._workers.values() for peer in guest.peers)
        return [peer for peer in peers if peer.left is not None and now < peer.left + READING]

    def _orphaned(self) -> None:
        """The launcher is gone: nobody is left to end what it has started."""
        self.abort("the launcher is gone")
        self.over = True
        for group in self._groups:
            with suppress(OSError):
                if os.getpgid(group) == group:
                    os.killpg(group, signal.SIGKILL)

    def _stop_if_idle(self) -> None:
        """Stop the servers once nobody needs them, and go when they are gone."""
        if not self._stopping:
            return
        if self._servers_told:
            self.over |= monotonic() > self._until
        elif not any(gathering.members for gathering in self._models.values()) and not self._readers():
            self._servers_told = True
            self._until = monotonic() + GRACE
            for guest in self._servers.values():
                self.out(guest.peers[0].wire, Stop())
            self.over = not self._servers

    def tell(self, peer: Peer, what: str, usage: bool = False) -> None:
        ours = peer.id.number < self.expected
        for agent in self._agents:
            mine = ours == (agent is self._launcher)
            self.out(agent, Seen(peer.id.role, peer.id.number, peer.incarnation, what, usage and mine))

    def ended(self) -> None:
        """A model has ended; if it was the last, the launcher need not fear for the servers any more."""
        if self._is_over() and self._launcher is not None:
            self.out(self._launcher, Ended())

    def abort(self, reason: str) -> None:
        self._aborted = self._aborted or reason
        for wire in (*(peer.wire for peer in self._peers.values() if peer.id.role == "worker"), *self._agents):
            self.out(wire, Abort(reason))


def main() -> int:
    workers, servers, *words = sys.argv[1:]
    settings = dict(word.split("=", 1) for word in words)
    return run(Office(int(workers), int(servers), settings, Wiring.read(os.environ)).run)


if __name__ == "__main__":
    sys.exit(main())
