"""The inputs of the coordinator's decisions, one after the other, each with its time; and their journal.

A connection has a number in the journal, from its first frame on. A process that is refused leaves no trace there, and
changes no decision (`Coordination`), so nobody can fill the disk by trying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic

from syncline.engines.coordinator.compaction import Compaction
from syncline.engines.coordinator.coordination import Coordination
from syncline.engines.coordinator.journal import (
    Came,
    ConnectionClosed,
    Deadlocked,
    Entry,
    FactRead,
    Journal,
    ProcessStopped,
    RemovedCounts,
    Sent,
    TimePassed,
    TimersDue,
)
from syncline.engines.coordinator.outside import Fact
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello, Share
from syncline.engines.net.frames import Frame, header_of, unpack
from syncline.engines.net.lasting import LastingConnection
from syncline.errors import PeerError
from syncline.messages import NodeId


class Inputs:
    """Gives inputs to the decisions about a run."""

    def __init__(self, run: Coordination, journal: Journal | None = None) -> None:
        self._run = run
        self._journal = journal
        self._replay: Iterator[Entry] | None = None
        """The entries that are still to be replayed."""
        self._numbers: dict[Connection, int] = {}
        self._next = 0
        self.wires: dict[int, LastingConnection] = {}
        """The connections of the journal, by number, as long as they have not ended."""
        self.keys: dict[str, LastingConnection] = {}
        """The same by the secret that the peer has given."""
        self.broken: dict[Connection, str] = {}
        """Connections whose peer has broken the protocol, and that are to be ended."""
        self._compaction = None if journal is None else Compaction(journal)
        if journal is not None:
            run.outside.record = self

    def knows(self, wire: Connection) -> bool:
        """Has the journal a number for this connection?"""
        return wire in self._numbers

    # Inputs.

    def frame(self, wire: Connection, message: Frame) -> None:
        """A frame has come; `PeerError` if its sender must not send it."""
        journal, now = self._journal, monotonic()
        if journal is None:
            self._frame(wire, message, now)
        elif wire in self._numbers:
            header = header_of(message)
            journal.add(Sent(now, self._numbers[wire], header, isinstance(message, Share)))
            self._frame(wire, message, now)
            if isinstance(message, Share) and self._compaction is not None:
                assert isinstance(wire, LastingConnection)
                self._compaction.shared(wire, len(header), not self._run.all_gather.said, self.wires)
        else:
            self._first(journal, wire, message, now)

    def _first(self, journal: Journal, wire: Connection, message: Frame, now: float) -> None:
        """The first frame of a connection has come: if it is not accepted, forget it."""
        if not isinstance(message, Hello):
            raise PeerError("its first frame was not Hello")
        if message.line in self.keys:
            raise PeerError("it said Hello a second time")
        before, number = (journal.size, journal.count), self._next
        journal.add(Came(now, number, wire.is_near, header_of(message)))
        try:
            self._frame(wire, message, now)
        except PeerError:
            journal.cut(*before)
            raise
        assert isinstance(wire, LastingConnection), "a coordinator with a journal has lasting connections"
        self._enter(wire, number, message)

    def _enter(self, wire: LastingConnection, number: int, hello: Hello) -> None:
        self._next = number + 1
        self._numbers[wire], self.wires[number] = number, wire
        if hello.line:
            wire.key = hello.line
            self.keys[hello.line] = wire
        else:
            wire.forgo()

    def _frame(self, wire: Connection, message: Frame, now: float) -> None:
        self._run.outside.now = now
        self._run.frame(wire, message)
        self._run.settle()

    def closed(self, wire: Connection, reason: str) -> None:
        """A connection has ended."""
        now, number = monotonic(), self._numbers.get(wire)
        if self._journal is not None:
            if number is None:
                self._run.closed(wire, reason)  # nobody has admitted it
                return
            self._journal.add(ConnectionClosed(now, number, reason))
        self._closed(wire, reason, now)

    def _closed(self, wire: Connection, reason: str, now: float) -> None:
        self._run.outside.now = now
        self._run.closed(wire, reason)
        self._run.settle()
        for each in [each for each in self._numbers if each.ended]:  # the decisions may have ended others
            del self.wires[self._numbers.pop(each)]
            assert isinstance(each, LastingConnection)
            self.keys.pop(each.key, None)

    def stopped(self, id: NodeId, patience: float) -> None:
        """A process has been stopped for longer than the patience."""
        now = self._note(lambda now: ProcessStopped(now, id.role, id.number, patience))
        self._stopped(id.role, id.number, patience, now)

    def _stopped(self, role: str, number: int, patience: float, now: float) -> None:
        self._run.outside.now = now
        losses = self._run.losses
        (losses.worker_stopped if role == "worker" else losses.server_stopped)(number, patience)
        self._run.settle()

    def deadlock(self, reason: str) -> None:
        """The workers wait for each other for ever."""
        self._deadlock(reason, self._note(lambda now: Deadlocked(now, reason)))

    def _deadlock(self, reason: str, now: float) -> None:
        self._run.outside.now = now
        self._run.deadlock(reason)
        self._run.settle()

    def timers(self) -> None:
        """Timers may have expired."""
        if self._run.next_timer <= monotonic():
            self._timers(self._note(TimersDue))

    def _timers(self, now: float) -> None:
        self._run.outside.now = now
        self._run.timers()
        self._run.settle()

    def look(self) -> None:
        """Time has passed."""
        if self._run.waits_for_time(monotonic()):
            self._look(self._note(TimePassed))

    def _look(self, now: float) -> None:
        self._run.outside.now = now
        self._run.look()
        self._run.settle()

    def _note(self, entry: Callable[[float], Entry]) -> float:
        """Write an entry, and return its time."""
        now = monotonic()
        if self._journal is not None:
            self._journal.add(entry(now))
        return now

    def recorded(self, read: Callable[[], Fact]) -> Fact:
        """Read something, or return what was read before, in a replay."""
        if self._replay is not None:
            entry = next(self._replay, None)
            if entry is not None:
                assert isinstance(entry, FactRead), f"the journal has {entry} where a fact was read"
                return entry.fact  # type: ignore[return-value]
            self._replay = None  # the process died before it had read this
            self._run.outside.absent = False
        fact = read()
        if self._journal is not None:
            self._journal.add(FactRead(fact))
        return fact

    # Replay.

    def replay(self, entries: Iterator[Entry]) -> None:
        """Handle these inputs as they were handled before."""
        self._replay, outside = entries, self._run.outside
        outside.absent = True
        for entry in entries:
            self._again(entry)
        self._replay, outside.absent = None, False
        outside.now = monotonic()

    def _again(self, entry: Entry) -> None:
        match entry:
            case Came(now, number, near, header):
                wire, hello = LastingConnection.absent(near), unpack(header)
                assert isinstance(hello, Hello)
                wire.heard += 1
                try:
                    self._frame(wire, hello, now)
                except PeerError:
                    return  # the process died before it had removed the entry
                self._enter(wire, number, hello)
            case Sent(now, number, header):
                wire = self.wires[number]
                wire.heard += 1
                try:
                    self._frame(wire, unpack(header, wire.further), now)
                except PeerError as error:
                    self.broken[wire] = str(error)
            case ConnectionClosed(now, number, reason):
                wire = self.wires[number]
                self.broken.pop(wire, None)
                self._run.outside.drop(wire)
                self._closed(wire, reason, now)
            case ProcessStopped(now, role, number, patience):
                self._stopped(role, number, patience, now)
            case Deadlocked(now, reason):
                self._deadlock(reason, now)
            case TimersDue(now):
                self._timers(now)
            case TimePassed(now):
                self._look(now)
            case RemovedCounts(by_wire):
                for number, (heard, sent) in by_wire.items():
                    self.wires[number].heard += heard
                    self.wires[number].sent += sent
            case _:
                raise AssertionError(f"the journal has {entry} where an input was expected")
