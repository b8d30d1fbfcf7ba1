"""A server process, with a shard of every model of the run. It never imports torch.

    python -m syncline.engines.server [NUMBER]      wiring comes in the environment (see wiring.py)

1. A server connects to the coordinator and sends the addresses at which it listens. The coordinator answers with the
   model (`Begin`). For every further model it asks the server for one more connection (`Another`). A connection is for
   one model (held_model.py).
2. If the coordinator dies, the server continues until a membership must change; then it tells its workers that the
   run has failed. The server exits with code 1 unless the coordinator has told it to stop.
3. A server without a number joins a run that is already training. It listens at its address on the route to the
   coordinator, gets a number, connects to the other servers, and receives its part from them.
4. On SIGTERM a server asks the coordinator to leave. It exits when it holds nothing any more and no member is connected
   to it. If no other server can take over, the run prints a message and the server stays.
5. A server that the run's own launcher started believes the coordinator. A server that joins loads only shipped parts,
   and those that its launcher allows (`--allow-parts`).
"""

from __future__ import annotations

import os
import signal
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from syncline.engines.message_trace import MessageTrace
from syncline.engines.net import addresses, keys, tokens
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import (
    PROTOCOL,
    Abort,
    Another,
    AskRest,
    Begin,
    First,
    Hello,
    Lifted,
    Mapped,
    NewTerms,
    NodeAddress,
    Reach,
    Reached,
    Refused,
    Released,
    Rest,
    Seated,
    Stop,
    TermsTaken,
    Welcome,
    Withdraw,
)
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.frames import FIRST_HEADER, HANDOVER, Frame
from syncline.engines.net.lanes import call_node
from syncline.engines.net.refusals import RefusalLog
from syncline.engines.net.shared_memory import LaneMemory, map_segment
from syncline.engines.net.wiring import NotListening, Wiring, connect_coordinator, listen
from syncline.engines.process import also_look_in, run, say
from syncline.engines.process_state import host
from syncline.engines.server.held_model import HeldModel
from syncline.engines.server.new_terms import take_terms
from syncline.engines.server.worker_peer import WorkerPeer
from syncline.errors import PeerError, RunError, SynclineError
from syncline.messages import View, server_id, worker_id
from syncline.strategies.allowed_parts import AllowedParts


