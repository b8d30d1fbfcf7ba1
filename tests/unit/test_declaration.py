"""What a program declares is checked before it is sent, and the error names what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncline.engines.net.control import MOST_VALUES, Declare
from syncline.engines.net.frames import pack, unpack
from syncline.engines.worker.declaration import declaration, in_float32
from syncline.errors import UsageError
from syncline.layout import Layout, Table
from syncline.rules import Sgd
from syncline.strategies.settings import known_settings
from syncline.sync import Ssp

PREFIX_BYTES = 8


def by_name(tables: tuple[Table, ...], servers: int) -> list[list[str]]:
    return [[table.name for table in tables[server::servers]] for server in range(servers)]


def declare(arrays: Any, **wishes: Any) -> Declare:
    values = in_float32(arrays)
    return declaration(Layout.of((name, each.shape) for name, each in values.items()), wishes, "model")


WRONG_TABLES = {
    "no dict": ([np.zeros(3)], "dict"),
    "a name that is no text": ({1: np.zeros(3)}, "1 is not a name"),
    "a long name": ({"w" * 4097: np.zeros(3)}, "4,097 characters"),
    "a name that is no UTF-8": ({"\ud800": np.zeros(3)}, "UTF-8"),
    "nothing": ({}, "hold no values"),
    "texts": ({"good": np.zeros(3), "bad": ["a"]}, "'bad' is an array of"),
    "objects": ({"bad": np.array([None])}, "'bad' is an array of object"),
    "complex numbers": ({"bad": np.array([1j])}, "'bad' is an array of complex"),
    "times": ({"bad": np.zeros(3, "datetime64[s]")}, "'bad' is an array of datetime"),
    "ragged rows": ({"bad": [[1.0], [1.0, 2.0]]}, "'bad' is not an array"),
    "too many sides": ({"bad": np.zeros((1,) * 33)}, "'bad' has the shape"),
    "a side that is too long": ({"good": 1.0, "bad": np.zeros((MOST_VALUES + 1, 0))}, "'bad' has the shape"),
    "too many tables": ({f"table{i:06}": 0.0 for i in range(200_000)}, "200,000 names"),
}


@pytest.mark.parametrize("case", WRONG_TABLES)
def test_invalid_tables_are_refused(case: str) -> None:
    arrays, words = WRONG_TABLES[case]
    with pytest.raises(UsageError, match=words) as refused:
        declare(arrays)
    assert refused.value.option == "tables"
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("wish", [0.1, None, True, b"bsp", ["bsp"]], ids=repr)
def test_a_setting_that_is_not_text_is_refused(wish: object) -> None:
    with pytest.raises(UsageError, match="is not text") as refused:
        declare({"w": np.zeros(3)}, sync=wish)
    assert refused.value.option == "sync"


def test_parts_are_declared_as_their_text() -> None:
    found = declare({"w": np.zeros(3)}, sync=Ssp(3), rule=Sgd(0.1), placement=by_name)
    assert found.wishes == {"sync": "ssp:3", "rule": "sgd:0.1", "placement": f"{__name__}.by_name"}


def test_an_unknown_setting_lists_those_that_there_are() -> None:
    with pytest.raises(UsageError) as refused:
        declare({"w": np.zeros(3)}, sink="ssp:3")
    assert refused.value.option == "sink"
    assert all(key in refused.value.problem for key in known_settings())


def test_what_can_be_declared_can_be_read() -> None:
    arrays = {"w" * 4096: np.ones((2, 3)), "": [True, False], "scalar": 7, "none": np.zeros((0, 5))}
    found = declare(arrays, sync="ssp:3", seed=7, bucket=np.str_("1MiB"))
    assert found.wishes == {"sync": "ssp:3", "seed": "7", "bucket": "1MiB"}
    assert [table.shape for table in found.tables] == [(2, 3), (2,), (), (0, 5)]
    assert unpack(pack(found)[PREFIX_BYTES:]) == found
    assert all(each.dtype == np.float32 for each in in_float32(arrays).values())
