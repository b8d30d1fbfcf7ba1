"""Default settings that depend on the network. The coordinator chooses them once, when a model begins.

1. On one host a bucket costs only its messages, so few large buckets are fastest, even for a small model. They are
   larger in shared memory than over TCP.
2. Between hosts one bucket is transmitted while others are computed, applied or returned. That needs several buckets on
   every server, but none so small that the cost per message dominates.
3. Between hosts each server holds stripes of the model, so that all links are busy during the whole backward pass. A
   window keeps the workers together (nodes/server/push_window.py). It is a sixth of what a server holds, but at least
   two and at most four buckets, plus what a link of 1 Gbit/s carries in a round trip to the most distant host: a
   smaller window would leave links idle.
4. If a codec compresses buckets, transmission is short and the work per bucket dominates, so fewer buckets are better.
5. A run that listens for other hosts counts as a run between hosts, even while none has joined.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping

from syncline.codecs import Dense
from syncline.engines.net.addresses import Address, is_loopback
from syncline.engines.net.wiring import Wiring
from syncline.layout import VALUE_BYTES
from syncline.placement import Elastic

DENSE = str(Dense())

SHARED = 4 << 20
"""Bytes per bucket in shared memory."""

LOOPBACK = 2 << 20
"""Bytes per bucket over TCP on one host."""

ENCODED = 1 << 20
"""Bytes per bucket between hosts, if a codec compresses buckets."""

LARGEST, SMALLEST = 128 << 10, 64 << 10
"""The most and the fewest bytes per bucket between hosts."""

PER_SERVER = 12
"""Between hosts, each server gets at least this many buckets, unless they would be too small."""

STRIPES = 8

WINDOWS_PER_SERVER = 6
LEAST_WINDOW, MOST_WINDOW = 2, 4
"""In buckets."""

RATE = 125e6
"""The rate in bytes per second for which the window is large enough, however long a round trip takes."""


def fitting(
    wiring: Wiring, values: int, said: Iterable[Mapping[str, str]] = (), round_trip: float = 0.0
) -> dict[str, str]:
    """Default settings for this wiring, for servers that hold `values` each.

    `said`: the user's settings, the source that takes precedence first. `round_trip`: in seconds, to the most distant
    host.
    """
    if wiring.listen and not is_loopback(Address(wiring.listen, 0)):
        return between_hosts(values, said, round_trip)
    return {"bucket": _size(LOOPBACK if wiring.lane == "tcp" else SHARED)}


def between_hosts(values: int, said: Iterable[Mapping[str, str]] = (), round_trip: float = 0.0) -> dict[str, str]:
    """Default settings for a run between hosts."""
    words = ChainMap(*map(dict, said))
    if any(words.get(key, DENSE) != DENSE for key in ("codec", "reply_codec")):
        return {"bucket": _size(ENCODED)}
    part = values * VALUE_BYTES
    bucket = min(max(part // PER_SERVER, SMALLEST), LARGEST)
    window = min(max(part // WINDOWS_PER_SERVER, LEAST_WINDOW * bucket), MOST_WINDOW * bucket)
    return {
        "bucket": _size(bucket),
        "window": _size(window + int(RATE * round_trip)),
        "placement": str(Elastic(min(max(part // bucket, 1), STRIPES))),
    }


def _size(size: int) -> str:
    kib = size >> 10
    return f"{kib}KiB" if kib % 1024 else f"{kib // 1024}MiB"
