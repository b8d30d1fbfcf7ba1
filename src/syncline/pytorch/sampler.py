"""Who sees which examples: every epoch is dealt anew, equal counts for all, and the place in it can be saved."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch.utils.data import Sampler

from syncline.errors import UsageError


class SharedSampler(Sampler[int]):
    """Deals the examples of a data set to all workers; begins the next epoch by itself each time it is gone through.

    Every worker gets equally many: what does not divide is filled up from the start, or with `drop_last` left out.
    """

    def __init__(
        self, data: Sized, rank: int, size: int, *, shuffle: bool = True, drop_last: bool = False, seed: int = 0
    ) -> None:
        if not len(data):
            raise UsageError("sampler", "the data set is empty")
        self._data = data
        self._rank = rank
        self._size = size
        self._shuffle = shuffle
        self._drop_last = drop_last
        self._seed = seed
        self.epoch = 0
        self._start = 0
        """How many examples of this epoch are behind us, over all workers."""
        self._given = 0
        if drop_last and len(data) < size:
            raise UsageError("drop_last", f"leaves nothing of {len(data)} examples for {size} workers")

    def __len__(self) -> int:
        return len(range(self._rank, self._total - self._start, self._size))

    @property
    def _total(self) -> int:
        """The examples of an epoch, over all workers."""
        count = len(self._data)
        return count - count % self._size if self._drop_last else count + -count % self._size

    def set_epoch(self, epoch: int) -> None:
        """Go on with this epoch, from its start; without this call epochs follow each other."""
        if epoch != self.epoch:
            self.epoch, self._start = epoch, 0

    def __iter__(self) -> Iterator[int]:
        epoch, start = self.epoch, self._start
        order = self._order()[start:]
        self._given = 0
        for index in order[self._rank :: self._size]:
            self._given += 1
            yield index
        if self.epoch == epoch:
            self.epoch, self._start, self._given = epoch + 1, 0, 0

    def _order(self) -> list[int]:
        count = len(self._data)
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self.epoch)
            order = torch.randperm(count, generator=generator).tolist()
        else:
            order = list(range(count))
        return (order * (self._total // count + 1))[: self._total]

    def state_dict(self) -> dict[str, Any]:
        """The place: which epoch, and how many examples of it are behind all workers together."""
        return {"epoch": self.epoch, "start": self._start + self._given * self._size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a place, also with another number of workers: nothing is seen twice, as far as it divides."""
        self.epoch, self._start = int(state["epoch"]), int(state["start"])
        self._given = 0
        if self._start >= self._total:
            self.epoch, self._start = self.epoch + 1, 0
