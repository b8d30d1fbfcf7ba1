"""What a codec is: a value that writes updates as bytes, and an explicit memory beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from syncline.errors import PeerError
from syncline.layout import Payload, Values

Memory = dict[str, Values]
"""What a codec remembers of one bucket, each array as long as the bucket; what was not sent is its "residual"."""

Bytes = npt.NDArray[np.uint8]

Chance = Callable[[], np.random.Generator]
"""Where a stochastic codec gets its randomness; the others never call it."""


@runtime_checkable
class Codec(Protocol):
    """A part that writes values as a payload; an update that is kept for later stays encoded.

    A class may also say `exact = False` (`size` is the most that a payload takes), `plain = True` (a payload is the
    values themselves), `sparse = True` (it sends some of the values as they are and keeps the rest: sent + residual =
    update to the bit) and `stochastic = True` (it rounds at random; the mean over all draws is the update).
    """

    @abstractmethod
    def size(self, values: int) -> int:
        """The bytes of a payload for so many values."""
        ...

    @abstractmethod
    def memory(self, values: int) -> Memory:
        """The memory before the first update of so many values; {} if there is nothing to remember."""
        ...

    @abstractmethod
    def encode(self, update: Values, memory: Memory, out: Bytes, chance: Chance) -> Payload:
        """The payload of update + residual, written to `out`, which has `size` bytes; `memory` is changed in place.

        It may be the update itself, which its owner then leaves alone until it is answered.
        """
        ...

    @abstractmethod
    def check(self, payload: Payload, values: int) -> None:
        """Raise PeerError unless this is a payload for so many values; for bytes from the wire, once, on arrival."""
        ...

    @abstractmethod
    def decode(self, payload: Payload, out: Values) -> Values:
        """The decoded values, to be read only: written to `out`, or the payload itself if that already is them."""
        ...

    def add_into(self, payload: Payload, out: Values) -> None:
        """Add the decoded payload to `out`, in place; a codec that derives from this class need not say how."""
        np.add(out, self.decode(payload, np.empty_like(out)), out)


def is_exact(codec: Codec) -> bool:
    """Is every payload as long as `size` says?"""
    return bool(getattr(codec, "exact", True))


def is_sparse(codec: object) -> bool:
    """Does it send some of the values as they are, and keep the rest?"""
    return bool(getattr(codec, "sparse", False))


def is_stochastic(codec: object) -> bool:
    """Does it round at random?"""
    return bool(getattr(codec, "stochastic", False))


def once(chance: Chance) -> Chance:
    """The same generator at every call: for all pieces of a payload, so that no two draw alike."""
    return cache(chance)


def check_bytes(payload: Payload, size: int, name: str) -> Bytes:
    """The payload, if it is a row of exactly so many bytes."""
    if payload.dtype != np.uint8 or payload.ndim != 1 or payload.size != size:
        raise PeerError(f"a payload of {name} has {size} bytes, not {payload.dtype}{list(payload.shape)}")
    return payload
