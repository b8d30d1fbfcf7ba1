"""What of a dead worker's updates has reached the others, in strategies in which workers send each other updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class PeerLoss(NamedTuple):
    """What a worker has of the updates of a peer that died: for each range, the last update, counted from 1."""

    worker: int
    incarnation: int
    marks: tuple[int, ...]

    def __str__(self) -> str:
        whole, newest = max(0, min(self.marks)), max(0, max(self.marks))
        parts = "" if whole == newest else f", and parts of those up to update {newest}"
        return f"worker {self.worker} is gone; this worker has all of its updates up to update {whole}{parts}"


def loss_figures(found: Mapping[int, Sequence[PeerLoss]]) -> list[dict[str, Any]]:
    """A row for each dead worker, from what the survivors (by number) have of it.

    `complete`: the last update that has reached all survivors whole; `newest`: the last of which any part has reached
    anybody; `reached`: the same two numbers for each survivor.
    """
    rows: dict[tuple[int, int], dict[str, list[int]]] = {}
    for survivor, losses in sorted(found.items()):
        for loss in losses:
            reached = rows.setdefault((loss.worker, loss.incarnation), {})
            reached[str(survivor)] = [max(0, min(loss.marks)), max(0, max(loss.marks))]
    return [
        {
            "worker": worker,
            "incarnation": incarnation,
            "complete": min(whole for whole, _ in reached.values()),
            "newest": max(newest for _, newest in reached.values()),
            "reached": reached,
        }
        for (worker, incarnation), reached in sorted(rows.items())
    ]


def loss_line(row: Mapping[str, Any]) -> str:
    """The row of a dead worker as a sentence."""
    said = f"worker {row['worker']} died: its updates up to update {row['complete']} have reached all others"
    if row["newest"] == row["complete"]:
        return said
    return f"{said}; parts of those up to update {row['newest']} have reached some"
