"""The servers and workers of a run, with their incarnations and connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hmac import compare_digest

from syncline.engines.coordinator.participant import Participant
from syncline.engines.net import tokens
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import PROTOCOL, Hello
from syncline.engines.net.wiring import Wiring
from syncline.messages import NodeId, server_id, worker_id

MOST_WORKERS = 1 << 16
"""How many workers a run can have in total. A joiner gets a number that no worker has had before."""

MOST_SERVERS = 1 << 12
"""How many servers a run can have in total."""

MOST_JOINING = 128
"""How many workers that are not members yet, and how many servers that nobody has been told of, may be connected."""

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
    known: bool = False
    """Another process has been told of it, on a connection that has ended."""

    @property
    def joining(self) -> bool:
        """A process that has joined, and that no other process has been told of."""
        return not self.known and not any(peer.own or peer.entered or peer.named for peer in self.peers)


class Roster:
    """The processes that are connected; the run starts with `expected` workers and `count` servers.

    `later`: how many more workers and servers its launcher starts while it trains. They have the next numbers.
    """

    def __init__(self, expected: int, count: int, wiring: Wiring, later: tuple[int, int] = (0, 0)) -> None:
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
        self._joined: dict[NodeId, str] = {}
        """The tokens of the processes that have joined."""
        self._own = {"server": count + later[1], "worker": expected + later[0]}
        """The launcher of the run starts the processes with lower numbers."""
        self._fresh = dict(self._own)
        """The next numbers that were never used."""
        self._unknown: dict[str, set[int]] = {"server": set(), "worker": set()}
        """Numbers of processes that are gone, and that nobody was told of. They are reused if no others are left."""

    def _token_of(self, id: NodeId) -> str:
        """The token that only this process can show; empty if there has never been such a process."""
        if id.number in range(self._own[id.role]):
            return tokens.derived(self._wiring.token, id.role, id.number)
        return self._joined.get(id, "")

    def _check_token(self, id: NodeId, hello: Hello) -> None:
        """Raise `Refusal` unless this is the process that has this number; a process that joins gets it by this."""
        if not hello.run:
            self._joined[id] = hello.token
        elif not tokens.same(hello.token, self._token_of(id)):
            raise Refusal(f"{id.role} {id.number} is another process: you did not show its token")

    def _new_number(self, role: str, most: int, there: Mapping[int, RosterEntry]) -> int:
        """The number of a process that joins; raise `Refusal` if the run has had too many."""
        if sum(entry.joining for entry in there.values()) >= MOST_JOINING:
            raise Refusal(f"{MOST_JOINING} {role}s are joining already; try again when they have joined")
        number = self._fresh[role]
        if number < most:
            self._fresh[role] += 1
            return number
        if not self._unknown[role]:
            raise Refusal(f"this run has had {most:,} {role}s, which is the limit")
        return self._unknown[role].pop()

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
        if joins and (hello.number >= 0 or hello.again):
            raise Refusal("a process that joins cannot choose its number; the coordinator assigns one")
        if hello.role == "launcher" and not tokens.same(
            hello.token, tokens.derived(self._wiring.token, "launcher", -1)
        ):
            raise Refusal("you are not the launcher of this run: you did not show its token")
        if hello.role not in ("launcher", "agent", "server", "worker", "operator"):
            raise Refusal(f"{hello.role!r} is not a role; use launcher, agent, server, worker or operator")

    def admit_server(self, wire: Connection, hello: Hello) -> Participant:
        """Add a server, with a new number if it joins, or one more connection of a known server."""
        number = hello.number
        if not hello.run:
            number = self._new_number("server", MOST_SERVERS, self.servers)
            self.left.discard(number)
        entry, id = self.servers.get(number), server_id(number)
        self._check_token(id, hello)
        expected = (number < self._own["server"] or hello.again or not hello.run) and number not in self.left
        same = entry is None or (entry.hello.host, entry.hello.pid) == (hello.host, hello.pid)
        if number < 0 or not expected or (entry is not None) != hello.again or not same:
            raise Refusal(f"server {number} was not expected: this run did not start it, or it has connected before")
        if entry is None:
            entry = self.servers[number] = RosterEntry(hello)
        entry.asked -= hello.again
        return self._enter(entry, Participant(id, hello, wire, own=number < self._own["server"]))

    def admit_worker(self, wire: Connection, hello: Hello) -> Participant:
        """Add a worker, with a new incarnation, and a new number if it has none; or one more connection of it."""
        number = hello.number
        if number < 0 and not hello.run and not hello.again:
            number = self._new_number("worker", MOST_WORKERS, self.workers)
        entry, id = self.workers.get(number), worker_id(number)
        self._check_token(id, hello)
        if hello.again:
            if entry is None or entry.incarnation != hello.incarnation:
                raise Refusal(f"worker {number} is no longer connected in incarnation {hello.incarnation}")
            if (entry.hello.host, entry.hello.pid) != (hello.host, hello.pid):
                raise Refusal(f"worker {number} is connected from a different process")
            if len(entry.peers) >= MOST_CONNECTIONS:
                raise Refusal(f"worker {number} has {MOST_CONNECTIONS} connections, which is the limit")
        elif entry is not None:
            raise Refusal(f"worker {number} is already connected")
        if entry is None:
            self.ever[number] = self.ever.get(number, -1) + 1
            entry = self.workers[number] = RosterEntry(hello, self.ever[number])
        own = number < self._own["worker"]
        return self._enter(entry, Participant(id, hello, wire, entry.incarnation, own=own))

    def _enter(self, entry: RosterEntry, peer: Participant) -> Participant:
        entry.peers.append(peer)
        self.peers[peer.wire] = peer
        return peer

    def strike(self, peer: Participant) -> RosterEntry:
        """Remove a connection that has ended, and the process with its last one; return the entry of the process."""
        group = self.servers if peer.id.role == "server" else self.workers
        entry = group[peer.id.number]
        entry.known |= not entry.joining
        entry.peers.remove(peer)
        if not entry.peers:
            if not entry.known:
                self._unknown[peer.id.role].add(peer.id.number)
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

    def departed(self) -> set[int]:
        """The workers that have left every model that they trained; they declare no other."""
        return {number for number, entry in self.workers.items() if all(peer.left is not None for peer in entry.peers)}

    def readers(self, now: float) -> set[int]:
        """The workers that have left and may still read the final parameters."""
        peers = (peer for entry in self.workers.values() for peer in entry.peers)
        return {peer.id.number for peer in peers if peer.left is not None and now < peer.left + READING}

    def first_servers(self) -> set[int]:
        """The servers that the run was started with, without those that have left or are leaving."""
        going = {number for number, entry in self.servers.items() if entry.leaving}
        return set(range(self._count)) - self.left - going
