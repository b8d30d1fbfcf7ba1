"""A worker's side of the wires: performs what its node asks for, and waits only where its program asks it to."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic

from msgspec.structs import replace

from syncline.draw import Draw
from syncline.effects import Deliver, Depart, Effect, Enter, Event, Fail, Ready, Received, Send
from syncline.engines.net.control import (
    Abort,
    Begin,
    ChangeReply,
    Declare,
    Ended,
    EpochBegun,
    Gathered,
    Go,
    Hello,
    InForce,
    Pulse,
    Reach,
    Reached,
    Refused,
    Seated,
    Share,
    Welcome,
    layout_of,
)
from syncline.engines.net.frames import Frame
from syncline.engines.net.wiring import Wiring, connect_coordinator
from syncline.engines.process_state import host
from syncline.engines.worker.answers import MOST, AnswerChecks
from syncline.engines.worker.assembly import Assembly
from syncline.engines.worker.change_requests import ChangeRequests
from syncline.engines.worker.placement_history import PlacementHistory, in_turn, is_whole
from syncline.engines.worker.reads import PendingReads
from syncline.engines.worker.server_lanes import ServerLanes
from syncline.engines.worker.traffic import NO_COORDINATOR, Traffic
from syncline.errors import GoneError, PeerError, RunError, SynclineError, UsageError
from syncline.layout import Bucket, Values
from syncline.messages import COORDINATOR, Gone, NodeId, Push, View
from syncline.nodes.server.worker import Phase, Worker
from syncline.strategies.server.strategy import Mode
from syncline.strategies.settings import strategy_in

WELCOME_SECONDS = 5.0
"""Whoever does not answer by then is not the coordinator of a run."""

START_SECONDS = 3600.0
"""How long a worker waits for the others at the start."""


class WorkerLink:
    """Connections to the coordinator and to every server, the worker's memory, and its node.

    Servers come and go. One that comes is connected to before it holds anything; one that holds nothing any more is
    let go once nothing is awaited from it.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._said: Gathered | None = None
        self._traffic = Traffic(self, self._awaits)
        self._servers = ServerLanes(wiring, self._traffic)
        self._changes = ChangeRequests(self._traffic)
        self.changed: dict[str, str] = {}
        """The settings that have changed since this worker began."""
        self._ended = False
        self._go = False
        self._sitting = False
        self._begun: Begin | None = None
        self._views: list[View | Reach] = []
        """Those that came before there was a node to tell."""
        self.node: Worker | None = None
        self.following: int | None = None
        """The iteration to go on with, once the present one is whole."""
        self.fresh: set[Bucket] = set()
        """The buckets that were answered in this iteration."""
        self.members: tuple[int, ...] = ()
        """The live workers of this model, as far as this one knows."""
        self.v = 0
        """The last answer's V: how many rounds everyone has finished."""

    @property
    def error(self) -> SynclineError | None:
        """Why this worker can take no further part."""
        return self._traffic.error

    def _awaits(self) -> bool:
        return self.node is not None and self.node.is_waiting

    # The start.

    def connect(self, known: Welcome | None = None) -> Welcome:
        """Say hello to the coordinator; what it answers. `known`: what it answered on the first connection."""
        hello = Hello(self._wiring.run, "worker", int(self._wiring.worker or -1), pid=os.getpid(), host=host())
        if known is not None:
            hello = replace(hello, run=known.run, number=known.worker, incarnation=known.incarnation, again=True)
        self._traffic.add(COORDINATOR, connect_coordinator(self._wiring, hello))
        self.welcome: Welcome | None = None
        self._traffic.wait(lambda: self.welcome is not None, WELCOME_SECONDS)
        assert self.welcome is not None
        return self.welcome

    def another(self) -> WorkerLink:
        """A link for another model: a connection is about one."""
        made = WorkerLink(self._wiring)
        made.connect(self.welcome)
        return made

    def share(self, kind: str, data: bytes) -> list[bytes]:
        """Say something to all, and hear what all have said."""
        self._said = None
        self._traffic.send(COORDINATOR, Share(kind, data))
        self.wait(lambda: self._said is not None)
        assert self._said is not None
        return list(self._said.data)

    def change(self, models: tuple[str, ...], sync: tuple[str, ...], release: str) -> None:
        """Have all servers go on under another sync model, for these models."""
        self._changes.ask(models, sync, release)

    def tell(self, message: Pulse | EpochBegun) -> None:
        """Tell the coordinator how far this worker is; if it is gone, nobody need know."""
        if COORDINATOR in self._traffic:
            self._traffic.send(COORDINATOR, message)

    def begin(self, declare: Declare) -> Begin:
        """Declare what is trained, and wait until all have."""
        self._traffic.send(COORDINATOR, declare)
        notice = "waiting until the other workers declare their tables"
        self._traffic.wait(lambda: self._begun is not None, START_SECONDS, notice)
        begin = self._begun
        assert begin is not None
        try:
            self._set_up(begin, declare)
        except PeerError as error:
            raise self._failed(PeerError(f"{COORDINATOR} broke the protocol: {error}")) from None
        return begin

    def _set_up(self, begin: Begin, declare: Declare) -> None:
        """A worker trains what it has declared, on servers that hold all of it, each value once."""
        assert self.welcome is not None
        layout, view = layout_of(declare.tables), begin.view
        there = len(view.holders) == len(begin.servers) and is_whole(view.holders, layout.size)
        if begin.tables != declare.tables or not there:
            raise PeerError("a beginning with another model than was declared, or with servers that do not hold it")
        self._history = PlacementHistory(view, layout.size)
        self._reads = PendingReads(self._history, self._servers.send)
        self._note_members(view)
        try:
            self.strategy = strategy_in(begin.settings)
            draw = Draw(int(begin.settings["seed"]))
        except (KeyError, ValueError) as error:
            raise PeerError(f"settings that are none: {error}") from None
        me, incarnation = self.welcome.worker, self.welcome.incarnation
        hello = Hello(self.welcome.run, "worker", me, incarnation, pid=os.getpid(), host=host(), model=declare.model)
        places = {number: each for number, each in enumerate(begin.servers) if view.holders[number]}
        self.memory = self._servers.open(places, layout.size, hello)
        self.node = Worker(me, incarnation, self.strategy.parts(layout, draw), view)
        means = self.strategy.mode is Mode.GRADIENTS
        self._checks = AnswerChecks(self.node, self._history, self._reads, self._servers, self.memory, means)
        self.buckets = in_turn(view.holders)
        self._assembly = Assembly(self.buckets)
        for each in self._views:
            self._from_coordinator(each)

    def seed(self) -> None:
        """Leader: give every server its first parameters, from `memory.updates`."""
        self._reads.seed(self.buckets, self.memory)

    def remind(self, name: str) -> None:
        """Leader, before `seed`: the rule remembers by this name what lies in `memory.updates`."""
        self._reads.seed(self.buckets, self.memory, name)
        self.wait(lambda: not self._reads)

    @property
    def residuals(self) -> dict[Bucket, dict[str, Values]]:
        """What the codec keeps of each bucket for the next update."""
        assert self.node is not None
        return self.node.memories

    def go_on_from(self, iteration: int) -> None:
        """So many iterations went before: the codec draws what it would have drawn without an interruption."""
        assert self.node is not None
        self.node.earlier = iteration

    def recall(self, name: str = "") -> None:
        """What the rule remembers by this name, into `memory.updates`; while no update is under way."""
        with self._traffic.turn:
            self._reads.read(name)
        self.wait(lambda: not self._reads)

    def sit(self) -> None:
        """Wait until all who start together hold the first parameters."""
        self._sitting = True
        self._traffic.send(COORDINATOR, Seated())
        self.wait(lambda: self._go)
        self._sitting = False

    def join(self) -> None:
        """Take part in a run that is under way."""
        self.handle(Enter())

    # The node.

    def handle(self, event: Event) -> None:
        """Tell the node something, and do what it asks for."""
        assert self.node is not None
        with self._traffic.turn:
            for effect in self.node.handle(event, monotonic()):
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        if type(effect) is Send:
            message = effect.message
            place = None
            if type(message) is Push and effect.payload is not None:
                place = self.memory.lay(message.bucket, effect.payload)
            self._servers.send(effect.to, message, place)
        elif type(effect) is Deliver:
            whole = self._assembly.whole(effect.bucket)
            if whole is not None:
                self.fresh.add(whole)
            if effect.payload is not None:
                self.memory.take_over(effect.bucket, effect.payload)
            if effect.next is not None:
                self.following = effect.next
        elif type(effect) is Fail:
            raise self._failed(effect.error) if isinstance(effect.error, GoneError) else effect.error
        else:
            raise SynclineError(f"a worker cannot perform {effect}")

    def unfetched(self, ready: Ready) -> list[Bucket]:
        """What will be answered without parameters: there the worker's own change is all that it will see."""
        assert self.node is not None
        with self._traffic.turn:
            return self.node.unfetched(ready)

    def wait(self, done: Callable[[], bool]) -> None:
        """Read and write until something holds."""
        self._traffic.wait(done)

    # What comes in.

    def sink(self, source: NodeId, message: Frame, size: int) -> memoryview:
        if self.node is None or source == COORDINATOR:
            raise PeerError(f"{type(message).__name__} with a payload")
        return self._checks.sink(source, message, size)

    def take(self, source: NodeId, message: Frame, carried: bool) -> None:
        if isinstance(message, Refused):
            raise self._failed(UsageError("run", message.reason) if message.usage else RunError(message.reason))
        if isinstance(message, Abort):
            raise self._failed(RunError(message.reason))
        if source == COORDINATOR:
            self._from_coordinator(message)
            return
        if self.node is None:
            raise PeerError(f"{type(message).__name__} from a server")
        self._heard(self._checks.hear(source, message, carried))
        if self._history.former:
            self._let_go()

    def _heard(self, answer: Received | None) -> None:
        if answer is not None:
            self.v = getattr(answer.message, "v", self.v)
            self.handle(answer)

    def _from_coordinator(self, message: Frame) -> None:
        if isinstance(message, View | Reach) and self.node is None:
            self._views.append(message)
        elif isinstance(message, View):
            self._adopt(message)
        elif isinstance(message, Reach):
            self._traffic.send(COORDINATOR, Reached(message.server, self._servers.reach(message.server, message.place)))
        elif isinstance(message, Gone) and self.node is not None:
            self.handle(Received(COORDINATOR, message))
        elif isinstance(message, Welcome) and self.welcome is None:
            self.welcome = message
        elif isinstance(message, Begin) and self._begun is None:
            self._begun = message
        elif isinstance(message, Go):
            self._go = True
        elif isinstance(message, Ended):
            self._ended = True
        elif isinstance(message, Gathered):
            self._said = message
        elif isinstance(message, ChangeReply):
            self._changes.heard(message)
        elif isinstance(message, InForce):
            self.changed |= message.settings
        else:
            raise PeerError(f"{type(message).__name__} from the coordinator")

    def _adopt(self, view: View) -> None:
        """A new view; then what has waited for it."""
        node = self.node
        assert node is not None
        if view.view < self._history.view:
            return
        self._history.check(view, lambda server: server in self._traffic or node.phase is Phase.GONE)
        self._note_members(view)
        self._history.adopt(view, min((request.view for _, _, request in node.awaited()), default=view.view))
        self.handle(Received(COORDINATOR, view))
        for source, message, aside in self._history.due():
            try:
                self._heard(self._checks.hear_now(source, message, aside))
            except PeerError as error:
                self.broke(source, error)
        self._let_go()

    def _note_members(self, view: View) -> None:
        if not all(0 <= (member.first or 0) < MOST for member in view.members):
            raise PeerError("a view in which somebody starts with an iteration that is none")
        self.members = tuple(member.worker for member in view.members)

    # Who is needed, and who is gone.

    def _let_go(self) -> None:
        """Close the connections to servers that hold nothing, once nothing is awaited from them."""
        for server in [each for each in self._history.former if not self._checks.waits_for(each)]:
            self._history.former.discard(server)
            self._servers.let_go(server)

    def broke(self, source: NodeId, error: PeerError) -> None:
        raise self._failed(PeerError(f"{source} broke the protocol: {error}")) from None

    def lost(self, id: NodeId, reason: str) -> None:
        if id == COORDINATOR:
            if self._needs_coordinator():
                raise self._failed(RunError(NO_COORDINATOR.format(f" ({reason})")))
            return
        self._servers.forget(id)
        if self._needs(id):
            self._traffic.hear_why()
            raise self._failed(RunError(f"{id} is gone: {reason}"))

    def _needs(self, server: NodeId) -> bool:
        """Does this worker wait for something of this server, or will it?"""
        if self.node is None or self._checks.waits_for(server):
            return True
        return self.node.phase is not Phase.GONE and server in self._history.holding

    def _needs_coordinator(self) -> bool:
        """Is this worker about to become a member, or to cease to be one?"""
        return not self._ended and (self.node is None or self._sitting or self.node.phase is not Phase.RUNNING)

    def _failed(self, error: SynclineError) -> SynclineError:
        return self._traffic.fail(error)

    # The end.

    def leave(self) -> None:
        self.handle(Depart())
        self.wait(lambda: self.node is not None and self.node.phase is Phase.GONE)

    def read_final(self) -> None:
        """Once nobody is a member any more: take the parameters as they are."""
        self.wait(lambda: self._ended)
        self.recall()

    def close(self) -> None:
        self._traffic.close()
        self._servers.close()