class ServerProcess:
    """The models that this server holds a part of, and its connections."""

    def __init__(self, number: int, wiring: Wiring) -> None:
        """`number`: -1 if the server joins; the coordinator then assigns one."""
        self.number = number
        self.id = server_id(number)
        self.over = False
        self._joins = number < 0
        self._released = False
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._wiring = wiring
        self._allowed = AllowedParts(wiring.allow_parts)
        self._loop = EventLoop(self)
        self._refusals = RefusalLog("server" if self._joins else str(self.id))
        self._coordinator: dict[Connection, HeldModel | None] = {}
        """The connections to the coordinator, each with its model."""
        self._models: dict[str, HeldModel] = {}
        self._peers: dict[Connection, tuple[HeldModel, WorkerPeer]] = {}
        self._lost: list[tuple[HeldModel, WorkerPeer]] = []
        """Members whose connection has ended, until a view without them comes."""
        self._agreed = False
        """Was this server told to stop, or may it leave?"""
        self._takers: dict[Connection, tuple[HeldModel, int]] = {}
        """Connections of servers that ask this one for handovers."""
        self._givers: dict[Connection, tuple[HeldModel, int]] = {}
        """Connections to servers that this one asks for handovers."""

    def run(self) -> int:
        """Serve until told to stop; return the exit code."""
        self._loop.watch(self._bell, self._asked_to_leave)
        signal.signal(signal.SIGTERM, lambda *_: os.eventfd_write(self._bell, 1))
        if self._joins:
            there = addresses.parse(self._wiring.coordinator, "--join")
            self._wiring = replace(self._wiring, listen=addresses.route_to(there.host))
        self._unix, self._tcp = listen(self._loop, self._wiring)
        try:
            self._connect(again=False)
        except NotListening as error:
            if not self._came_too_late(error):
                raise
            return 1
        while not self.over:
            self._loop.turn(60.0)
        self._loop.close()
        return 0 if self._agreed else 1

    def _came_too_late(self, error: NotListening) -> bool:
        """Whether the run was over before this server had started. Its launcher says why the coordinator has ended.

        The coordinator of the same launcher listens before any server is started.
        """
        return self._wiring.coordinator.startswith("@") and keys.NOT_LISTENING in str(error)

    def _connect(self, again: bool) -> None:
        """Open a connection to the coordinator."""
        hello = Hello(
            self._wiring.run,
            "server",
            self.number,
            pid=os.getpid(),
            host=host(),
            unix=self._unix,
            tcp=self._tcp,
            again=again,
            token=self._wiring.token,
        )
        wire = connect_coordinator(self._wiring, hello)
        wire.trust()
        self._coordinator[wire] = None
        self._loop.add(wire)

    # Frames.

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        if wire in self._givers:
            held, number = self._givers[wire]
            return held.handover_sink(number, message, size)
        if wire in self._takers:
            return self._takers[wire][0].links.sink(wire, message, size)
        if wire not in self._peers:
            raise PeerError(f"it sent {type(message).__name__} with a payload")
        held, peer = self._peers[wire]
        return held.sink(peer, message, size)

    def frame(self, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        known = self._peers.get(wire)
        if known is not None:
            known[0].frame(known[1], message, payload is not None)
        elif wire in self._coordinator:
            self._from_coordinator(wire, message)
        elif wire in self._givers:
            held, number = self._givers[wire]
            if isinstance(message, Lifted | Mapped):
                held.links.on_memory(wire, message)
            else:
                self._from_giver(held, number, message, payload)
        elif wire in self._takers:
            held, number = self._takers[wire]
            held.hear(number, wire, message, payload)
        else:
            self._greet(wire, message)

    def broke(self, wire: Connection, error: PeerError) -> None:
        self._loop.lose(wire, str(error))

    def closed(self, wire: Connection, reason: str) -> None:
        if wire in self._coordinator:
            self._coordinator_lost(wire)
        elif wire in self._peers:
            self._worker_lost(wire, reason)
            self._go_if_free()
        elif wire in self._givers:
            held, number = self._givers.pop(wire)
            held.links.ended(wire)
            held.giver_lost(number, reason)
        elif wire in self._takers:
            held, number = self._takers.pop(wire)
            held.links.ended(wire)
            held.taker_lost(number, wire)
            if reason:
                say(f"{self.id}: dropped {server_id(number)}: {reason}")
        elif reason:
            self._refusals.sent_away(reason)

    def _from_coordinator(self, wire: Connection, message: Frame) -> None:
        held = self._coordinator[wire]
        if isinstance(message, Begin) and held is None:
            self._allowed.check(message.settings)
            trace = MessageTrace(self._wiring.trace, self.id, message.model)
            held = HeldModel(
                self.id,
                message,
                wire,
                trace,
                self._out,
                self._loop.lose,
                self._call,
                self._loop.call_later,
                self._drop,
                self._wiring.checkpoints,
                self._wiring.run,
            )
            self._coordinator[wire] = self._models[message.model] = held
            if message.leader < 0 and not held.restarted:
                self._call_all(held)
            else:
                self._out(wire, Seated())
        elif isinstance(message, View) and held is not None:
            self._see(held, message)
        elif isinstance(message, Reach) and held is not None:
            self._reach(held, message)
        elif isinstance(message, AskRest) and held is not None:
            self._out(wire, Rest(message.number, held.at_rest, held.handled))
        elif isinstance(message, NewTerms):
            self._out(wire, TermsTaken(message.number, take_terms(held, message, self._allowed)))
        elif isinstance(message, Another):
            self._connect(again=True)
        elif isinstance(message, Stop):
            self._finish(wire)
        elif isinstance(message, Released):
            self._released = True
            self._go_if_free()
        elif isinstance(message, Welcome) and self.number < 0:
            self.number, self.id = message.worker, server_id(message.worker)
            self._wiring = replace(self._wiring, run=message.run)
        elif isinstance(message, Refused):
            raise RunError(f"the run refused {'this server' if self.number < 0 else self.id}: {message.reason}")
        else:
            raise PeerError(f"it sent {type(message).__name__}, which the coordinator may not send now")

    def _see(self, held: HeldModel, view: View) -> None:
        held.see(view)
        if self._released:
            self._go_if_free()

    def _greet(self, wire: Connection, message: Frame) -> None:
        if not isinstance(message, Hello) or message.role not in ("worker", "server"):
            raise PeerError("its first frame was not Hello of a worker or server")
        reason = self._why_not(message)
        if reason is not None:
            wire.send(Refused(reason))
            raise PeerError(reason)
        held = self._models[message.model]
        if message.role == "server":
            held.links.accept(wire)
            self._loop.known(wire, HANDOVER)
            wire.further = held.strategy.messages
            self._takers[wire] = (held, message.number)
            return
        size, shared = held.layout.size, bool(wire.fds)
        memory = map_segment(wire.fds[0], size) if shared else LaneMemory(size)
        peer = WorkerPeer(worker_id(message.number), message.incarnation, wire, memory, shared)
        held.enter(peer)
        self._loop.known(wire, FIRST_HEADER)
        self._peers[wire] = (held, peer)

    def _why_not(self, hello: Hello) -> str | None:
        if hello.protocol != PROTOCOL:
            return f"this server uses protocol {PROTOCOL}, and you use {hello.protocol}; install the same version"
        if hello.run != self._wiring.run:
            return "this server belongs to another run"
        held = self._models.get(hello.model)
        if held is None:
            return f"this server has no model {hello.model!r}" if self._models else "training has not started yet"
        if hello.role == "server":
            if not tokens.same(hello.word, held.word):
                return f"server {hello.number} did not send the secret of this model's servers"
            return None
        if not tokens.same(hello.word, tokens.server_pass(held.word, hello.number, hello.incarnation)):
            return f"worker {hello.number} did not show the pass that the coordinator gave to it"
        if (hello.number, hello.incarnation) in held.workers:
            return f"worker {hello.number} is already connected"
        return None

    def _out(
        self,
        wire: Connection,
        message: Frame,
        payload: memoryview | None = None,
        *,
        lasting: bool = False,
        gathered: bool = False,
    ) -> None:
        if wire.ended:
            return
        try:
            if gathered:
                self._loop.gather(wire, message)
                return
            wire.send(message, payload, lasting=lasting)
        except OSError:
            return  # the peer is gone; the event loop will read the end of the connection
        if wire.waiting:
            self._loop.write(wire)

    # Other servers, joining and leaving.

    def _call(self, held: HeldModel, number: int, done: Callable[[str], None]) -> None:
        """Connect to another server, aside; then call `done` with the problem, or ""."""
        if number in held.givers:
            done("")
            return
        place, wiring = held.places[number], self._wiring

        def work() -> Callable[[], None]:
            try:
                wire, tls = call_node(f"server {number}", place, wiring, tcp=wiring.lane == "tcp")
            except SynclineError as error:
                problem = str(error)[:1000]
                return lambda: done(problem)
            return lambda: self._called(held, number, place, (wire, tls), done)

        self._loop.aside(work)

    def _called(
        self,
        held: HeldModel,
        number: int,
        place: NodeAddress,
        connected: tuple[Connection, ssl.SSLSocket | None],
        done: Callable[[str], None],
    ) -> None:
        """A connection to another server is there; the TLS handshake, if any, is still to come."""
        wire, tls = connected
        if number in held.givers or held.places.get(number) != place:
            wire.close()  # two calls went out at the same time, or the server has started again
            done("" if number in held.givers else f"server {number} has started again")
            return
        wire.trust(HANDOVER)
        self._givers[wire] = (held, number)
        held.givers[number] = wire
        hello = Hello(
            self._wiring.run, "server", self.number, pid=os.getpid(), host=host(), model=held.name, word=held.word
        )
        fd = held.links.share(wire)
        if fd is None:
            self._out(wire, hello)
        else:
            with suppress(OSError):  # the event loop will read the end of the connection
                wire.send_with(hello, fd)
            os.close(fd)
        self._loop.call(wire, tls)
        done("")

    def _call_all(self, held: HeldModel) -> None:
        """Connect to all servers, then tell the coordinator: a joining server gets a part only if it reaches all.

        If it does not, this process ends.
        """
        missing = {number for number, place in held.places.items() if place.host and number != self.number}

        def called(number: int, problem: str) -> None:
            if problem:
                raise RunError(problem)
            missing.discard(number)
            if not missing:
                self._sit(held)

        for number in list(missing):
            self._call(held, number, partial(called, number))
        if not missing:
            self._sit(held)

    def _sit(self, held: HeldModel) -> None:
        """A joining server has reached all others: it gets the initial parameters, then tells the coordinator."""
        held.ask_first()
        if held.has_first:
            self._out(held.coordinator, Seated())

    def _drop(self, wire: Connection) -> None:
        """Close a connection to another server."""
        known = self._givers.pop(wire, None)
        if known is not None:
            known[0].links.ended(wire)
        self._loop.drop(wire)

    def _reach(self, held: HeldModel, reach: Reach) -> None:
        """Connect to another server that joins, and tell the coordinator whether that worked.

        If it has started again, connect later, when there is a message for it.
        """
        held.places[reach.server] = reach.place
        if held.strategy.survives_servers and not held.strategy.restores_servers:
            held.links.close(reach.server)
            self._out(held.coordinator, Reached(reach.server, "", reach.arrival))
            return

        def done(problem: str) -> None:
            self._out(held.coordinator, Reached(reach.server, problem, reach.arrival))

        self._call(held, reach.server, done)

    def _from_giver(self, held: HeldModel, number: int, message: Frame, payload: memoryview | None) -> None:
        if isinstance(message, Refused):
            raise PeerError(f"it refused this server: {message.reason}")
        if isinstance(message, First):
            held.take_first(number, message, payload)
            if held.has_first:
                self._out(held.coordinator, Seated())
            return
        held.take_over(number, message, payload)

    def _asked_to_leave(self) -> None:
        """Handle SIGTERM: ask the coordinator to leave."""
        os.eventfd_read(self._bell)
        if self._coordinator and self.number >= 0:
            self._out(next(iter(self._coordinator)), Withdraw())
        else:
            self._orphaned(f"{self.id} was asked to leave")
            self.over = True

    def _go_if_free(self) -> None:
        """Exit if this server holds nothing and no member is connected any more."""
        if not self._released or self.over:
            return
        for wire, (held, peer) in list(self._peers.items()):
            if not held.may_ask(peer):
                del self._peers[wire]
                held.leave(peer)
                self._loop.drop(wire)
        if not self._peers and self._coordinator:
            self._finish(next(iter(self._coordinator)))

    # Losses.

    def _worker_lost(self, wire: Connection, reason: str) -> None:
        held, peer = self._peers.pop(wire)
        if reason:
            say(f"{self.id}: dropped {peer.id}: {reason}")
        held.leave(peer)
        self._lost = [each for each in (*self._lost, (held, peer)) if each[0].is_member(each[1])]
        if held.coordinator.ended and not self.over:
            self._end_if_member_lost()

    def _coordinator_lost(self, wire: Connection) -> None:
        """The coordinator is gone. Continue until a membership must change, but exit if no worker is connected."""
        self._coordinator.pop(wire)
        if not any(held.is_open and held.workers for held in self._models.values()):
            if self._joins:  # of the run's own servers the launcher says enough
                say("the coordinator is gone, and no worker is connected to this server")
            self.over = True
        else:
            self._end_if_member_lost()

    def _end_if_member_lost(self) -> None:
        """Without a coordinator: tell the workers that the run has failed if a member is gone."""
        gone = [peer for held, peer in self._lost if held.is_member(peer) and held.coordinator.ended]
        if gone:
            self._orphaned(f"{gone[0].id} is gone")

    def _orphaned(self, what: str) -> None:
        reason = f"{what}, so the membership must change, but the coordinator is dead"
        for wire in self._peers:
            self._out(wire, Abort(reason))
        self.over = not self._peers

    def _finish(self, wire: Connection) -> None:
        for held in self._models.values():
            figures = held.finish()
            if figures is not None:
                self._out(wire, figures)
        self.over = self._agreed = True


def main() -> int:
    wiring = Wiring.read(os.environ)
    also_look_in(wiring.folder)
    return run(ServerProcess(int(sys.argv[1]) if len(sys.argv) > 1 else -1, wiring).run)
