"""A codec that sends the upper half of every float32.

syncline train --codec own.codec.UpperHalf
"""

from dataclasses import dataclass

import numpy as np

from syncline import Codec, PeerError


@dataclass(frozen=True)
class UpperHalf(Codec):
    """The lower half is kept in the residual for the next update, unless it is NaN or infinite."""

    def size(self, values):
        return 2 * values

    def memory(self, values):
        return {"residual": np.zeros(values, np.float32)}

    def encode(self, update, memory, out, chance):
        total = update + memory["residual"]
        out.view(np.uint16)[:] = total.view(np.uint16)[1::2]
        memory["residual"][:] = np.nan_to_num(total - self.decode(out, np.empty_like(total)), nan=0)
        return out

    def check(self, payload, values):
        if payload.dtype != np.uint8 or payload.shape != (2 * values,):
            raise PeerError(f"a payload for {values} values must have {2 * values} bytes, not {payload.nbytes}")

    def decode(self, payload, out):
        self.check(payload, out.size)
        return np.left_shift(payload.view(np.uint16), 16, out=out.view(np.uint32), dtype=np.uint32).view(np.float32)
