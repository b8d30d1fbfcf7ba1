"""`dense`: float32 values, unchanged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.codecs.protocol import Bytes, Chance, Memory
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Payload, Values
from syncline.parts import Part

_FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Dense(Part):
    """float32 values, unchanged and without a copy; a payload is the values or their bytes."""

    name = "dense"
    plain = True

    def size(self, values: int) -> int:
        return values * VALUE_BYTES

    def memory(self, values: int) -> Memory:
        return {}

    def encode(
        self, update: Values, memory: Memory | None = None, out: Bytes | None = None, chance: Chance | None = None
    ) -> Payload:
        return update

    def check(self, payload: Payload, values: int) -> None:
        if payload.dtype not in (_FLOAT32, np.uint8) or payload.ndim != 1 or payload.nbytes != self.size(values):
            raise PeerError(f"a payload of dense must be {values} float32, not {payload.dtype}{list(payload.shape)}")

    def decode(self, payload: Payload, out: Values) -> Values:
        if payload.dtype is not _FLOAT32 or payload.shape != out.shape:
            self.check(payload, out.size)
            return payload.view(np.float32)
        return payload

    def add_into(self, payload: Payload, out: Values) -> None:
        np.add(out, self.decode(payload, out), out)
