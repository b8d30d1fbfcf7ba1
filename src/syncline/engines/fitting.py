"""How large buckets are where nobody has said it. The coordinator decides it once, when a model begins.

1. On one host a bucket costs its messages and nothing else, so few and large ones are fastest, however small the model:
   in shared memory larger ones than over TCP.
2. Between hosts a bucket travels while the next one is computed, added up, or on its way back. That takes several of
   them on every server; but not ones that are smaller than what a message costs.
3. A run that listens for other hosts is one between hosts, also while none has joined.
"""

from __future__ import annotations

from syncline.engines.addresses import Address, is_loopback
from syncline.engines.wiring import Wiring
from syncline.layout import VALUE_BYTES

SHARED = 4 << 20
"""Bytes of a bucket in shared memory."""

LOOPBACK = 2 << 20
"""Over TCP on one host."""

LARGEST = 1 << 20
"""Between hosts, however large the model."""

SMALLEST = 64 << 10
"""The same, however small."""

PER_SERVER = 8
"""Between hosts, so many buckets or more on each server."""


def fitting(wiring: Wiring, values: int) -> dict[str, str]:
    """The settings of a run with this wiring, on servers that hold so many values each."""
    if wiring.listen and not is_loopback(Address(wiring.listen, 0)):
        size = min(max(values * VALUE_BYTES // PER_SERVER, SMALLEST), LARGEST)
    else:
        size = LOOPBACK if wiring.lane == "tcp" else SHARED
    kib = size >> 10
    return {"bucket": f"{kib}KiB" if kib % 1024 else f"{kib // 1024}MiB"}
