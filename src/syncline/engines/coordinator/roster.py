"""The servers and workers of a run, with their incarnations and connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from hmac import compare_digest
from itertools import count

from syncline.engines.coordinator.participant import Participant
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import PROTOCOL, Hello
from syncline.engines.net.wiring import Wiring
from syncline.messages import server_id, worker_id

MOST_WORKERS = 1 << 16
"""How many workers a run can have in total. A joiner gets a number that no worker has had before."""

MOST_SERVERS = 1 << 12
"""How many servers a run can have in total."""

MOST_CONNECTIONS = 64
"""How many connections one process may have: one for each model that it trains."""


READING = 600.0
"""Seconds for which the run waits for a worker that has left and may still read the final parameters."""


class Refusal(Exception):
    """Why a process cannot take part."""


@dataclass(eq=False, slots=True)
class RosterEntry:
    """A server or worker process; `peers` are its connections."""

    hello: Hello
    incarnation: int = 0
    peers: list[Participant] = field(default_factory=list)
    asked: int = 0
    """How many more connections the coordinator has asked it for."""
    began: bool = False
    """One of its models has begun."""
    leaving: bool = False
    """A server that was asked to leave."""
    released: bool = False
    """A server that holds nothing any more, and may exit."""


class Roster:
    """The processes that are connected; the run starts with `expected` workers and `count` servers."""

    def __init__(self, expected: int, count: int, wiring: Wiring) -> None:
        self.servers: dict[int, RosterEntry] = {}
        self.workers: dict[int, RosterEntry] = {}
        self.peers: dict[Connection, Participant] = {}
        self.ever: dict[int, int] = {}
        """The latest incarnation of every worker that has ever connected."""
        self.left: set[int] = set()
        """The servers that were connected and are not any more."""
        self._expected = expected
        self._count = count
        self._wiring = wiring

    def check(self, hello: Hello, near: bool) -> None:
        """Raise `Refusal` if the protocol, run or role is wrong; `near`: the peer is ours, on this host."""
        if hello.protocol != PROTOCOL:
            raise Refusal(
                f"this run uses protocol {PROTOCOL}, and you use {hello.protocol}; install the same version of syncline"
            )
        joins = hello.role in ("worker", "agent", "server", "operator") and not hello.run
        if joins and not self._wiring.listen and not (near and hello.role == "operator"):
            raise Refusal("this run does not let processes join; start it with --listen")
        if not joins and not compare_digest(hello.run.encode(), self._wiring.run.encode()):
            raise Refusal("another run listens at this address")
        if joins and hello.number >= 0:
            raise Refusal("a process that joins cannot choose its number; the coordinator assigns one")
        if hello.role not in ("launcher", "agent", "server", "worker", "operator"):
            raise Refusal(f"{hello.role!r} is not a role; use launcher, agent, server, worker or operator")

    def admit_server(self, wire: Connection, hello: Hello) -> Participant:
        """Add a server, with a new number if it joins, or one more connection of a known server."""
        number = hello.number
        if not hello.run:
            number = next(each for each in count(self._count) if each not in self.servers and each not in self.left)
            if number >= MOST_SERVERS:
                raise Refusal(f"this run has had {MOST_SERVERS:,} servers, which is the limit")
        entry = self.servers.get(number)
        expected = (number < self._count or hello.again or not hello.run) and number not in self.left
        same = entry is None or (entry.hello.host, entry.hello.pid) == (hello.host, hello.pid)
        if number < 0 or not expected or (entry is not None) != hello.again or not same:
            raise Refusal(f"server {number} was not expected: this run did not start it, or it has connected before")
        if entry is None:
            entry = self.servers[number] = RosterEntry(hello)
        entry.asked -= hello.again
        return self._enter(entry, Participant(server_id(number), hello, wire))

    def admit_worker(self, wire: Connection, hello: Hello) -> Participant:
        """Add a worker, with a new incarnation, and a new number if it has none; or one more connection of it."""
        number = hello.number
        if number < 0:
            number = next(each for each in count(self._expected) if each not in self.ever)
        entry = self.workers.get(number)
        if hello.again:
            if entry is None or entry.incarnation != hello.incarnation:
                raise Refusal(f"worker {number} is no longer connected in incarnation {hello.incarnation}")
            if (entry.hello.host, entry.hello.pid) != (hello.host, hello.pid):
                raise Refusal(f"worker {number} is connected from a different process")
            if len(entry.peers) >= MOST_CONNECTIONS:
                raise Refusal(f"worker {number} has {MOST_CONNECTIONS} connections, which is the limit")
        elif entry is not None:
            raise Refusal(f"worker {number} is already connected")
        elif number >= MOST_WORKERS:
            raise Refusal(f"this run has had {MOST_WORKERS:,} workers, which is the limit")
        if entry is None:
            self.ever[number] = self.ever.get(number, -1) + 1
            entry = self.workers[number] = RosterEntry(hello, self.ever[number])
        return self._enter(entry, Participant(worker_id(number), hello, wire, entry.incarnation))

    def _enter(self, entry: RosterEntry, peer: Participant) -> Participant:
        entry.peers.append(peer)
        self.peers[peer.wire] = peer
        return peer

    def strike(self, peer: Participant) -> RosterEntry:
        """Remove a connection that has ended, and the process with its last one; return the entry of the process."""
        group = self.servers if peer.id.role == "server" else self.workers
        entry = group[peer.id.number]
        entry.peers.remove(peer)
        if not entry.peers:
            del group[peer.id.number]
            if peer.id.role == "server":
                self.left.add(peer.id.number)
        return entry

    def participants(self) -> set[int]:
        """The workers that are members of a model, or are expected to be when it begins."""
        return {number for number, entry in self.workers.items() if self._takes_part(entry)}

    def _takes_part(self, entry: RosterEntry) -> bool:
        all_trained = [peer.trained for peer in entry.peers if peer.trained is not None and peer.left is None]
        if any(trained.begun for trained in all_trained):
            return any(peer.trained is not None and peer.trained.is_member(peer) for peer in entry.peers)
        return entry.hello.number in range(self._expected) and all(peer.left is None for peer in entry.peers)

    def readers(self, now: float) -> set[int]:
        """The workers that have left and may still read the final parameters."""
        peers = (peer for entry in self.workers.values() for peer in entry.peers)
        return {peer.id.number for peer in peers if peer.left is not None and now < peer.left + READING}

    def first_servers(self) -> set[int]:
        """The servers that the run was started with, without those that have left or are leaving."""
        going = {number for number, entry in self.servers.items() if entry.leaving}
        return set(range(self._count)) - self.left - going
