"""A server process: a shard of every model of the run, behind sockets. It never imports torch.

    python -m syncline.engines.server NUMBER        wiring comes in the environment (see wiring.py)

1. It connects to the coordinator, says where it listens, and is told what is trained (`Begin`); for every further model
   it is asked to open another connection (`Another`). A connection is about one model (holding.py).
2. When the coordinator is gone it goes on until a membership must change; then it tells its workers why not.
"""

from __future__ import annotations

import os
import sys

from syncline.engines.control import PROTOCOL, Abort, Another, Begin, Hello, Refused, Seated, Stop
from syncline.engines.frames import STRANGER, Frame
from syncline.engines.holding import Holding, Peer
from syncline.engines.memory import Memory, map_segment
from syncline.engines.process import run, say
from syncline.engines.reactor import Reactor
from syncline.engines.strangers import Strangers
from syncline.engines.tracing import Tracing
from syncline.engines.watch import host
from syncline.engines.wire import Wire
from syncline.engines.wiring import Wiring, connect_coordinator, listen
from syncline.errors import PeerError
from syncline.messages import View, server_id, worker_id


class Server:
    """The models that this server has a part of, and the coordinator."""

    def __init__(self, number: int, wiring: Wiring) -> None:
        self.number = number
        self.id = server_id(number)
        self.over = False
        self._wiring = wiring
        self._reactor = Reactor(self)
        self._strangers = Strangers(str(self.id))
        self._coordinator: dict[Wire, Holding | None] = {}
        """The connections to the coordinator, and which model each is about."""
        self._models: dict[str, Holding] = {}
        self._peers: dict[Wire, tuple[Holding, Peer]] = {}

    def run(self) -> int:
        """Serve until told to stop; the exit code."""
        self._unix, self._tcp = listen(self._reactor, self._wiring)
        self._connect(again=False)
        while not self.over:
            self._reactor.turn(60.0)
        self._reactor.close()
        return 0

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
        )
        wire = connect_coordinator(self._wiring, hello)
        wire.trust()
        self._coordinator[wire] = None
        self._reactor.add(wire)

    # Frames.

    def sink(self, wire: Wire, message: Frame, size: int) -> memoryview:
        if wire not in self._peers:
            raise PeerError(f"{type(message).__name__} with a payload")
        holding, peer = self._peers[wire]
        return holding.sink(peer, message, size)

    def frame(self, wire: Wire, message: Frame, payload: memoryview | None) -> None:
        known = self._peers.get(wire)
        if known is not None:
            known[0].frame(known[1], message, payload is not None)
        elif wire in self._coordinator:
            self._from_coordinator(wire, message)
        else:
            self._greet(wire, message)

    def closed(self, wire: Wire, reason: str) -> None:
        if wire in self._coordinator:
            self._coordinator_lost(wire)
        elif wire in self._peers:
            self._worker_lost(wire, reason)
        elif reason:
            self._strangers.sent_away(reason)

    def _from_coordinator(self, wire: Wire, message: Frame) -> None:
        holding = self._coordinator[wire]
        if isinstance(message, Begin) and holding is None:
            tracing = Tracing(self._wiring.trace, self.id, message.model)
            holding = Holding(self.id, message, wire, tracing, self._out, self._reactor.lose)
            self._coordinator[wire] = self._models[message.model] = holding
            self._out(wire, Seated())
        elif isinstance(message, View) and holding is not None:
            holding.see(message)
        elif isinstance(message, Another):
            self._connect(again=True)
        elif isinstance(message, Stop):
            self._finish(wire)
        else:
            raise PeerError(f"{type(message).__name__} from the coordinator")

    def _greet(self, wire: Wire, message: Frame) -> None:
        if not isinstance(message, Hello) or message.role != "worker":
            raise PeerError("the first frame must say which worker this is")
        reason = self._why_not(message)
        if reason is not None:
            wire.send(Refused(reason))
            raise PeerError(reason)
        holding = self._models[message.model]
        size, shared = holding.layout.size, bool(wire.fds)
        memory = map_segment(wire.fds[0], size) if shared else Memory(size)
        peer = Peer(worker_id(message.number), message.incarnation, wire, memory, shared)
        self._reactor.known(wire, STRANGER)
        self._peers[wire] = (holding, peer)
        holding.workers[peer.who] = peer

    def _why_not(self, hello: Hello) -> str | None:
        if hello.protocol != PROTOCOL:
            return f"this server speaks protocol {PROTOCOL}, and you speak {hello.protocol}; install the same version"
        if hello.run != self._wiring.run:
            return "this server belongs to another run"
        holding = self._models.get(hello.model)
        if holding is None:
            return f"there is no model {hello.model!r} here" if self._models else "nothing has begun yet"
        if (hello.number, hello.incarnation) in holding.workers or hello.number < 0:
            return f"worker {hello.number} is there already"
        return None

    def _out(self, wire: Wire, message: Frame, payload: memoryview | None = None) -> None:
        if wire.fileno() < 0:
            return
        try:
            wire.send(message, payload)
        except OSError:
            return  # it is gone; its end is read as such
        if wire.waiting:
            self._reactor.write(wire)

    # Losses.

    def _worker_lost(self, wire: Wire, reason: str) -> None:
        holding, peer = self._peers.pop(wire)
        if reason:
            say(f"{self.id}: dropped {peer.id}: {reason}")
        holding.workers.pop(peer.who, None)
        if holding.coordinator.fileno() < 0 and not self.over and holding.is_member(peer):
            self._orphaned(f"{peer.id} is gone")

    def _coordinator_lost(self, wire: Wire) -> None:
        """No shard needs it until its membership must change; without a worker there is nothing to do."""
        self._coordinator.pop(wire)
        if not any(holding.is_open and holding.workers for holding in self._models.values()):
            self.over = True

    def _orphaned(self, what: str) -> None:
        reason = f"{what}, so the membership must change, but the coordinator is dead"
        for wire in self._peers:
            self._out(wire, Abort(reason))
        self.over = not self._peers

    def _finish(self, wire: Wire) -> None:
        for holding in self._models.values():
            figures = holding.finish()
            if figures is not None:
                self._out(wire, figures)
        self.over = True


def main() -> int:
    return run(Server(int(sys.argv[1]), Wiring.read(os.environ)).run)


if __name__ == "__main__":
    sys.exit(main())
