"""A worker's gate at work: what it is offered, what it holds back, and what it has heard.

1. What the gate knows of the whole model is taken when an iteration begins, and stays: answers that come while it runs
   change nothing, so that all buckets of an iteration are judged alike.
2. An update that is held back is added to those before it; once sent, it counts as read at the oldest version in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isfinite

import numpy as np

from syncline.draw import Draw
from syncline.effects import Ready
from syncline.errors import PeerError
from syncline.gates import REAPPLY, Gate, Offer, Outlook, Standing
from syncline.layout import Bucket, Layout, Values, Weigh, Within
from syncline.messages import Params, Skipped, Taken


class WorkerGate:
    """The gate of one worker."""

    __slots__ = (
        "_begun",
        "_draw",
        "_fetched",
        "_gate",
        "_heard",
        "_layout",
        "_measures",
        "_outlook",
        "_paid",
        "_reapplies",
        "_sent",
        "_sizes",
        "_tables",
        "_turn",
        "_weigh",
        "_worker",
        "held",
    )

    def __init__(self, worker: int, gate: Gate, layout: Layout, draw: Draw, weigh: Weigh) -> None:
        self._worker = worker
        self._gate = gate
        self._layout = layout
        self._draw = draw
        self._weigh = weigh
        self._reapplies = getattr(gate, "on_skip", "") == REAPPLY
        self._measures = bool(getattr(gate, "measures", False))
        self._tables: dict[Bucket, int] = {}
        """Where the table begins in which a bucket begins."""
        self._fetched: dict[Bucket, int] = {}
        """The iteration after which a bucket was last fetched."""
        self._heard: dict[Bucket, float] = {}
        """What the rule has reported of a bucket."""
        self._sizes: dict[Bucket, float] = {}
        """The root mean square of a bucket's last update."""
        self._sent = 0
        """Bytes of updates, and"""
        self._paid = 0
        """of fetches, so far."""
        self._begun = -1
        self._turn = 0
        self._outlook: Outlook | None = None
        self.held: dict[Bucket, tuple[Values, int]] = {}
        """What was not sent yet, and the version that the oldest of it was read at."""

    # What the gate is asked.

    def offer(self, i: int, ready: Ready) -> Offer:
        if i != self._begun:
            self._begun, self._outlook = i, None
            self._turn += 1
        held = self.held.get(ready.bucket)
        age = i - self._fetched.get(ready.bucket, -1)
        before = None if held is None else held[0]
        return Offer(self._worker, i, ready.bucket, age, ready.payload, before, ready.params, self._draw, self._look)

    def fetches(self, i: int, ready: Ready) -> bool:
        """Will this update be answered by parameters?"""
        return self._gate.fetches(self.offer(i, ready))

    def judge(self, i: int, ready: Ready, read: int) -> tuple[Values | None, int, Skipped, bool]:
        """What is sent, the version it was read at, what became of it if nothing is, and whether to fetch."""
        offer = self.offer(i, ready)
        sends, fetches = self._gate.sends(offer), self._gate.fetches(offer)
        bucket, update = ready.bucket, ready.payload
        if self._measures and update is not None:
            self._sizes[bucket] = float(np.dot(update, update) / max(update.size, 1)) ** 0.5
        skipped = Skipped.NOTHING
        if sends:
            update, read = self.release(bucket, update, read)
        elif self._reapplies:
            skipped = Skipped.NOTHING if update is None else Skipped.AGAIN
            update = None
        else:
            self._hold(bucket, update, read)
            skipped = Skipped.HELD if bucket in self.held else Skipped.NOTHING
            update = None
        if self._measures:
            pushed, pulled = self._weigh(bucket)
            self._sent += pushed if update is not None else 0
            self._paid += pulled if fetches else 0
        return update, read, skipped, fetches

    def _look(self) -> Outlook:
        if self._outlook is None:
            standings = {bucket: self._standing(bucket) for bucket in self._tables}
            self._outlook = Outlook(standings, self._turn, self._sent, self._paid)
        return self._outlook

    def _standing(self, bucket: Bucket) -> Standing:
        age = self._begun - self._fetched.get(bucket, -1)
        weight = self._weigh(bucket) if self._measures else (0, 0)
        return Standing(self._tables[bucket], self._heard.get(bucket), self._sizes.get(bucket), age, *weight)

    # What is held back.

    def _hold(self, bucket: Bucket, update: Values | None, read: int) -> None:
        held = self.held.get(bucket)
        if update is not None and held is None:
            self.held[bucket] = (update.copy(), read)
        elif update is not None and held is not None:
            np.add(held[0], update, held[0])

    def release(self, bucket: Bucket, update: Values | None, read: int) -> tuple[Values | None, int]:
        """The update with all that was held back before it, and the version it was read at."""
        held = self.held.pop(bucket, None)
        if held is None:
            return update, read
        if update is not None:
            np.add(held[0], update, held[0])
        return held

    # What comes back.

    def answered(self, answer: Params | Taken) -> None:
        bucket = answer.bucket
        if type(answer) is Params:
            self._fetched[bucket] = answer.progress
        if answer.statistics:
            mean = answer.statistics[0]
            if not (isfinite(mean) and mean >= 0):
                raise PeerError(f"an answer about {bucket} with the mean {mean}")
            self._heard[bucket] = mean

    # Other names.

    def name(self, buckets: Iterable[Bucket]) -> None:
        """The buckets of the model."""
        self._tables = {bucket: self._layout.table_at(bucket.start).start for bucket in buckets}
        self._outlook = None

    def rename(self, inside: Callable[[Bucket], Iterable[Bucket]], within: Within) -> None:
        """Name everything as a new view cuts it."""
        self._fetched = {piece: i for name, i in self._fetched.items() for piece in inside(name)}
        self._heard = {piece: mean for name, mean in self._heard.items() for piece in inside(name)}
        self._sizes = {piece: size for name, size in self._sizes.items() for piece in inside(name)}
        self.held = {
            piece: (values[within(name, piece)], read)
            for name, (values, read) in self.held.items()
            for piece in inside(name)
        }
