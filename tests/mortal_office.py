"""A coordinator that can be killed at any message, and its peers, in one process; each connection is a pair of sockets.

Peers say one thing after the other, and the coordinator handles it at once. So in every run with the same script all
peers must hear the same, however often the coordinator dies.
"""

from __future__ import annotations

import socket
from enum import Enum
from pathlib import Path

from syncline.engines.coordinator.process import CoordinatorProcess
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import (
    Begin,
    ChangeReply,
    ChangeRequest,
    Declare,
    Declared,
    EpochBegun,
    Gathered,
    Hello,
    NewTerms,
    Reach,
    Reached,
    Refused,
    Resume,
    Resumed,
    Seated,
    Seen,
    Share,
    TermsTaken,
    Welcome,
    Withdraw,
)
from syncline.engines.net.frames import Frame, header_of
from syncline.engines.net.lasting import LastingConnection, is_counted
from syncline.engines.net.wiring import Wiring
from syncline.errors import PeerError
from syncline.messages import JoinRequest, LeaveNotice, Report, Settled, View

RUN = "run"
TABLES = (Declared("w", (4000,)), Declared("b", (30,)))
SETTINGS = {"command line": {"rule": "sgd:0.1", "bucket": "4KiB"}}


class Death(Enum):
    """When the coordinator dies."""

    NEVER = "never"
    BEFORE = "before it has read the message"
    AFTER = "after it has handled the message, before anybody has read what it says"
    LATER = "after everybody has read what it says"


class Peer:
    """A process of the run, which answers as the real one would."""

    def __init__(self, office: MortalOffice, role: str, number: int) -> None:
        self.office, self.role, self.number = office, role, number
        self.heard: list[bytes] = []
        """The counted frames that it has received."""
        self.answers: list[Frame] = []
        """What it is to say next."""
        self.view: View | None = None
        self.incarnation = 0
        self.over = False
        """It has died, or the coordinator has ended the connection."""
        self.refused = False
        """The coordinator has refused it, or something that it asked for."""
        self.waits = False
        """It has asked for something, and must not ask for more before the answer."""
        key = f"{role} {number} {office.serial}"
        self.line = LastingConnection(office.connected(), key, again=lambda: Connection(socket.socket()))
        self.line.trust()

    def hello(self) -> Hello:
        token = self.office.wiring.of(self.role, self.number).token
        pid = 1_000_000 + 100 * ord(self.role[0]) + self.number  # above all process ids
        words = {"unix": f"@{self.role}{self.number}"} if self.role == "server" else {}
        return Hello(RUN, self.role, self.number, pid=pid, host="a host", token=token, line=self.line.key, **words)

    def hear(self) -> None:
        """Read what has come."""
        if self.over:
            return
        try:
            for message, _ in self.line.receive(_no_payload):
                if is_counted(message):
                    self.heard.append(header_of(message))
                self._answer(message)
        except EOFError:
            self.over = True

    def _answer(self, message: Frame) -> None:
        match message:
            case Welcome(incarnation=incarnation) if self.role == "worker":
                self.incarnation = incarnation
                self.answers.append(Declare(TABLES))
            case Begin(view=view, leader=leader):
                self.view = view
                joins = self.role == "worker" and leader < 0
                self.answers.append(JoinRequest(view.view, self.incarnation) if joins else Seated())
            case View():
                self._see(message)
            case Reach(server):
                self.answers.append(Reached(server))
            case NewTerms(number):
                self.answers.append(TermsTaken(number))
            case Gathered() | ChangeReply() | Refused():
                self.waits = False
                self.refused |= isinstance(message, Refused)

    def _see(self, view: View) -> None:
        before, self.view = self.view, view
        holders = before.holders if before is not None else None
        if self.role == "server":
            if any(member.first is None for member in view.members) and view.holders[self.number : self.number + 1]:
                self.answers.append(Report(view.view, view.view))
            if holders != view.holders:
                self.answers.append(Settled(view.view))


def _no_payload(message: Frame, size: int) -> memoryview:
    raise PeerError(f"{type(message).__name__} with {size} bytes")


