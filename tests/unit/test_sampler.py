"""How examples are divided: equal counts, and no overlap between workers that know the same members."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from syncline.errors import UsageError
from syncline.pytorch.sampler import SharedSampler


class Crew:
    """The samplers of some workers, and the members that these workers know."""

    def __init__(self, count: int, members: Sequence[int], *, shuffle: bool = True, drop_last: bool = False) -> None:
        self.members = tuple(members)
        self.count = count
        self.options = {"shuffle": shuffle, "drop_last": drop_last}

    def sampler(self, rank: int) -> SharedSampler:
        return SharedSampler(range(self.count), rank, lambda: self.members, **self.options)

    def shares(self) -> list[list[int]]:
        return [list(self.sampler(rank)) for rank in self.members]


@pytest.mark.parametrize("members", [(0, 1, 2), (0, 1, 3), (1, 7, 9)])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_live_worker_gets_a_share_of_its_own(members: tuple[int, ...], shuffle: bool) -> None:
    shares = Crew(30, members, shuffle=shuffle).shares()
    assert [len(share) for share in shares] == [10, 10, 10]
    assert sorted(index for share in shares for index in share) == list(range(30))


def test_what_does_not_divide_is_filled_up_or_left_out() -> None:
    filled = Crew(31, (0, 4, 5)).shares()
    assert [len(share) for share in filled] == [11, 11, 11]
    assert {index for share in filled for index in share} == set(range(31))
    left = Crew(32, (0, 4, 5), drop_last=True).shares()
    assert [len(share) for share in left] == [10, 10, 10]
    assert len({index for share in left for index in share}) == 30


def test_more_workers_than_examples() -> None:
    assert Crew(2, range(5), shuffle=False).shares() == [[0], [1], [0], [1], [0]]
    with pytest.raises(UsageError, match="drop_last: 2 examples are too few for 5 workers"):
        Crew(2, range(5), drop_last=True).sampler(0)


def test_an_epoch_keeps_its_shares_and_the_next_is_divided_among_the_live_workers() -> None:
    crew = Crew(12, (0, 1), shuffle=False)
    first, second = crew.sampler(0), crew.sampler(1)
    under_way = [iter(first), iter(second)]
    begun = [list(islice(each, 2)) for each in under_way]
    crew.members = (0, 1, 2)  # one has joined
    third = crew.sampler(2)
    rest = [list(each) for each in under_way]
    assert [one + other for one, other in zip(begun, rest, strict=True)] == [
        list(range(0, 12, 2)),
        list(range(1, 12, 2)),
    ]
    third.set_epoch(first.epoch)
    assert [list(each) for each in (first, second, third)] == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    crew.members = (0, 2)  # one has left
    assert [list(each) for each in (first, third)] == [list(range(0, 12, 2)), list(range(1, 12, 2))]


def test_too_many_have_joined_for_drop_last() -> None:
    crew = Crew(2, (0, 1), drop_last=True)
    sampler = crew.sampler(0)
    crew.members = (0, 1, 2)
    with pytest.raises(UsageError, match="drop_last: 2 examples are too few for 3 workers"):
        list(sampler)


def test_it_can_be_told_how_long_an_epoch_is() -> None:
    crew = Crew(10, (0, 1, 2))
    sampler = crew.sampler(1)
    assert len(sampler) == 4
    crew.members = (0, 1)
    assert len(sampler) == 5 == len(list(sampler))


def test_who_begins_an_epoch_says_so() -> None:
    sampler, said = Crew(4, (0,)).sampler(0), list[int]()
    sampler.begun = said.append
    for _ in range(3):
        list(sampler)
    assert said == [0, 1, 2]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("given", range(6))
def test_the_same_workers_go_on_where_they_were(given: int, drop_last: bool) -> None:
    crew = Crew(17, (0, 3, 5), drop_last=drop_last)
    whole = [[*crew.sampler(rank)] for rank in crew.members]
    for rank, all_of_it in zip(crew.members, whole, strict=True):
        sampler, resumed = crew.sampler(rank), crew.sampler(rank)
        under_way = iter(sampler)
        assert list(islice(under_way, given)) == all_of_it[:given]
        resumed.load_state_dict(sampler.state_dict())
        left = all_of_it[given:]
        assert resumed.epoch == (not left)
        assert list(resumed)[: len(left)] == left


@pytest.mark.parametrize("members", [(0,), (0, 1, 2), (1, 2, 8, 9)])
def test_others_go_on_and_see_what_is_left(members: tuple[int, ...]) -> None:
    before = Crew(24, (0, 1))
    samplers = [before.sampler(rank) for rank in before.members]
    under_way = [iter(each) for each in samplers]
    seen = [next(each) for _ in range(6) for each in under_way]
    after = Crew(24, members)
    for rank in members:
        sampler = after.sampler(rank)
        sampler.load_state_dict(samplers[0].state_dict())
        seen += list(sampler)
    assert sorted(seen) == list(range(24))


class _Run:
    """A program that trains on a sampler and is saved after so many batches; the two workers are in one process."""

    def __init__(self, loaders: int, rank: int = 0, count: int = 50) -> None:
        data = TensorDataset(torch.arange(count))
        self.sampler = SharedSampler(data, rank, lambda: (0, 1))
        self.loader = DataLoader(data, 4, sampler=self.sampler, num_workers=loaders)
        self.turns: list[tuple[int, int]] = []

    def batches(self, epochs: int, save_after: int = -1) -> list[list[int]]:
        seen: list[list[int]] = []
        for _ in range(epochs):
            for (batch,) in self.loader:
                seen.append(batch.tolist())
                if len(seen) == save_after:
                    position = self.sampler.position()
                    self.sampler.at_turn = lambda position=position: self._turn(position)  # type: ignore[misc]
        return seen

    def _turn(self, position: tuple[int, int]) -> None:
        self.turns.append(self.sampler.position() if self.sampler.begins else position)


@pytest.mark.parametrize("loaders", [0, 2])
@pytest.mark.parametrize("after", [1, 3, 5, 7, 10, 14, 16])
def test_a_run_goes_on_with_the_batch_after_the_last_one(after: int, loaders: int) -> None:
    """An epoch has 25 examples of this worker: 6 batches of 4, and one of 1."""
    whole = _Run(loaders)
    batches = whole.batches(3, after)
    ((epoch, start),) = whole.turns
    resumed, restored = _Run(loaders), []
    resumed.sampler.resume(epoch, start, skips=True)
    resumed.sampler.resumed = lambda: restored.append(resumed.sampler.position())
    rest = resumed.batches(3)
    assert rest == batches[after:] or rest == batches[-len(rest) :]
    assert len(batches) - len(rest) in range(after, after + 5)  # what was asked ahead is awaited
    assert restored == [(epoch, start)]


def test_a_sampler_that_is_not_trained_on_gives_all_epochs_again() -> None:
    run = _Run(0)
    run.sampler.resume(1, 0, skips=False)
    turns: list[int] = []
    run.sampler.resumed = lambda: turns.append(run.sampler.epoch)
    assert len(run.batches(3)) == 21
    assert turns == [1]
