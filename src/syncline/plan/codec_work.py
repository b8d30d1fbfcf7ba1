"""How much processor time a codec takes per value, measured on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from syncline.spec import parse

VALUES = 1 << 18
"""The values of a bucket of 1 MiB, the default size between hosts if a codec is used."""

REPEATS = 3


@dataclass(frozen=True)
class CodecWork:
    """Seconds per value."""

    encode: float = 0.0
    decode: float = 0.0


FREE = CodecWork()


def measured_work(name: str, values: int = VALUES) -> CodecWork:
    """Encode and decode made-up values, and return the shortest times of a few."""
    codec = parse("codec", name)
    random = np.random.default_rng(0)
    update = random.normal(size=values).astype(np.float32)
    memory, out, sums = codec.memory(values), np.empty(codec.size(values), np.uint8), np.zeros(values, np.float32)
    payload = codec.encode(update, memory, out, lambda: random)
    encode = _shortest(lambda: codec.encode(update, memory, out, lambda: random))
    return CodecWork(encode / values, _shortest(lambda: codec.add_into(payload, sums)) / values)


def _shortest(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        began = perf_counter()
        work()
        times.append(perf_counter() - began)
    return min(times)
