"""`syncline doctor --listen`: answers those that join, connects back to them, and prints what they have found.

1. A connection must identify itself as a doctor's, with the key, before anything that it sends counts (event_loop.py).
2. A frame that breaks the protocol costs its sender the connection. Others are not disturbed.
3. It ends when as many joiners as expected have sent their findings.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, time

from syncline.engines.doctor.finding import Finding
from syncline.engines.doctor.flood import BlockCount, flood, say
from syncline.engines.doctor.messages import (
    BLOCK,
    MESSAGES,
    ROLE,
    AskFlood,
    CallBack,
    CalledBack,
    Facts,
    FloodBlock,
    Flooded,
    FloodEnd,
    Ping,
    Pong,
    VisitEnd,
    own_facts,
)
from syncline.engines.doctor.reaching import call_back
from syncline.engines.net import addresses
from syncline.engines.net.addresses import Address
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello, Refused
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.frames import DECLARATION, Frame
from syncline.engines.net.refusals import RefusalLog
from syncline.engines.net.wiring import Wiring, context_for
from syncline.errors import PeerError


@dataclass
class Visit:
    """One joiner that has identified itself."""

    peer: str
    arrivals: BlockCount = field(default_factory=BlockCount)
    calling: bool = False


class DoctorListener:
    """Listens, and answers joiners one by one or several at a time."""

    def __init__(self, at: Address, wiring: Wiring, heard: Callable[[str, tuple[Finding, ...]], None]) -> None:
        """`heard`: called with the address of a joiner and what it has found."""
        self._at = at
        self._wiring = wiring
        self._heard = heard
        self._loop = EventLoop(self)
        self._refusals = RefusalLog("syncline")
        self._visits: dict[Connection, Visit] = {}
        self._scratch = memoryview(bytearray(BLOCK))
        self.finished = 0
        """How many joiners have sent what they have found."""

    def start(self) -> Address:
        """Listen; return the address with the port that the system chose."""
        listener = addresses.listen(self._at, "--listen")
        self._loop.listen(listener, context_for(self._at.host, self._wiring, server=True))
        return addresses.address_of(listener)

    def serve(self, joiners: int) -> None:
        """Answer until so many joiners have been checked, and their connections have ended."""
        while self.finished < joiners or self._visits:
            self._loop.turn(1.0)

    def close(self) -> None:
        self._loop.close()

    # The event loop calls these (`LoopOwner`).

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        if wire not in self._visits or not isinstance(message, FloodBlock) or size > BLOCK:
            raise PeerError(f"it sent {type(message).__name__} with a payload of {size:,} bytes")
        return self._scratch[:size]

    def frame(self, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        visit = self._visits.get(wire)
        if visit is None:
            self._greet(wire, message)
        else:
            self._answer(wire, visit, message, 0 if payload is None else payload.nbytes)

    def broke(self, wire: Connection, error: PeerError) -> None:
        self._loop.lose(wire, str(error))

    def closed(self, wire: Connection, reason: str) -> None:
        if self._visits.pop(wire, None) is None and reason:
            self._refusals.sent_away(reason)

    def _greet(self, wire: Connection, message: Frame) -> None:
        if not isinstance(message, Hello) or message.role != ROLE:
            say(self._loop, wire, Refused("`syncline doctor --listen` listens here, and not a run"))
            raise PeerError("it is not `syncline doctor --join`")
        self._loop.known(wire, DECLARATION)
        wire.further = MESSAGES
        self._visits[wire] = Visit(wire.peer)

    def _answer(self, wire: Connection, visit: Visit, message: Frame, size: int) -> None:
        match message:
            case Facts():
                say(self._loop, wire, own_facts(visit.peer))
            case Ping(number):
                say(self._loop, wire, Pong(number, time()))
            case FloodBlock():
                visit.arrivals.block(size, monotonic())
            case FloodEnd():
                say(self._loop, wire, Flooded(visit.arrivals.bytes, visit.arrivals.seconds))
                visit.arrivals = BlockCount()
            case AskFlood(seconds):
                flood(self._loop, wire, seconds)
            case CallBack(place, word) if not visit.calling:
                visit.calling = True
                self._call(wire, visit, place, Hello("", ROLE, word=word, pid=os.getpid()))
            case VisitEnd(findings):
                self.finished += 1
                self._heard(visit.peer, findings)
                say(self._loop, wire, VisitEnd())
            case _:
                raise PeerError(f"it sent {type(message).__name__}, which a joiner may not send now")

    def _call(self, wire: Connection, visit: Visit, place: str, hello: Hello) -> None:
        """Connect to the joiner, aside: a firewall may let us wait."""

        def work() -> Callable[[], None]:
            problem = call_back(place, visit.peer, self._wiring, hello)

            def answer() -> None:
                visit.calling = False
                say(self._loop, wire, CalledBack(problem[:1000]))

            return answer

        self._loop.aside(work)
