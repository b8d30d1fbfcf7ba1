"""How a worker encodes its updates: the codec of each bucket, and the memory that it keeps from update to update.

A float32 payload is the plain values. A payload of bytes was encoded by the bucket's codec. A payload is never larger
than the plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from syncline.codecs import Chance, Codec, Dense, Memory, codec_for, is_exact
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Layout, Payload, Values, Within


def bucket_codec(codec: Codec, layout: Layout | None, bucket: Bucket) -> Codec:
    """The codec for this bucket; `dense` if an exact codec would save no bytes."""
    chosen = codec if layout is None else codec_for(codec, layout, bucket)
    saves = not is_exact(chosen) or chosen.size(bucket.size) < bucket.size * VALUE_BYTES
    return chosen if saves else Dense()


def is_plain(codec: Codec) -> bool:
    """Whether the codec's payloads are the plain values."""
    return bool(getattr(codec, "plain", False))


def encoded_bytes(payload: Payload | None) -> int:
    """The size of an encoded payload in bytes; 0 if there is no payload or it is the plain values."""
    return payload.nbytes if payload is not None and payload.dtype == np.uint8 else 0


def decoded(codec: Codec, payload: Payload, out: Values) -> Values:
    """The values of a payload; read-only, since they may be the payload itself."""
    return codec.decode(payload, out) if payload.dtype == np.uint8 else payload


def check_written(codec: Codec, payload: Payload, values: int) -> None:
    """Raise PeerError unless the received bytes are a valid encoding of this many values by this codec."""
    if is_plain(codec):
        raise PeerError("an encoded payload, but the codec of this bucket sends plain values")
    codec.check(payload, values)


class Writer:
    """Encodes the updates of one bucket."""

    __slots__ = ("_out", "codec", "memory")

    def __init__(self, codec: Codec, values: int, memory: Memory | None = None) -> None:
        self.codec = codec
        self.memory = codec.memory(values) if memory is None else memory
        self._out = np.empty(0 if is_plain(codec) else codec.size(values), np.uint8)

    def write(self, update: Values, chance: Chance) -> Payload:
        """The payload of an update; valid until the next call."""
        payload = self.codec.encode(update, self.memory, self._out, chance)
        if payload.nbytes > update.nbytes:
            return self.codec.decode(payload, np.empty_like(update))
        return payload

    def piece(self, codec: Codec, where: slice) -> Writer:
        """A writer for a piece of the bucket, which continues with that piece of the memory."""
        kept = {name: values[where].copy() for name, values in self.memory.items() if name in codec.memory(0)}
        return Writer(codec, where.stop - where.start, {**codec.memory(where.stop - where.start), **kept})


class Writers:
    """Encodes all updates of one worker, with a codec and a memory for each bucket."""

    __slots__ = ("_codec", "_layout", "_within", "_writers")

    def __init__(self, codec: Codec, layout: Layout, within: Within) -> None:
        self._codec = codec
        self._layout = layout
        self._within = within
        self._writers: dict[Bucket, Writer] = {}

    def write(self, bucket: Bucket, update: Values, chance: Chance) -> Payload:
        """The payload of an update; valid until the next call for this bucket."""
        return self._of(bucket).write(update, chance)

    def read(self, bucket: Bucket, payload: Payload) -> Values:
        """The values of an encoded payload, even if a later view has cut the bucket."""
        return self._codec_of(bucket).decode(payload, np.empty(bucket.size, np.float32))

    def memories(self, buckets: Iterable[Bucket]) -> dict[Bucket, Memory]:
        """The codec's memory of each of these buckets; the caller may write to it."""
        return {bucket: self._of(bucket).memory for bucket in buckets}

    def rename(self, inside: Callable[[Bucket], Iterable[Bucket]]) -> None:
        """Continue with the pieces of each bucket, as a new view cuts it."""
        self._writers = {
            piece: writer if piece == name else writer.piece(self._codec_of(piece), self._within(name, piece))
            for name, writer in self._writers.items()
            for piece in inside(name)
        }

    def _of(self, bucket: Bucket) -> Writer:
        writer = self._writers.get(bucket)
        if writer is None:
            writer = self._writers[bucket] = Writer(self._codec_of(bucket), bucket.size)
        return writer

    def _codec_of(self, bucket: Bucket) -> Codec:
        return bucket_codec(self._codec, self._layout, bucket)