class MortalOffice:
    """The coordinator of a run with two workers and two servers, which are started again if they die."""

    def __init__(self, folder: Path) -> None:
        self.wiring = Wiring(run=RUN, token="the secret of the run", checkpoints=str(folder), lasting="1")
        self.process = self._made()
        assert self.process._journal is not None
        assert self.process._journal.open() == []
        self.process._start()
        self.serial = 0
        """How many peers have been started."""
        self.peers: list[Peer] = []
        self.deaths = 0
        self.starts("launcher", -1, Death.NEVER)

    def _made(self) -> CoordinatorProcess:
        return CoordinatorProcess(2, 2, SETTINGS, self.wiring, restarts=True)

    def connected(self) -> socket.socket:
        """A socket of a peer; the coordinator has the other end."""
        ours, theirs = socket.socketpair()
        self.process._loop.add(LastingConnection(ours), unauthenticated=True)
        return theirs

    def starts(self, role: str, number: int, death: Death) -> Peer:
        peer = Peer(self, role, number)
        self.serial += 1
        self.peers.append(peer)
        self.says(peer, peer.hello(), death)
        return peer

    def says(self, peer: Peer, message: Frame, death: Death = Death.NEVER) -> None:
        """A peer says something; the coordinator handles it, or dies."""
        peer.line.send(message)
        if death is not Death.BEFORE:
            self._handle()
        if death is Death.LATER:
            self.hear()
        if death is not Death.NEVER:
            self.die()
        self.hear()

    def hear(self) -> None:
        """All peers read."""
        for peer in self.peers:
            peer.hear()

    def settle(self) -> None:
        """All peers answer until nobody has anything more to say."""
        while any(peer.answers for peer in self.peers):
            for peer in list(self.peers):
                while peer.answers and not peer.over:
                    self.says(peer, peer.answers.pop(0))
                if peer.over:
                    peer.answers.clear()

    def _handle(self) -> None:
        for _ in range(3):
            self.process._loop.turn(0)
        self.process._inputs.timers()

    def die(self) -> None:
        """The coordinator is killed, and started again; all peers come back."""
        self.deaths += 1
        self.close()
        for peer in self.peers:
            peer.line.away = True
            peer.line.close()
        self.process = self._made()
        assert self.process._journal is not None
        self.process._start_again(self.process._journal.open())
        for peer in self.peers:
            if not peer.over:
                self._comes_back(peer)

    def _comes_back(self, peer: Peer) -> None:
        other = Connection(self.connected())
        other.send(Resume(peer.line.key, peer.line.heard))
        self._handle()
        message, _ = next(other.receive(_no_payload))  # what follows is read later
        if isinstance(message, Refused) and peer.refused:
            other.close()  # it was about to read the end of its connection
            peer.over = True
            return
        assert isinstance(message, Resumed), message
        peer.line.resume(other, message.heard)
        self._handle()

    def kill(self, peer: Peer, death: Death) -> None:
        """A worker or server is killed, and its launcher starts it again; the coordinator dies meanwhile."""
        peer.over = True
        peer.line.close()
        self._handle()
        pid = peer.hello().pid
        self.says(self.peers[0], Seen(peer.role, peer.number, 0, "was killed", pid=pid, again=True), death)
        self.starts(peer.role, peer.number, Death.NEVER)

    def close(self) -> None:
        self.process._loop.close()
        assert self.process._journal is not None
        self.process._journal.close()

    def end(self) -> None:
        self.close()
        for peer in self.peers:
            peer.line.close()


Step = tuple[str, int, Death]


def play(folder: Path, script: list[Step]) -> list[list[bytes]]:
    """What every peer hears in this script: (what is done, by whom, when the coordinator dies)."""
    office = MortalOffice(folder)
    try:
        for number in range(2):
            office.starts("server", number, Death.NEVER)
        for number in range(2):
            office.starts("worker", number, Death.NEVER)
        for what, k, death in script:
            _act(office, what, k, death)
        office.settle()
        return [peer.heard for peer in office.peers]
    finally:
        office.end()


def _act(office: MortalOffice, what: str, k: int, death: Death) -> None:
    there = [peer for peer in office.peers[1:] if not peer.over]
    if what == "answer":
        there = [peer for peer in there if peer.answers]
    elif what != "kill":
        there = [peer for peer in there if peer.view is not None and not peer.waits]
    if not there:
        return
    peer = there[k % len(there)]
    if what == "answer":
        office.says(peer, peer.answers.pop(0), death)
    elif what == "kill":
        office.kill(peer, death)
    else:
        message = _own(peer, what, k)
        peer.waits |= isinstance(message, Share | ChangeRequest | LeaveNotice)
        office.says(peer, message, death)


def _own(peer: Peer, what: str, k: int) -> Frame:
    """What a peer says by itself."""
    if peer.role == "server":
        return Withdraw()
    assert peer.view is not None
    match what:
        case "share":
            return Share("barrier", bytes([k]))
        case "change":
            return ChangeRequest(k, sync=(f"ssp:{k}",))
        case "leave":
            return LeaveNotice(peer.view.view, peer.incarnation)
    return EpochBegun(k % 2, k)
