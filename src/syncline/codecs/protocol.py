"""The interface of a codec, which encodes updates as bytes and has an explicit state (`Memory`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from syncline.errors import PeerError
from syncline.layout import Payload, Values

Memory = dict[str, Values]
"""The state of a codec for one bucket; each array is as long as the bucket. "residual" is what was not sent yet."""

Bytes = npt.NDArray[np.uint8]

Chance = Callable[[], np.random.Generator]
"""Returns the random generator of a stochastic codec; other codecs never call it."""


@runtime_checkable
class Codec(Protocol):
    """A part that encodes values as a payload. An update that a server keeps for later stays encoded.

    A class may also set these attributes:

    - `exact = False`: `size` is an upper bound on the bytes of a payload, not the exact number
    - `plain = True`: a payload is the values themselves
    - `sparse = True`: it sends some values unchanged and keeps the rest; sent + residual is bit-identical to the update
    - `stochastic = True`: it rounds at random; the mean over all draws is the update
    """

    @abstractmethod
    def size(self, values: int) -> int:
        """The number of bytes of a payload for this many values."""
        ...

    @abstractmethod
    def memory(self, values: int) -> Memory:
        """The state before the first update of this many values; {} if the codec has no state."""
        ...

    @abstractmethod
    def encode(self, update: Values, memory: Memory, out: Bytes, chance: Chance) -> Payload:
        """Encode update + residual into `out`, which has `size` bytes, and change `memory` in place.

        The payload may also be the update itself; the worker does not write to it until the push is answered.
        """
        ...

    @abstractmethod
    def check(self, payload: Payload, values: int) -> None:
        """Raise PeerError unless this is a valid payload for this many values; called once per received payload."""
        ...

    @abstractmethod
    def decode(self, payload: Payload, out: Values) -> Values:
        """The decoded values: `out`, or the payload itself if it already is the values. The caller only reads them."""
        ...

    def add_into(self, payload: Payload, out: Values) -> None:
        """Add the decoded payload to `out` in place; a codec that derives from this class may keep this default."""
        np.add(out, self.decode(payload, np.empty_like(out)), out)


def every_codec(codec: object) -> Iterator[object]:
    """A codec and all codecs that it is made of."""
    yield codec
    for field in fields(codec) if is_dataclass(codec) else ():
        value = getattr(codec, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            for part in each if isinstance(each, tuple) else (each,):
                if isinstance(part, Codec):
                    yield from every_codec(part)


def is_exact(codec: Codec) -> bool:
    """Return True if every payload has exactly `size` bytes."""
    return bool(getattr(codec, "exact", True))


def is_sparse(codec: object) -> bool:
    """Return True if the codec sends some values unchanged and keeps the rest."""
    return bool(getattr(codec, "sparse", False))


def is_stochastic(codec: object) -> bool:
    """Return True if the codec rounds at random."""
    return bool(getattr(codec, "stochastic", False))


def once(chance: Chance) -> Chance:
    """Return the same generator at every call, so that the pieces of one payload draw different numbers."""
    return cache(chance)


def check_bytes(payload: Payload, size: int, name: str) -> Bytes:
    """The payload, if it is a one-dimensional array of exactly `size` bytes; else PeerError."""
    if payload.dtype != np.uint8 or payload.ndim != 1 or payload.size != size:
        raise PeerError(f"a payload of {name} must have {size} bytes, not {payload.dtype}{list(payload.shape)}")
    return payload
