"""The values of the server strategy's settings: an object is checked, a text is parsed; `UsageError` names the setting.

The constructor of the strategy and the settings of the command line and of files all go through these functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import isfinite
from typing import Any

from syncline import units
from syncline.errors import UsageError
from syncline.layout import VALUE_BYTES
from syncline.messages import PAYLOAD
from syncline.spec import one_of, part_of
from syncline.strategies.mode import Mode
from syncline.sync import Release, SyncModel

NEVER = "never"
UNLIMITED = "unlimited"

_CHOICES: Mapping[str, type[StrEnum]] = {"mode": Mode, "release": Release}


def value_of(key: str, given: object) -> Any:
    """The value of this setting: `given` itself, or what its text describes."""
    if key in _CHOICES:
        return one_of(_CHOICES[key], str(given), key)
    return part_of("codec" if key == "reply_codec" else key, given, key)


def models_of(given: object) -> tuple[SyncModel, ...]:
    """The sync models: one for all servers, or one each, as objects or texts; a text may list several, with spaces."""
    listed = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    words = [word for each in listed for word in (_words(each) if isinstance(each, str) else [each])]
    if not words:
        raise UsageError("sync", "the list is empty; give one model for all servers, or one for each")
    return tuple(part_of("sync", each) for each in words)


def _words(text: str) -> list[str]:
    return text.split() or [text]


def read_bucket(word: str) -> int:
    """The number of values in a bucket of this size, at least 1."""
    size = units.size(word, "bucket")
    if size > PAYLOAD:
        raise UsageError("bucket", f"{word!r} does not fit in a message; use at most {PAYLOAD >> 30}GiB")
    return max(size // VALUE_BYTES, 1)


def read_window(word: str) -> int | None:
    """The number of values in a window of this size, at least 1; None for `unlimited`."""
    if word == UNLIMITED:
        return None
    try:
        return max(units.size(word, "window") // VALUE_BYTES, 1)
    except UsageError:
        raise UsageError("window", f"{word!r} is not a size such as 2MiB, nor {UNLIMITED!r}") from None


def read_patience(word: str) -> float | None:
    """The seconds of this text; None for `never`."""
    if word == NEVER:
        return None
    seconds = units.seconds(word, "patience")
    if not seconds > 0:
        raise UsageError("patience", f"must be more than 0 seconds, or {NEVER!r}, not {word!r}")
    return seconds


def check_numbers(bucket_values: object, patience: object, window: object = None) -> None:
    """Refuse a size of buckets, a patience or a window that cannot work."""
    for name, number in (("bucket_values", bucket_values), ("window", 1 if window is None else window)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise UsageError(name, f"must be a whole number of at least 1, not {number!r}")
    if patience is not None and not (isinstance(patience, int | float) and isfinite(patience) and patience > 0):
        raise UsageError("patience", f"must be more than 0 seconds, or None, not {patience!r}")


def read_backups(word: str) -> int:
    """How many backups each server has."""
    if not (word.isascii() and word.isdecimal() and len(word) < 10):
        raise UsageError("backups", f"must be 0 or 1, not {word!r}")
    return int(word)


def check_backups(backups: object) -> None:
    """Refuse any other number of backups than 0 and 1."""
    if type(backups) is not int or backups not in (0, 1):
        raise UsageError("backups", f"must be 0 or 1, not {backups!r}; a server has at most one backup")
