"""How large buckets are where nobody has said it. The coordinator decides it once, when a model begins.

1. On one host a bucket costs its messages and nothing else, so few and large ones are fastest, however small the model:
   in shared memory larger ones than over TCP.
2. Between hosts a bucket travels while the next one is computed, added up, or on its way back. That takes several of
   them on every server; but not ones that are smaller than what a message costs.
3. Where a codec makes few bytes of a bucket, its way is short and the work on it is what costs: fewer are better.
4. A run that listens for other hosts is one between hosts, also while none has joined.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping

from syncline.codecs import Dense
from syncline.engines.net.addresses import Address, is_loopback
from syncline.engines.net.wiring import Wiring
from syncline.layout import VALUE_BYTES

DENSE = str(Dense())

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


def fitting(wiring: Wiring, values: int, said: Iterable[Mapping[str, str]] = ()) -> dict[str, str]:
    """The settings of a run with this wiring, on servers that hold so many values each; `said`: the strongest first."""
    if wiring.listen and not is_loopback(Address(wiring.listen, 0)):
        return between_hosts(values, said)
    return _words(LOOPBACK if wiring.lane == "tcp" else SHARED)


def between_hosts(values: int, said: Iterable[Mapping[str, str]] = ()) -> dict[str, str]:
    """The same of a run between hosts."""
    words = ChainMap(*map(dict, said))
    if any(words.get(key, DENSE) != DENSE for key in ("codec", "reply_codec")):
        return _words(LARGEST)
    return _words(min(max(values * VALUE_BYTES // PER_SERVER, SMALLEST), LARGEST))


def _words(size: int) -> dict[str, str]:
    kib = size >> 10
    return {"bucket": f"{kib}KiB" if kib % 1024 else f"{kib // 1024}MiB"}
