"""How a worker writes its updates: the codec of each bucket, and what it keeps of one update for the next.

A payload of float32 is the values themselves; one of bytes was written by the bucket's codec. Nothing is ever larger
than the values themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from syncline.codecs import Chance, Codec, Dense, Memory, codec_for, is_exact
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Layout, Payload, Values, Within


def bucket_codec(codec: Codec, layout: Layout | None, bucket: Bucket) -> Codec:
    """The codec that writes this bucket; `dense` where it would save nothing."""
    chosen = codec if layout is None else codec_for(codec, layout, bucket)
    saves = not is_exact(chosen) or chosen.size(bucket.size) < bucket.size * VALUE_BYTES
    return chosen if saves else Dense()


def is_plain(codec: Codec) -> bool:
    """Are its payloads the values themselves?"""
    return bool(getattr(codec, "plain", False))


def encoded_bytes(payload: Payload | None) -> int:
    """The length of a payload that a codec has written; 0: there is none, or it is the values themselves."""
    return payload.nbytes if payload is not None and payload.dtype == np.uint8 else 0


def decoded(codec: Codec, payload: Payload, out: Values) -> Values:
    """The values of a payload, to be read only."""
    return codec.decode(payload, out) if payload.dtype == np.uint8 else payload


def check_written(codec: Codec, payload: Payload, values: int) -> None:
    """Raise PeerError unless these bytes, which came in, are what the bucket's codec writes for so many values."""
    if is_plain(codec):
        raise PeerError("bytes where the values themselves are sent")
    codec.check(payload, values)


class Writer:
    """Writes the updates of one bucket."""

    __slots__ = ("_out", "codec", "memory")

    def __init__(self, codec: Codec, values: int, memory: Memory | None = None) -> None:
        self.codec = codec
        self.memory = codec.memory(values) if memory is None else memory
        self._out = np.empty(0 if is_plain(codec) else codec.size(values), np.uint8)

    def write(self, update: Values, chance: Chance) -> Payload:
        """The payload; valid until the next one is written."""
        payload = self.codec.encode(update, self.memory, self._out, chance)
        if payload.nbytes > update.nbytes:
            return self.codec.decode(payload, np.empty_like(update))
        return payload

    def piece(self, codec: Codec, where: slice) -> Writer:
        """The writer of a piece of the bucket, which goes on with that piece of the memory."""
        kept = {name: values[where].copy() for name, values in self.memory.items() if name in codec.memory(0)}
        return Writer(codec, where.stop - where.start, {**codec.memory(where.stop - where.start), **kept})


class Writers:
    """Writes all updates of one worker, each bucket by its own codec and memory."""

    __slots__ = ("_codec", "_layout", "_within", "_writers")

    def __init__(self, codec: Codec, layout: Layout, within: Within) -> None:
        self._codec = codec
        self._layout = layout
        self._within = within
        self._writers: dict[Bucket, Writer] = {}

    def write(self, bucket: Bucket, update: Values, chance: Chance) -> Payload:
        """The payload; valid until the next one of this bucket is written."""
        return self._of(bucket).write(update, chance)

    def read(self, bucket: Bucket, payload: Payload) -> Values:
        """The values of what was written, also of a bucket that is cut by now."""
        return self._codec_of(bucket).decode(payload, np.empty(bucket.size, np.float32))

    def memories(self, buckets: Iterable[Bucket]) -> dict[Bucket, Memory]:
        """What is kept of each of these for the next update; what is written there counts."""
        return {bucket: self._of(bucket).memory for bucket in buckets}

    def rename(self, inside: Callable[[Bucket], Iterable[Bucket]]) -> None:
        """Go on with the pieces of each bucket, as a new view cuts it."""
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
