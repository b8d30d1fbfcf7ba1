"""Long lists of cases: `make test` runs a named sample of each, `make test-all` runs all."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def sampled(everything: Iterable[object], *sample: object) -> list[object]:
    """All cases as parameters; those outside of the sample are marked as slow. The sample must be part of the list."""
    found = list(everything)
    missing = [each for each in sample if each not in found]
    assert not missing, f"{missing} of the sample are not in the list"
    return [each if each in sample else _slow(each) for each in found]


def _slow(each: object) -> object:
    values = each if isinstance(each, tuple) else (each,)
    return pytest.param(*values, marks=pytest.mark.slow)
