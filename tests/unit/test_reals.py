"""Functions for random numbers: correct, and bit-identical on every machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.reals import Reals, cosine_of_turns, exp, log

GRID: Reals = np.arange(1, 4096) / 4096


def same(found: Reals, right: float) -> bool:
    return math.isclose(float(found[0]), right, rel_tol=2e-15, abs_tol=2e-15)


@given(st.floats(-700, 700))
def test_exp(x: float) -> None:
    assert math.isclose(float(exp(np.array([x]))[0]), math.exp(x), rel_tol=2e-15)


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_subnormal=False))
def test_log(x: float) -> None:
    assert same(log(np.array([x])), math.log(x))


@given(st.floats(0, 1))
def test_cosine(u: float) -> None:
    assert same(cosine_of_turns(np.array([u])), math.cos(2 * math.pi * u))


def test_the_ends() -> None:
    assert exp(np.array([-1e300, 0.0])).tolist() == [5e-324, 1.0]
    assert np.isfinite(exp(np.array([1e300]))).all()
    assert log(np.array([1.0])).tolist() == [0.0]
    assert cosine_of_turns(np.array([0.0, 0.25, 0.5, 0.75, 1.0])).tolist() == [1.0, 0.0, -1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("function", "digest"),
    [(exp, "c667373ff7297a50"), (log, "52e8d5c9389b8f6a"), (cosine_of_turns, "56e0a1c0d2b7d431")],
)
def test_the_bits_are_those_of_every_machine(function: Callable[[Reals], Reals], digest: str) -> None:
    assert sha256(function(GRID).astype("<f8").tobytes()).hexdigest()[:16] == digest
