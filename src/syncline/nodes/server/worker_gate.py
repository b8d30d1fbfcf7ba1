"""A worker's gate with its state: the updates that it holds back and the statistics that servers reported.

1. The gate gets one summary of the whole model per iteration, made when the iteration begins. Answers that arrive
   during the iteration do not change it, so that the gate decides about all buckets from the same information.
2. The gate adds an update that it holds back to those it already holds. When the worker sends the sum, its version is
   that of the oldest update in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

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
        "_fetched_bytes",
        "_gate",
        "_layout",
        "_measures",
        "_outlook",
        "_reapplies",
        "_reported_means",
        "_sent_bytes",
        "_sizes",
        "_tables",
        "_turn",
        "_versions",
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
        """For each bucket, the start of the table in which the bucket starts."""
        self._fetched: dict[Bucket, int] = {}
        """The iteration after which each bucket was last fetched."""
        self._reported_means: dict[Bucket, float] = {}
        """The mean of the rule's statistic that the server last reported for each bucket."""
        self._versions: dict[Bucket, int] = {}
        """The version of each bucket, as of its last answer."""
        self._sizes: dict[Bucket, float] = {}
        """The root mean square of each bucket's last update."""
        self._sent_bytes = 0
        """The bytes of all updates sent so far."""
        self._fetched_bytes = 0
        """The bytes of all fetches so far."""
        self._begun = -1
        self._turn = 0
        self._outlook: Outlook | None = None
        self.held: dict[Bucket, tuple[Values, int]] = {}
        """For each bucket, the sum of updates held back and the version that the oldest was computed from."""

    # The gate's decisions.

    def offer(self, i: int, ready: Ready) -> Offer:
        if i != self._begun:
            self._begun, self._outlook = i, None
            self._turn += 1
        held = self.held.get(ready.bucket)
        age = i - self._fetched.get(ready.bucket, -1)
        before = None if held is None else held[0]
        return Offer(self._worker, i, ready.bucket, age, ready.payload, before, ready.params, self._draw, self._look)

    def fetches(self, i: int, ready: Ready) -> bool:
        """Whether the answer to this update will carry parameters."""
        return self._gate.fetches(self.offer(i, ready))

    def judge(self, i: int, ready: Ready, read: int) -> tuple[Values | None, int, Skipped, bool]:
        """The update to send, the version it was computed from, why it is skipped if it is, and whether to fetch."""
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
            self._sent_bytes += pushed if update is not None else 0
            self._fetched_bytes += pulled if fetches else 0
        return update, read, skipped, fetches

    def _look(self) -> Outlook:
        if self._outlook is None:
            standings = {bucket: self._standing(bucket) for bucket in self._tables}
            self._outlook = Outlook(standings, self._turn, self._sent_bytes, self._fetched_bytes)
        return self._outlook

    def _standing(self, bucket: Bucket) -> Standing:
        age = self._begun - self._fetched.get(bucket, -1)
        weight = self._weigh(bucket) if self._measures else (0, 0)
        return Standing(self._tables[bucket], self._reported_means.get(bucket), self._sizes.get(bucket), age, *weight)

    # Updates that are held back.

    def _hold(self, bucket: Bucket, update: Values | None, read: int) -> None:
        held = self.held.get(bucket)
        if update is not None and held is None:
            self.held[bucket] = (update.copy(), read)
        elif update is not None and held is not None:
            np.add(held[0], update, held[0])

    def release(self, bucket: Bucket, update: Values | None, read: int) -> tuple[Values | None, int]:
        """The sum of this update and those held back before it, and the version that the oldest was computed from."""
        held = self.held.pop(bucket, None)
        if held is None:
            return update, read
        if update is not None:
            np.add(held[0], update, held[0])
        return held

    # Answers.

    def answered(self, answer: Params | Taken) -> None:
        bucket = answer.bucket
        self._versions[bucket] = answer.version
        if type(answer) is Params:
            self._fetched[bucket] = answer.progress
        if answer.statistics:
            mean = answer.statistics[0]
            if not (isfinite(mean) and mean >= 0):
                raise PeerError(f"an answer for {bucket} with an invalid mean: {mean}")
            self._reported_means[bucket] = mean

    # Checkpoints.

    def state(self, read: Mapping[Bucket, int]) -> dict[str, Any]:
        """What to go on with in another run, as plain values and arrays; `read`: the version of each bucket's values.

        Versions are written as the distance to the bucket's present version, because a run begins with its own.
        """
        distances = {bucket: self._distance(bucket, version) for bucket, version in read.items()}
        return {
            "held": [
                [bucket.start, bucket.stop, self._distance(bucket, oldest), values.copy()]
                for bucket, (values, oldest) in self.held.items()
            ],
            "read": _rows(distances),
            "fetched": _rows(self._fetched),
            "means": _rows(self._reported_means),
            "sizes": _rows(self._sizes),
            "bytes": [self._sent_bytes, self._fetched_bytes],
            "turn": self._turn,
        }

    def _distance(self, bucket: Bucket, version: int) -> int:
        return self._versions.get(bucket, version) - version

    def restore(self, state: Mapping[str, Any], version: int) -> dict[Bucket, int]:
        """Go on with what `state` returned, where all buckets now have this version; returns the versions read."""
        buckets = list(self._tables)
        self._fetched |= _found(state["fetched"], buckets)
        self._reported_means |= _found(state["means"], buckets)
        self._sizes |= _found(state["sizes"], buckets)
        self._sent_bytes, self._fetched_bytes = state["bytes"]
        self._turn = state["turn"]
        for bucket in buckets:
            self._restore_held(
                bucket, [each for each in state["held"] if each[0] < bucket.stop and bucket.start < each[1]], version
            )
        return {bucket: max(version - distance, 0) for bucket, distance in _found(state["read"], buckets).items()}

    def _restore_held(self, bucket: Bucket, over: Sequence[Sequence[Any]], version: int) -> None:
        """Hold back what these saved buckets, which may be cut in another way, have held back of this one."""
        if not over:
            return
        values = np.zeros(bucket.size, np.float32)
        for start, stop, _, held in over:
            first, last = max(start, bucket.start), min(stop, bucket.stop)
            values[first - bucket.start : last - bucket.start] = np.asarray(held)[first - start : last - start]
        self.held[bucket] = (values, max(version - max(each[2] for each in over), 0))

    # New placements.

    def name(self, buckets: Iterable[Bucket]) -> None:
        """Set the buckets of the model."""
        self._tables = {bucket: self._layout.table_at(bucket.start).start for bucket in buckets}
        self._outlook = None

    def rename(self, inside: Callable[[Bucket], Iterable[Bucket]], within: Within) -> None:
        """Rename all buckets as a new view cuts them."""
        self._fetched = {piece: i for name, i in self._fetched.items() for piece in inside(name)}
        self._reported_means = {piece: mean for name, mean in self._reported_means.items() for piece in inside(name)}
        self._sizes = {piece: size for name, size in self._sizes.items() for piece in inside(name)}
        self._versions = {piece: version for name, version in self._versions.items() for piece in inside(name)}
        self.held = {
            piece: (values[within(name, piece)], read)
            for name, (values, read) in self.held.items()
            for piece in inside(name)
        }


def _rows(values: Mapping[Bucket, float]) -> list[list[float]]:
    """(start, stop, value) of each bucket."""
    return [[bucket.start, bucket.stop, value] for bucket, value in values.items()]


def _found(rows: Sequence[Sequence[Any]], buckets: Iterable[Bucket]) -> dict[Bucket, Any]:
    """The saved value of each bucket; if it was cut in another way, that of the bucket that it begins in."""
    exact = {(start, stop): value for start, stop, value in rows}
    found: dict[Bucket, Any] = {}
    for bucket in buckets:
        value = exact.get((bucket.start, bucket.stop))
        if value is None:
            value = next((each for start, stop, each in rows if start <= bucket.start < stop), None)
        if value is not None:
            found[bucket] = value
    return found
