"""Quantities as people write them, "1Gbit", "2GB/s", "0.1ms", "1MiB", and the bounds of numbers that people choose."""

from __future__ import annotations

import re
from math import inf, isfinite

from syncline.errors import UsageError

Size = int
"""A number of bytes; in the text of a part it may have a unit: `budget:1MB`."""

MOST = 1_000_000_000
"""The largest count of anything that a run goes through one by one: iterations, rounds, a bound on staleness."""

MOST_SEED = 2**63 - 1
MOST_SECONDS = 1e9
"""About 30 years."""

MOST_BYTES = 2**60

_LONGEST = 100
"""The characters of the longest quantity."""

_PREFIX = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0}
_NUMBER = r"\s*((?:[0-9](?:_?[0-9])*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*"
_BYTES = re.compile(_NUMBER + r"(|k|K|M|G|T|Ki|Mi|Gi)(bit|B)(/s|ps)?\s*")
_TIME = re.compile(_NUMBER + r"(s|ms|us|µs|ns|min)\s*")


def whole(value: int, option: str, least: int = 0, most: int = MOST, name: str = "") -> int:
    """The number, if it is in [least, most]; `name`: what the number is, if the option has several."""
    if not least <= value <= most:
        limit = f"at least {least:,} and at most {most:,}"
        raise UsageError(option, f"{name} must be {limit}, not {_shown(value)}".lstrip())
    return value


def real(value: float, option: str, least: float = 0.0, most: float = inf, name: str = "") -> float:
    """The number, if it is finite and in [least, most]; `name`: what the number is, if the option has several."""
    if not (least <= value <= most and isfinite(value)):
        limit = f"finite and at least {least:g}" if most == inf else f"at least {least:g} and at most {most:,g}"
        raise UsageError(option, f"{name} must be {limit}, not {_shown(value)}".lstrip())
    return value


def _shown(value: float) -> str:
    """The number, in the short form of a float if it is large."""
    if abs(value) < 10**20:
        return str(value)
    try:
        return f"{float(value):g}"
    except OverflowError:
        return "a number of more than 300 digits"


def rate(text: str, option: str) -> float:
    """Convert a text such as "1Gbit" to bytes per second."""
    found = _match(_BYTES, text)
    if not found:
        raise UsageError(option, f'{text!r} is not a rate; write a number and a unit, e.g. "1Gbit" or "2GB/s"')
    return _in_range(_bytes(found), text, option, "1bit/s")


def size(text: str, option: str) -> int:
    """Convert a text such as "1MiB" to bytes."""
    found = _match(_BYTES, text)
    if not found or found[4]:
        raise UsageError(option, f'{text!r} is not a size; write a number and a unit, e.g. "1MiB"')
    return int(_in_range(_bytes(found), text, option, "1B"))


def seconds(value: str | float, option: str) -> float:
    """Convert a text such as "0.1ms" to seconds; a plain number is in seconds already."""
    if isinstance(value, str):
        found = _match(_TIME, value)
        if not found:
            raise UsageError(option, f'{value!r} is not a time; write a number and a unit, e.g. "0.1ms" or "2s"')
        value = float(found[1]) * _SECONDS[found[2]]
    if not 0 <= value <= MOST_SECONDS:
        wanted = f"give a finite number of seconds, at least 0 and at most {MOST_SECONDS:,.0f}"
        raise UsageError(option, f"{_shown(value)} is not a time; {wanted}")
    return value


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """A match of the whole text; None for a long text, which would take quadratic time."""
    return pattern.fullmatch(text) if len(text) <= _LONGEST else None


def _bytes(found: re.Match[str]) -> float:
    return float(found[1]) * _PREFIX[found[2]] / (8 if found[3] == "bit" else 1)


def _in_range(value: float, text: str, option: str, least: str) -> float:
    """The number of bytes, or of bytes per second, if it is at least what `least` says and at most MOST_BYTES."""
    if not 0 < value < inf:
        raise UsageError(option, f"{text!r} must be finite and above 0")
    lowest = _match(_BYTES, least)
    assert lowest is not None
    if not _bytes(lowest) <= value <= MOST_BYTES:
        raise UsageError(option, f"{text!r} is out of range: at least {least}, at most {MOST_BYTES >> 30}GiB")
    return value
