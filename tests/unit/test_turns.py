"""What `syncline train --compare` runs, and how far it is."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from syncline.cli.comparison_progress import ComparisonProgress
from syncline.recipes.job import RecipeJob
from syncline.recipes.turns import ALONE, DDP, Turn, syncs, turns

JOB = RecipeJob("digits-cnn", workers=4, iterations=10, batch=16, slow={3: 5.0}, compare=True)


def test_every_system_has_a_turn_with_equal_workers_and_one_with_a_slow_one() -> None:
    first = [(turn.system, turn.slow) for turn in turns(JOB) if turn.repeat == 0]
    systems = [DDP, "Syncline, bsp", "Syncline, ssp:3", "Syncline, drop:3", "Syncline, asp"]
    assert first == [(ALONE, False), *((system, slow) for system in systems for slow in (False, True))]
    assert [(turn.system, turn.slow) for turn in turns(JOB)] == first


def test_repeats_have_names_of_their_own() -> None:
    once, thrice = list(turns(JOB)), list(turns(replace(JOB, repeats=3)))
    assert [turn.repeat for turn in thrice] == [0] * len(once) + [1] * len(once) + [2] * len(once)
    assert len({turn.name for turn in thrice}) == 3 * len(once)


def test_all_turns_with_the_slow_worker_train_on_as_many_batches() -> None:
    found = {turn.system: turn for turn in turns(JOB) if turn.slow or turn.system == ALONE}
    assert {turn.batches for turn in found.values()} == {40}
    assert [(turn.rounds, turn.trained) for turn in (found[ALONE], found[DDP], found["Syncline, bsp"])] == [
        (10, 40)
    ] * 3
    dropping = found["Syncline, drop:3"]
    assert (dropping.round, dropping.rounds, dropping.trained) == (3, 14, 42)  # whole rounds
    for system in ("Syncline, ssp:3", "Syncline, asp"):
        assert (found[system].round, found[system].trained) == (None, 40)


def test_a_turn_with_equal_workers_is_short() -> None:
    equal = [turn for turn in turns(JOB) if not turn.slow and turn.system != ALONE]
    assert {turn.batches for turn in equal} == {2 * 4}


@pytest.mark.parametrize(
    ("slow", "expected"), [({}, "drop:4"), ({1: 2.0, 3: 5.0}, "drop:2"), ({0: 2, 1: 2, 2: 2, 3: 2}, "drop:1")]
)
def test_drop_goes_on_without_the_slow_ones(slow: dict[int, float], expected: str) -> None:
    assert expected in syncs(RecipeJob("digits-cnn", 4, 10, 16, slow=slow))


def test_progress_names_the_turn_and_what_is_left() -> None:
    progress = ComparisonProgress(JOB)
    planned: list[Turn] = list(turns(JOB))
    assert progress.total == len(planned)
    assert progress.place("model") == 0
    assert progress.words(planned[0].name, 1.0) == f"1 of {len(planned)}: {planned[0].name}"
    done = sum(turn.batches for turn in planned[:2])
    left = 6.0 * (sum(turn.batches for turn in planned) - done) / done
    assert progress.words(planned[2].name, 6.0) == f"3 of {len(planned)}: {planned[2].name}; about {left:.0f} s left"
