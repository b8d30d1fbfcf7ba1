"""Named tensors in the model vector, and buckets that cover their ranges."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.layout import BUCKET_VALUES, CACHED_VALUES, Bucket, Layout, Table, buckets, copy_finite

sizes = st.lists(st.integers(1, 60), min_size=1, max_size=10)


def layout_of(lengths: list[int]) -> Layout:
    return Layout.of((f"t{number}", (length,)) for number, length in enumerate(lengths))


@st.composite
def layouts_with_ranges(draw: st.DrawFn) -> tuple[Layout, list[Bucket]]:
    """A layout, and disjoint ranges of it in any order, also ones that touch."""
    layout = layout_of(draw(sizes))
    cuts = sorted(draw(st.sets(st.integers(0, layout.size), min_size=2)))
    pieces = [Bucket(start, stop) for start, stop in pairwise(cuts)]
    chosen = draw(st.lists(st.sampled_from(pieces), min_size=1, unique=True))
    return layout, chosen


def test_tables_lie_back_to_back() -> None:
    layout = Layout.of([("weight", (3, 4)), ("bias", (3,)), ("scale", ())])
    assert layout.tables == (Table("weight", (3, 4), 0), Table("bias", (3,), 12), Table("scale", (), 15))
    assert layout.size == 16


def test_no_tables() -> None:
    assert Layout.of([]).size == 0
    assert buckets(Layout.of([]), []) == ()


@given(sizes)
def test_every_value_lies_in_its_table(lengths: list[int]) -> None:
    layout = layout_of(lengths)
    names = [table.name for table in layout.tables for _ in range(table.size)]
    assert [layout.table_at(offset).name for offset in range(layout.size)] == names


@pytest.mark.parametrize("offset", [-1, 15, 100])
def test_no_table_outside(offset: int) -> None:
    with pytest.raises(IndexError, match=f"offset {offset} .* 15 values"):
        layout_of([10, 5]).table_at(offset)


def test_an_empty_table_holds_no_value() -> None:
    layout = Layout.of([("a", (2,)), ("empty", (0, 7)), ("b", (2,))])
    assert [layout.table_at(offset).name for offset in range(4)] == ["a", "a", "b", "b"]
    assert buckets(layout, [Bucket(0, 4)]) == (Bucket(0, 4),)


@given(layouts_with_ranges(), st.integers(1, 80))
def test_buckets_cover_their_ranges_exactly_and_in_order(case: tuple[Layout, list[Bucket]], limit: int) -> None:
    layout, ranges = case
    found = buckets(layout, ranges, limit)
    assert [value for bucket in found for value in range(bucket.start, bucket.stop)] == [
        value for piece in sorted(ranges) for value in range(piece.start, piece.stop)
    ]
    assert list(found) == sorted(found)
    assert all(0 < bucket.size <= limit for bucket in found)
    for bucket in found:  # none joins two ranges
        assert any(piece.start <= bucket.start and bucket.stop <= piece.stop for piece in ranges)


@given(layouts_with_ranges(), st.integers(1, 80))
def test_a_small_table_is_cut_by_its_range_only(case: tuple[Layout, list[Bucket]], limit: int) -> None:
    layout, ranges = case
    borders = {border for piece in ranges for border in (piece.start, piece.stop)}
    for bucket in buckets(layout, ranges, limit):
        stop = bucket.stop
        inside = [table for table in layout.tables if table.start < stop < table.stop]
        if inside and stop not in borders:
            assert inside[0].size > limit


@given(st.integers(1, 500), st.integers(1, 80))
def test_a_large_table_is_cut_into_equal_parts(length: int, limit: int) -> None:
    found = [bucket.size for bucket in buckets(layout_of([length]), [Bucket(0, length)], limit)]
    assert len(found) == -(-length // limit)
    assert max(found) - min(found) <= 1


def test_neighbouring_small_tables_share_a_bucket() -> None:
    layout = layout_of([4, 4, 4, 20, 3, 3])
    assert buckets(layout, [Bucket(0, layout.size)], 10) == (
        Bucket(0, 8),  # t0, t1
        Bucket(8, 12),  # t2 does not fit any more
        Bucket(12, 22),  # t3 is too large: two halves
        Bucket(22, 32),
        Bucket(32, 38),  # t4, t5
    )


@given(layouts_with_ranges(), st.integers(1, 80))
def test_by_table_no_bucket_has_values_of_two_tables(case: tuple[Layout, list[Bucket]], limit: int) -> None:
    layout, ranges = case
    found = buckets(layout, ranges, limit, by_table=True)
    assert sum(bucket.size for bucket in found) == sum(bucket.size for bucket in ranges)
    for bucket in found:
        assert bucket.size <= limit
        assert layout.table_at(bucket.start) == layout.table_at(bucket.stop - 1)


def test_a_bucket_is_about_a_mebibyte() -> None:
    assert BUCKET_VALUES * 4 == 1 << 20


def test_no_difference() -> None:
    assert layout_of([3, 4]).difference(layout_of([3, 4])) is None


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        ([("a", (2,)), ("b", (3,))], [("a", (2,)), ("c", (3,))], ("table 1", "b (3,) here", "c (3,) there")),
        ([("a", (2, 3))], [("a", (3, 2))], ("table 0", "a (2, 3) here", "a (3, 2) there")),
        ([("a", (2,)), ("b", (3,))], [("a", (2,))], ("table b (3,)", "only here")),
        ([("a", (2,))], [("a", (2,)), ("b", (3,))], ("table b (3,)", "only there")),
    ],
)
def test_the_first_difference_is_named(
    here: list[tuple[str, tuple[int, ...]]], there: list[tuple[str, tuple[int, ...]]], words: tuple[str, ...]
) -> None:
    difference = Layout.of(here).difference(Layout.of(there))
    assert difference is not None
    for word in words:
        assert word in difference


@pytest.mark.parametrize("wrong", [None, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [1, CACHED_VALUES, 3 * CACHED_VALUES + 7])
def test_values_are_copied_whole_and_checked_on_the_way(size: int, wrong: float | None) -> None:
    values, out = np.arange(size, dtype=np.float32), np.full(size, -1, np.float32)
    if wrong is not None:
        values[size // 2] = wrong
    assert copy_finite(values, out) is (wrong is None)
    np.testing.assert_array_equal(out, values)
