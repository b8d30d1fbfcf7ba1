"""Replies as changes: a shard sends the difference between the parameters and the values that a worker has.

1. The shard numbers its replies to one worker about one bucket. A push carries the number of the last reply that the
   worker has. If that is not the last reply that the shard sent, or if there was none, the shard sends the complete
   parameters.
2. The next change includes what a lossy codec left out of this one, because the shard computes it from the values that
   the worker really has: both sides add the same decoded bytes to the same values.
3. Workers that have the same values get the same reply: the shard encodes a change between two versions once for all.
4. In mode `gradients` a reply is the mean of one round, the same for all workers. The shard adds what the codec left
   out of it to the next mean, even if the bucket moves in between. Then a repeat gets the decoded mean.
5. A checkpoint contains the values that the workers have after their last replies. In a run that continues from it,
   the first replies carry these values instead of the parameters, until the first change of the parameters.
6. After a bucket has moved here or was cut, the shard does not know the workers' values. It sends the complete
   parameters once. Its reply numbers start above those that the workers have from the previous holder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from syncline.codecs import Codec, Memory
from syncline.draw import Draw
from syncline.layout import Bucket, Layout, Payload, Values
from syncline.messages import Member, Params
from syncline.nodes.update_writer import bucket_codec, is_plain

TOLD = "told"
"""The name under which a handover has the mean that workers got last."""

REPLY = "reply"
"""The name, or the beginning of the names, under which a checkpoint has what replies depend on."""


class _Known(NamedTuple):
    """The values that a worker has if its last reply has this number."""

    incarnation: int
    serial: int
    values: Values


class ReplyWriter:
    """Writes the replies of one bucket, on its server."""

    def __init__(self, codec: Codec, bucket: Bucket, draw: Draw, keeps: bool) -> None:
        """`keeps`: replies are parameters; otherwise they are the mean of a round."""
        self._codec = codec
        self._bucket = bucket
        self._draw = draw
        self._keeps = keeps
        self._memory = codec.memory(bucket.size)
        self._known: dict[int, _Known] = {}
        self._version = -1
        self._first: Values | None = None
        """The values that all workers begin with, if an earlier run is continued and they are not the parameters."""
        self._whole: Values | None = None
        self._changes: dict[int, tuple[Values, Payload, Values]] = {}
        """Changes to the current version, by the id of the worker's values.

        Each entry has those values (so that the id stays valid), the payload to send, and the worker's values after it.
        """

    def all_hold(self, members: Iterable[Member], params: Values) -> None:
        """Record that these workers already have the current parameters, without a message."""
        values = params.copy()
        self._known = {member.worker: _Known(member.incarnation, 0, values) for member in members}

    @property
    def residual(self) -> Memory:
        """What the codec left out of the last mean; it must move with the bucket. Empty if replies are parameters."""
        return {} if self._keeps else self._memory

    def moving(self, version: int) -> Memory:
        """What must move with the bucket at this version: the residual, and the mean that workers got of this round."""
        sent = None if self._keeps or version != self._version else self._changes.get(0)
        if sent is None:
            return self.residual
        payload = sent[1]
        values = payload if payload.dtype != np.uint8 else self._codec.decode(payload, np.empty_like(sent[0]))
        return {**self.residual, TOLD: values}

    def go_on_from(self, moved: Memory, version: int) -> None:
        """Continue with what has moved here. A repeat gets the mean that others got, as plain values."""
        for name, values in self.residual.items():
            values[:] = moved.get(name, 0)
        if TOLD in moved and not self._keeps:
            told = moved[TOLD]
            self._version, self._changes[0] = version, (told, told, told)

    # Checkpoints.

    def remembered(self, params: Values) -> dict[str, Values]:
        """What another run needs to continue; the arrays of all buckets have the same names."""
        if self._keeps:
            known = [self._known[worker].values for worker in sorted(self._known)]
            return {REPLY: known[0] if known else params}
        return {f"{REPLY} {name}": values for name, values in self._memory.items()}

    def remember(self, name: str, values: Values) -> None:
        """Continue with what `remembered` returned in an earlier run."""
        if self._keeps:
            self._first = values.copy()
        elif name.removeprefix(f"{REPLY} ") in self._memory:
            self._memory[name.removeprefix(f"{REPLY} ")][:] = values

    def values_of(self, worker: int) -> Values:
        """The values that a worker has after its last reply; they never change."""
        return self._known[worker].values

    def forget(self, worker: int) -> None:
        self._known.pop(worker, None)

    def tell(
        self, worker: int, incarnation: int, holds: int | None, params: Values, version: int
    ) -> tuple[Payload, int]:
        """The payload for this worker and the number of the reply.

        `holds`: the number of the last reply that the worker has; None: it asks for the complete parameters.
        """
        if version != self._version:
            self._version, self._whole = version, None
            self._changes.clear()
        known = self._known.get(worker)
        if holds is not None and not self._keeps:
            return self._mean(params), 0
        if known is None and holds is None and self._first is not None:
            payload = values = self._first
        elif known is None or (known.incarnation, known.serial) != (incarnation, holds):
            payload = values = self._copy(params)
        else:
            payload, values = self._change(known.values, params)
        serial = 1 + max(known.serial if known is not None else 0, holds or 0)
        self._known[worker] = _Known(incarnation, serial, values)
        return payload, serial

    def _copy(self, params: Values) -> Values:
        if self._whole is None:
            self._whole = params.copy()
        return self._whole

    def _mean(self, params: Values) -> Payload:
        found = self._changes.get(0)
        if found is None:
            found = self._changes[0] = (params, self._write(params), params)
        return found[1]

    def _change(self, held: Values, params: Values) -> tuple[Payload, Values]:
        found = self._changes.get(id(held))
        if found is None:
            self._memory = self._codec.memory(self._bucket.size)
            payload = self._write(params - held)
            if payload.nbytes >= params.nbytes:
                payload = after = self._copy(params)
            else:
                after = held.copy()
                self._codec.add_into(payload, after)
            found = self._changes[id(held)] = (held, payload, after)
        return found[1], found[2]

    def _write(self, values: Values) -> Payload:
        out = np.empty(self._codec.size(values.size), np.uint8)
        chance = lambda: self._draw.generator("reply", self._bucket.start, self._version)  # noqa: E731
        return self._codec.encode(values, self._memory, out, chance)


def teller(codec: Codec | None, layout: Layout | None, bucket: Bucket, draw: Draw, keeps: bool) -> ReplyWriter | None:
    """The reply writer of this bucket; None if the server sends its parameters complete."""
    chosen = None if codec is None else bucket_codec(codec, layout, bucket)
    return None if chosen is None or is_plain(chosen) else ReplyWriter(chosen, bucket, draw, keeps)


class ReplyReader:
    """Reads all replies to one worker."""

    def __init__(self, codec: Codec, layout: Layout, keeps: bool, first: Mapping[Bucket, Values]) -> None:
        """`first`: the values that the worker has before the first reply, if it got them without a message."""
        self._codec = codec
        self._layout = layout
        self._keeps = keeps
        self._held = dict(first)
        self._serials: dict[Bucket, int] = {}
        self._codecs: dict[Bucket, Codec] = {}

    def codec_of(self, bucket: Bucket) -> Codec:
        """The codec that encodes the replies about this bucket."""
        found = self._codecs.get(bucket)
        if found is None:
            found = self._codecs[bucket] = bucket_codec(self._codec, self._layout, bucket)
        return found

    def holds(self, bucket: Bucket) -> int:
        """The number of the last reply about this bucket; 0 if there was none."""
        return self._serials.get(bucket, 0)

    def hear(self, answer: Params, payload: Payload) -> Values:
        """The parameters, or the mean of the round, from this reply."""
        bucket = answer.bucket
        self._serials[bucket] = answer.serial
        if payload.dtype != np.uint8:
            if self._keeps:
                self._held[bucket] = payload.copy()
            return payload
        codec = self.codec_of(bucket)
        if not self._keeps:
            return codec.decode(payload, np.empty(bucket.size, np.float32))
        values = self._held[bucket].copy()
        codec.add_into(payload, values)
        self._held[bucket] = values
        return values
