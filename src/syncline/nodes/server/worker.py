"""The worker of the server strategy. For each bucket and iteration it sends one push and receives one answer.

1. The worker sends a finished bucket at once: gate, codec, `Push`. A gate saves bytes; the push itself is always sent.
   The push of a skipped update is empty. The worker adds the update to the next one, or the server applies the last one
   again (worker_gate.py). For a skipped fetch the push asks for `Taken`.
2. The worker delivers one answer per push. It ignores repeated answers and answers to an earlier incarnation.
3. When every bucket is answered, iteration i is complete. The next iteration is i + 1. If a bucket was too late, it is
   the smallest V that the buckets reported, but at least i + 1.
4. A joiner sends a request to the coordinator, waits for the view that sets its first iteration f, and starts by
   pulling f - 1.
5. A worker leaves only after all its pushes are answered. If it has pushed only some buckets of the iteration, or holds
   updates back, it first pushes the remaining buckets, with what it held back or empty. So no update is lost, and no
   other worker waits for these pushes.
6. A worker that learns that it is not a member any more fails and sends nothing more.
7. With `patience`, the worker sends an unanswered push again. The shard takes it only once.
8. After a view with a new placement, the worker names all buckets as that view cuts them. A push or pull in flight then
   stands for every unanswered piece of its bucket. The holder of a piece may answer for that piece, and the old holder
   for all pieces. If the old holder answers `Moved`, the worker sends the unanswered pieces to their new holders.
9. The application may continue to use the buckets of an earlier view. An update of such a bucket is an update of each
   of its pieces.
10. A server may answer for a bucket that it holds now, or held in the view of the request or in a later one. An answer
    with a newer view waits for that view. An answer of an earlier view than that of the request is a repeat, and is
    ignored; so is a repeat of `Moved`. Any other answer breaks the protocol.
11. With a window, the worker holds a finished bucket until enough earlier ones are answered (push_window.py).
12. After a view that names lost buckets, the worker reports what it has of each to the server that restores it, and
    sends its unanswered request again (recovery.py). A joiner reports when its first iteration is set, without copies.
13. When the engine says that a server is dead, the worker sends again what it has asked there about buckets that other
    servers hold by now, because nobody will answer it with `Moved`. It also does so after each later view.
14. If an answer will carry no parameters (a skipped fetch), the worker adds the application's own change to the
    application's values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from msgspec.structs import replace

from syncline.codecs import Dense, Memory
from syncline.effects import (
    CopySpoiled,
    Deliver,
    Depart,
    Effect,
    Enter,
    Event,
    Fail,
    Fetch,
    How,
    Ready,
    Received,
    Reject,
    Send,
    ServerLost,
    SetTimer,
    Timer,
)
from syncline.errors import GoneError, NotFinite, PeerError
from syncline.gates import Always
from syncline.layout import VALUE_BYTES, Bucket, Payload, Values, is_finite
from syncline.messages import (
    ANSWERS,
    COORDINATOR,
    Answer,
    BucketCopy,
    CopyReport,
    CopyRequest,
    Gone,
    JoinRequest,
    LeaveNotice,
    Member,
    Message,
    Moved,
    NodeId,
    Params,
    Pull,
    Push,
    Skipped,
    Taken,
    View,
    Wants,
    server_id,
)
from syncline.nodes.bucket_map import BucketMap, bucket_map_of
from syncline.nodes.peer_losses import PeerLoss
from syncline.nodes.phase import Phase
from syncline.nodes.protocol import Counts
from syncline.nodes.server.last_answers import LastAnswers
from syncline.nodes.server.push_window import PushWindow
from syncline.nodes.server.reply_codec import ReplyReader
from syncline.nodes.server.worker_gate import WorkerGate
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.nodes.update_writer import Writers, check_written, encoded_bytes, is_plain

JOINING, RUNNING, LEAVING, GONE = Phase  # enum members are slow to look up on every message
_PARAMS, _NOTHING = Wants.PARAMS, Skipped.NOTHING
_REPLACE, _ADD, _ZERO = How

MOST_EARLY = 1 << 10
"""How many answers with a newer view may wait for that view, in addition to one for each bucket."""


class Worker:
    """The node of one worker."""

    __slots__ = (
        "_awaited",
        "_began_with",
        "_cut",
        "_dead",
        "_deferred",
        "_gating",
        "_holder",
        "_last_answers",
        "_least_v",
        "_left",
        "_lr",
        "_parts",
        "_past",
        "_read",
        "_reply_reader",
        "_sent",
        "_start",
        "_view",
        "_was_late",
        "_window",
        "_writers",
        "closed",
        "earlier",
        "incarnation",
        "number",
        "phase",
        "progress",
    )
    losses: Sequence[PeerLoss] = ()
    _left: int
    """The number of values that are not answered yet in the current iteration."""
    _least_v: int | None
    """The smallest V that the answers of the current iteration have reported so far."""
    _was_late: bool

    def __init__(self, number: int, incarnation: int, parts: WorkerParts, view: View) -> None:
        """`view`: the current view when the worker starts. A worker that is not a member in it must join."""
        self.number = number
        self.incarnation = incarnation
        self.progress = 0
        self.earlier = 0
        """The number of iterations of an earlier run that this run continues; the codec's random draws continue too."""
        self.phase = JOINING
        self.closed = 0
        self._parts = parts
        self._began_with = view.holders
        """The placement in whose buckets the application hands in its updates."""
        self._past: list[tuple[int, BucketMap]] = []
        """Earlier placements whose holders may still answer, each with the number of the view that replaced it."""
        self._gating: WorkerGate | None = None
        if type(parts.gate) is not Always:
            self._gating = WorkerGate(number, parts.gate, parts.layout, parts.draw, parts.weight)
        self._writers = None if is_plain(parts.codec) else Writers(parts.codec, parts.layout, parts.within)
        """Encodes the updates; None: they are sent as plain values."""
        self._reply_reader = (
            None
            if parts.reply is None
            else ReplyReader(parts.reply, parts.layout, not parts.of_means, parts.first or {})
        )
        self._awaited: dict[Bucket, Send] = {}
        """The unanswered request of each bucket. After a cut, the request may still name the whole earlier bucket."""
        self._deferred: list[Received] = []
        self._read: dict[Bucket, int] = {}
        self._dead: set[NodeId] = set()
        """Servers that have died; another process may have their number by now."""
        self._lr: float | None = None
        self._sent: set[Bucket] = set()
        """The buckets that the worker has pushed or pulled in the current iteration."""
        self._view = view.view
        self._cut = bucket_map_of(view.holders)
        self._holder = self._cut.holder
        if self._gating is not None:
            self._gating.name(self._holder)
        self._window = None if parts.window is None else PushWindow(parts.window, self._holder)
        self._begin(0)
        me = self._member(view)
        self._start = 0
        """The version of the first parameters; above 0 if the run goes on from a checkpoint."""
        founder = me is not None and me.first is not None
        if me is not None and me.first is not None:
            self.phase = RUNNING
            self._start = me.first
            self._begin(me.first)
        self._last_answers = LastAnswers(self._start, founder=founder) if parts.recovers else None
        """What this worker's copies are worth; None: no server can be lost."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        out: list[Effect] = []
        if self.phase is GONE:
            return out
        if type(event) is Received:
            self._receive(event, out)
        elif type(event) is Ready:
            self._push(event, out)
        else:
            self._handle_request(event, out)
        return out

    @property
    def is_waiting(self) -> bool:
        """Whether a push or pull is not answered yet."""
        return bool(self._awaited)  # a window holds a bucket only while an earlier one is not answered

    @property
    def holds_back(self) -> bool:
        """Whether the gate holds an update back."""
        return self._gating is not None and bool(self._gating.held)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets in which the application hands in its updates: last ones first, alternating between servers."""
        rows = zip_longest(*(held[::-1] for held in self._began_with))
        return tuple(bucket for row in rows for bucket in row if bucket is not None)

    def is_given(self, bucket: Bucket) -> bool:
        if bucket in self._holder:
            return bucket in self._sent or self._is_held(bucket)
        return all(piece in self._sent or self._is_held(piece) for piece in self._cut.inside(bucket))

    def _is_held(self, bucket: Bucket) -> bool:
        return self._window is not None and self._window.holds(bucket)

    def is_answered(self, bucket: Bucket) -> bool:
        if bucket in self._holder:
            return bucket in self._sent and bucket not in self._awaited
        pieces = self._cut.inside(bucket)
        return self._sent.issuperset(pieces) and self._awaited.keys().isdisjoint(pieces)

    def counts(self) -> Counts:
        return Counts()

    def awaits(self, answer: Params) -> bool:
        """Whether a bucket waits for this answer; then its parameters may be received in place."""
        name = answer.bucket
        awaited = [self._awaited.get(piece) for piece in ((name,) if name in self._holder else self._pieces(name))]
        return answer.incarnation == self.incarnation and any(
            each is not None
            and answer.progress == each.message.progress  # type: ignore[attr-defined]
            and answer.view >= each.message.view
            for each in awaited
        )

    def _pieces(self, name: Bucket) -> list[Bucket]:
        """The current buckets that an answer for this bucket is about.

        They are its pieces, or, if the answer is from a later view, the bucket that it is a piece of.
        """
        around = self._cut.around(name)
        return self._cut.inside(name) or ([] if around is None else [around])

    # Which messages are allowed.

    def place_of(self, source: NodeId, message: Message, size: int) -> Bucket | None:
        if type(message) is not Params:
            raise PeerError(f"{type(message).__name__} must not have a payload")
        bucket, written, full = message.bucket, message.size, message.bucket.size * VALUE_BYTES
        early, awaited = message.view > self._view, self.awaits(message)
        repeat = not awaited and message.view < self._view
        if not (awaited if early else repeat or self._may_answer(source, bucket)):
            raise PeerError(f"Params of {bucket}, which the sender does not hold or was not asked for")
        if size != (written or full) or written > full:
            raise PeerError(f"Params of {bucket} with a payload of the wrong size: {size:,} bytes")
        return bucket if awaited and not early and not written else None

    def _may_answer(self, source: NodeId, bucket: Bucket) -> bool:
        """Whether this server holds the bucket, or held it in a view that a request in flight may come from."""
        if self._holder.get(bucket) == source:
            return True
        return any(cut.holder.get(bucket) == source for _, cut in self._past)

    def waits_for(self, server: NodeId) -> bool:
        """Whether this server may answer: a request was sent to it, or it has held the requested bucket since then."""
        return any(server in self._had(piece, send) for piece, send in self._awaited.items())

    def _had(self, piece: Bucket, send: Send) -> set[NodeId | None]:
        """The servers that may have this request: a pull that waits moves with its bucket; its worker is not told."""
        return {send.to} | {cut.holder_of(piece) for until, cut in self._past if until > send.message.view}

    def _handle_request(self, event: Event, out: list[Effect]) -> None:
        match event:
            case Fetch(progress):
                self._fetch(progress, out)
            case Enter():
                out.append(Send(COORDINATOR, JoinRequest(self._view, self.incarnation)))
            case Depart():
                self._depart(out)
            case Timer(("resend", progress)):
                self._resend(progress, out)
            case ServerLost(server):
                self._dead.add(server_id(server))
                self._leave_the_dead(out)
            case CopySpoiled(bucket):
                if self._last_answers is not None:
                    self._last_answers.spoil(self._pieces(bucket))
            case _:
                raise PeerError(f"worker {self.number} does not accept this event: {event}")

    # Sending.

    def _push(self, ready: Ready, out: list[Effect]) -> None:
        bucket, update = ready.bucket, ready.payload
        parts, i = self._parts, self.progress
        if bucket not in self._holder:
            self._push_pieces(ready, out)
            return
        if self.phase is not RUNNING or bucket in self._awaited:
            raise PeerError(f"worker {self.number}: a new update of {bucket} before the previous one was answered")
        if self._window is not None and self._window.hold(ready):
            return
        if parts.finite and update is not None and not is_finite(update):
            table = parts.layout.first_not_finite(bucket, update)
            assert table is not None
            out.append(Fail(NotFinite(self.number, i, table.name)))
            return
        read, skipped, wants = self._read.get(bucket, self._start), _NOTHING, _PARAMS
        if self._gating is not None:
            update, read, skipped, fetches = self._gating.judge(i, ready, read)
            if not fetches:
                wants = Wants.TAKEN
                if parts.of_changes and ready.payload is not None:
                    out.append(Deliver(bucket, ready.payload, None, _ADD))
        self._lr = ready.lr
        push = Push(self._view, self.incarnation, i, bucket, read, wants, ready.lr, update is None, 0, 0, skipped)
        if self._writers is None and self._reply_reader is None:
            self._send(bucket, push, update, out)
        else:
            self._send_written(push, update, out)

    def _send_written(self, push: Push, update: Values | None, out: list[Effect]) -> None:
        """Send a push whose update is encoded by a codec, or whose answer will be a change."""
        bucket, payload = push.bucket, update
        if update is not None and self._writers is not None:
            keys = (self.number, self.earlier + push.progress, bucket.start)
            payload = self._writers.write(bucket, update, lambda: self._parts.draw.generator("codec", *keys))
        holds = 0 if self._reply_reader is None else self._reply_reader.holds(bucket)
        self._send(bucket, replace(push, size=encoded_bytes(payload), holds=holds), payload, out)

    def _check_reply(self, answer: Params, payload: Payload) -> None:
        """Raise PeerError unless the received bytes are a valid reply about this bucket."""
        codec = Dense() if self._reply_reader is None else self._reply_reader.codec_of(answer.bucket)
        check_written(codec, payload, answer.bucket.size)

    @property
    def memories(self) -> dict[Bucket, Memory]:
        """The codec's memory of each bucket; the caller may write to it."""
        return {} if self._writers is None else self._writers.memories(self._holder)

    def gate_state(self) -> dict[str, Any]:
        return {} if self._gating is None else self._gating.state(self._read)

    def restore_gate(self, state: Mapping[str, Any]) -> None:
        if self._gating is not None and state:
            self._read |= self._gating.restore(state, self._start)

    def _push_pieces(self, ready: Ready, out: list[Effect]) -> None:
        """Push an update of a bucket that a later view has cut, piece by piece."""
        pieces = self._cut.inside(ready.bucket)
        if not pieces:
            raise PeerError(f"worker {self.number}: {ready.bucket} is not a bucket of view {self._view}")
        for piece in pieces:
            self._push(self._piece_ready(ready, piece), out)

    def _piece_ready(self, ready: Ready, piece: Bucket) -> Ready:
        where = self._parts.within(ready.bucket, piece)
        update, params = (None if each is None else each[where] for each in (ready.payload, ready.params))
        return Ready(piece, update, ready.lr, params)

    def _fetch(self, progress: int, out: list[Effect]) -> None:
        for bucket in self._holder:
            self._send(bucket, Pull(self._view, self.incarnation, progress, bucket), None, out)

    def _send(self, bucket: Bucket, message: Push | Pull, payload: Payload | None, out: list[Effect]) -> None:
        if self._parts.patience is not None and not self._awaited:
            out.append(SetTimer(("resend", message.progress), self._parts.patience))
        send = Send(self._holder[bucket], message, payload)
        self._awaited[bucket] = send
        self._sent.add(bucket)
        out.append(send)

    def _resend(self, progress: object, out: list[Effect]) -> None:
        again = [send for send in self._awaited.values() if send.message.progress == progress]  # type: ignore[attr-defined]
        if again and self._parts.patience is not None:
            out.extend(dict.fromkeys(again))
            out.append(SetTimer(("resend", progress), self._parts.patience))

    # Receiving.

    def _receive(self, event: Received, out: list[Effect]) -> None:
        answer: Answer = event.message  # type: ignore[assignment]
        kind: type[Message] = type(answer)
        if kind is not Params:
            if kind is View:
                self._adopt(answer, out)  # type: ignore[arg-type]
                return
            if kind is CopyRequest:
                self._send_copy(event.source, answer, out)  # type: ignore[arg-type]
                return
            if kind not in ANSWERS:
                raise PeerError(f"worker {self.number} does not accept this message from {event.source}: {answer}")
            if kind is Gone:
                if answer.incarnation == self.incarnation:
                    self._fail(out)
                return
        if answer.incarnation != self.incarnation:
            return
        awaited = self._awaited.get(answer.bucket)
        if awaited is None:
            self._receive_cut(event, answer, out)  # type: ignore[arg-type]
            return
        if answer.progress != awaited.message.progress:  # type: ignore[attr-defined]
            return
        if answer.view != self._view and not self._is_of_this_view(event, answer, awaited.message.view):
            return
        if kind is not Moved and awaited.to is not event.source and not self._may_answer(event.source, answer.bucket):
            raise PeerError(f"{kind.__name__} of {answer.bucket}, which {event.source} does not hold")
        payload = event.payload
        if kind is Params:
            if payload is not None and (answer.size or self._reply_reader is not None):  # type: ignore[union-attr]
                payload = self._values_of(answer, payload)  # type: ignore[arg-type]
        elif kind is Moved:
            self._send_on(event, answer, [answer.bucket], out)  # type: ignore[arg-type]
            return
        self._deliver(answer, payload, out)  # type: ignore[arg-type]

    def _is_of_this_view(self, event: Received, answer: Answer, asked: int) -> bool:
        """Whether an answer of another view counts now; one older than the request (view `asked`) is a repeat."""
        if answer.view > self._view:
            self._defer(event)
        return asked <= answer.view <= self._view

    def _receive_cut(self, event: Received, answer: Params | Taken | Moved, out: list[Effect]) -> None:
        """Handle an answer for a bucket without a request of that name: a repeat, or a bucket of another placement."""
        bucket = answer.bucket
        if bucket in self._holder:
            return
        if answer.view > self._view:
            self._defer(event)
            return
        pieces = [piece for piece in self._cut.inside(bucket) if self._answers(answer, piece)]
        if not pieces and answer.view < self._view:
            return
        if type(answer) is not Moved and not self._may_answer(event.source, bucket):
            raise PeerError(f"{type(answer).__name__} of {bucket}, which {event.source} does not hold")
        if type(answer) is Moved:
            self._send_on(event, answer, pieces, out)
            return
        payload = event.payload
        if pieces and type(answer) is Params and payload is not None:
            payload = self._values_of(answer, payload)
        for piece in pieces:
            values = None if payload is None else payload[self._parts.within(bucket, piece)]
            self._deliver(replace(answer, bucket=piece), values, out)  # type: ignore[arg-type]

    def _answers(self, answer: Params | Taken | Moved, piece: Bucket) -> bool:
        """Whether this may be the answer to the request of a piece: it is of the same iteration and not older."""
        awaited = self._awaited.get(piece)
        if awaited is None:
            return False
        request: Push | Pull = awaited.message  # type: ignore[assignment]
        return request.progress == answer.progress and request.view <= answer.view

    def _values_of(self, answer: Params, payload: Payload) -> Payload:
        """The parameters, or the mean of the round, in this payload."""
        if self._parts.checks and answer.size:
            self._check_reply(answer, payload)
        return payload if self._reply_reader is None else self._reply_reader.hear(answer, payload)

    def _defer(self, event: Received) -> None:
        """Keep an answer until the view that it names arrives."""
        if len(self._deferred) > len(self._holder) + MOST_EARLY:
            raise PeerError(f"too many answers with a view that worker {self.number} has not received")
        self._deferred.append(event)

    def _deliver(self, message: Params | Taken, payload: Payload | None, out: list[Effect]) -> None:
        bucket = message.bucket
        del self._awaited[bucket]
        how = _REPLACE
        if type(message) is Params:
            self._read[bucket] = message.version
            if self._last_answers is not None:
                self._last_answers.keep(message)
        elif self._parts.of_means:
            how = _ZERO
            if self._last_answers is not None:
                self._last_answers.keep(message)
        if self._gating is not None:
            self._gating.answered(message)
        self.closed = v = message.v
        if self._least_v is None or v < self._least_v:
            self._least_v = v
        if message.late:
            self._was_late = True
        self._left = left = self._left - bucket.stop + bucket.start
        following = None
        if not left:
            following = message.progress + 1
            if self._was_late:
                following = max(following, self._least_v)
            self._begin(following)
        out.append(Deliver(bucket, payload, following, how))
        if left and self._window is not None:
            for ready in self._window.answered(bucket):
                self._push(ready, out)
        if self.phase is LEAVING:
            self._leave_if_idle(out)

    def _begin(self, iteration: int) -> None:
        self.progress = iteration
        self._sent.clear()
        self._left = self._cut.size
        self._least_v = None
        self._was_late = False
        if self._window is not None:
            self._window.begin()

    def _send_on(self, event: Received, moved: Moved, pieces: list[Bucket], out: list[Effect]) -> None:
        """Send the requests that this server did not answer to the servers that hold the buckets now."""
        for piece in pieces:
            awaited = self._awaited[piece]
            request: Push | Pull = awaited.message  # type: ignore[assignment]
            if awaited.to != event.source or request.bucket != moved.bucket or moved.view < request.view:
                continue  # the worker already sent it to the new holder
            if moved.view == request.view:
                raise PeerError(
                    f"worker {self.number}: {event.source} does not accept {piece}, which it holds in view {moved.view}"
                )
            self._send_to_holder(replace(request, view=self._view), awaited.payload, piece, out)

    def _cut_request(
        self, request: Push | Pull, payload: Payload | None, piece: Bucket
    ) -> tuple[Push | Pull, Payload | None]:
        """A request cut to this piece. An encoded payload is decoded first, since encoded bytes cannot be cut."""
        if payload is None or type(request) is not Push:
            return replace(request, bucket=piece), payload
        if request.size and self._writers is not None:
            payload = self._writers.read(request.bucket, payload)
        return replace(request, bucket=piece, size=0), payload[self._parts.within(request.bucket, piece)]

    # Membership.

    def _member(self, view: View) -> Member | None:
        """This incarnation's entry in the view; None if it is not a member."""
        for member in view.members:
            if member.worker == self.number and member.incarnation == self.incarnation:
                return member
        return None

    def _adopt(self, view: View, out: list[Effect]) -> None:
        if view.view <= self._view:
            return
        if view.holders is not self._cut.holders:
            self._check_follows(view)
        known = self._view
        self._set_view(view)
        me = self._member(view)
        if me is None:
            if self.phase is not JOINING:
                self._fail(out)
                return
        elif self.phase is JOINING and me.first is not None:
            self.phase = RUNNING
            self._begin(me.first - 1)
            self._fetch(me.first - 1, out)
            self._report_copies(view, -1, out)
        elif self.phase is not JOINING:
            self._report_copies(view, known, out)
        self._leave_the_dead(out)
        if self._window is not None:
            for ready in self._window.released():
                self._push(ready, out)
        waiting, self._deferred = self._deferred, []
        for event in waiting:
            try:
                self._receive(event, out)
            except PeerError as error:
                out.append(Reject(event.source, str(error)))

    # Lost buckets.

    def _report_copies(self, view: View, known: int, out: list[Effect]) -> None:
        """Report on the buckets that were lost after the view `known`, and send their requests again."""
        for loss in view.lost:
            if loss.view > known and loss.bucket in self._holder:
                assert self._last_answers is not None, "a server was lost where none can be"
                out.append(Send(self._holder[loss.bucket], self._copy_report(loss.bucket, self._last_answers)))
                self._ask_again(loss.bucket, out)

    def _copy_report(self, bucket: Bucket, answers: LastAnswers) -> CopyReport:
        awaited = self._awaited.get(bucket)
        if awaited is None:
            following = self.progress + (bucket in self._sent)
        else:
            request: Push | Pull = awaited.message  # type: ignore[assignment]
            following = request.progress + (type(request) is Pull)
        version, held, v = self._read.get(bucket, self._start), answers.has_values(bucket), answers.v(bucket)
        return CopyReport(self._view, self.incarnation, bucket, following, held, version, v)

    def _ask_again(self, bucket: Bucket, out: list[Effect]) -> None:
        """Send the unanswered request of a lost bucket to the server that restores it."""
        awaited = self._awaited.get(bucket)
        if awaited is not None:
            request: Push | Pull = awaited.message  # type: ignore[assignment]
            self._send_to_holder(replace(request, view=self._view), awaited.payload, bucket, out)

    def _leave_the_dead(self, out: list[Effect]) -> None:
        """Send the requests again that dead servers may have, if other servers hold their buckets now."""
        for piece, awaited in list(self._awaited.items()) if self._dead else ():
            if self._dead & self._had(piece, awaited) - {self._holder[piece]}:
                self._ask_again(piece, out)

    def _send_to_holder(self, request: Push | Pull, payload: Payload | None, piece: Bucket, out: list[Effect]) -> None:
        """Send a request to the server that holds this piece of its bucket now."""
        if request.bucket != piece:
            request, payload = self._cut_request(request, payload, piece)
        self._awaited[piece] = send = Send(self._holder[piece], request, payload)
        out.append(send)

    def _send_copy(self, server: NodeId, request: CopyRequest, out: list[Effect]) -> None:
        bucket, answers = request.bucket, self._last_answers
        if answers is None or request.incarnation != self.incarnation or bucket not in self._holder:
            return
        if answers.has_values(bucket):
            head = (self._view, self.incarnation, bucket, self._read.get(bucket, self._start), answers.v(bucket))
            out.append(Send(server, BucketCopy(*head, *answers.contained(bucket)), of_copy=True))

    def _check_follows(self, view: View) -> None:
        """Raise PeerError if the view joins buckets or leaves some out; a move may only cut them."""
        after = bucket_map_of(view.holders)
        if after is not self._cut and not after.follows(self._cut):
            raise PeerError(f"view {view.view} has buckets that are not pieces of those in view {self._view}")

    def _set_view(self, view: View) -> None:
        before, self._cut = self._cut, bucket_map_of(view.holders)
        self._view = view.view
        if self._cut is not before:
            oldest = min((send.message.view for send in self._awaited.values()), default=view.view)
            self._past = [(until, cut) for until, cut in self._past if until > oldest]
            self._past.append((view.view, before))
            self._holder = self._cut.holder
            self._rename()
            if self._window is not None:
                self._rename_window(self._window)

    def _rename(self) -> None:
        """Rename all buckets as the new view cuts them."""
        inside = self._cut.inside
        self._awaited = {piece: send for name, send in self._awaited.items() for piece in inside(name)}
        self._read = {piece: version for name, version in self._read.items() for piece in inside(name)}
        if self._last_answers is not None:
            self._last_answers.rename(inside)
        self._sent = {piece for name in self._sent for piece in inside(name)}
        if self._gating is not None:
            self._gating.rename(inside, self._parts.within)
            self._gating.name(self._holder)
        if self._writers is not None:
            self._writers.rename(inside)

    def _rename_window(self, window: PushWindow) -> None:
        """Follow the new placement; cut the buckets that are held."""
        held = window.empty()
        window.name(self._holder, [each for each in self._sent if each not in self._awaited])
        for ready in held:
            for piece in self._cut.inside(ready.bucket):
                window.hold(self._piece_ready(ready, piece), always=True)

    def _depart(self, out: list[Effect]) -> None:
        if self._window is not None:
            held, self._window = self._window.empty(), None
            for ready in held:
                self._push(ready, out)
        self.phase = LEAVING
        if self._sent or self.holds_back:
            for bucket in self._holder:
                if bucket not in self._sent:
                    self._push_rest(bucket, out)
        self._leave_if_idle(out)

    def _push_rest(self, bucket: Bucket, out: list[Effect]) -> None:
        rest: Values | None = None
        read = self._read.get(bucket, self._start)
        if self._gating is not None:
            rest, read = self._gating.release(bucket, None, read)
        wants = Wants.NOTHING
        push = Push(self._view, self.incarnation, self.progress, bucket, read, wants, self._lr, rest is None)
        self._send_written(push, rest, out)

    def _leave_if_idle(self, out: list[Effect]) -> None:
        if self.phase is LEAVING and not self._awaited:
            self.phase = GONE
            out.append(Send(COORDINATOR, LeaveNotice(self._view, self.incarnation)))

    def _fail(self, out: list[Effect]) -> None:
        self.phase = GONE
        out.append(Fail(GoneError(self.number, self.incarnation, self.progress)))
