"""The handover of a bucket, or of a piece of one, to the server that holds it next.

1. The handover contains the complete state: parameters, version, V, the rule's memory, kept and last updates, the
   pushes of each round, the last push of each worker (to recognise repeats), parked pulls, the bound and paces of an
   adaptive model, copies of what workers have read, if the rule needs them, and which updates the parameters contain,
   if servers can be lost. A piece gets all of it, cut to its range.
2. The handover copies kept updates. After that, the old holder does not need the workers' memory.
3. The handover contains the reply codec's residual of the last mean, and that mean as workers got it. It does not
   contain which replies workers have (reply_codec.py).
4. A parked pull travels without its update, which was already taken. A model that asks for its significance gets 0.
5. The step that a worker is currently in is not measured, because the clocks of two servers differ. For the same reason
   the time that a parked pull has waited starts again at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from syncline.effects import Received
from syncline.layout import Bucket, Payload, Values
from syncline.messages import (
    ALIGN,
    Handover,
    KeptUpdate,
    LastPush,
    LastUpdate,
    ParkedPull,
    Push,
    ReadVersion,
    worker_id,
)
from syncline.nodes.server.bucket import HeldBucket
from syncline.nodes.server.bucket_state import BucketState
from syncline.nodes.server.kept_updates import KeptUpdates, LastUpdates, WaitingUpdate
from syncline.nodes.server.paces import Paces
from syncline.nodes.server.parked_pulls import ParkedPulls
from syncline.nodes.server.read_copies import ReadCopies
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.update_writer import decoded
from syncline.spec import write


def in_force(terms: ShardTerms) -> str:
    """The sync model and the release as text, to compare those of two servers."""
    return f"{write(terms.model)} {terms.release}"


def pack(bucket: HeldBucket, piece: Bucket, terms: ShardTerms) -> tuple[Handover, Payload]:
    """The handover of this piece of the bucket."""
    where = terms.within(bucket.name, piece)
    known, kept = bucket.known(), bucket.known().kept.everything()
    residual = {} if bucket.teller is None else bucket.teller.moving(known.version)
    arrays = [bucket.params[where], *(each[where] for each in (*bucket.memory.values(), *residual.values()))]
    arrays += [_cut(bucket, each.payload, piece, where) for _, _, each in kept if each.payload is not None]
    last = known.last.everything()
    arrays += [_cut(bucket, each.payload, piece, where) for _, each in last]
    copies = [] if bucket.reads is None else bucket.reads.everything()
    places = {number: place for place, number in enumerate(dict.fromkeys(id(each.values) for _, each in copies))}
    arrays += list({id(each.values): each.values[where] for _, each in copies}.values())
    message = Handover(
        terms.view,
        piece,
        known.version,
        known.v,
        in_force(terms),
        known.bound,
        known.applied,
        known.unruly,
        tuple((i, tuple(sorted(there))) for i, there in known.pushed.items()),
        tuple(
            (worker, each.incarnation, each.progress, known.late.get(worker) is each)
            for worker, each in known.seen.items()
        ),
        tuple((worker, *pulled) for worker, pulled in known.pulled.items()),
        tuple((worker, tuple(steps)) for worker, steps in known.paces.steps().items()),
        tuple(
            ParkedPull(parked.source.number, under, replace(parked.message, bucket=piece))
            for under, parked in known.lot.everything()
        ),
        tuple(KeptUpdate(i, *who, each.read, each.lr, each.payload is None) for i, who, each in kept),
        tuple(bucket.memory),
        tuple((array.dtype.str, array.size) for array in arrays),
        tuple(LastUpdate(worker, each.incarnation, each.read) for worker, each in last),
        tuple(residual),
        tuple(
            ReadVersion(w, each.incarnation, each.version, places[id(each.values)], each.v, each.seen)
            for w, each in copies
        ),
        tuple(LastPush(worker, *last) for worker, last in known.contained.items()),
        tuple(LastPush(worker, *last) for worker, last in known.unanswered.items()),
    )
    return message, _concatenated(arrays)


def _cut(bucket: HeldBucket, payload: Payload, piece: Bucket, where: slice) -> Payload:
    """A kept update, cut to this piece. To cut it, it is decoded first, since encoded bytes cannot be cut."""
    if piece == bucket.name:
        return payload
    return decoded(bucket.codec, payload, np.empty_like(bucket.params))[where]


def unpack(message: Handover, payload: Payload, terms: ShardTerms) -> HeldBucket:
    """The bucket at its new holder, before the new holder checks any request."""
    arrays = iter(split_arrays(payload, message.arrays))
    bucket = HeldBucket(message.bucket, next(arrays), terms)
    for name in message.memory:
        bucket.optimised.remember(name, next(arrays))
    residual = {name: next(arrays) for name in message.residual}
    if bucket.teller is not None:
        bucket.teller.go_on_from(residual, message.version)
    bucket.go_on_from(_known(message, arrays, terms))
    if bucket.reads is not None:
        bucket.reads = _reads(message, list(arrays), terms)
    return bucket


def _reads(message: Handover, copies: Sequence[Values], terms: ShardTerms) -> ReadCopies:
    """What the members have read."""
    found = ReadCopies()
    for each in message.reads:
        if (each.worker, each.incarnation) in terms.present:
            found.keep((each.worker, each.incarnation), each.version, copies[each.array], each.v, each.seen)
    return found


def _known(message: Handover, updates: Iterator[Payload], terms: ShardTerms) -> BucketState:
    """The state of the previous holder. `updates`: the kept and last updates, which the bucket owns from now on."""
    kept, last, lot, paces = KeptUpdates(), LastUpdates(), ParkedPulls(), Paces()
    for each in message.kept:
        update = WaitingUpdate(each.worker, None if each.empty else next(updates), each.lr, each.read, owned=True)
        kept.keep(each.i, (each.worker, each.incarnation), update)
    for sent in message.last:
        last.keep((sent.worker, sent.incarnation), next(updates), sent.read, anew=True)
    seen = {worker: Push(message.view, incarnation, i, message.bucket, 0) for worker, incarnation, i, _ in message.seen}
    late = {worker: seen[worker] for worker, _, _, late in message.seen if late}
    for worker, steps in message.steps:
        member, pushed_last = terms.members.get(worker), seen.get(worker)
        if member is not None and pushed_last is not None and member.incarnation == pushed_last.incarnation:
            paces.recall(worker, steps)
    for parked in message.parked:
        under = None if terms.again else parked.under
        lot.park(Received(worker_id(parked.worker), parked.request), under)  # type: ignore[arg-type]
    counts = (message.version, message.v, message.bound, message.applied, message.unruly)
    pushed = {i: set(there) for i, there in message.pushed}
    pulled = {worker: (incarnation, progress) for worker, incarnation, progress in message.pulled}
    contained, unanswered = (
        {last.worker: (last.incarnation, last.progress) for last in each}
        for each in (message.contained, message.unanswered)
    )
    return BucketState(*counts, pushed, seen, late, pulled, kept, last, lot, paces, contained, unanswered)


def _concatenated(arrays: Iterable[Payload]) -> Payload:
    parts = []
    for array in arrays:
        flat = np.ascontiguousarray(array).view(np.uint8)
        parts += [flat, np.zeros(-flat.size % ALIGN, np.uint8)]
    return np.concatenate(parts)


def split_arrays(payload: Payload, arrays: Sequence[tuple[str, int]]) -> list[Payload]:
    """The arrays in a payload, as copies, because the node does not own the payload."""
    found, start = [], 0
    for kind, count in arrays:
        stop = start + count * np.dtype(kind).itemsize
        found.append(payload[start:stop].view(kind).copy())
        start = stop + -stop % ALIGN
    return found
