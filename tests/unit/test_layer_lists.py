"""The layer lists are those of the networks, and show what the placements are worth."""

from __future__ import annotations

import pytest

from own_parts import by_turns
from syncline.layout import Layout
from syncline.placement import Balanced, Elastic, Own, Placement, RoundRobin, checked
from syncline.recipes.layer_lists import LAYER_LISTS, googlenet, inception_v4, resnet56

every_list = pytest.mark.parametrize("name", LAYER_LISTS)
WHOLE_TABLES = (RoundRobin(), Own(by_turns), Balanced())


def spread(placement: Placement, layout: Layout, servers: int) -> float:
    """(largest load - smallest) / the mean load."""
    loads = [sum(piece.size for piece in held) for held in checked(placement, layout, servers)]
    return (max(loads) - min(loads)) * servers / layout.size


@pytest.mark.parametrize(
    ("layout", "values", "tables"),
    [
        (resnet56(), 853_018, 3 * 55 + 2),
        (googlenet(), 6_624_904, 3 * 57 + 2),
        (googlenet(auxiliary=True), 13_004_888, 3 * 59 + 10),
        (inception_v4(), 42_679_816, 3 * 149 + 2),
    ],
    ids=["resnet56", "googlenet", "googlenet with heads", "inception-v4"],
)
def test_the_totals_are_the_known_ones(layout: Layout, values: int, tables: int) -> None:
    assert layout.size == values
    assert len(layout.tables) == tables
    assert len({table.name for table in layout.tables}) == tables


@every_list
@pytest.mark.parametrize("servers", [2, 4, 8, 16])
def test_balanced_is_the_most_even_that_keeps_tables_whole(name: str, servers: int) -> None:
    layout = LAYER_LISTS[name]()
    assert min(WHOLE_TABLES, key=lambda placement: spread(placement, layout, servers)) == Balanced()


@every_list
@pytest.mark.parametrize("servers", [2, 4, 8, 16, 100])
def test_elastic_is_even(name: str, servers: int) -> None:
    assert spread(Elastic(), LAYER_LISTS[name](), servers) < 0.01
