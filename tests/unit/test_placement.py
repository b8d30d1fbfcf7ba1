"""Every value of the model vector lies on exactly one server."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import UsageError
from syncline.layout import Bucket, Layout
from syncline.placement import PLACEMENTS, Elastic, Placement, Ranges, RoundRobin, checked

lengths = st.lists(st.integers(1, 60), min_size=1, max_size=10)


def layout_of(*sizes: int) -> Layout:
    return Layout.of((f"t{number}", (size,)) for number, size in enumerate(sizes))


@pytest.mark.parametrize("placement", [part() for part in PLACEMENTS], ids=str)
@given(lengths, st.integers(1, 8))
def test_every_value_lies_on_exactly_one_server(placement: Placement, sizes: list[int], servers: int) -> None:
    layout = layout_of(*sizes)
    ranges = placement.place(layout, servers)
    assert len(ranges) == servers
    held = [value for server in ranges for piece in server for value in range(piece.start, piece.stop)]
    assert sorted(held) == list(range(layout.size))


@given(lengths, st.integers(1, 8))
def test_elastic_ranges_are_equal_to_one_value(sizes: list[int], servers: int) -> None:
    held = [sum(piece.size for piece in server) for server in Elastic().place(layout_of(*sizes), servers)]
    assert max(held) - min(held) <= 1


def test_elastic_ignores_tables() -> None:
    assert Elastic().place(layout_of(9, 1), 2) == ((Bucket(0, 5),), (Bucket(5, 10),))


def test_roundrobin_deals_whole_tables() -> None:
    assert RoundRobin().place(layout_of(5, 1, 2, 3, 4), 2) == (
        (Bucket(0, 5), Bucket(6, 8), Bucket(11, 15)),
        (Bucket(5, 6), Bucket(8, 11)),
    )


@pytest.mark.parametrize("placement", [Elastic(), RoundRobin()], ids=str)
def test_a_server_without_values_is_refused(placement: Placement) -> None:
    with pytest.raises(UsageError, match=f"servers: {placement} leaves server . of 3") as caught:
        checked(placement, layout_of(1, 1), 3)
    assert caught.value.option == "servers"


@given(lengths, st.integers(1, 8))
def test_what_is_checked_comes_back_as_it_is(sizes: list[int], servers: int) -> None:
    layout = layout_of(*sizes)
    if layout.size >= servers:
        assert checked(Elastic(), layout, servers) == Elastic().place(layout, servers)


@dataclass(frozen=True)
class Given:
    """A placement of one's own that gives what it was told to."""

    ranges: Ranges

    def place(self, layout: Layout, servers: int) -> Ranges:
        return self.ranges


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        (((Bucket(0, 10),),), "names 1 servers where there are 2"),
        (((Bucket(0, 5),), (Bucket(6, 10),)), "leaves out values of table 't0'"),
        (((Bucket(1, 5),), (Bucket(5, 10),)), "leaves out values of table 't0'"),
        (((Bucket(0, 8),), (Bucket(7, 10),)), "gives twice values of table 't1'"),
        (((Bucket(0, 5),), (Bucket(5, 9),)), "ends at value 9 of 10"),
        (((Bucket(0, 5),), (Bucket(5, 11),)), "ends at value 11 of 10"),
        (((Bucket(0, 5),), (Bucket(5, 10), Bucket(10, 12))), "10"),
        (((Bucket(0, 10),), (Bucket(5, 5),)), "leaves server 1 of 2"),
    ],
)
def test_a_wrong_placement_is_refused(ranges: Ranges, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        checked(Given(ranges), layout_of(7, 3), 2)
