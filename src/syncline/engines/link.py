"""A worker's side of the wires: performs what its node asks for, and waits only where its program asks it to."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import zip_longest
from math import inf
from time import monotonic

import numpy as np
from msgspec.structs import replace

from syncline.draw import Draw
from syncline.effects import Deliver, Depart, Effect, Enter, Event, Fail, Received, Send
from syncline.engines.background import Background
from syncline.engines.control import (
    Abort,
    Begin,
    Declare,
    Ended,
    Go,
    Hello,
    Noted,
    Place,
    Pulse,
    Read,
    Refused,
    Seated,
    Seed,
    Share,
    Shared,
    Welcome,
    Whole,
    layout_of,
)
from syncline.engines.frames import Frame
from syncline.engines.lane import open_lane
from syncline.engines.memory import Memory, new_segment
from syncline.engines.process import say
from syncline.engines.settings import strategy_of
from syncline.engines.silence import Silence
from syncline.engines.watch import host
from syncline.engines.wire import Wire
from syncline.engines.wires import Wires
from syncline.engines.wiring import Wiring, connect_coordinator
from syncline.errors import GoneError, PeerError, RunError, SynclineError, UsageError
from syncline.layout import VALUE_BYTES, Bucket, Payload, Values
from syncline.messages import COORDINATOR, Gone, Moved, NodeId, Params, Push, Taken, View, server_id
from syncline.nodes.worker import Phase, Worker
from syncline.nodes.writing import bucket_codec
from syncline.strategy import Mode

WELCOME_SECONDS = 5.0
"""Whoever does not answer by then is not the coordinator of a run."""

START_SECONDS = 3600.0
"""How long a worker waits for the others at the start."""

NOTICE_SECONDS = 10.0
"""Whoever waits longer than this at the start is told for what."""

LOOK_SECONDS = 1.0
"""Seconds between two looks whether a host has fallen silent."""

MUCH = 1 << 16
"""A payload of so many bytes is worth a thread that moves it while the program computes."""

MOST = 1 << 62
"""No iteration, version or V is as large: what is computed from them fits into a frame."""


_NO_COORDINATOR = "the coordinator is gone{}, and the membership cannot change without it"


class Link:
    """Connections to the coordinator and to every server, the worker's memory, and its node."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._model = ""
        self._said: Shared | None = None
        self._wires = Wires(self)
        self._background = Background(self._wires, self._busy, self._failed)
        self._shared = False
        self._ended = False
        self._go = False
        self._sitting = False
        self.error: SynclineError | None = None
        """Why this worker can take no further part."""
        self._begun: Begin | None = None
        self._views: list[View] = []
        """Those that came before there was a node to tell."""
        self._unread: set[Bucket] = set()
        self._written = np.empty(0, np.uint8)
        """The last parameters that a codec has written, as they came in."""
        self.node: Worker | None = None
        self.following: int | None = None
        """The iteration to go on with, once the present one is whole."""
        self.fresh: set[Bucket] = set()
        """The buckets that were answered in this iteration."""
        self.members: tuple[int, ...] = ()
        """The live workers of this model, as far as this one knows."""
        self.v = 0
        """The last answer's V: how many rounds everyone has finished."""

    # The start.

    def connect(self, known: Welcome | None = None) -> Welcome:
        """Say hello to the coordinator; what it answers. `known`: what it answered on the first connection."""
        hello = Hello(self._wiring.run, "worker", int(self._wiring.worker or -1), pid=os.getpid(), host=host())
        if known is not None:
            hello = replace(hello, run=known.run, number=known.worker, incarnation=known.incarnation, again=True)
        wire = connect_coordinator(self._wiring, hello)
        self._wires.add(COORDINATOR, wire)
        self.welcome: Welcome | None = None
        self._wait(lambda: self.welcome is not None, WELCOME_SECONDS)
        assert self.welcome is not None
        return self.welcome

    def another(self) -> Link:
        """A link for another model: a connection is about one."""
        made = Link(self._wiring)
        made.connect(self.welcome)
        return made

    def share(self, kind: str, data: bytes) -> list[bytes]:
        """Say something to all, and hear what all have said."""
        self._said = None
        self._send(COORDINATOR, Share(kind, data))
        self._wait(lambda: self._said is not None)
        assert self._said is not None
        return list(self._said.data)

    def pulse(self, pulse: Pulse) -> None:
        """Tell the launcher how far this worker is; if the coordinator is gone, nobody need know."""
        if COORDINATOR in self._wires:
            self._send(COORDINATOR, pulse)

    def begin(self, declare: Declare) -> Begin:
        """Declare what is trained, and wait until all have."""
        self._model = declare.model
        self._send(COORDINATOR, declare)
        self._wait(
            lambda: self._begun is not None, START_SECONDS, "waiting until the other workers declare their tables"
        )
        begin = self._begun
        assert begin is not None
        try:
            self._set_up(begin, declare)
        except PeerError as error:
            raise self._failed(PeerError(f"{COORDINATOR} broke the protocol: {error}")) from None
        return begin

    def _set_up(self, begin: Begin, declare: Declare) -> None:
        assert self.welcome is not None
        self._check_begin(begin, declare)
        self.layout = layout_of(begin.tables)
        try:
            self.strategy = strategy_of(begin.settings, len(begin.servers))
            self._draw = Draw(int(begin.settings["seed"]))
        except (KeyError, ValueError) as error:
            raise PeerError(f"settings that are none: {error}") from None
        self._connect_servers(begin.servers)
        parts = self.strategy.parts(self.layout, self._draw)
        self.node = Worker(self.welcome.worker, self.welcome.incarnation, parts, begin.view)
        self.buckets = _in_turn(begin.view.holders)
        self._holder = {bucket: server_id(n) for n, held in enumerate(begin.view.holders) for bucket in held}
        for view in self._views:
            self._from_coordinator(view)

    def _check_begin(self, begin: Begin, declare: Declare) -> None:
        """A worker trains what it has declared, on servers that hold all of it, each value once."""
        held = sorted((bucket.start, bucket.stop) for each in begin.view.holders for bucket in each)
        ends = [0, *(stop for _, stop in held)]
        whole = [*(start for start, _ in held), layout_of(declare.tables).size] == ends
        if begin.tables != declare.tables or len(begin.view.holders) != len(begin.servers) or not whole:
            raise PeerError("a beginning with another model than was declared, or with servers that do not hold it")
        self._holders = begin.view.holders
        self._check_view(begin.view)

    def _connect_servers(self, places: tuple[Place, ...]) -> None:
        """Reach every server, and say who this is; where memory is shared, it goes along."""
        wires, self._shared = open_lane(places, self._wiring)
        for number, wire in enumerate(wires):
            self._wires.add(server_id(number), wire)
        segment = new_segment(self.layout.size) if self._shared else None
        try:
            self.memory = Memory(self.layout.size, segment)
            for number, wire in enumerate(wires):
                self._greet(number, wire, segment)
        finally:
            if segment is not None:
                os.close(segment)

    def _greet(self, number: int, wire: Wire, segment: int | None) -> None:
        assert self.welcome is not None
        known = self.welcome
        hello = Hello(
            known.run, "worker", known.worker, known.incarnation, pid=os.getpid(), host=host(), model=self._model
        )
        try:
            if segment is None:
                wire.send(hello)
            else:
                wire.send_with(hello, segment)
        except OSError as error:
            raise self._failed(RunError(f"server {number} ended the connection: {error}")) from None

    def seed(self) -> None:
        """Leader: give every server its first parameters, from `memory.updates`."""
        for bucket in self.buckets:
            self._send(self._holder[bucket], Seed(bucket), self.memory.update(bucket))

    def remind(self, name: str) -> None:
        """Leader, before `seed`: the rule remembers by this name what lies in `memory.updates`."""
        self._unread = set(self.buckets)
        for bucket in self.buckets:
            self._send(self._holder[bucket], Seed(bucket, name), self.memory.update(bucket))
        self.wait(lambda: not self._unread)

    @property
    def residuals(self) -> dict[Bucket, dict[str, Values]]:
        """What the codec keeps of each bucket for the next update."""
        assert self.node is not None
        return self.node.memories

    def recall(self, name: str) -> None:
        """What the rule remembers by this name, into `memory.updates`; while no update is under way."""
        self._read(name)

    def sit(self) -> None:
        """Wait until all who start together hold the first parameters."""
        self._sitting = True
        self._send(COORDINATOR, Seated())
        self.wait(lambda: self._go)
        self._sitting = False

    def join(self) -> None:
        """Take part in a run that is under way."""
        self.handle(Enter())

    # The node.

    def handle(self, event: Event) -> None:
        """Tell the node something, and do what it asks for."""
        assert self.node is not None
        with self._background:
            for effect in self.node.handle(event, monotonic()):
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        if type(effect) is Send:
            message = effect.message
            place = None
            if type(message) is Push and effect.payload is not None:
                place = self._lay(message.bucket, effect.payload)
            self._send(effect.to, message, place)
        elif type(effect) is Deliver:
            self.fresh.add(effect.bucket)
            if effect.payload is not None:
                self._take_over(effect.bucket, effect.payload)
            if effect.next is not None:
                self.following = effect.next
        elif type(effect) is Fail:
            raise self._failed(effect.error) if isinstance(effect.error, GoneError) else effect.error
        else:
            raise SynclineError(f"a worker cannot perform {effect}")

    def _lay(self, bucket: Bucket, payload: Payload) -> Payload:
        """Put what is pushed where the lane takes it from, unless it lies there: an update that was held or written."""
        place: Payload = self.memory.update(bucket)
        if not np.may_share_memory(place, payload):
            if payload.dtype != place.dtype:
                place = place.view(np.uint8)[: payload.size]
            place[:] = payload
        return place

    def _take_over(self, bucket: Bucket, values: Payload) -> None:
        """Parameters where the program finds them, unless they came in there."""
        place = self.memory.param(bucket)
        if not np.may_share_memory(place, values):
            place[:] = values

    def fetches(self, bucket: Bucket, update: Values) -> bool:
        """Will this update be answered by parameters? Else the worker's own change is all that it will see."""
        assert self.node is not None
        return self.node.fetches(bucket, update)

    def _send(self, to: NodeId, message: Frame, place: Payload | None = None) -> None:
        """Send a frame; what lies at this place rides along unless the server can read it there."""
        with self._background:
            if self.error is not None:
                raise self.error
            if to not in self._wires:
                raise self._failed(RunError(_NO_COORDINATOR.format("")))  # a lost server has been an error already
            payload = place.data if place is not None and not self._shared else None
            self._wires.send(to, message, payload)
            if payload is not None and (payload.nbytes >= MUCH or self._wires.waiting):
                self._background.wake()

    def _busy(self) -> bool:
        """Is something under way that the program does not wait for yet?"""
        return self._wires.waiting or (self.node is not None and self.node.is_waiting)

    # Waiting.

    def wait(self, done: Callable[[], bool]) -> None:
        """Read and write until something holds."""
        self._wait(done)

    def _wait(self, done: Callable[[], bool], seconds: float = inf, notice: str = "") -> None:
        """The same for at most so long; `notice`: what the user is told if it takes its time."""
        silence = None
        began = now = looked = monotonic()
        with self._background:
            while not done():
                if self.error is not None:
                    raise self.error
                left = began + seconds - now
                if left < 0:
                    raise RunError(f"nothing was heard for {seconds:g} s")
                self._wires.turn(1000 * min(left, LOOK_SECONDS))
                now = monotonic()
                if now - looked >= LOOK_SECONDS:
                    silence, looked = silence or Silence(), now  # new: nobody has looked while the program computed
                    self._wires.look(silence, now)
                if notice and now - began >= NOTICE_SECONDS:
                    say(f"syncline: {notice}")
                    notice = ""

    # What comes in.

    def sink(self, source: NodeId, message: Frame, size: int) -> memoryview:
        if not isinstance(message, Params | Whole) or self.node is None or self._shared:
            raise PeerError(f"{type(message).__name__} with a payload")
        bucket = message.bucket
        if isinstance(message, Whole) and bucket not in self._unread:
            raise PeerError(f"{bucket}, which nobody has asked for")
        written = message.size if isinstance(message, Params) else 0
        if self._holder.get(bucket) != source or size != (written or bucket.size * VALUE_BYTES):
            raise PeerError(f"{type(message).__name__} of {bucket} with a payload of {size:,} bytes")
        if written > bucket.size * VALUE_BYTES:
            raise PeerError(f"Params of {bucket} in {written:,} bytes")
        if isinstance(message, Params) and (written or not self.node.awaits(message)):
            self._written = np.empty(size, np.uint8)
            return self._written.data
        remembered = isinstance(message, Whole) and message.memory
        return (self.memory.update(bucket) if remembered else self.memory.param(bucket)).data.cast("B")

    def take(self, source: NodeId, message: Frame, carried: bool) -> None:
        if isinstance(message, Refused):
            raise self._failed(UsageError("run", message.reason) if message.usage else RunError(message.reason))
        if isinstance(message, Abort):
            raise self._failed(RunError(message.reason))
        if source == COORDINATOR:
            self._from_coordinator(message)
        else:
            self._from_server(source, message, carried)

    def _from_server(self, source: NodeId, message: Frame, carried: bool) -> None:
        if self.node is None or not isinstance(message, Params | Taken | Gone | Moved | Whole | Noted):
            raise PeerError(f"{type(message).__name__} from a server")
        if self._holder.get(message.bucket) != source and not isinstance(message, Gone):
            raise PeerError(f"{type(message).__name__} of {message.bucket}, which it does not hold")
        if isinstance(message, Params | Whole) and carried == self._shared:
            raise PeerError(f"{type(message).__name__} {'with' if carried else 'without'} a payload")
        if isinstance(message, Params | Taken) and not (0 <= message.version < MOST and 0 <= message.v < MOST):
            raise PeerError(f"{type(message).__name__} of version {message.version} and V {message.v}")
        if isinstance(message, Whole | Noted):
            self._unread.discard(message.bucket)
        else:
            payload = self._payload_of(message) if type(message) is Params else None
            if type(message) is Taken and self.strategy.mode is Mode.GRADIENTS:
                self.memory.param(message.bucket)[:] = 0  # nobody had a gradient
            self.v = message.v if isinstance(message, Params | Taken) else self.v
            self.handle(Received(source, message, payload))

    def _payload_of(self, params: Params) -> Payload:
        """What came with these parameters; if a codec has written it, it is checked before it is believed."""
        place = self.memory.param(params.bucket)
        if not params.size:
            return place
        if not 0 < params.size <= place.nbytes:
            raise PeerError(f"Params of {params.bucket} in {params.size:,} bytes")
        payload = place.view(np.uint8)[: params.size] if self._shared else self._written
        bucket_codec(self.strategy.reply_codec, self.layout, params.bucket).check(payload, params.bucket.size)
        return payload

    def _from_coordinator(self, message: Frame) -> None:
        if isinstance(message, View) and self.node is None:
            self._views.append(message)
        elif isinstance(message, View | Gone) and self.node is not None:
            if isinstance(message, View):
                self._check_view(message)
            self.handle(Received(COORDINATOR, message))
        elif isinstance(message, Welcome) and self.welcome is None:
            self.welcome = message
        elif isinstance(message, Begin) and self._begun is None:
            self._begun = message
        elif isinstance(message, Go):
            self._go = True
        elif isinstance(message, Ended):
            self._ended = True
        elif isinstance(message, Shared):
            self._said = message
        else:
            raise PeerError(f"{type(message).__name__} from the coordinator")

    def _check_view(self, view: View) -> None:
        """Refuse a view that cannot be, and note who lives."""
        if view.holders != self._holders:
            raise PeerError("a view in which servers hold other buckets")
        if not all(0 <= (member.first or 0) < MOST for member in view.members):
            raise PeerError("a view in which somebody starts with an iteration that is none")
        self.members = tuple(member.worker for member in view.members)

    def broke(self, source: NodeId, error: PeerError) -> None:
        raise self._failed(PeerError(f"{source} broke the protocol: {error}")) from None

    def lost(self, id: NodeId, reason: str) -> None:
        if id == COORDINATOR:
            if self._needs_coordinator():
                raise self._failed(RunError(_NO_COORDINATOR.format(f" ({reason})")))
            return
        self._wait_for_the_reason()
        raise self._failed(RunError(f"{id} is gone: {reason}"))

    def _needs_coordinator(self) -> bool:
        """Is this worker about to become a member, or to cease to be one?"""
        return not self._ended and (self.node is None or self._sitting or self.node.phase is not Phase.RUNNING)

    def _failed(self, error: SynclineError) -> SynclineError:
        """Note that there is no going on: whoever asks again is told again, and nobody waits for what will not come."""
        self.error = self.error or error
        return self.error

    def _wait_for_the_reason(self) -> None:
        """The coordinator may know more of it, and says so: that is the better error."""
        until = monotonic() + 0.5
        while COORDINATOR in self._wires and monotonic() < until:
            self._wires.turn(1000 * max(until - monotonic(), 0.0))

    # The end.

    def leave(self) -> None:
        self.handle(Depart())
        assert self.node is not None
        self.wait(lambda: self.node is not None and self.node.phase is Phase.GONE)

    def read_final(self) -> None:
        """Once nobody is a member any more: take the parameters as they are."""
        self.wait(lambda: self._ended)
        self._read()

    def _read(self, name: str = "") -> None:
        self._unread = set(self.buckets)
        for bucket in self.buckets:
            self._send(self._holder[bucket], Read(bucket, name))
        self.wait(lambda: not self._unread)

    def close(self) -> None:
        self._background.close()
        self._wires.close()


def _in_turn(holders: tuple[tuple[Bucket, ...], ...]) -> tuple[Bucket, ...]:
    """All buckets, last ones first, a bucket of each server in turn: so that all servers have work from the start."""
    return tuple(
        bucket for each in zip_longest(*(held[::-1] for held in holders)) for bucket in each if bucket is not None
    )
