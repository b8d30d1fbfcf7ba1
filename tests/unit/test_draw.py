"""Randomness is a pure function: the order of draws does not matter, and purposes are independent of each other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.draw import Draw

KINDS: dict[str, Callable[..., Any]] = {
    "uniform": lambda draw, *keys: draw.uniform(*keys),
    "uniforms": lambda draw, *keys: tuple(draw.uniforms(5, *keys)),
    "normals": lambda draw, *keys: tuple(draw.normals(5, *keys)),
    "values": lambda draw, *keys: tuple(draw.values(16, *keys)),
    "permutation": lambda draw, *keys: tuple(draw.permutation(20, *keys)),
}
KEYS = list(product(("one", "another"), range(3), range(4)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_draws_does_not_matter(kind: str) -> None:
    draw, again = Draw(7), Draw(7)
    forward = {keys: KINDS[kind](draw, *keys) for keys in KEYS}
    backward = {keys: KINDS[kind](again, *keys) for keys in reversed(KEYS)}
    assert forward == backward


@pytest.mark.parametrize("kind", KINDS)
def test_seed_purpose_and_keys_all_count(kind: str) -> None:
    drawn = [KINDS[kind](Draw(seed), *keys) for seed in (0, 1, -1) for keys in KEYS]
    assert len(set(drawn)) == len(drawn)


def test_keys_are_not_run_together() -> None:
    draw = Draw(1)
    numbers = [draw.uniform("p", 1, 23), draw.uniform("p", 12, 3), draw.uniform("p", 123), draw.uniform("p1", 23)]
    assert len(set(numbers)) == 4


@given(st.integers(), st.text(max_size=5), st.lists(st.integers(0, 2**40), max_size=4))
def test_uniform_is_in_the_half_open_interval(seed: int, purpose: str, keys: list[int]) -> None:
    draw = Draw(seed)
    assert 0 <= draw.uniform(purpose, *keys) < 1
    several = draw.uniforms(50, purpose, *keys)
    assert ((several >= 0) & (several < 1)).all()


@given(st.integers(), st.integers(1, 200))
def test_permutation_is_one(seed: int, count: int) -> None:
    assert sorted(Draw(seed).permutation(count, "epoch", 3)) == list(range(count))


@given(st.integers(), st.integers(1, 100))
def test_values_are_exact_eighths_of_a_sixteenth(seed: int, count: int) -> None:
    values = Draw(seed).values(count, "update", 0)
    assert values.dtype == np.float32
    assert len(values) == count
    assert ((values >= -1) & (values < 1)).all()
    assert (values * 128 == np.round(values * 128)).all()


# With fixed seeds; the bounds are about five standard deviations.

COUNT = 20_000


def one_by_one(draw: Draw) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([draw.uniform("pssp", worker, i) for worker in range(20) for i in range(COUNT // 20)])


@pytest.mark.parametrize("make", [one_by_one, lambda draw: draw.uniforms(COUNT, "x", 1)], ids=["uniform", "uniforms"])
def test_uniform_looks_uniform(make: Callable[[Draw], Any]) -> None:
    numbers = make(Draw(3))
    assert numbers.mean() == pytest.approx(0.5, abs=5 * (1 / 12 / COUNT) ** 0.5)
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert abs(counts - COUNT / 20).max() < 5 * (COUNT / 20) ** 0.5
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 5 / COUNT**0.5


def test_normal_looks_normal() -> None:
    numbers = Draw(3).normals(COUNT, "compute", 1, 2)
    assert numbers.mean() == pytest.approx(0, abs=5 / COUNT**0.5)
    assert numbers.std() == pytest.approx(1, abs=5 / (2 * COUNT) ** 0.5)
    assert (numbers < 1).mean() == pytest.approx(0.8413, abs=0.015)
    assert np.isfinite(numbers).all()


def test_permutations_are_shuffled() -> None:
    places = np.array([Draw(seed).permutation(10, "epoch", 0) for seed in range(2000)])
    assert places.mean(axis=0) == pytest.approx(np.full(10, 4.5), abs=5 * (99 / 12 / 2000) ** 0.5)
