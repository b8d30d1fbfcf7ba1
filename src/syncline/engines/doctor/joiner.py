"""`syncline doctor --join`: measures the way to a host where `syncline doctor --listen` runs, and the way back."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from secrets import token_hex
from statistics import median
from time import monotonic, time

from syncline.engines.doctor import judgements
from syncline.engines.doctor.finding import Finding, ok, wrong
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
from syncline.engines.doctor.reaching import reach, refused_key, secure
from syncline.engines.net import addresses
from syncline.engines.net.addresses import Address
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Control, Hello, Refused
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.frames import HEADER, Frame
from syncline.engines.net.wiring import Wiring, context_for
from syncline.errors import PeerError, UsageError

REPLY_SECONDS = 30.0
"""Seconds in which the other side must answer. A slow link first has to carry what lies in the buffers."""

FLOOD_SECONDS = 1.0
"""For how long each direction is filled."""

PINGS = 20


class _Ended(Exception):
    """The other side has closed the connection, or does not answer."""


class DoctorVisit:
    """One visit to a listener, from connection to verdict."""

    def __init__(self, places: Sequence[Address], wiring: Wiring, port: int = 0) -> None:
        """`places`: the addresses of the listener; `port`: where it connects back, 0: chosen by the system."""
        self._places = places
        self._wiring = wiring
        self._port = port
        self._loop = EventLoop(self)
        self._wire: Connection | None = None
        self._replies: list[Frame] = []
        self._gone: str | None = None
        self._arrivals = BlockCount()
        self._scratch = memoryview(bytearray(BLOCK))
        self._word = token_hex(16)
        self._met = False
        """The listener is one, and has said who it is."""
        self._called = False
        self._rejected = ""
        """Why a connection to this host has ended, that may have been the listener's."""

    def findings(self) -> Iterator[Finding]:
        """Check one thing after the other; what cannot be checked any more is left out."""
        found: list[Finding] = []
        try:
            for each in self._checks():
                found.append(each)
                yield each
            if self._met:
                self._ask(VisitEnd(tuple(found)), VisitEnd)
        except (_Ended, PeerError) as error:
            yield wrong("connection", str(error), "look at the messages on the other host, and start both sides again")
        finally:
            self._loop.close()

    def _checks(self) -> Iterator[Finding]:
        sock, host, finding = self._reached()
        yield finding
        if sock is None:
            return
        own = str(sock.getsockname()[0])
        self._wire, finding = secure(sock, host, self._wiring)
        if self._wire is None:
            yield finding
            return
        self._wire.trust(HEADER)
        self._wire.further = MESSAGES
        self._loop.add(self._wire)
        say(self._loop, self._wire, Hello("", ROLE, pid=os.getpid()))
        try:
            facts = self._ask(own_facts(host), Facts)
        except _Ended:
            yield self._turned_away()
            return
        assert isinstance(facts, Facts)
        self._met = True
        yield finding
        yield judgements.versions(own_facts(host), facts)
        yield from self._clocks()
        yield self._bandwidth_there()
        yield self._bandwidth_back()
        yield self._way_back(own, facts.seen)

    def _reached(self) -> tuple[socket.socket | None, str, Finding]:
        """A connection to the first of the listener's addresses that accepts one, and its host."""
        *others, last = self._places
        for place in others:
            sock, finding = reach(place)
            if sock is not None:
                return sock, place.host, finding
        sock, finding = reach(last)
        return sock, last.host, finding

    def _turned_away(self) -> Finding:
        """The listener has closed the connection after the first frame."""
        refused = next((each for each in self._replies if isinstance(each, Refused)), None)
        if refused is not None:
            text = f"something else than `syncline doctor --listen` is there, and says: {refused.reason}"
            return wrong("connection", text, "if it is a run, the key fits; to measure, listen at another port")
        return refused_key(ConnectionResetError())

    def _clocks(self) -> Iterator[Finding]:
        """Round trips, and how far the other clock is ahead: by the quickest of them, which leaves least doubt."""
        trips: list[tuple[float, float]] = []
        for number in range(PINGS):
            before, sent = time(), monotonic()
            pong = self._ask(Ping(number), Pong)
            trip = monotonic() - sent
            assert isinstance(pong, Pong)
            trips.append((trip, pong.clock - before - trip / 2))
        yield judgements.round_trip(median(trip for trip, _ in trips))
        yield judgements.clocks(*reversed(min(trips)))

    def _bandwidth_there(self) -> Finding:
        assert self._wire is not None
        flood(self._loop, self._wire, FLOOD_SECONDS)
        answer = self._wait(Flooded)
        assert isinstance(answer, Flooded)
        return judgements.bandwidth("bandwidth there", answer.bytes, answer.seconds)

    def _bandwidth_back(self) -> Finding:
        self._ask(AskFlood(FLOOD_SECONDS), FloodEnd)
        return judgements.bandwidth("bandwidth back", self._arrivals.bytes, self._arrivals.seconds)

    def _way_back(self, own: str, seen: str) -> Finding:
        """Let the listener connect to this host."""
        if seen != own:
            return judgements.translated(own, seen)
        try:
            listener = addresses.listen(Address(own, self._port), "--port")
        except UsageError as error:
            return wrong("way back", error.problem, "choose another --port, or leave it out")
        self._loop.listen(listener, context_for(own, self._wiring, server=True))
        place = addresses.address_of(listener)
        reply = self._ask(CallBack(str(place), self._word), CalledBack)
        assert isinstance(reply, CalledBack)
        if reply.problem or not self._called:
            problem = reply.problem or self._rejected or "it has connected to something else than this process"
            return judgements.no_way_back(place, problem, given=bool(self._port))
        return ok("way back", f"the other host can connect to {place}")

    # Waiting.

    def _ask(self, message: Control, kind: type[Control]) -> Frame:
        assert self._wire is not None
        say(self._loop, self._wire, message)
        return self._wait(kind)

    def _wait(self, kind: type[Control]) -> Frame:
        until = monotonic() + REPLY_SECONDS
        while monotonic() < until:
            if self._replies and isinstance(self._replies[0], kind):
                return self._replies.pop(0)
            if self._gone is not None or self._replies:
                raise _Ended(f"the other side has closed the connection{self._gone and ': '}{self._gone or ''}")
            self._loop.turn(1.0)
        raise _Ended(f"the other side has not answered for {REPLY_SECONDS:g} s")

    # The event loop calls these (`LoopOwner`).

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        if wire is not self._wire or not isinstance(message, FloodBlock) or size > BLOCK:
            raise PeerError(f"it sent {type(message).__name__} with a payload of {size:,} bytes")
        return self._scratch[:size]

    def frame(self, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        if wire is not self._wire:
            self._greet(wire, message)
        elif isinstance(message, FloodBlock):
            self._arrivals.block(0 if payload is None else payload.nbytes, monotonic())
        else:
            self._replies.append(message)

    def _greet(self, wire: Connection, message: Frame) -> None:
        """Somebody has connected to this host; only the listener knows the word."""
        if not isinstance(message, Hello) or message.role != ROLE or message.word != self._word:
            raise PeerError("it is not the host that this one has asked to connect")
        self._called = True
        wire.further = MESSAGES
        self._loop.known(wire)
        say(self._loop, wire, VisitEnd())

    def broke(self, wire: Connection, error: PeerError) -> None:
        self._loop.lose(wire, str(error))

    def closed(self, wire: Connection, reason: str) -> None:
        if wire is self._wire:
            self._gone = reason
        elif reason:
            self._rejected = reason
