"""Staged growth: a run starts with few workers and nodes, and its launcher starts more while it trains (`--grow`).

1. A stage is due so many seconds after training has begun.
2. Its nodes start first. Its workers start when the run knows these nodes, so that the nodes can serve them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from syncline.errors import UsageError
from syncline.units import seconds

OPTION = "--grow"
EXAMPLE = "write it as at=20s,workers=2"

MOST_GROWTH = 1024
"""The most nodes, and the most workers for each of them, that start in one stage."""


@dataclass(frozen=True)
class GrowthStage:
    """Processes that start `at` seconds after training has begun; the words are those of the fault `grow`."""

    at: float
    nodes: int | None = None
    """None: one if the strategy has nodes, else none."""
    each: int = 1
    """How many workers start for each node; without nodes, how many start."""

    @property
    def servers(self) -> int:
        return self.nodes or 0

    @property
    def workers(self) -> int:
        return self.each * max(1, self.servers)

    def fitted(self, has_nodes: bool) -> GrowthStage:
        """The same stage for a strategy that has nodes, or has none."""
        return replace(self, nodes=1) if has_nodes and self.nodes is None else self

    def __str__(self) -> str:
        nodes = "" if self.nodes is None else f",nodes={self.nodes}"
        return f"at={self.at:g}s{nodes},workers={self.each}"


def read_growth(texts: Sequence[str]) -> tuple[GrowthStage, ...]:
    """The stages in the texts of `--grow`, in order of time."""
    return tuple(sorted(map(_stage, texts), key=lambda each: each.at))


def _stage(text: str) -> GrowthStage:
    pairs = [part.partition("=") for part in text.split(",")]
    said = {key.strip(): word.strip() for key, _, word in pairs}
    if len(said) < len(pairs):
        raise UsageError(OPTION, f"{text!r} names a key twice; {EXAMPLE}")
    unknown = [key for key in said if key not in ("at", "nodes", "workers")]
    if unknown:
        raise UsageError(OPTION, f"{text!r}: {unknown[0]!r} is not one of at, nodes, workers; {EXAMPLE}")
    if "at" not in said:
        raise UsageError(OPTION, f"{text!r} lacks the time; {EXAMPLE}")
    at = said["at"]
    nodes = _count(text, "nodes", said["nodes"]) if "nodes" in said else None
    return GrowthStage(
        seconds(f"{at}s" if _is_number(at) else at, OPTION), nodes, _count(text, "workers", said.get("workers", "1"))
    )


def _is_number(word: str) -> bool:
    return word.replace(".", "", 1).isdecimal()


def _count(text: str, key: str, word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word[:6]) <= MOST_GROWTH:
        raise UsageError(OPTION, f"{text!r}: {key} must be a whole number from 1 to {MOST_GROWTH:,}; {EXAMPLE}")
    return int(word)


class Growth:
    """The stages that are still to come."""

    def __init__(self, stages: Sequence[GrowthStage]) -> None:
        self.left = list(stages)
        self._began: float | None = None

    def begin(self, now: float) -> None:
        """Training has begun."""
        self._began = now if self._began is None else self._began

    def due(self, now: float) -> list[GrowthStage]:
        """Remove and return the stages that are due."""
        if self._began is None:
            return []
        found = [each for each in self.left if now >= self._began + each.at]
        self.left = self.left[len(found) :]
        return found
