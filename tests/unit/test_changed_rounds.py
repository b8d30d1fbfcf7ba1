"""A round in whose middle the sync model changes: every update weighs the same, whether it was kept or not."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.codecs import Dense
from syncline.draw import Draw
from syncline.effects import Change, Received
from syncline.layout import Bucket
from syncline.messages import Member, Push, View, worker_id
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.rules import Add
from syncline.sync import Asp, Bsp, Ssp, SyncModel

WORKERS = 3
B = Bucket(0, WORKERS)


def pushes(node: Shard, *workers: int) -> None:
    """Each of these workers pushes 1 at its own place, in iteration 0."""
    for worker in workers:
        update = np.zeros(WORKERS, np.float32)
        update[worker] = 1
        node.handle(Received(worker_id(worker), Push(1, 0, 0, B, 0), update), 0.0)


@pytest.mark.parametrize("early", [0, 1, 2])
@pytest.mark.parametrize(
    ("before", "after"), [(Ssp(3), Bsp()), (Bsp(), Ssp(3)), (Asp(), Bsp()), (Bsp(), Asp())], ids=str
)
def test_every_update_of_the_round_weighs_a_third(before: SyncModel, after: SyncModel, early: int) -> None:
    view = View(1, tuple(Member(worker, 0, 0) for worker in range(WORKERS)), ((B,),))
    node = Shard(0, {B: np.zeros(WORKERS, np.float32)}, ShardTerms(before, Add(), Dense(), Draw(0)), view)
    order = list(range(WORKERS))
    pushes(node, *order[:early])
    node.handle(Change(after), 0.0)
    pushes(node, *order[early:])
    np.testing.assert_allclose(node.buckets[B].params, 1 / WORKERS, rtol=1e-6)
