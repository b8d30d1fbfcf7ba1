"""What all conformance suites check: a part is a value, it leaves shared randomness alone, and its answers are bool."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from syncline.errors import UsageError
from syncline.spec import parse, write

Result = TypeVar("Result")

MANY = 262_144
"""The number of values in a bucket of 1 MiB, the default size: eight of the blocks that servers work on."""


def check_value(kind: str, part: object, protocol: type) -> str:
    """Check that the part has the methods, hashes, and can be written as text and read back; return its text."""
    assert isinstance(part, protocol), f"{part!r} does not have all methods of {protocol.__name__}"
    assert type(part).__hash__ is not None, f"{part!r} must be hashable: use dataclass(frozen=True)"
    text = write(part)
    try:
        again = parse(kind, text)
    except UsageError as error:
        raise AssertionError(f"{text!r} cannot be read back: {error.problem}") from error
    assert again == part, f"{text!r} does not read back as {part!r}; is it a frozen dataclass?"
    return text


def check_bool(value: object, what: str) -> bool:
    """The value, if it is True or False."""
    if isinstance(value, bool):
        return value
    hint = "; write bool(...) around it" if isinstance(value, np.bool_) else ""
    raise AssertionError(f"{what} must be True or False, not {value!r} of type {type(value).__name__}{hint}")


def check_flags(part: object, *names: str) -> None:
    """Check that these attributes, where the part has them, are True or False."""
    for name in names:
        check_bool(getattr(part, name, False), f"{write(part)}.{name}")


@contextmanager
def own_randomness(what: str) -> Iterator[None]:
    """Check that the code inside does not use the random generators that all of a program shares."""
    before, before_numpy = random.getstate(), _state_of_numpy()
    yield
    hint = "take randomness only from what the part is given"
    assert random.getstate() == before, f"{what}: it uses the shared generator of `random`; {hint}"
    assert _state_of_numpy() == before_numpy, f"{what}: it uses the shared generator of `numpy.random`; {hint}"


def _state_of_numpy() -> tuple[object, ...]:
    name, keys, *rest = np.random.get_state(legacy=True)
    return name, np.asarray(keys).tobytes(), *rest


def asked(call: Callable[[], Result], what: str) -> Result:
    """The result of a call of the user's code; an exception becomes an AssertionError that names it."""
    try:
        return call()
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__}: {error}") from error
