"""What all buckets of a tree node do: keep the updates of their workers, hand them over, store them, answer workers.

How nodes exchange updates is in sum_bucket.py, and for `bsp` in round_bucket.py.

1. A node holds the updates of some origins, by origin. An origin that the view gives to another node is sent there
   until that node's checkpoint has it. The taker does not use it before. It answers the workers that moved to it when
   its replica has changed over.
2. If a node is lost, the keeper of its copy does the same for it; or the taker reads the lost node's last checkpoint,
   if that is in a directory that all hosts share.
3. A node that starts again without `durable` asks the keepers of its copy for it, and begins with the copy if that is
   newer than its checkpoint. Both are beginnings of one sequence of updates. Until then its own updates are missing.
4. With `durable`, an update counts when checkpoint and copy contain it, and its push is answered only then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from syncline.effects import Effect, Load, Loaded, Received, Save, Send, SetTimer
from syncline.layout import Bucket, Payload, Values
from syncline.messages import (
    Message,
    Moved,
    NodeId,
    Params,
    Pull,
    Push,
    StoredOrigin,
    Taken,
    TreeMember,
    Wants,
    server_id,
    worker_id,
)
from syncline.nodes.tree.copies import CopySession, CopyStream, KeptCopy
from syncline.nodes.tree.finished import FinishedIterations
from syncline.nodes.tree.held_updates import HeldUpdates, OriginUpdates, packed, unpacked
from syncline.nodes.tree.messages import (
    CopyAsked,
    CopyBack,
    CopyHeard,
    CopySum,
    OriginStates,
    TakeOver,
    TookOver,
    origin_values,
)
from syncline.nodes.tree.tree_terms import TreeTerms
from syncline.reals import Reals

Out = list[Effect]

Update = Reals | Values | None
"""An update as it is added to the sums; None: it has no values."""


class Checkpoint(NamedTuple):
    """What the engine has kept of the last `Save`."""

    state: OriginStates
    payload: Payload


class Pending(NamedTuple):
    """Something taken that checkpoint and copy do not contain yet; `update` None: a whole origin."""

    position: int
    origin: int
    update: Reals | None


class Request(NamedTuple):
    """A push or pull that waits for its answer, and the position that must be stored first."""

    message: Push | Pull
    position: int


class AnswerRule:
    """What a bucket asks its node about workers."""

    __slots__ = ("finished", "limit", "may_answer", "v")

    def __init__(
        self,
        may_answer: Callable[[int], bool],
        v: Callable[[], int],
        limit: Callable[[], int | None],
        finished: FinishedIterations,
    ) -> None:
        self.may_answer = may_answer
        self.v = v
        self.limit = limit
        """With rounds: the last round that may close before a joiner's first iteration is known."""
        self.finished = finished


