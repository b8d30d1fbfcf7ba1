"""`topk` and `threshold`: send the few largest values unchanged, and keep the rest in the residual.

A payload is the count (only if it varies), the values in order of position, and the positions.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil

import numpy as np

from syncline.codecs.dense import Dense
from syncline.codecs.indices import Positions, index_bytes, read_indices, write_indices
from syncline.codecs.protocol import Bytes, Chance, Codec, Memory
from syncline.codecs.selecting import at_least, largest_positions, size_of
from syncline.errors import PeerError, UsageError
from syncline.layout import VALUE_BYTES, Payload, Values
from syncline.parts import Part

_AT_ONCE = 1 << 16
"""How many values are processed together, so that they stay in the cache."""


class Sparse(Part):
    """A codec that sends some values and keeps the others; the codec `inner` encodes the values that are sent."""

    sparse = True

    @property
    def inner(self) -> Codec:
        return Dense()

    @abstractmethod
    def count(self, values: int) -> int | None:
        """How many of this many values are sent; None if that varies."""

    @abstractmethod
    def pick(self, values: Values) -> Positions:
        """The positions of the values to send, in increasing order."""

    def gather(self, update: Values, memory: Memory) -> Values:
        """Add the update to the residual, and return the residual: the values to choose from."""
        residual = memory["residual"]
        np.add(residual, update, out=residual)
        return residual

    def leave(self, positions: Positions, values: Values, memory: Memory) -> None:
        """Set the residual at these positions to these values."""
        memory["residual"][positions] = values

    def memory(self, values: int) -> Memory:
        return {"residual": np.zeros(values, np.float32)}

    def size(self, values: int) -> int:
        count = self.count(values)
        return VALUE_BYTES + self._body(values, values) if count is None else self._body(count, values)

    def encode(self, update: Values, memory: Memory, out: Bytes, chance: Chance) -> Payload:
        with np.errstate(all="ignore"):
            total = self.gather(update, memory)
            positions = self.pick(total)
            head = 0
            if self.count(update.size) is None:
                head = VALUE_BYTES
                if self._body(positions.size, update.size) > self._body(update.size, update.size):
                    positions = np.arange(update.size)
                out[:head].view("<u4")[0] = positions.size
            sent = total[positions]
            cut = head + self.inner.size(sent.size)
            size = head + self._body(sent.size, update.size)
            left = _write(self.inner, sent, out[head:cut], chance)
            write_indices(positions, update.size, out[cut:size])
            self.leave(positions, left, memory)
            if not np.isfinite(sent).all():
                _forget_not_finite(memory)
        return out[:size]

    def check(self, payload: Payload, values: int) -> None:
        self._read(payload, values)

    def decode(self, payload: Payload, out: Values) -> Values:
        positions, sent = self._read(payload, out.size)
        out[:] = 0
        out[positions] = sent
        return out

    def add_into(self, payload: Payload, out: Values) -> None:
        positions, sent = self._read(payload, out.size)
        with np.errstate(all="ignore"):
            out[positions] += sent

    def _body(self, count: int, values: int) -> int:
        return self.inner.size(count) + index_bytes(count, values)

    def _read(self, payload: Payload, values: int) -> tuple[Positions, Values]:
        """The positions and their values; PeerError unless this is a valid payload for this many values."""
        if payload.dtype != np.uint8 or payload.ndim != 1:
            raise PeerError(f"a payload of {self.name} must be bytes, not {payload.dtype}{list(payload.shape)}")
        count = self.count(values)
        if count is None:
            if payload.size < VALUE_BYTES:
                raise PeerError(f"a payload of {self.name} must start with a count of {VALUE_BYTES} bytes")
            count = int(payload[:VALUE_BYTES].view("<u4")[0])
            payload = payload[VALUE_BYTES:]
        if count > values or payload.size != self._body(count, values):
            problem = f"a payload of {self.name} with {count} of {values} values cannot have {payload.size} bytes"
            raise PeerError(problem)
        cut = self.inner.size(count)
        positions = read_indices(payload[cut:], count, values)
        return positions, self.inner.decode(payload[:cut], np.empty(count, np.float32))


def _write(codec: Codec, sent: Values, out: Bytes, chance: Chance) -> Values:
    """Encode the values into `out`; return the rounding error, 0 where it is not finite."""
    if isinstance(codec, Dense):
        out[:] = sent.view(np.uint8)
        return np.zeros_like(sent)
    payload = codec.encode(sent, codec.memory(sent.size), out, chance)
    left: Values = sent - codec.decode(payload, np.empty_like(sent))
    left[~np.isfinite(left)] = 0
    return left


def _forget_not_finite(memory: Memory) -> None:
    """Set NaN and infinity in the state to 0. They were sent already; if kept, they would be sent again forever."""
    for each in memory.values():
        each[~np.isfinite(each)] = 0


@dataclass(frozen=True)
class TopK(Sparse):
    """Send the largest `ratio` of the values by magnitude: max(1, ceil(ratio * values)) of them.

    With `momentum` m in [0, 1), as in Deep Gradient Compression (Lin et al. 2018): velocity = m velocity + update, and
    the velocity is added to the residual. Where a value is sent, both are reset to 0.
    """

    name = "topk"
    example = "topk:0.01"
    ratio: float
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise UsageError("topk", f"the ratio must be above 0 and at most 1, not {self.ratio}")
        if not 0 <= self.momentum < 1:
            raise UsageError("topk", f"momentum must be in [0, 1), not {self.momentum}")

    def count(self, values: int) -> int:
        return min(values, max(1, ceil(self.ratio * values)))

    def pick(self, values: Values) -> Positions:
        return largest_positions(values, self.count(values.size))

    def memory(self, values: int) -> Memory:
        residual = super().memory(values)
        return residual | {"velocity": np.zeros(values, np.float32)} if self.momentum else residual

    def gather(self, update: Values, memory: Memory) -> Values:
        if not self.momentum:
            return super().gather(update, memory)
        residual, velocity = memory["residual"], memory["velocity"]
        for start in range(0, update.size, _AT_ONCE):
            piece, speed = residual[start : start + _AT_ONCE], velocity[start : start + _AT_ONCE]
            np.multiply(speed, np.float32(self.momentum), out=speed)
            np.add(speed, update[start : start + _AT_ONCE], out=speed)
            np.add(piece, speed, out=piece)
        return residual

    def leave(self, positions: Positions, values: Values, memory: Memory) -> None:
        super().leave(positions, values, memory)
        if self.momentum:
            memory["velocity"][positions] = 0


@dataclass(frozen=True)
class Threshold(Sparse):
    """Send the values whose magnitude is at least `t`; send all values if that takes fewer bytes."""

    name = "threshold"
    example = "threshold:0.001"
    exact = False
    t: float

    def __post_init__(self) -> None:
        if not 0 < self.t <= float(np.finfo(np.float32).max):
            raise UsageError("threshold", f"t must be above 0 and finite in float32, not {self.t}")

    def count(self, values: int) -> None:
        return None

    def pick(self, values: Values) -> Positions:
        return at_least(values, size_of(self.t))
