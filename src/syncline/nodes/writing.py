"""How a worker writes its updates: the codec of each bucket, and what it keeps of one update for the next.

A payload of float32 is the values themselves; one of bytes was written by the bucket's codec. Nothing is ever larger
than the values themselves.
"""

from __future__ import annotations

import numpy as np

from syncline.codecs import Chance, Codec, Dense, Memory, codec_for, is_exact
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Layout, Payload, Values


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
