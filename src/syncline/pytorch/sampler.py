"""The sampler: divides the examples of each epoch among the live workers. Its position can be saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import cycle, islice
from typing import Any
from weakref import ReferenceType

import torch
from torch.utils.data import Sampler

from syncline.errors import UsageError
from syncline.pytorch.sampler_position import examples_seen, loader_above


class SharedSampler(Sampler[int]):
    """Divides the examples of a data set among all live workers. Each iteration over the sampler is one epoch.

    The sampler divides an epoch when it begins. It gives the examples in turn to the members that this worker knows at
    that moment, in order of their numbers. So a worker's share depends on its position among the members, not on its
    number. All workers get the same number of examples. If they do not divide evenly, the sampler repeats examples from
    the start of the epoch, or with `drop_last` leaves out the rest.

    Guarantee: workers that begin the same epoch with the same members see different examples. Together they see all of
    them, apart from those that are repeated or left out.

    If the membership changes during an epoch, the shares of that epoch do not change:

    - No worker sees the rest of the share of a worker that died or left. A restarted worker begins the epoch again, at
      the position of its number.
    - A worker that joins begins with the current epoch of the others. It counts itself among the members; the others do
      so only from their next epoch on. So it may see examples of this epoch that other workers see too.
    - Under `ssp` or `asp`, workers that begin an epoch during a change of the membership may know different members.
      Their shares of that epoch may overlap, and some examples may be left out.

    From the first epoch that all workers begin with the same members, shares do not overlap again.
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
        """`members`: returns the numbers of the live workers, including `rank`, in ascending order."""
        if not len(data):
            raise UsageError("sampler", "the data set is empty; give at least one example")
        self._data = data
        self._rank = rank
        self._members = members
        self._shuffle = shuffle
        self._drop_last = drop_last
        self._seed = seed
        self.epoch = 0
        self.begun: Callable[[int], None] = lambda _: None
        """Called with the number of every epoch that begins."""
        self._start = 0
        """The number of examples of this epoch that all workers together had seen when the sampler divided it."""
        self._given = 0
        """The number of examples that this worker has got since then."""
        self._size = 1
        """The number of workers among which the sampler divided this epoch."""
        self.at_turn: Callable[[], None] | None = None
        """Called once before the next example is given, if a checkpoint is due: the last step is over then."""
        self.has_trained = False
        """Whether the program has trained on examples of this sampler."""
        self._loader: ReferenceType[Any] | None = None
        """The iterator of the DataLoader that asks ahead."""
        self._last: tuple[int, int, int] | None = None
        """(epoch, start, examples) of the pass that has ended, until the next one begins."""
        self._resumed: tuple[int, int] | None = None
        """(epoch, start) at which an earlier run goes on; epochs before that are over."""
        self._skips = True
        """Whether this sampler gives no examples of the epochs that are over."""
        self.asked: dict[SharedSampler, None] = {}
        """The samplers that the program has asked since its last step, shared by all; the last one is at the end."""
        self.resumed: Callable[[], None] = lambda: None
        """Called when the sampler has come to the position at which an earlier run goes on."""
        self._check(len(members()))

    def _check(self, size: int) -> None:
        if self._drop_last and len(self._data) < size:
            raise UsageError(
                "drop_last",
                f"{len(self._data)} examples are too few for {size} workers with drop_last=True; set it to False",
            )

    def __len__(self) -> int:
        """The number of examples that this worker gets if the epoch begins now."""
        size = len(self._members())
        return self._share(self._start, size) or self._share(0, size)

    def _share(self, start: int, size: int) -> int:
        """The number of examples from `start` on that each of `size` workers gets."""
        left = max(len(self._data) - start, 0)
        return left // size if self._drop_last else -(-left // size)

    def set_epoch(self, epoch: int) -> None:
        """Continue with the start of this epoch. Without this call the epochs follow each other."""
        if epoch != self.epoch:
            self._go_to(epoch)

    @property
    def is_new(self) -> bool:
        """Whether the sampler has not been used yet."""
        return not (self.epoch or self._start or self._given or self._resumed)

    def _go_to(self, epoch: int, start: int = 0) -> None:
        self.epoch, self._start, self._given, self._last = epoch, start, 0, None

    def __iter__(self) -> Iterator[int]:
        if self._is_over_since_resume():
            return
        members = self._members()
        place, self._size = members.index(self._rank), len(members)
        self._check(self._size)
        self._skip_if_over(self._size)
        epoch, share = self.epoch, self._share(self._start, self._size)
        self.begun(epoch)
        self._given, self._last, self._loader = 0, None, loader_above()
        for index in self._order(share * self._size)[place :: self._size]:
            self._turn()
            self.asked[self] = self.asked.pop(self, None)
            self._given += 1
            yield index
        self._turn()
        if self.epoch == epoch:
            last = (epoch, self._start, self._given)
            self._go_to(epoch + 1)
            self._last = last

    def _turn(self) -> None:
        """The program asks for the next example, or ends the epoch."""
        turn, self.at_turn = self.at_turn, None
        if turn is not None:
            turn()

    def _is_over_since_resume(self) -> bool:
        """Whether this epoch was over in the run that this one continues. Goes to the position of that run in time."""
        if self._resumed is None:
            return False
        epoch, start = self._resumed
        if self.epoch < epoch and not self._skips:
            return False
        if self.epoch < epoch:
            self._go_to(self.epoch + 1)
            return True
        self._resumed = None
        if self.epoch > epoch:
            self.resumed()
            return False
        self._go_to(epoch, start)
        self.resumed()
        if self._share(start, len(self._members())):
            return False
        self._go_to(epoch + 1)
        return True

    def _skip_if_over(self, size: int) -> None:
        """Go to the next epoch if this one has no examples left for this many workers."""
        if not self._share(self._start, size):
            self._go_to(self.epoch + 1)

    def _order(self, total: int) -> list[int]:
        """The next `total` examples of this epoch; if fewer are left, examples from its start follow."""
        count = len(self._data)
        if self._shuffle:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self.epoch)
            order = torch.randperm(count, generator=generator).tolist()
        else:
            order = list(range(count))
        left = order[self._start :][:total]
        return [*left, *islice(cycle(order), total - len(left))]

    def state_dict(self) -> dict[str, Any]:
        """The position: the epoch, and the number of its examples that all workers together have seen."""
        epoch, start = self.position()
        return {"epoch": epoch, "start": start}

    def position(self) -> tuple[int, int]:
        """The epoch, and the number of its examples that all workers together have seen.

        It does not count what a DataLoader has asked for ahead.
        """
        if self._last is not None:
            epoch, start, given = self._last
            seen = examples_seen(given, self._loader)
            return (self.epoch, self._start) if seen == given else (epoch, start + seen * self._size)
        return self.epoch, self._start + examples_seen(self._given, self._loader) * self._size

    @property
    def begins(self) -> bool:
        """Whether the sampler has not given an example of this epoch yet."""
        return not self._given

    @property
    def is_between(self) -> bool:
        """Whether the program has asked for all examples of a pass, and not begun another."""
        return self._last is not None

    def resume(self, epoch: int, start: int, *, skips: bool) -> None:
        """Go on at this position of an earlier run; `skips`: the epochs before it have no examples."""
        self._resumed, self._skips = (epoch, start), skips

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position, also with another number of workers.

        No example is seen twice in the epoch, apart from those repeated to divide it evenly.
        """
        self._go_to(int(state["epoch"]), int(state["start"]))
        self._skip_if_over(len(self._members()))
