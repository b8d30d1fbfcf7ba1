"""A worker's side of the wires: performs what its node asks for, and waits only where its program asks it to."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import zip_longest
from math import inf
from time import monotonic

import numpy as np
from msgspec.structs import replace

from syncline.codecs import Bytes
from syncline.draw import Draw
from syncline.effects import Deliver, Depart, Effect, Enter, Event, Fail, Ready, Received, Send
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
    Reach,
    Reached,
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
from syncline.engines.lane import Lane, open_lane, open_lanes
from syncline.engines.memory import Memory, new_segment
from syncline.engines.pieces import Pieces
from syncline.engines.process import say
from syncline.engines.settings import strategy_in
from syncline.engines.silence import Silence
from syncline.engines.watch import host
from syncline.engines.wires import Wires
from syncline.engines.wiring import Wiring, connect_coordinator
from syncline.errors import GoneError, PeerError, RunError, SynclineError, UsageError
from syncline.layout import VALUE_BYTES, Bucket, Payload, Values
from syncline.messages import COORDINATOR, Gone, Moved, NodeId, Params, Push, Taken, View, server_id
from syncline.nodes.cutting import Cut, Holders, cut_of
from syncline.nodes.worker import Phase, Worker
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

MOST_EARLY = 1 << 10
"""How much servers may say, beside one answer for each bucket, by a view that is not here yet."""

MOST = 1 << 62
"""No iteration, version or V is as large: what is computed from them fits into a frame."""


_NO_COORDINATOR = "the coordinator is gone{}, and the membership cannot change without it"


class Link:
    """Connections to the coordinator and to every server, the worker's memory, and its node.

    Servers come and go. One that comes is connected to before it holds anything; one that holds nothing any more is let
    go once nothing is awaited from it. What a server says by a view that is not here yet waits for that view.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._model = ""
        self._said: Shared | None = None
        self._wires = Wires(self)
        self._background = Background(self._wires, self._busy, self._failed)
        self._sharing: set[NodeId] = set()
        """The servers that share this worker's memory."""
        self._segment: int | None = None
        self._former: set[NodeId] = set()
        """The servers that hold nothing any more."""
        self._past: list[tuple[int, Cut]] = []
        """Earlier placements, each with the view that replaced it, for as long as an answer may come of them."""
        self._early: list[tuple[NodeId, Frame, Bytes | None]] = []
        """What servers have said by a view that is not here yet, and what came along."""
        self._aside: dict[NodeId, Bytes] = {}
        """Where parameters are read to that a codec has written, or that come early, by who sends them."""
        self._ended = False
        self._go = False
        self._sitting = False
        self.error: SynclineError | None = None
        """Why this worker can take no further part."""
        self._begun: Begin | None = None
        self._views: list[View | Reach] = []
        """Those that came before there was a node to tell."""
        self._unread: dict[Bucket, tuple[NodeId, Read | Seed]] = {}
        """What was asked for outside of any iteration, and of whom."""
        self.node: Worker | None = None
        self.following: int | None = None
        """The iteration to go on with, once the present one is whole."""
        self.fresh: set[Bucket] = set()
        """The buckets that were answered in this iteration."""
        self.members: tuple[int, ...] = ()
        """The live workers of this model, as far as this one knows."""
        self.v = 0
        """The last answer's V: how many rounds everyone has finished."""
        self._view = 0

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
            self.strategy = strategy_in(begin.settings)
            self._draw = Draw(int(begin.settings["seed"]))
        except (KeyError, ValueError) as error:
            raise PeerError(f"settings that are none: {error}") from None
        self._connect_servers(dict(enumerate(begin.servers)))
        parts = self.strategy.parts(self.layout, self._draw)
        self.node = Worker(self.welcome.worker, self.welcome.incarnation, parts, begin.view)
        self.buckets = _in_turn(begin.view.holders)
        self._pieces = Pieces(self.buckets)
        for view in self._views:
            self._from_coordinator(view)

    def _check_begin(self, begin: Begin, declare: Declare) -> None:
        """A worker trains what it has declared, on servers that hold all of it, each value once."""
        whole = _is_whole(begin.view.holders, layout_of(declare.tables).size)
        if begin.tables != declare.tables or len(begin.view.holders) != len(begin.servers) or not whole:
            raise PeerError("a beginning with another model than was declared, or with servers that do not hold it")
        self._set_holders(begin.view.holders)
        self._check_view(begin.view)

    def _set_holders(self, holders: Holders) -> None:
        self._holders = holders
        self._holder = cut_of(holders).holder
        self._holding = {server_id(number) for number, held in enumerate(holders) if held}

    def _connect_servers(self, places: dict[int, Place]) -> None:
        """Reach every server, and say who this is; where memory is shared, it goes along."""
        there = {number: place for number, place in places.items() if server_id(number) in self._holding}
        lanes = open_lanes(there, self._wiring)
        for number, lane in lanes.items():
            self._wires.add(server_id(number), lane.wire)
        if any(lane.shared for lane in lanes.values()):
            self._segment = new_segment(self.layout.size)
        self.memory = Memory(self.layout.size, self._segment)
        for number, lane in lanes.items():
            try:
                self._greet(number, lane)
            except RunError as error:
                raise self._failed(error) from None

    def _reach(self, reach: Reach) -> None:
        """A server has come: connect to it, and tell the coordinator, which gives it nothing before all have."""
        number, problem = reach.server, ""
        try:
            if server_id(number) in self._wires:
                raise PeerError(f"server {number}, which is there already")
            lane = open_lane(number, reach.place, self._wiring, share=self._segment is not None)
            self._wires.add(server_id(number), lane.wire)
            self._greet(number, lane)
        except (RunError, UsageError, OSError) as error:
            problem = str(error)[:1000]
        self._send(COORDINATOR, Reached(number, problem))

    def _greet(self, number: int, lane: Lane) -> None:
        assert self.welcome is not None
        known = self.welcome
        hello = Hello(
            known.run, "worker", known.worker, known.incarnation, pid=os.getpid(), host=host(), model=self._model
        )
        try:
            if lane.shared and self._segment is not None:
                self._sharing.add(server_id(number))
                lane.wire.send_with(hello, self._segment)
            else:
                lane.wire.send(hello)
        except OSError as error:
            raise RunError(f"server {number} ended the connection: {error}") from None

    def seed(self) -> None:
        """Leader: give every server its first parameters, from `memory.updates`."""
        for bucket in self.buckets:
            self._send(self._holder[bucket], Seed(bucket), self.memory.update(bucket))

    def remind(self, name: str) -> None:
        """Leader, before `seed`: the rule remembers by this name what lies in `memory.updates`."""
        self._unread = {bucket: (self._holder[bucket], Seed(bucket, name)) for bucket in self.buckets}
        for bucket, (server, seed) in list(self._unread.items()):
            self._send(server, seed, self.memory.update(bucket))
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
            whole = self._pieces.whole(effect.bucket)
            if whole is not None:
                self.fresh.add(whole)
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

    def unfetched(self, ready: Ready) -> list[Bucket]:
        """What will be answered without parameters: there the worker's own change is all that it will see."""
        assert self.node is not None
        with self._background:
            return self.node.unfetched(ready)

    def _send(self, to: NodeId, message: Frame, place: Payload | None = None) -> None:
        """Send a frame; what lies at this place rides along unless the server can read it there."""
        with self._background:
            if self.error is not None:
                raise self.error
            if to not in self._wires:
                raise self._failed(RunError(_NO_COORDINATOR.format("") if to == COORDINATOR else f"{to} is gone"))
            payload = place.data if place is not None and to not in self._sharing else None
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
        if not isinstance(message, Params | Whole) or self.node is None or source in self._sharing:
            raise PeerError(f"{type(message).__name__} with a payload")
        bucket = message.bucket
        if isinstance(message, Whole) and bucket not in self._unread:
            raise PeerError(f"{bucket}, which nobody has asked for")
        written = message.size if isinstance(message, Params) else 0
        early = isinstance(message, Params) and message.view > self._view
        if not (early or self._may_say(source, message)) or size != (written or bucket.size * VALUE_BYTES):
            raise PeerError(f"{type(message).__name__} of {bucket} with a payload of {size:,} bytes")
        if written > bucket.size * VALUE_BYTES:
            raise PeerError(f"Params of {bucket} in {written:,} bytes")
        awaited = not isinstance(message, Params) or self.node.awaits(message)
        if early and not awaited:
            raise PeerError(f"{bucket}, which nobody has asked for")
        if early or written or not awaited:
            self._aside[source] = np.empty(size, np.uint8)
            return self._aside[source].data
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
            self._from_server(source, message, carried, self._aside.pop(source, None) if carried else None)

    def _from_server(self, source: NodeId, message: Frame, carried: bool, aside: Bytes | None) -> None:
        """`aside`: what it carried, if that was not read to its place."""
        if self.node is None or not isinstance(message, Params | Taken | Gone | Moved | Whole | Noted):
            raise PeerError(f"{type(message).__name__} from a server")
        if isinstance(message, Params | Taken | Gone | Moved) and message.view > self._view:
            self._wait_for_view(source, message, aside)
            return
        if self._holder.get(message.bucket) != source and not self._may_say(source, message):
            raise PeerError(f"{type(message).__name__} of {message.bucket}, which it does not hold")
        if isinstance(message, Params | Whole) and carried == (source in self._sharing):
            raise PeerError(f"{type(message).__name__} {'with' if carried else 'without'} a payload")
        if isinstance(message, Params | Taken) and not (0 <= message.version < MOST and 0 <= message.v < MOST):
            raise PeerError(f"{type(message).__name__} of version {message.version} and V {message.v}")
        if isinstance(message, Whole | Noted):
            self._unread.pop(message.bucket, None)
        elif isinstance(message, Moved) and message.bucket in self._unread:
            self._read_again(message)
        else:
            payload = self._payload_of(message, aside) if type(message) is Params else None
            if type(message) is Taken and self.strategy.mode is Mode.GRADIENTS:
                self.memory.param(message.bucket)[:] = 0  # nobody had a gradient
            self.v = message.v if isinstance(message, Params | Taken) else self.v
            self.handle(Received(source, message, payload))
        if self._former:
            self._let_go()

    def _may_say(self, source: NodeId, message: Params | Taken | Gone | Moved | Whole | Noted) -> bool:
        """Is this server the one to say this: it holds the bucket, or was asked by that name when it did?"""
        if self._holder.get(message.bucket) == source or isinstance(message, Gone):
            return True
        asked = self._unread.get(message.bucket)
        if asked is not None and asked[0] == source:
            return True
        return any(cut.holder.get(message.bucket) == source for _, cut in self._past)

    def _wait_for_view(self, source: NodeId, message: Frame, aside: Bytes | None) -> None:
        self._early.append((source, message, aside))
        waiting = sum(came.nbytes for _, _, came in self._early if came is not None)
        if len(self._early) > len(self._holder) + MOST_EARLY or waiting > self.layout.size * VALUE_BYTES:
            raise PeerError("too much by a view that nobody else knows of")

    def _adopt(self, view: View) -> None:
        """A new view; then what has waited for it."""
        assert self.node is not None
        if view.view < self._view:
            return
        self._check_view(view)
        if view.holders != self._holders:
            oldest = min((request.view for _, _, request in self.node.awaited()), default=view.view)
            self._past = [(until, cut) for until, cut in self._past if until > oldest]
            self._past.append((view.view, cut_of(self._holders)))
            self._former |= self._holding
            self._set_holders(view.holders)
            self._former -= self._holding
        self.handle(Received(COORDINATOR, view))
        early, self._early = self._early, []
        for source, message, aside in early:
            try:
                self._from_early(source, message, aside)
            except PeerError as error:
                self.broke(source, error)
        self._let_go()

    def _from_early(self, source: NodeId, message: Frame, aside: Bytes | None) -> None:
        """A view is here by which a server has said this; if it may, plain parameters go where they belong."""
        if aside is not None and isinstance(message, Params) and message.view <= self._view and not message.size:
            if not self._may_say(source, message):
                raise PeerError(f"{type(message).__name__} of {message.bucket}, which it does not hold")
            self.memory.param(message.bucket)[:] = aside.view(np.float32)
        self._from_server(source, message, aside is not None, aside)

    def _let_go(self) -> None:
        """Close the connections to servers that hold nothing, once nothing is awaited from them."""
        assert self.node is not None
        for server in [each for each in self._former if not self._waits_for(each)]:
            self._former.discard(server)
            self._sharing.discard(server)
            self._wires.end(server)

    def _payload_of(self, params: Params, aside: Bytes | None) -> Payload:
        """What came with these parameters; if a codec has written it, it is checked before it is believed."""
        place = self.memory.param(params.bucket)
        if not params.size:
            return place
        if not 0 < params.size <= place.nbytes:
            raise PeerError(f"Params of {params.bucket} in {params.size:,} bytes")
        payload = place.view(np.uint8)[: params.size] if aside is None else aside
        assert self.node is not None
        self.node.check_reply(params.bucket, payload)
        return payload

    def _from_coordinator(self, message: Frame) -> None:
        if isinstance(message, View | Reach) and self.node is None:
            self._views.append(message)
        elif isinstance(message, View):
            self._adopt(message)
        elif isinstance(message, Reach):
            self._reach(message)
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
        elif isinstance(message, Shared):
            self._said = message
        else:
            raise PeerError(f"{type(message).__name__} from the coordinator")

    def _check_view(self, view: View) -> None:
        """Refuse a view that cannot be, and note who lives."""
        if view.holders != self._holders:
            self._check_move(view)
        if not all(0 <= (member.first or 0) < MOST for member in view.members):
            raise PeerError("a view in which somebody starts with an iteration that is none")
        self.members = tuple(member.worker for member in view.members)
        self._view = max(view.view, self._view)

    def _check_move(self, view: View) -> None:
        """A move may cut buckets, but join none, and gives them to servers that are known."""
        starts = {bucket.start for held in view.holders for bucket in held}
        if not _is_whole(view.holders, self.layout.size) or not starts.issuperset(each.start for each in self._holder):
            raise PeerError("a view in which servers hold other buckets than pieces of the present ones")
        for number, held in enumerate(view.holders):
            gone = server_id(number) not in self._wires
            if held and gone and self.node is not None and self.node.phase is not Phase.GONE:
                raise PeerError(f"a view in which server {number} holds something, of which nobody has told")

    def broke(self, source: NodeId, error: PeerError) -> None:
        raise self._failed(PeerError(f"{source} broke the protocol: {error}")) from None

    def lost(self, id: NodeId, reason: str) -> None:
        if id == COORDINATOR:
            if self._needs_coordinator():
                raise self._failed(RunError(_NO_COORDINATOR.format(f" ({reason})")))
            return
        self._sharing.discard(id)
        if self._needs(id):
            self._wait_for_the_reason()
            raise self._failed(RunError(f"{id} is gone: {reason}"))

    def _needs(self, server: NodeId) -> bool:
        """Does this worker wait for something of this server, or will it?"""
        if self.node is None or self._waits_for(server):
            return True
        return self.node.phase is not Phase.GONE and server in self._holding

    def _waits_for(self, server: NodeId) -> bool:
        """May an answer come from this server: was it asked, or has it held since then what was asked for?"""
        assert self.node is not None
        if any(to == server for to, _ in self._unread.values()):
            return True
        return any(
            to == server or any(until > request.view and cut.holder_of(piece) == server for until, cut in self._past)
            for piece, to, request in self.node.awaited()
        )

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
        with self._background:
            self._ask_for(list(self._holder), name)
        self.wait(lambda: not self._unread)

    def _ask_for(self, buckets: list[Bucket], name: str) -> None:
        asked = {bucket: (self._holder[bucket], Read(bucket, name, self._view)) for bucket in buckets}
        self._unread |= asked
        for server, read in asked.values():
            self._send(server, read)

    def _read_again(self, moved: Moved) -> None:
        """What was to be read is elsewhere, or in pieces."""
        _, asked = self._unread.pop(moved.bucket)
        if not isinstance(asked, Read) or asked.view >= moved.view:
            raise PeerError(f"{moved.bucket} is denied, which view {moved.view} gives to it")
        self._ask_for(cut_of(self._holders).inside(moved.bucket), asked.memory)

    def close(self) -> None:
        self._background.close()
        self._wires.close()
        if self._segment is not None:
            os.close(self._segment)
            self._segment = None


def _is_whole(holders: Holders, size: int) -> bool:
    """Is every value of the model held, and only once?"""
    held = sorted((bucket.start, bucket.stop) for each in holders for bucket in each)
    return [*(start for start, _ in held), size] == [0, *(stop for _, stop in held)]


def _in_turn(holders: tuple[tuple[Bucket, ...], ...]) -> tuple[Bucket, ...]:
    """All buckets, last ones first, a bucket of each server in turn: so that all servers have work from the start."""
    return tuple(
        bucket for each in zip_longest(*(held[::-1] for held in holders)) for bucket in each if bucket is not None
    )
