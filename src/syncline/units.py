"""Quantities as people write them: "1Gbit", "2GB/s", "0.1ms", "1MiB"."""

from __future__ import annotations

import re
from math import inf, isfinite

from syncline.errors import UsageError

Size = int
"""A number of bytes; in the text of a part it may have a unit: `budget:1MB`."""

_PREFIX = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0}
_NUMBER = r"\s*((?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*"
_BYTES = re.compile(_NUMBER + r"(|k|K|M|G|T|Ki|Mi|Gi)(bit|B)(/s|ps)?\s*")
_TIME = re.compile(_NUMBER + r"(s|ms|us|µs|ns|min)\s*")


def rate(text: str, option: str) -> float:
    """Convert a text such as "1Gbit" to bytes per second."""
    found = _BYTES.fullmatch(text)
    if not found:
        raise UsageError(option, f'{text!r} is not a rate; write a number and a unit, e.g. "1Gbit" or "2GB/s"')
    return _positive(_bytes(found), text, option)


def size(text: str, option: str) -> int:
    """Convert a text such as "1MiB" to bytes."""
    found = _BYTES.fullmatch(text)
    if not found or found[4]:
        raise UsageError(option, f'{text!r} is not a size; write a number and a unit, e.g. "1MiB"')
    return int(_positive(_bytes(found), text, option))


def seconds(value: str | float, option: str) -> float:
    """Convert a text such as "0.1ms" to seconds; a plain number is in seconds already."""
    if isinstance(value, str):
        found = _TIME.fullmatch(value)
        if not found:
            raise UsageError(option, f'{value!r} is not a time; write a number and a unit, e.g. "0.1ms" or "2s"')
        value = float(found[1]) * _SECONDS[found[2]]
    if not isfinite(value) or value < 0:
        raise UsageError(option, f"{value} is not a time; give a finite number of seconds, at least 0")
    return value


def _bytes(found: re.Match[str]) -> float:
    return float(found[1]) * _PREFIX[found[2]] / (8 if found[3] == "bit" else 1)


def _positive(value: float, text: str, option: str) -> float:
    if not 0 < value < inf:
        raise UsageError(option, f"{text!r} must be finite and above 0")
    return value
