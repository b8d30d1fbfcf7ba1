"""An update that holds NaN or infinity is not sent, and the error names the table that holds it."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.effects import Fail, Ready
from syncline.errors import NotFinite
from syncline.layout import Bucket, Layout
from syncline.messages import Member, View
from syncline.nodes.server.worker import Worker
from syncline.nodes.server.worker_parts import WorkerParts

LAYOUT = Layout.of([("first", (4,)), ("second", (3,)), ("third", (5,))])
WHOLE = Bucket(0, LAYOUT.size)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("offset", range(LAYOUT.size))
def test_the_table_is_named(offset: int, value: float) -> None:
    worker = Worker(2, 0, WorkerParts(LAYOUT, Draw(0)), View(0, (Member(2, 0, 0),), ((WHOLE,),)))
    update = np.ones(LAYOUT.size, np.float32)
    update[offset] = value
    (effect,) = worker.handle(Ready(WHOLE, update), 0.0)
    assert isinstance(effect, Fail)
    assert isinstance(effect.error, NotFinite)
    assert (effect.error.worker, effect.error.progress) == (2, 0)
    assert effect.error.table == LAYOUT.table_at(offset).name


def test_large_values_are_finite() -> None:
    """Their squares overflow, but they do not, and there is no warning."""
    worker = Worker(2, 0, WorkerParts(LAYOUT, Draw(0)), View(0, (Member(2, 0, 0),), ((WHOLE,),)))
    update = np.full(LAYOUT.size, 1e30, np.float32)
    assert not any(isinstance(effect, Fail) for effect in worker.handle(Ready(WHOLE, update), 0.0))
