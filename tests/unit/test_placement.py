"""Every value of the model vector lies on exactly one server."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import UsageError
from syncline.layout import Bucket, Layout, Table, buckets
from syncline.placement import (
    PLACEMENTS,
    Balanced,
    Elastic,
    Own,
    Placement,
    Ranges,
    RoundRobin,
    Uniform,
    checked,
    placement_of,
    replaced,
)
from syncline.recipes.layer_lists import LAYER_LISTS
from syncline.spec import parse, write

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
    with pytest.raises(UsageError, match=f"servers: {placement} gives server . of 3 no values") as caught:
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
        (((Bucket(0, 10),),), "returns ranges for 1 server, but the run has 2"),
        (((Bucket(0, 5),), (Bucket(6, 10),)), "places values of table 't0' on no server"),
        (((Bucket(1, 5),), (Bucket(5, 10),)), "places values of table 't0' on no server"),
        (((Bucket(0, 8),), (Bucket(7, 10),)), "places values of table 't1' twice"),
        (((Bucket(0, 5),), (Bucket(5, 9),)), "places values of table 't1' on no server"),
        (((Bucket(0, 5),), (Bucket(5, 11),)), "returns values 5..11, but the model has 10 values"),
        (((Bucket(0, 5),), (Bucket(5, 10), Bucket(10, 12))), "returns values 10..12, but the model has 10 values"),
        (((Bucket(0, 5),), (Bucket(5, 10), Bucket(11, 12))), "returns values 11..12, but the model has 10 values"),
        (((Bucket(-3, 5),), (Bucket(5, 10),)), "returns values -3..5, but the model has 10 values"),
        (((Bucket(0, 15),), (Bucket(15, 10),)), "returns values 0..15, but the model has 10 values"),
        (((Bucket(0, 10),), (Bucket(5, 5),)), "gives server 1 of 2 no values"),
    ],
)
def test_a_wrong_placement_is_refused(ranges: Ranges, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        checked(Given(ranges), layout_of(7, 3), 2)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, r"Given\(ranges=None\) returns None; place\(layout, servers\) must return the ranges of each server"),
        (5, "returns 5"),
        ("ab", "returns 'ab'"),
        ((Bucket(0, 5), Bucket(5, 10)), r"returns Bucket\(start=0, stop=5\)"),
        ((((0, 5),), ((5, 10),)), r"returns \(0, 5\) for a server"),
        (((Bucket(0.0, 5.0),), (Bucket(5.0, 10.0),)), "a range whose ends are not integers"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_result_of_a_placement_is_refused(answer: object, words: str) -> None:
    placement = Given(answer)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=words) as caught:
        checked(placement, layout_of(7, 3), 2)
    assert caught.value.option == "placement"


def test_ends_of_ranges_may_be_of_numpy() -> None:
    cuts = np.array([0, 6, 10])
    ranges = checked(Given(((Bucket(cuts[0], cuts[1]),), (Bucket(cuts[1], cuts[2]),))), layout_of(7, 3), 2)
    assert {type(end) for (piece,) in ranges for end in (piece.start, piece.stop)} == {int}


def test_uniform_splits_every_table_and_begins_with_another_server_each_time() -> None:
    assert Uniform().place(layout_of(4, 3, 1), 2) == (
        (Bucket(0, 2), Bucket(5, 7)),
        (Bucket(2, 4), Bucket(4, 5), Bucket(7, 8)),
    )


@given(lengths, st.integers(1, 8))
def test_uniform_gives_every_server_its_part_of_every_table(sizes: list[int], servers: int) -> None:
    layout = layout_of(*sizes)
    for held in Uniform().place(layout, servers):
        for table in layout.tables:
            there = sum(piece.size for piece in held if table.start <= piece.start < table.stop)
            assert table.size // servers <= there <= -(-table.size // servers)


def test_balanced_gives_the_largest_table_first_to_the_server_with_the_least_load() -> None:
    assert Balanced().place(layout_of(3, 7, 2, 5, 4), 2) == (
        (Bucket(0, 10),),
        (Bucket(10, 21),),
    )


@given(lengths, st.integers(1, 8))
def test_balanced_keeps_tables_whole_and_loads_close(sizes: list[int], servers: int) -> None:
    """The server with the largest load had the least load before its last table, which is at most the largest table."""
    layout = layout_of(*sizes)
    ranges = Balanced().place(layout, servers)
    for table in layout.tables:
        assert any(piece.start <= table.start and table.stop <= piece.stop for held in ranges for piece in held)
    assert max(loads(ranges)) - min(loads(ranges)) <= max(sizes)


# A function of one's own.


def halves(tables: tuple[Table, ...], servers: int) -> list[list[str]]:
    """The first tables on the first server, and so on."""
    return [
        [table.name for table in tables[len(tables) * n // servers : len(tables) * (n + 1) // servers]]
        for n in range(servers)
    ]


def forgets(tables: tuple[Table, ...], servers: int) -> list[list[str]]:
    return [[tables[0].name], *[[table.name for table in tables[2:]]] * (servers - 1)]


def gives_twice(tables: tuple[Table, ...], servers: int) -> list[list[str]]:
    return [[table.name for table in tables], *[[tables[1].name]] * (servers - 1)]


def invents(tables: tuple[Table, ...], servers: int) -> list[list[str]]:
    return [["phantom"]] * servers


def test_a_function_of_ones_own_is_a_placement() -> None:
    placement = placement_of(halves)
    assert placement == Own(halves)
    assert checked(placement, layout_of(7, 3, 5), 2) == ((Bucket(0, 7),), (Bucket(7, 10), Bucket(10, 15)))


def test_a_function_of_ones_own_travels_as_its_path() -> None:
    import own_parts

    assert write(Own(own_parts.by_turns)) == "own_parts.by_turns"
    assert parse("placement", "own_parts.by_turns") == Own(own_parts.by_turns)


def test_a_function_may_return_what_is_made_as_it_is_read() -> None:
    assert checked(Own(lambda *asked: (iter(names) for names in halves(*asked))), layout_of(7, 3), 2) == (
        (Bucket(0, 7),),
        (Bucket(7, 10),),
    )


def test_a_function_may_end_the_program() -> None:
    def ends(tables: tuple[Table, ...], servers: int) -> list[list[str]]:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        checked(Own(ends), layout_of(7, 3), 2)


def test_an_object_of_ones_own_is_taken_as_it_is() -> None:
    own = Given(((Bucket(0, 10),),))
    assert placement_of(own) is own


@pytest.mark.parametrize("given", [3, Given, "elastic"])
def test_an_object_that_is_not_a_placement_is_refused(given: object) -> None:
    with pytest.raises(UsageError, match="neither an object with a method `place` nor a function"):
        placement_of(given)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (forgets, "forgets places values of table 't1' on no server"),
        (gives_twice, "gives_twice places values of table 't1' twice"),
        (invents, "invents names a table 'phantom'"),
        (lambda *_: None, "returns None; it gets the tables and the number of servers"),
        (lambda *_: [1, 2], "returns 1; it gets the tables"),
        (lambda tables, _: [table.name for table in tables], "returns 't0'; it gets the tables"),
        (lambda tables, servers: [tables] * servers, r"returns Table\(name='t0'"),
        (lambda *_: [[["t0"]]], r"returns \['t0'\] for a server"),
        (lambda: 0, "raised TypeError: .* takes 0 positional arguments but 2 were given; it gets the tables"),
        (lambda tables, _: [[tables[9].name]], "raised IndexError: tuple index out of range; it gets the tables"),
        (lambda tables, servers: ([tables[9].name] for _ in range(servers)), "raised IndexError"),
    ],
)
def test_a_function_that_errs_is_refused_and_the_table_named(function: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        checked(placement_of(function), layout_of(7, 3, 5), 2)


# Servers come and go.


def loads(ranges: Ranges) -> list[int]:
    return [sum(piece.size for piece in held) for held in ranges if held]


def owner(ranges: Ranges) -> dict[int, int]:
    return {value: n for n, held in enumerate(ranges) for piece in held for value in range(piece.start, piece.stop)}


def moved(before: Ranges, after: Ranges) -> int:
    """How many values have another holder, found from borders alone."""
    borders = sorted(
        {edge for ranges in (before, after) for held in ranges for p in held for edge in (p.start, p.stop)}
    )
    holder = [{piece: n for n, held in enumerate(ranges) for piece in held} for ranges in (before, after)]
    total = 0
    for start, stop in pairwise(borders):
        was, now = (
            next(n for piece, n in each.items() if piece.start <= start and stop <= piece.stop) for each in holder
        )
        total += (stop - start) * (was != now)
    return total


sizes_of_any_kind = lengths | st.lists(st.integers(1, 100_000), min_size=1, max_size=10)


@given(sizes_of_any_kind, st.integers(1, 6), st.integers(1, 5000))
def test_adding_a_server_moves_no_more_than_its_share(sizes: list[int], servers: int, limit: int) -> None:
    layout = layout_of(*sizes)
    if layout.size <= servers:
        return
    held = tuple(buckets(layout, each, max(limit, layout.size // 200)) for each in Elastic().place(layout, servers))
    after = replaced(Elastic(), layout, held, range(servers + 1))
    assert moved(held, after) <= layout.size // (servers + 1) + 1
    assert max(loads(after)) - min(loads(after)) <= max(1, layout.size / (servers + 1) / 100)


def test_the_tolerance_of_a_small_model_stays_within_a_hundredth_of_a_share() -> None:
    """A border of a bucket at 297 of 591 values is too far from the middle to be kept."""
    layout = layout_of(591)
    held = ((Bucket(0, 297), Bucket(297, 591)),)
    assert sorted(loads(replaced(Elastic(), layout, held, range(2)))) == [295, 296]


def test_after_adding_one_to_four_no_more_than_a_fifth_has_moved() -> None:
    layout = layout_of(*[999_983] * 7)
    held = tuple(buckets(layout, each) for each in Elastic().place(layout, 4))
    after = replaced(Elastic(), layout, held, range(5))
    assert 0 < moved(held, after) <= layout.size / 5 + 1
    assert max(loads(after)) - min(loads(after)) < layout.size / 5 / 100


@given(sizes_of_any_kind, st.integers(2, 6), st.data())
def test_removing_a_server_moves_only_what_it_held(sizes: list[int], servers: int, data: st.DataObject) -> None:
    layout = layout_of(*sizes)
    if layout.size < servers:
        return
    held = tuple(buckets(layout, each, max(3, layout.size // 200)) for each in Elastic().place(layout, servers))
    gone = data.draw(st.integers(0, servers - 1))
    after = replaced(Elastic(), layout, held, set(range(servers)) - {gone})
    assert after[gone] == ()
    assert moved(held, after) == sum(piece.size for piece in held[gone])
    assert max(loads(after)) - min(loads(after)) <= max(1, layout.size / (servers - 1) / 100)


@pytest.mark.parametrize("placement", [part() for part in PLACEMENTS] + [Own(halves)], ids=str)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=6, max_size=10),
    first=st.integers(1, 4),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=8),
)
def test_when_servers_join_and_leave_no_value_is_lost_and_buckets_are_only_cut(
    placement: Placement, sizes: list[int], first: int, steps: list[tuple[bool, int]]
) -> None:
    layout = layout_of(*sizes)
    held = tuple(buckets(layout, each, 16) for each in checked(placement, layout, first))
    servers = set(range(first))
    for add, which in steps:
        if add and len(servers) < 6:
            servers.add(len(held))
        elif len(servers) > 1:
            servers.discard(sorted(servers)[which % len(servers)])
        after = replaced(placement, layout, held, servers)
        assert {n for n, pieces in enumerate(after) if pieces} == servers
        assert sorted(owner(after)) == list(range(layout.size))
        assert sum(loads(after)) == layout.size
        before = [piece for pieces in held for piece in pieces]
        for piece in (piece for pieces in after for piece in pieces):
            assert any(old.start <= piece.start and piece.stop <= old.stop for old in before)
        if placement == Elastic():
            assert max(loads(after)) - min(loads(after)) <= max(1, layout.size / len(servers) / 100)
        held = after


def after(held: Ranges, servers: set[int], change: tuple[int, int, bool]) -> set[int]:
    """The servers when so many have come, and one has gone, if it may: whichever this is, or none."""
    come, which, goes = change
    left = servers - ({sorted(servers)[which % len(servers)]} if goes else set())
    new = set(range(len(held), len(held) + min(come, 12 - len(left))))
    return left | new or servers


def changed(layout: Layout, held: Ranges, servers: Collection[int]) -> Ranges:
    """The ranges after elastic has moved some of them; every law that it has is checked."""
    found = replaced(Elastic(), layout, held, servers)
    share = layout.size / len(servers)
    assert {n for n, pieces in enumerate(found) if pieces} == set(servers)
    assert all(abs(load - share) <= share / 256 + 1 for load in loads(found)), loads(found)
    pieces = sorted(piece for each in found for piece in each)
    assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
    assert pieces[-1].stop == layout.size
    assert {piece.start for each in held for piece in each} <= {piece.start for piece in pieces}
    return found


@given(
    sizes=st.lists(st.integers(1, 400_000), min_size=1, max_size=12).filter(lambda sizes: sum(sizes) >= 12),
    limit=st.integers(1, 60_000),
    first=st.integers(1, 8),
    changes=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 11), st.booleans()), max_size=12),
)
def test_elastic_stays_even_however_often_servers_come_and_go(
    sizes: list[int], limit: int, first: int, changes: list[tuple[int, int, bool]]
) -> None:
    layout = layout_of(*sizes)
    held = tuple(buckets(layout, each, max(limit, layout.size // 300)) for each in Elastic().place(layout, first))
    servers = set(range(first))
    for change in changes:
        now = after(held, servers, change)
        found = changed(layout, held, now)
        gone = sum(piece.size for server in servers - now for piece in held[server])
        if now < servers:
            assert moved(held, found) == gone
        elif servers < now:
            assert moved(held, found) <= layout.size * len(now - servers) // len(now) + len(now - servers)
        held, servers = found, now


def test_elastic_stays_even_where_many_are_a_little_off() -> None:
    """Each of those who keep a little more than their share leaves less for the others, not only for the last."""
    layout = LAYER_LISTS["inception-v4"]()
    held = tuple(buckets(layout, each, 16_384) for each in Elastic().place(layout, 6))
    for servers in [range(7), range(8), range(7), *({*range(7), *range(8, 8 + more)} for more in range(1, 6))]:
        held = changed(layout, held, servers)


@settings(max_examples=20)
@given(st.lists(st.booleans(), min_size=30, max_size=30))
def test_elastic_does_not_crumble(adds: list[bool]) -> None:
    """However often servers come and go, pieces do not get tiny, and there are not ever more of them."""
    layout = layout_of(10_000_000)
    held = tuple(buckets(layout, each, 250_000) for each in Elastic().place(layout, 4))
    servers = set(range(4))
    for add in adds:
        if add and len(servers) < 8:
            servers.add(len(held))
        elif len(servers) > 2:
            servers.discard(max(servers))
        held = replaced(Elastic(), layout, held, servers)
    sizes = [piece.size for pieces in held for piece in pieces]
    assert len(sizes) < 40 + 30 * 8
    assert max(loads(held)) - min(loads(held)) <= layout.size / len(servers) / 100


@dataclass(frozen=True)
class ToTheDead:
    """Gives values to a server that is not there."""

    def place(self, layout: Layout, servers: int) -> Ranges:
        return Elastic().place(layout, servers)

    def replace(self, layout: Layout, held: Ranges, servers: object) -> Ranges:
        return held


def test_values_for_a_server_that_is_not_there_are_refused() -> None:
    layout = layout_of(9)
    with pytest.raises(UsageError, match="gives values to a server that does not exist"):
        replaced(ToTheDead(), layout, Elastic().place(layout, 3), {0, 1})


@dataclass(frozen=True)
class Forgetful(ToTheDead):
    """Forgets its argument."""

    def replace(self, layout: Layout, held: Ranges, servers: object) -> Ranges:
        raise KeyError("servers")


def test_a_replacement_that_fails_is_refused() -> None:
    layout = layout_of(9)
    with pytest.raises(UsageError, match=r"placement: Forgetful\(\) raised KeyError: 'servers'; replace\(layout, held"):
        replaced(Forgetful(), layout, Elastic().place(layout, 3), {0, 1})


def test_more_servers_than_values_are_refused() -> None:
    layout = layout_of(2)
    with pytest.raises(UsageError, match="gives server 2 of 3 no values; the model has 2 values"):
        replaced(Elastic(), layout, Elastic().place(layout, 2), range(3))
