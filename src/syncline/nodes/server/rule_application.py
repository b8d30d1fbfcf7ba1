"""Applies updates to the parameters of a bucket: sums them, divides the sum and applies the rule, block by block."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import isfinite

import numpy as np

from syncline.codecs import Codec
from syncline.layout import Payload, Values, is_finite
from syncline.nodes.server.shard_terms import BLOCK, WHOLE, ShardTerms
from syncline.nodes.update_writer import decoded
from syncline.rules import Memory, Need, Norms, UpdateOrigin

_add, _divide, _sum, _dot = np.add, np.divide, np.add.reduce, np.dot  # attributes of numpy are slow to look up

_NORMS = frozenset({Need.BUCKET_NORMS, Need.TABLE_NORMS})


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of the bucket that the rule is applied to at once."""

    where: slice
    """The block's place in the bucket's arrays."""
    params: Values
    memory: Memory
    out: Values
    """The array for the sum of the updates."""
    work: Values
    """Scratch memory for the rule."""


class RuleApplication:
    """The parameters of a bucket, the rule's memory, and the mean of the statistic that the rule reports."""

    __slots__ = ("_blocks", "_codec", "_only", "_scratch", "_single", "_terms", "mean", "memory", "params")

    def __init__(self, params: Values, codec: Codec, terms: ShardTerms) -> None:
        self.params = params
        self.memory = terms.rule.start(params)
        self.mean = 0.0
        """The mean of the statistic that the rule reports, if a gate needs it."""
        self._codec = codec
        self._terms = terms
        self._scratch = np.empty_like(params)
        self._blocks = [self._block(start) for start in range(0, params.size, BLOCK)]
        self._single = len(self._blocks) == 1
        self._only = self._blocks[0] if self._single and terms.plain and not terms.reports else None
        """The only block, if updates are plain values and the rule reports nothing."""
        self.measure()

    def _block(self, start: int) -> Block:
        where = slice(start, min(start + BLOCK, self.params.size))
        size = where.stop - start
        memory = {name: each[where] for name, each in self.memory.items()}
        return Block(where, self.params[where], memory, self._scratch[:size], self._terms.work[:size])

    def decoded(self, payload: Payload) -> Values:
        """The values of an update, valid until the next call."""
        return decoded(self._codec, payload, self._scratch)

    def remember(self, name: str, values: Values) -> None:
        """Restore the array of this name in the rule's memory."""
        self.memory[name][:] = values
        self.measure()

    def measure(self) -> None:
        """Compute the mean of the reported statistic from the rule's memory. `apply` does so after every update."""
        name = self._terms.reports
        if name:
            self.mean = sum(float(_sum(each.memory[name])) for each in self._blocks) / self.params.size

    def apply_guarded(self, updates: list[Payload], share: Values, staleness: int, lr: float | None) -> Collection[int]:
        """Like `apply`, and return the places of updates that contain NaN or infinity.

        In a block in which one of them does, only the others are applied.
        """
        bad: set[int] = set()
        with np.errstate(over="ignore", invalid="ignore"):
            self.apply(updates, share, staleness, lr, bad)
        return sorted(bad)

    def apply(
        self,
        updates: list[Payload],
        share: Values,
        staleness: int,
        lr: float | None,
        bad: set[int] | None = None,
    ) -> Collection[int]:
        """Sum the updates, divide the sum by `share`, and apply the rule once; `bad`: see `apply_guarded`."""
        terms, total = self._terms, 0.0
        if bad is None and self._only is not None:  # the most frequent case, without the rest
            block = self._only
            one = share is WHOLE and len(updates) == 1
            update = updates[0] if one else self._summed(block, updates, share)
            if update is not block.params:
                terms.rule.apply(block.params, update, block.memory, staleness, lr, block.work)
            return ()
        whole = None if terms.plain else self._summed_whole(updates, share)
        if whole is self.params:
            return ()
        name, rule = terms.reports, terms.rule
        for block in self._blocks:
            if whole is not None:
                update = whole[block.where]
            elif self._single:
                update = self._summed(block, updates, share)
            else:
                update = self._summed(block, [payload[block.where] for payload in updates], share)
            if bad is not None and not isfinite(
                _dot(update, update)
            ):  # the block is in the cache, so this costs little
                update = self._summed_finite(block, updates, share, bad)
            if update is not block.params:
                rule.apply(block.params, update, block.memory, staleness, lr, block.work)
            if name:
                total += float(_sum(block.memory[name]))
        if name:
            self.mean = total / self.params.size
        return ()

    def _summed_finite(self, block: Block, updates: list[Payload], share: Values, bad: set[int]) -> Values:
        """The combined updates of one block without those that are not finite, whose places go to `bad`."""
        sound = np.zeros_like(block.params)
        for place, payload in enumerate(updates):
            values = decoded(self._codec, payload, np.empty_like(self.params))[block.where]
            if is_finite(values):
                _add(sound, values, sound)
            else:
                bad.add(place)
        return _divide(sound, share, sound)

    def apply_seen(
        self,
        updates: list[Payload],
        share: Values,
        staleness: int,
        lr: float | None,
        worker: int | None,
        read: Values | None,
        *,
        guard: bool,
    ) -> Collection[int]:
        """The same for a rule with needs. `worker` and `read`: whose update it is, and what that worker has read.

        `guard`: if an update contains NaN or infinity, apply nothing, and return the places of such updates.
        """
        terms = self._terms
        whole = self._summed_whole(updates, share)
        if guard and not is_finite(whole):
            each = np.empty_like(self.params)
            return [at for at, one in enumerate(updates) if not is_finite(decoded(self._codec, one, each))]
        norms = self._norms(whole, read) if terms.needs & _NORMS else None
        for block in self._blocks:
            where = block.where
            seen = UpdateOrigin(worker, None if read is None else read[where], norms)
            terms.rule.apply(block.params, whole[where], block.memory, staleness, lr, block.work, seen)  # type: ignore[call-arg]
        self.measure()
        return ()

    def _norms(self, update: Values, read: Values | None) -> Norms:
        gap = None if read is None else self._norm(lambda where: self.params[where] - read[where])
        return Norms(self._norm(update.__getitem__), self._norm(self.params.__getitem__), gap)

    def _norm(self, values: Callable[[slice], Values]) -> float:
        """The norm over all blocks, in float64, so that it neither overflows nor depends on the number of threads."""
        blocks = (values(block.where) for block in self._blocks)
        return float(sum(float(_sum(np.multiply(each, each, dtype=np.float64))) for each in blocks) ** 0.5)

    def _summed(self, block: Block, updates: list[Payload], share: Values) -> Values:
        """The combined updates of one block, where payloads are the plain values."""
        out = block.out if self._terms.keeps else block.params
        update: Values = updates[0]
        for payload in updates[1:]:
            update = _add(update, payload, out)
        return update if share is WHOLE else _divide(update, share, out)

    def _summed_whole(self, updates: list[Payload], share: Values) -> Values:
        """The combined updates of the whole bucket, where they are encoded: a piece of a payload cannot be decoded."""
        out = self._scratch if self._terms.keeps else self.params
        update = decoded(self._codec, updates[0], out)
        if len(updates) > 1:
            if update is not out:
                np.copyto(out, update)
                update = out
            for payload in updates[1:]:
                if payload.dtype == np.uint8:
                    self._codec.add_into(payload, out)
                else:
                    _add(out, payload, out)
        return update if share is WHOLE else _divide(update, share, out)
