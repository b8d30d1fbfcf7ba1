"""The default bucket size. The coordinator chooses it once, when a model begins.

1. On one host a bucket costs only its messages, so few large buckets are fastest, even for a small model. They are
   larger in shared memory than over TCP.
2. Between hosts one bucket is transmitted while others are computed, applied or returned. That needs several buckets on
   every server, but none so small that the cost per message dominates.
3. If a codec compresses buckets, transmission is short and the work per bucket dominates, so fewer buckets are better.
4. A run that listens for other hosts counts as a run between hosts, even while none has joined.
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
"""Bytes per bucket in shared memory."""

LOOPBACK = 2 << 20
"""Bytes per bucket over TCP on one host."""

LARGEST = 1 << 20
"""The most bytes per bucket between hosts."""

SMALLEST = 64 << 10
"""The fewest bytes per bucket between hosts."""

PER_SERVER = 8
"""Between hosts, each server gets at least this many buckets, unless they would be too small."""


def fitting(wiring: Wiring, values: int, said: Iterable[Mapping[str, str]] = ()) -> dict[str, str]:
    """Default settings for this wiring, for servers that hold `values` each.

    `said`: the user's settings, the source that takes precedence first.
    """
    if wiring.listen and not is_loopback(Address(wiring.listen, 0)):
        return between_hosts(values, said)
    return _words(LOOPBACK if wiring.lane == "tcp" else SHARED)


def between_hosts(values: int, said: Iterable[Mapping[str, str]] = ()) -> dict[str, str]:
    """Default settings for a run between hosts."""
    words = ChainMap(*map(dict, said))
    if any(words.get(key, DENSE) != DENSE for key in ("codec", "reply_codec")):
        return _words(LARGEST)
    return _words(min(max(values * VALUE_BYTES // PER_SERVER, SMALLEST), LARGEST))


def _words(size: int) -> dict[str, str]:
    kib = size >> 10
    return {"bucket": f"{kib}KiB" if kib % 1024 else f"{kib // 1024}MiB"}
