"""Every number of every message has a range; a frame with a number outside of its range is not decoded."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from hostile import every_message
from syncline.engines.net.control import Control
from syncline.engines.net.frames import PREFIX, Frame, pack, unpack
from syncline.errors import PeerError
from syncline.messages import MESSAGES, Message

LIMIT = 1 << 62

UNBOUNDED = {"Pulse.loss", "Pulse.accuracy", "Params.statistics", "Taken.statistics"}
"""Floats that may be NaN: a loss is only printed, and a gate checks the statistics itself."""

CONTROLS = tuple(Control.__subclasses__())


def numbers(kind: Any, path: str, seen: frozenset[type] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Every number inside this type, with the path to it."""
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        yield path, kind
    elif isinstance(kind, inspect.StructType):
        if kind.cls not in seen:
            for field in kind.fields:
                yield from numbers(field.type, f"{kind.cls.__name__}.{field.name}", seen | {kind.cls})
    elif isinstance(kind, inspect.DictType):
        yield from numbers(kind.key_type, path, seen)
        yield from numbers(kind.value_type, path, seen)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from numbers(each, path, seen)
    elif isinstance(kind, inspect.TupleType):
        for each in kind.item_types:
            yield from numbers(each, path, seen)
    elif isinstance(kind, inspect.VarTupleType | inspect.ListType):
        yield from numbers(kind.item_type, path, seen)


@pytest.mark.parametrize("message", [*MESSAGES, *CONTROLS], ids=lambda each: each.__name__)
def test_every_number_of_a_message_has_a_range(message: type[Message | Control]) -> None:
    for path, kind in numbers(inspect.type_info(message), message.__name__):
        if path in UNBOUNDED:
            continue
        lowest = kind.ge if kind.ge is not None else kind.gt
        highest = kind.le if kind.le is not None else kind.lt
        assert lowest is not None, path
        assert highest is not None, path
        assert isinstance(kind, inspect.FloatType) or (-1 <= lowest <= highest <= LIMIT), path


BOUNDARY = (-(2**63), -2, 2**62, 2**63 - 1, 2**64 - 1)
EVERY = every_message("a run", "a host", 1)


@pytest.mark.parametrize("message", EVERY, ids=lambda each: type(each).__name__)
def test_a_frame_with_a_number_outside_of_its_range_is_no_message(message: Frame) -> None:
    """Each number of each message is replaced by each number that is in no range."""
    raw = msgspec.msgpack.decode(pack(message)[PREFIX.size :])
    tried = 0
    for place in places(raw):
        real = isinstance(found(raw, place), float)
        for wrong in (-2, nan, inf) if real else (*BOUNDARY, nan, inf):
            header = msgspec.msgpack.encode(replaced(raw, place, wrong))
            with pytest.raises(PeerError):
                unpack(header)
            tried += 1
    assert tried or not list(places(raw))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all numbers in a decoded message, without those that may be NaN."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key not in ("statistics", "loss", "accuracy"):
                yield from places(each, (*path, key))
    elif isinstance(value, list):
        for key, each in enumerate(value):
            yield from places(each, (*path, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def found(value: Any, path: tuple[Any, ...]) -> Any:
    return found(value[path[0]], path[1:]) if path else value


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: replaced(value[path[0]], path[1:], new)}
    return [*value[: path[0]], replaced(value[path[0]], path[1:], new), *value[path[0] + 1 :]]


def test_the_numbers_at_the_edges_of_a_range_are_messages() -> None:
    """What is inside of all ranges is decoded, and can be written again."""
    fields = msgspec.msgpack.decode(pack(EVERY[0])[PREFIX.size :])
    for edge in (0, 1, 2**31, LIMIT - 1):
        push = unpack(msgspec.msgpack.encode({**fields, "holds": edge, "read": edge, "progress": edge}))
        assert unpack(pack(push)[PREFIX.size :]) == push
