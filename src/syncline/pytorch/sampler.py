"""Who sees which examples: every epoch is dealt anew to the live workers, and the place in it can be saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import cycle, islice
from typing import Any

import torch
from torch.utils.data import Sampler

from syncline.errors import UsageError


class SharedSampler(Sampler[int]):
    """Deals the examples of a data set to all live workers; each time it is gone through, the next epoch begins.

    An epoch is dealt when it begins. Its examples go in turn to the members that this worker knows then, by rising
    number, so what a worker gets depends on its place among them and not on its number. All get equally many:
    what does not divide is filled up from the start, or with `drop_last` left out.

    Guaranteed: workers that begin the same epoch with the same members see different examples, and together they see
    all of them (apart from what is filled up or left out).

    If the membership changes in the middle of an epoch, that epoch stays as it was dealt:

    - Nobody sees the rest of the share of a worker that died or left. A worker that is started again begins the epoch
      anew, at the place of its number.
    - A worker that joins begins with the epoch that the others are in. It counts itself among the members, which they
      do not until their next epoch, so it may see examples of this epoch that others see as well.
    - Workers that begin an epoch while the news is on its way (under `ssp` or `asp`) may know different members. Their
      shares of that epoch may overlap, and some examples may be left out.

    The first epoch that all begin with the same members is dealt without overlap again.
    """

    def __init__(
        self,
        data: Sized,
        rank: int,
        members: Callable[[], Sequence[int]],
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
    ) -> None:
        """`members`: the numbers of the live workers, `rank` among them, in rising order."""
        if not len(data):
            raise UsageError("sampler", "the data set is empty")
        self._data = data
        self._rank = rank
        self._members = members
        self._shuffle = shuffle
        self._drop_last = drop_last
        self._seed = seed
        self.epoch = 0
        self.begun: Callable[[int], None] = lambda _: None
        """Is called with the number of every epoch that begins."""
        self._start = 0
        """How many examples of this epoch are behind us, over all workers."""
        self._given = 0
        """How many more this worker has been given since then."""
        self._size = 1
        """Among how many the present epoch was dealt."""
        self._check(len(members()))

    def _check(self, size: int) -> None:
        if self._drop_last and len(self._data) < size:
            raise UsageError("drop_last", f"leaves nothing of {len(self._data)} examples for {size} workers")

    def __len__(self) -> int:
        """How many examples this worker gets if the epoch begins now."""
        size = len(self._members())
        return self._share(self._start, size) or self._share(0, size)

    def _share(self, start: int, size: int) -> int:
        """How many of the examples from `start` on each of so many workers gets."""
        left = max(len(self._data) - start, 0)
        return left // size if self._drop_last else -(-left // size)

    def set_epoch(self, epoch: int) -> None:
        """Go on with this epoch, from its start; without this call epochs follow each other."""
        if epoch != self.epoch:
            self._go_to(epoch)

    @property
    def is_new(self) -> bool:
        """Has nothing been asked of it yet?"""
        return not (self.epoch or self._start or self._given)

    def _go_to(self, epoch: int, start: int = 0) -> None:
        self.epoch, self._start, self._given = epoch, start, 0

    def __iter__(self) -> Iterator[int]:
        members = self._members()
        place, self._size = members.index(self._rank), len(members)
        self._check(self._size)
        self._skip_if_over(self._size)
        epoch, share = self.epoch, self._share(self._start, self._size)
        self.begun(epoch)
        self._given = 0
        for index in self._order(share * self._size)[place :: self._size]:
            self._given += 1
            yield index
        if self.epoch == epoch:
            self._go_to(epoch + 1)

    def _skip_if_over(self, size: int) -> None:
        """Nothing is left of this epoch for so many workers: the next one is due."""
        if not self._share(self._start, size):
            self._go_to(self.epoch + 1)

    def _order(self, total: int) -> list[int]:
        """The next `total` examples of this epoch, filled up from its start if there are fewer."""
        count = len(self._data)
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self.epoch)
            order = torch.randperm(count, generator=generator).tolist()
        else:
            order = list(range(count))
        left = order[self._start :][:total]
        return [*left, *islice(cycle(order), total - len(left))]

    def state_dict(self) -> dict[str, Any]:
        """The place: which epoch, and how many examples of it are behind all workers together."""
        return {"epoch": self.epoch, "start": self._start + self._given * self._size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a place, also with another number of workers: nothing is seen twice, as far as it divides."""
        self._go_to(int(state["epoch"]), int(state["start"]))
        self._skip_if_over(len(self._members()))