class TreeBucket(ABC):
    """What a node knows about one bucket."""

    def __init__(self, name: Bucket, first: Values, terms: TreeTerms, gate: AnswerRule) -> None:
        self.name = name
        self.terms = terms
        self.gate = gate
        self.size = first.size
        self.first: Values = np.asarray(first, np.float32)
        self.params = self.first
        self.version = 0
        self.reached = -1
        """The last view whose nodes and links the replica has changed over to."""
        self.held = HeldUpdates(terms.me, self.size)
        self.pending: list[Pending] = []
        self.missing: dict[int, int] = {}
        """The origins that this node shall hold and does not have stored yet, each with the view that gave it."""
        self._givers: dict[int, set[NodeId]] = {}
        self._given: set[int] = set()
        self.begun_empty: set[int] = set()
        """The origins that nobody could give this node any more."""
        self._loading: set[int] = set()
        """The lost nodes whose checkpoints are being read."""
        self._read: set[int] = set()
        """Those whose checkpoints were read."""
        self.streams: dict[int, CopyStream] = {}
        self._recalls = False
        """Whether this node has started again, and waits for the copy of its updates."""
        self._recalled: set[CopySession] = set()
        """The sessions in which a keeper has sent it, or has none."""
        self.kept: dict[int, KeptCopy] = {}
        """The copies of other nodes, by owner."""
        self.requests: dict[int, Request] = {}
        self.answered_at: dict[int, int] = {}
        """For each worker: how many updates the replica contained when it was last answered."""
        self._stale = False
        """Whether `params` lacks something of theta."""

    # What a way to exchange updates adds.

    @abstractmethod
    def advance(self, now: float, out: Out) -> None:
        """Do all that is possible now: change over, send, answer."""

    @abstractmethod
    def link_message(self, event: Received, message: Message, now: float, out: Out) -> None:
        """Take in a message that came over a link."""

    @abstractmethod
    def send_due(self, now: float, out: Out) -> None:
        """Send over every link what may be sent now, and to the keepers of copies."""

    @abstractmethod
    def _rounded(self) -> Values:
        """The replica in float32, in a new array."""

    @abstractmethod
    def contained(self) -> dict[int, int]:
        """How many updates of each origin the replica contains."""

    @property
    @abstractmethod
    def serves(self) -> bool:
        """Whether there is a replica to answer workers with."""

    @property
    @abstractmethod
    def at_rest(self) -> bool:
        """Whether the replica has changed over, and the neighbours have everything that it contains."""

    @abstractmethod
    def _aim(self) -> None:
        """Find the links of the view."""

    @abstractmethod
    def _has_origin(self, origin: int) -> bool:
        """Whether this node has the origin stored."""

    @abstractmethod
    def _show_origin(self, origin: int, updates: OriginUpdates) -> None:
        """Checkpoint and copy contain this origin: use it."""

    @abstractmethod
    def _show_update(self, update: Update) -> None:
        """Checkpoint and copy contain this update: use it. None: it has no values."""

    def _own_updates(self) -> OriginUpdates:
        """The node's own updates at the start of a run."""
        return self._nothing()

    def _nothing(self) -> OriginUpdates:
        """An origin without updates."""
        return OriginUpdates(np.zeros(self.size))

    def _as_gift(self, updates: OriginUpdates) -> OriginUpdates:
        """An origin as it is given to another node."""
        return updates

    # Start and views.

    def start(self) -> None:
        """Begin with the run: nothing has been pushed yet, and everyone knows."""
        self._aim()
        self.missing.clear()
        self.held.by_origin[self.terms.me] = self._own_updates()
        self.reached = self.terms.tree.since
        self._follow_copies()
        for stream in self.streams.values():
            stream.open_at_start(self.size)
        for each in self.terms.tree.nodes:
            for keeper, since in each.copies:
                if keeper == self.terms.me:
                    kept = self.kept[each.number] = KeptCopy((since, each.incarnation, self.terms.incarnations[keeper]))
                    kept.open_at_start(each.number, self._nothing())

    def restore(self, checkpoint: Checkpoint | None, now: float, out: Out) -> None:
        """Begin in a run that is under way; `checkpoint`: what an earlier process of this node has saved."""
        found = {} if checkpoint is None else unpacked(checkpoint.state.origins, checkpoint.payload, self.size)
        found.setdefault(self.terms.me, self._nothing())
        self.held.by_origin = found
        self.missing = dict.fromkeys(self.terms.holders, -1)  # it is not known which view gave it an origin
        listed = self._listed
        again = listed is not None and listed.incarnation > 0 and bool(listed.copies)
        self._recalls = again and not self.terms.settings.durable
        for origin, updates in found.items():
            if not (self._recalls and origin == self.terms.me):
                self._show_origin(origin, updates)
        self.adopt(now, out)

    def adopt(self, now: float, out: Out) -> None:
        """Follow the view that the terms have adopted."""
        self._aim()
        self._find_missing()
        self._replace_orphans()
        self._load_lost(out)
        self._give(out)
        self._restore_lost(out)
        self._follow_copies()
        self._recall(out)
        self._leave_workers(out)
        self._stored(now, out)
        self.save_if_due(out)

    def _find_missing(self) -> None:
        place = self.terms.place
        missing = [each for each in (() if place is None else place.origins) if not self._has_origin(each)]
        self.missing = {origin: self.missing.get(origin, self.terms.view) for origin in missing}

    def timer(self, what: str, number: int, due: float, now: float, out: Out) -> bool:
        """A timer has expired, which was set for `due`; here: for a copy. Returns whether changes were due."""
        stream = self.streams.get(number)
        if what == "copy" and stream is not None and stream.timed:
            stream.timed = False
            stream.not_before = min(stream.not_before, now)
            self.send_due(now, out)
        return False

    def repeat(self, out: Out) -> None:
        """Send everything again that is not acknowledged."""
        for stream in self.streams.values():
            if stream.unheard is not None:
                out.append(Send(stream.keeper, stream.unheard[0], stream.unheard[1]))
        self._recall(out)
        self._send_gifts(out)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is unacknowledged."""
        unheard = any(each.unheard is not None for each in self.streams.values())
        return not (self.held.gifts or unheard or self._recalls)

    # Origins that change hands.

    def _give(self, out: Out) -> None:
        """Send the origins on that other nodes shall hold."""
        terms = self.terms
        mine = frozenset(() if terms.place is None else terms.place.origins)
        moved = [origin for origin in self.held.by_origin if origin not in mine]
        for origin in moved:
            updates = self.held.by_origin.pop(origin)
            self.pending = [each for each in self.pending if each.origin != origin]
            if origin in terms.holders:
                self.held.gifts.setdefault(origin, self._as_gift(updates))
            self._copies_changed()
        for origin in [each for each in self.held.gifts if terms.holders.get(each, terms.me) == terms.me]:
            updates = self.held.gifts.pop(origin)
            if origin in mine:
                self._arrive(origin, updates)
        self._send_gifts(out)

    def _send_gifts(self, out: Out) -> None:
        for origin, updates in self.held.gifts.items():
            (state,), payload = packed({origin: updates})
            to = server_id(self.terms.holders[origin])
            out.append(Send(to, TakeOver(self.terms.view, self.name, state), payload))

    def take_over(self, event: Received, message: TakeOver, now: float, out: Out) -> None:
        origin, place = message.state.origin, self.terms.place
        if place is None or origin not in place.origins:
            return
        if origin not in self.held.by_origin:
            values = origin_values(message, event.payload, self.size)
            self._arrive(origin, unpacked([message.state], values, self.size)[origin])
            self.save_if_due(out)
            self.copy_due(now, out)
        if origin in self.missing:
            self._givers.setdefault(origin, set()).add(event.source)
        else:
            out.append(Send(event.source, TookOver(self.terms.view, self.name, origin)))

    def _arrive(self, origin: int, updates: OriginUpdates) -> None:
        """Hold an origin; it becomes a summand when checkpoint and copy contain it."""
        if origin in self.held.by_origin:
            return
        self.held.by_origin[origin] = updates
        self.pending.append(Pending(self.held.took(), origin, None))
        self._copies_changed()

    def took_over(self, event: Received, message: TookOver) -> bool:
        """Whether the last origin that this node had to give has been taken over."""
        holder = self.terms.holders.get(message.origin)
        if message.origin not in self.held.gifts or holder is None or event.source != server_id(holder):
            return False
        del self.held.gifts[message.origin]
        self._given.add(message.origin)
        return not self.held.gifts

    def _replace_orphans(self) -> None:
        """Begin without the updates of origins that nobody can give this node any more."""
        lost = [kept for owner, kept in self.kept.items() if owner not in self.terms.incarnations]
        copied = {origin for kept in lost for origin in kept.origins}
        for origin, node in self.terms.tree.orphans:
            known = origin in self.held.by_origin or origin in self.held.gifts or origin in self._given
            known = known or origin in copied
            if node == self.terms.me and not known:
                self.begun_empty.add(origin)
                self._arrive(origin, self._nothing())

    def _wanted(self) -> dict[int, list[StoredOrigin]]:
        """Which checkpoints of lost nodes may have an origin, for each that this node shall hold and does not have."""
        place, here = self.terms.place, self.held.everything
        found: dict[int, list[StoredOrigin]] = {}
        for each in self.terms.tree.stored:
            if place is not None and each.origin in place.origins and each.origin not in here:
                found.setdefault(each.origin, []).append(each)
        return found

    def _load_lost(self, out: Out) -> None:
        """Read the checkpoints of lost nodes that may have the origins which this node shall hold."""
        owners = {each.node for stored in self._wanted().values() for each in stored}
        for owner in sorted(owners - self._loading):
            self._loading.add(owner)
            self._read.discard(owner)
            out.append(Load(self.name, owner))

    def loaded(self, event: Loaded, now: float, out: Out) -> None:
        """The last checkpoint of a lost node is there. If no checkpoint has an origin, nothing of it was stored."""
        self._loading.discard(event.server)
        self._read.add(event.server)
        found: dict[int, OriginUpdates] = {}
        if event.state is not None and event.payload is not None:
            read = unpacked(event.state.origins, event.payload, self.size)
            found = self._of_lost(event.server, read)
        for origin, stored in self._wanted().items():
            owners = {each.node for each in stored}
            if event.server in owners and origin in found:
                self._arrive(origin, found[origin])
            elif stored[0].only and self._read >= owners:
                if origin not in owners or not self.terms.settings.durable:
                    self.begun_empty.add(origin)
                self._arrive(origin, self._nothing())
        self.save_if_due(out)
        self.copy_due(now, out)

    # Storing.

    def save_if_due(self, out: Out, always: bool = False) -> None:
        """Begin to write a checkpoint if something waits for it."""
        waits = any(each.position > self.held.saved for each in self.pending)
        if self.held.saving is None and (waits or (always and self.held.dirty)):
            serial, states, payload = self.held.begin_saving()
            out.append(Save(self.name, serial, states, payload))

    def saved(self, serial: int, now: float, out: Out) -> None:
        if self.held.end_saving(serial):
            self._stored(now, out)
            self.save_if_due(out)

    def _stored(self, now: float, out: Out) -> None:
        """Show what checkpoint and copy contain by now."""
        position = self.stored
        ready = [each for each in self.pending if each.position <= position]
        self.pending = [each for each in self.pending if each.position > position]
        for each in ready:
            if each.update is None:
                self._show_origin(each.origin, self.held.by_origin[each.origin])
                self._thank(each.origin, out)
            else:
                self._show_update(each.update)
        self.advance(now, out)

    def _thank(self, origin: int, out: Out) -> None:
        """Tell those who have given this origin that it is stored."""
        self.missing.pop(origin, None)
        for giver in sorted(self._givers.pop(origin, ())):
            out.append(Send(giver, TookOver(self.terms.view, self.name, origin)))

    @property
    def stored(self) -> int:
        """The position up to which everything is stored."""
        return min([self.held.saved, *(each.heard_position for each in self.streams.values())])

    # Copies at another node.

    def _follow_copies(self) -> None:
        """Keep the streams to the nodes that the view names, and the copies of the nodes that name this one."""
        terms, place = self.terms, self._listed
        wanted = {} if place is None else dict(place.copies)
        before, self.streams = self.streams, {}
        for keeper, since in wanted.items():
            session = (since, terms.incarnations[terms.me], terms.incarnations[keeper])
            stream = before.get(keeper)
            if stream is None or stream.session != session:
                stream = self._stream(terms.me, keeper, session)
            self.streams[keeper] = stream
        owners = {
            each.number: since
            for each in (*terms.tree.nodes, *terms.tree.leaving)
            for keeper, since in each.copies
            if keeper == terms.me
        }
        self.kept = {owner: copy for owner, copy in self.kept.items() if owners.get(owner) == copy.session[0]}

    @property
    def _listed(self) -> TreeMember | None:
        """This node in the view, in the tree or leaving it."""
        terms = self.terms
        everyone = (*terms.tree.nodes, *terms.tree.leaving)
        return next((each for each in everyone if each.number == terms.me), None)

    def _restore_lost(self, out: Out) -> None:
        """Take the place of owners that are lost: their origins go to the nodes that hold them now."""
        terms = self.terms
        for owner in [each for each in self.kept if each not in terms.incarnations]:
            for origin, updates in self._of_lost(owner, self.kept.pop(owner).origins).items():
                holder = terms.holders.get(origin)
                if holder == terms.me:
                    self._arrive(origin, updates)
                elif holder is not None:
                    self.held.gifts.setdefault(origin, updates)
        self._send_gifts(out)

    def _of_lost(self, owner: int, copied: dict[int, OriginUpdates]) -> dict[int, OriginUpdates]:
        """The origins in the copy of a lost node, as they are given to other nodes."""
        return copied

    def _stream(self, own: int, keeper: int, session: CopySession) -> CopyStream:
        return CopyStream(own, keeper, session)

    def _copies_changed(self) -> None:
        for stream in self.streams.values():
            stream.changed = None

    def _recall(self, out: Out) -> None:
        """Ask the keepers that have not answered; begin without a copy if there are none."""
        if not self._recalls:
            return
        unanswered = [each for each in self.streams.values() if each.session not in self._recalled]
        for stream in unanswered:
            out.append(Send(stream.keeper, CopyAsked(self.terms.view, *stream.session, self.name)))
        if unanswered:
            return
        self._recalls = False
        own = self.held.by_origin.get(self.terms.me)
        if own is not None:  # else the view has given it to another node
            self._show_origin(self.terms.me, own)
            self.missing.pop(self.terms.me, None)

    def copy_asked(self, event: Received, message: CopyAsked, out: Out) -> None:
        terms, owner = self.terms, event.source.number
        kept = self.kept.get(owner)
        found: dict[int, OriginUpdates] = {}
        if kept is not None and kept.session[0] == message.since and kept.session[1] < message.mine:
            found = {each: updates for each, updates in kept.origins.items() if each == owner}
        states, payload = packed(found)
        back = CopyBack(terms.view, message.since, message.yours, message.mine, self.name, states)
        out.append(Send(event.source, back, payload))

    def copy_back(self, event: Received, message: CopyBack, now: float, out: Out) -> None:
        """A copy of this node's updates has come back; the newest counts."""
        stream, me = self.streams.get(event.source.number), self.terms.me
        session = (message.since, message.yours, message.mine)
        if not self._recalls or stream is None or stream.session != session or session in self._recalled:
            return
        self._recalled.add(session)
        found = unpacked(message.origins, origin_values(message, event.payload, self.size), self.size).get(me)
        own = self.held.by_origin.get(me)
        if found is not None and own is not None and found.count > own.count:
            self.held.by_origin[me] = found
            self.held.dirty = True
        if all(each.session in self._recalled for each in self.streams.values()):
            self._recall(out)
            self._stored(now, out)

    def copy_due(self, now: float, out: Out) -> None:
        if self._recalls:
            return
        for number, stream in self.streams.items():
            if stream.unheard is not None or not stream.has_news(self.held):
                continue
            if now < stream.not_before and not self.terms.settings.durable and stream.changed is not None:
                if not stream.timed:
                    stream.timed = True
                    out.append(SetTimer(("copy", number, self.name, stream.not_before), stream.not_before - now))
                continue
            stream.write(self.terms.view, self.name, self.held)
            stream.not_before = now + self.terms.settings.period
            assert stream.unheard is not None
            out.append(Send(stream.keeper, stream.unheard[0], stream.unheard[1]))

    def copy_sum(self, event: Received, message: CopySum, out: Out) -> None:
        terms, owner = self.terms, event.source.number
        listed = next((each for each in (*terms.tree.nodes, *terms.tree.leaving) if each.number == owner), None)
        mine = terms.incarnations.get(terms.me)
        session = (message.since, message.mine, message.yours)
        named = listed is not None and (terms.me, message.since) in listed.copies
        if listed is None or not named or session[1:] != (listed.incarnation, mine):
            return
        kept = self.kept.get(owner)
        if kept is None or (kept.session != session and message.number == 0):
            kept = self.kept[owner] = KeptCopy(session)
        if kept.session != session:
            return
        kept.take(message, origin_values(message, event.payload, self.size), self.size)
        answer = CopyHeard(terms.view, message.since, message.yours, message.mine, self.name, message.number)
        out.append(Send(event.source, answer))

    def copy_heard(self, event: Received, message: CopyHeard, now: float, out: Out) -> bool:
        """Whether this keeper has a whole copy for the first time."""
        stream = self.streams.get(event.source.number)
        fresh = stream is not None and stream.heard_position < 0
        if stream is None or not stream.heard(message):
            return False
        self._stored(now, out)
        self.copy_due(now, out)
        return fresh

    # Workers.

    def push(self, event: Received, push: Push, now: float, out: Out) -> bool:
        """Take an update, unless it is a repeat; its answer follows when the worker may continue. Returns if taken."""
        worker, held = event.source.number, self.held
        taken = push.progress > self._progress(worker, push.incarnation)
        if taken:
            self._take_update(worker, push, self._update(push, event.payload), now)
            self.gate.finished.took(worker, push.incarnation, push.progress)
        self.requests[worker] = Request(push, held.position if taken else self._position_of(worker))
        if taken:
            self.save_if_due(out)
            self.advance(now, out)
        else:
            self.answer(out)
        return taken

    def _progress(self, worker: int, incarnation: int) -> int:
        """The last iteration of a worker that this node has; -1: none."""
        return self.held.progress(worker, incarnation)

    def _position_of(self, worker: int) -> int:
        """What must be stored before a repeat of this worker's push is answered."""
        known = self.requests.get(worker)
        return self.held.position if known is None else known.position

    def _update(self, push: Push, payload: Payload | None) -> Update:
        """A worker's update; valid until the push is answered."""
        if payload is None or push.empty:
            return None
        share = self.terms.share if self.terms.settings.divides else 1
        if share == 1:
            return payload
        if share & (share - 1) == 0:  # a power of two: the quotient is exact in float32
            return payload * np.float32(1 / share)
        return payload.astype(np.float64) / share

    def _take_update(self, worker: int, push: Push, update: Update, now: float) -> None:
        held, durable = self.held, self.terms.settings.durable
        held.record(worker, push.incarnation, push.progress)
        if update is not None:
            for stream in self.streams.values():
                stream.owe(update)
        if durable:
            waits = np.zeros(self.size) if update is None else update.astype(np.float64)
            held.own.values += waits
            self.pending.append(Pending(held.position, self.terms.me, waits))
        else:
            self._show_update(update)

    def pull(self, event: Received, pull: Pull, out: Out) -> None:
        self.requests[event.source.number] = Request(pull, 0)
        self.answer(out)

    def answer(self, out: Out) -> None:
        """Answer every request whose worker may continue."""
        if not self.requests or not self.serves:
            return
        for worker, request in list(self.requests.items()):
            if self.terms.attached[worker].since <= self.reached and self._may_answer(request):
                del self.requests[worker]
                out.append(self._answer(worker_id(worker), request.message))
                self.answered_at[worker] = sum(self.contained().values())

    def _may_answer(self, request: Request) -> bool:
        stored = not self.terms.settings.durable or request.position <= self.stored
        return stored and self.gate.may_answer(request.message.progress)

    def _answer(self, to: NodeId, request: Push | Pull) -> Send:
        known = (self.terms.view, request.incarnation, request.progress, self.name, self.version, self.gate.v())
        if type(request) is Push and request.wants is not Wants.PARAMS:
            return Send(to, Taken(*known))
        return Send(to, Params(*known), self.shown())

    def shown(self) -> Values:
        """The replica, in float32; a new array whenever it has changed."""
        if self._stale:
            self.params = self._rounded()
            self._stale = False
        return self.params

    def _leave_workers(self, out: Out) -> None:
        """Tell workers that this node does not serve any more where to go."""
        terms = self.terms
        for worker, request in list(self.requests.items()):
            member, attached = terms.members.get(worker), terms.attached.get(worker)
            message = request.message
            if member is None or member.incarnation != message.incarnation:
                del self.requests[worker]
            elif attached is None or attached.node != terms.me:
                del self.requests[worker]
                out.append(Send(worker_id(worker), moved(terms.view, message)))


def moved(view: int, message: Push | Pull) -> Moved:
    return Moved(view, message.incarnation, message.progress, message.bucket)
