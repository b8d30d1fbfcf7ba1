"""The model of a plan: how large each of its tables is, how long a step takes, and the program that trains it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from syncline.errors import UsageError
from syncline.layout import VALUE_BYTES, Layout

MOST_VALUES = 2 * 10**10
MOST_TABLES = 100_000

PROGRAM = ("train.py",)
"""The program in a command, if the user has not named one."""

OPTION = "MODEL"


@dataclass(frozen=True)
class PlannedModel:
    """What a plan must know about a model."""

    name: str
    layout: Layout
    shares: tuple[float, ...]
    """Each table's share of a pass in either direction; the sum is 1."""
    step: float | None = None
    """The seconds in which one worker computes one step; None: unknown."""
    origin: str = ""
    """Where the step time comes from."""
    batch: int | None = None
    """The examples of a step; None: unknown."""
    recipe: str | None = None
    """The name of the recipe that `syncline train` trains. It sends nothing while it computes."""
    program: tuple[str, ...] = PROGRAM
    """A Python file and its arguments."""

    @property
    def size(self) -> int:
        """The bytes of the model vector."""
        return self.layout.size * VALUE_BYTES


def by_size(layout: Layout) -> tuple[float, ...]:
    """Shares in proportion to the tables' sizes, for a model of which nothing else is known."""
    return tuple(table.size / layout.size for table in layout.tables)


def checked_layout(tables: Iterable[tuple[str, Sequence[int]]], option: str = OPTION) -> Layout:
    """The layout of these tables; `UsageError` if it is empty or too large."""
    layout = Layout.of(tables)
    if not layout.size:
        raise UsageError(option, "has no values; name at least one layer with a size of 1 or more")
    if len(layout.tables) > MOST_TABLES:
        raise UsageError(option, f"has {len(layout.tables):,} layers; use at most {MOST_TABLES:,}")
    if layout.size > MOST_VALUES:
        raise UsageError(option, f"has {layout.size:,} values; a plan takes at most {MOST_VALUES:,}")
    names = [table.name for table in layout.tables]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(option, f"names the layer {twice!r} twice; give each layer a name of its own")
    return layout


def layers_of(text: str) -> Layout:
    """The layers of a text such as `conv:1728,dense:64x10`: names, and a size or a shape each."""
    tables = []
    for word in text.split(","):
        name, colon, size = word.strip().rpartition(":")
        try:
            shape = [int(each) for each in size.split("x")]
        except ValueError:
            shape = []
        if not colon or not name or not shape or min(shape) < 0 or max(shape) > MOST_VALUES:
            example = "write NAME:SIZE or NAME:ROWSxCOLUMNS, e.g. conv:1728,dense:64x10"
            raise UsageError(OPTION, f"{word.strip()!r} is not a layer; {example}")
        tables.append((name, shape))
    return checked_layout(tables)
