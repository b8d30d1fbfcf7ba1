"""Check the tables and settings that a program declares, before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from syncline.engines.net.control import MOST_VALUES, Declare, declared
from syncline.engines.net.frames import DECLARATION, PREFIX, pack
from syncline.errors import UsageError
from syncline.layout import Layout, Values
from syncline.placement import placement_of
from syncline.spec import sendable
from syncline.strategies.settings import known_settings
from syncline.strategies.table import DEFAULT, read_strategy

LONGEST_NAME = 4096
"""The most characters in the name of a table."""

MOST_SIDES = 32
"""The most dimensions of a table."""

_NUMBERS = "biuf"
"""numpy's kinds for booleans, integers and floats."""


def in_float32(arrays: Mapping[str, npt.ArrayLike]) -> dict[str, Values]:
    """Convert the arrays to float32; raise `UsageError` if one cannot be a table."""
    if not isinstance(arrays, Mapping):
        raise UsageError("tables", f"must be a dict of names and arrays, not a {type(arrays).__name__}")
    found = {_name(name): _values(name, array) for name, array in arrays.items()}
    if not sum(each.size for each in found.values()):
        raise UsageError("tables", "hold no values; give at least one array")
    return found


def declaration(layout: Layout, wishes: Mapping[str, object], model: str) -> Declare:
    """The message that declares these tables, and the settings that the program asks for."""
    if layout.size > MOST_VALUES:
        raise UsageError("tables", f"hold {layout.size:,} values; the limit is {MOST_VALUES:,}")
    words = {key: _word(key, wish) for key, wish in wishes.items()}
    kind = read_strategy(words["strategy"])["strategy"] if "strategy" in words else DEFAULT
    for key in words:
        if key not in (*known_settings(kind), "mode"):  # every strategy has a mode, if not as a setting
            raise UsageError(key, f"is not a setting; the settings are {', '.join(known_settings(kind))}")
    declare = Declare(declared(layout), words, model)
    size = len(pack(declare)) - PREFIX.size
    if size > DECLARATION:
        problem = f"{len(layout.tables):,} names and shapes take {size:,} bytes; the limit is {DECLARATION:,}"
        raise UsageError("tables", f"{problem}; merge small tables, or shorten their names")
    return declare


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise UsageError("tables", f"{name!r} is not a name; a name must be a string")
    if len(name) > LONGEST_NAME:
        problem = f"the name {name[:20]!r}... has {len(name):,} characters; the limit is {LONGEST_NAME:,}"
        raise UsageError("tables", problem)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError("tables", f"the name {name!r} cannot be encoded in UTF-8") from None
    return name


def _values(name: str, array: npt.ArrayLike) -> Values:
    try:
        found = np.asarray(array)
    except (ValueError, TypeError, RuntimeError) as error:  # the last: a tensor that cannot be converted
        raise UsageError("tables", f"{name!r} is not an array: {error}") from None
    if found.dtype.kind not in _NUMBERS:
        raise UsageError("tables", f"{name!r} is an array of {found.dtype}; a table must hold real numbers")
    if found.ndim > MOST_SIDES or max(found.shape, default=0) > MOST_VALUES:
        raise UsageError("tables", f"{name!r} has the shape {found.shape}; at most {MOST_SIDES} dimensions can be sent")
    return found.astype(np.float32, copy=False)


def _word(key: str, wish: object) -> str:
    """The text of a wish; the coordinator, which is another process, parses it."""
    if isinstance(wish, str | int | np.integer) and not isinstance(wish, bool):
        return str(wish)
    if key in _PART_SETTINGS:
        return sendable(_PART_SETTINGS[key], placement_of(wish) if key == "placement" else wish, key)
    raise UsageError(key, f"{wish!r} is not text; write it as on the command line, e.g. mode='changes' or seed=7")


_PART_SETTINGS = {
    "sync": "sync",
    "rule": "rule",
    "gate": "gate",
    "codec": "codec",
    "reply_codec": "codec",
    "placement": "placement",
}
"""The settings whose value may be a part, and its kind."""
