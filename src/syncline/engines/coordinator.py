"""The coordinator process: whoever takes part in a run is known here, and it watches who lives.

    python -m syncline.engines.coordinator WORKERS SERVERS SETTINGS

1. A connection is about one model at most (gathering.py); whoever trains several opens several.
2. A worker whose connection ends without a word is lost at once: the kernel ends it when the process dies. So is one
   whose process has ended, by its launcher's word; one whose host acknowledges nothing any more; and one that is
   stopped (SIGSTOP) for longer than the patience. One that computes, however long, is not.
3. A server that is lost or stopped ends the run, unless nobody needs it any more; so does the loss of the launcher, and
   then everything is killed that the launcher has started.
4. Told to stop, it lets those who have joined finish, and those who still read; then it stops the servers.
5. A server that joins is given a number, and a part of every model (gathering.py). One that is asked to leave is let go
   once it holds nothing of any model; the last one cannot. A server that holds nothing may go without a word.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from math import inf
from time import monotonic

from msgspec.structs import replace

from syncline.engines.control import (
    Abort,
    Another,
    Declare,
    Ended,
    Figures,
    Frozen,
    Hello,
    Pulse,
    Reached,
    Refused,
    Released,
    Seated,
    Seen,
    Share,
    Started,
    Stop,
    Welcome,
    Withdraw,
)
from syncline.engines.fitting import fitting
from syncline.engines.frames import DECLARATION, STRANGER, Frame
from syncline.engines.gathering import OVER, Gathering
from syncline.engines.meeting import Meeting
from syncline.engines.peer import Peer
from syncline.engines.process import outlive_parent, run
from syncline.engines.reactor import BACKLOG, Reactor
from syncline.engines.register import Guest, Refusal, Register
from syncline.engines.silence import Silence
from syncline.engines.strangers import Strangers
from syncline.engines.watch import Stopped, host, patience
from syncline.engines.wire import Wire
from syncline.engines.wiring import Wiring, listen
from syncline.errors import PeerError, UsageError
from syncline.messages import Join, Leave, Report, Settled

TICK = 0.5
"""Seconds between two looks at who is stopped or silent."""

MOST_MODELS = 64

GRACE = 5.0
"""Seconds that servers have to end."""

LAST = "it is the last one, and somebody must hold the model"

READING = 600.0
"""Seconds that a worker which has left may read the final parameters, if others have to wait for it."""


class Office:
    """Everyone who takes part, and the models that they train."""

    def __init__(self, workers: int, servers: int, layers: Mapping[str, Mapping[str, str]], wiring: Wiring) -> None:
        """`layers`: the user's settings by where they were said, the strongest first."""
        self.over = False
        self.expected = workers
        self.count = servers
        self.layers = layers
        self._wiring = wiring
        self._patience = patience(os.environ)
        self._host = host()
        self._reactor = Reactor(self)
        self._strangers = Strangers("coordinator")
        self._models: dict[str, Gathering] = {}
        self._register = Register(workers, servers, wiring)
        self._servers, self._workers, self._peers = self._register.servers, self._register.workers, self._register.peers
        self._launcher: Wire | None = None
        self._agents: dict[Wire, Hello] = {}
        """The launcher, and those of other hosts whose workers have joined."""
        self._groups: set[int] = set()
        """The process groups that the launcher has started."""
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
        self._last_words()
        self._reactor.close()
        return 0

    def _last_words(self) -> None:
        """Let the launcher hear all that was said to it, if it listens."""
        until = monotonic() + GRACE
        while self._launcher is not None and self._launcher.waiting and monotonic() < until:
            self._reactor.turn(0.1)

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
            del self._agents[wire]
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
        if message.seconds <= self._patience:
            return
        for guest in list(self._workers.values()):
            if (guest.hello.host, guest.hello.pid) == (message.host, message.pid):
                self._frozen(guest)
        for number, guest in self._servers.items():
            if (guest.hello.host, guest.hello.pid) == (message.host, message.pid):
                self._server_frozen(number)

    def _from_server(self, peer: Peer, message: Frame) -> None:
        if isinstance(message, Report | Seated | Settled | Reached) and peer.gathering is not None:
            peer.gathering.from_server(peer, message)
        elif isinstance(message, Withdraw):
            self._withdraw(peer.id.number)
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
        elif isinstance(message, Reached) and peer.gathering is not None:
            peer.gathering.turnover.reached(peer, message)
        elif isinstance(message, Share):
            self._meeting.say(peer, message)
            self._meet()
        elif isinstance(message, Pulse):
            if self._launcher is not None and not self._launcher.backlog:  # one that is not read is not worth keeping
                self.out(self._launcher, replace(message, worker=peer.id.number))
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
        try:
            self._register.check(message)
            self._admit(wire, message)
        except Refusal as refusal:
            wire.send(Refused(str(refusal)))
            raise PeerError(str(refusal)) from None

    def _admit(self, wire: Wire, hello: Hello) -> None:
        role = hello.role
        over = OVER if self._is_over() or self._stopping else self._aborted
        if over is not None and (role in ("worker", "agent") or not hello.run):
            raise Refusal(over)
        if role == "launcher" and self._launcher is not None:
            raise Refusal("there is a launcher already")
        number, incarnation = -1, 0
        if role == "server":
            peer = self._register.admit_server(wire, hello)
            number = peer.id.number
        elif role == "worker":
            peer = self._register.admit_worker(wire, hello)
            number, incarnation = peer.id.number, peer.incarnation
            self._never.discard(number)
            self._tell_name(peer)
        else:
            self._agents[wire] = hello
        if role == "launcher":
            self._launcher = wire
            outlive_parent()
        self._reactor.known(wire, DECLARATION if role == "worker" else STRANGER)
        if role != "server" or not hello.run:
            self.out(wire, Welcome(self._wiring.run, number, incarnation, self.expected))
        if role == "server":
            if not hello.run:
                self._tell_name(self._peers[wire])
                self.tell(self._peers[wire], "has come")
            self._assign_servers()

    def _tell_name(self, peer: Peer) -> None:
        """The launcher of a worker or server that joins learns which number it was given."""
        joined = Seen(peer.id.role, peer.id.number, peer.incarnation, "joined", pid=peer.hello.pid)
        for agent, hello in self._agents.items():
            if agent is not self._launcher and hello.host == peer.hello.host:
                self.out(agent, joined)

    def _assign_servers(self) -> None:
        """Give every model a connection of each server; ask for another where there is none left."""
        for number, guest in list(self._servers.items()):
            if guest.leaving:
                continue
            free = [peer for peer in guest.peers if peer.gathering is None]
            lacking = [each for each in self._models.values() if number not in each.servers]
            for peer, gathering in zip(free, lacking, strict=False):
                peer.gathering = gathering
                gathering.servers[number] = peer
                gathering.turnover.invite(number)
            while guest.asked < len(lacking) - len(free):
                guest.asked += 1
                self.out(guest.peers[0].wire, Another())
        for gathering in self._models.values():
            gathering.begin_if_ready()

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

    def fitting(self, values: int) -> dict[str, str]:
        return fitting(self._wiring, values)

    def absent(self) -> Collection[int]:
        return self._never

    def count_out(self, number: int) -> None:
        self._never.add(number)
        if not self._begun() and self._never.issuperset({*range(self.expected), *self._workers}):
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
        for number, guest in list(self._servers.items()):
            if guest.hello.host == self._host and self._stopped.seconds(guest.hello.pid, now) > self._patience:
                self._server_frozen(number)
        for wire in [*self._peers, *self._agents]:
            if self._silence.gone(wire, now):
                self._reactor.lose(wire, "its host acknowledges nothing any more")
        self.settled()
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

    def _server_frozen(self, number: int) -> None:
        if self._aborted is None and self._needs(number):
            self.abort(f"server{number} is stopped for more than {self._patience:g} s")

    def _process_ended(self, seen: Seen) -> None:
        """A process that the launcher has started is over, whoever may still hold its connections."""
        self._groups.discard(seen.pid)
        guest = self._workers.get(seen.number)
        if guest is not None and (guest.hello.host, guest.hello.pid) == (self._host, seen.pid):
            for peer in list(guest.peers):
                self._reactor.lose(peer.wire, f"its process {seen.what}")
        elif seen.number not in self._register.ever:  # it never came
            self.count_out(seen.number)

    def _worker_closed(self, peer: Peer, reason: str) -> None:
        number, guest = peer.id.number, self._register.strike(peer)
        if peer.gathering is not None:
            guest.began |= peer.gathering.begun
            peer.gathering.closed(peer, reason)
            self._forget_if_empty(peer.gathering)
        if not guest.peers:
            if not guest.began and (number < self.expected or not self._begun()):
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
        guest = self._register.strike(peer)
        what = f"its connection ended{reason and ': ' + reason}"
        if self._stopping:
            self.over = not self._servers
        elif guest.released or not self._needs(peer.id.number):
            if peer.gathering is not None:
                peer.gathering.turnover.closed(peer.id.number)
            if not guest.peers:
                self.tell(peer, "has left; the others hold what it held" if guest.released else f"is gone: {what}")
                self._retain()
        elif not self._is_over() or self._readers():
            self.abort(f"{peer.id} is gone: {what}")
        elif not guest.peers:
            self.tell(peer, f"{what}, when all was done")

    # Servers that come and go.

    def _needs(self, number: int) -> bool:
        """Would something be lost with this server?"""
        if any(not gathering.turnover.is_free(number) for gathering in self._models.values()):
            return True
        return number < self.count and not self._begun()

    def first_servers(self) -> Collection[int]:
        return self._register.first_servers()

    def joined(self, number: int) -> None:
        guest = self._servers[number]
        if not guest.began:
            guest.began = True
            self.tell(guest.peers[0], "has joined; the others hand over its part")

    def refuse_server(self, number: int, reason: str) -> None:
        guest = self._servers.get(number)
        if guest is None or not guest.peers:
            return
        self.tell(guest.peers[0], f"holds nothing: {reason}")
        if not self._needs(number):
            self.out(guest.peers[0].wire, Refused(reason))

    def keep_server(self, number: int, reason: str) -> None:
        guest = self._servers.get(number)
        if guest is not None and guest.peers:
            guest.leaving = False
            self.tell(guest.peers[0], f"cannot leave: {reason}")

    def _withdraw(self, number: int) -> None:
        """A server was asked to leave; the others take over its part, if they can."""
        guest = self._servers[number]
        if guest.leaving or self._stopping or self._is_over():
            return  # it will be let go
        try:
            if not self._others(number):
                raise UsageError("server", LAST)
            for gathering in self._models.values():
                gathering.turnover.check_leaving(number)
        except UsageError as error:
            self.keep_server(number, error.problem)
            return
        guest.leaving = True
        self.tell(guest.peers[0], "is leaving; the others take over what it holds")
        for gathering in list(self._models.values()):
            gathering.turnover.leave(number)
            gathering.begin_if_ready()
        self.settled()

    def _others(self, number: int) -> bool:
        """Is there another server that stays?"""
        return any(not other.leaving for each, other in self._servers.items() if each != number)

    def _retain(self) -> None:
        """A server has gone that others may have waited for, to leave."""
        for number, guest in list(self._servers.items()):
            if guest.leaving and not guest.released and not self._others(number):
                stays = [gathering.turnover.stay(number) for gathering in self._models.values()]
                if any(stays):
                    self.keep_server(number, LAST)

    def settled(self) -> None:
        for number, guest in self._servers.items():
            models = self._models.values()
            free = not any(not each.turnover.is_free(number) or each.is_known_to_joiners(number) for each in models)
            if guest.leaving and free and not guest.released:
                guest.released = True
                self.out(guest.peers[0].wire, Released())

    def _is_over(self) -> bool:
        """Has everything ended that was ever trained here?"""
        return bool(self._models) and all(gathering.ended for gathering in self._models.values())

    def _begun(self) -> bool:
        return any(gathering.begun for gathering in self._models.values())

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
    workers, servers, layers = sys.argv[1:]
    return run(Office(int(workers), int(servers), json.loads(layers), Wiring.read(os.environ)).run)


if __name__ == "__main__":
    sys.exit(main())
