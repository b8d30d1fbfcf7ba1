"""Gates in a worker: what they are offered, and what `cached` makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.effects import Ready, Received, Send
from syncline.gates import Cached, Every, Gate, Offer
from syncline.layout import Bucket, Layout
from syncline.messages import Member, Params, Push, Taken, View, Wants, server_id
from syncline.nodes.worker import Worker, WorkerParts
from syncline.sim import Cluster, MadeUp, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.spec import parse
from syncline.strategy import ServerStrategy, settle_mode

BUCKET = Bucket(0, 4)
VIEW = View(0, (Member(0, 0, 0),), ((BUCKET,),))


@dataclass(frozen=True)
class Noting:
    """Sends what is larger than a limit, and notes all offers."""

    limit: float
    offers: list[Offer]

    def sends(self, offer: Offer) -> bool:
        self.offers.append(offer)
        return offer.update is not None and float(np.abs(offer.update).max()) > self.limit

    def fetches(self, offer: Offer) -> bool:
        return self.sends(offer)


def pushes(gate: Gate, updates: list[float]) -> list[Push]:
    """What a worker with this gate sends for updates of these sizes, each answered at once."""
    node = Worker(0, 0, WorkerParts(Layout.of([("w", (4,))]), Draw(0), gate=gate), VIEW)
    found: list[Push] = []
    for i, size in enumerate(updates):
        (send,) = node.handle(Ready(BUCKET, np.full(4, size, np.float32)), 0.0)
        assert isinstance(send, Send)
        assert isinstance(send.message, Push)
        found.append(send.message)
        kind = Params if send.message.wants is Wants.PARAMS else Taken
        answer = kind(0, 0, i, BUCKET, i + 1, i + 1)
        node.handle(Received(server_id(0), answer, np.zeros(4, np.float32) if kind is Params else None), 0.0)
    return found


@pytest.mark.parametrize("s", [0, 1, 3])
def test_cached_sends_and_fetches_when_what_is_held_would_be_too_old(s: int) -> None:
    found = pushes(Cached(s), [1.0] * 12)
    assert [not push.empty for push in found] == [(i + 1) % (s + 1) == 0 for i in range(12)]
    assert [push.wants is Wants.PARAMS for push in found] == [not push.empty for push in found]
    read = [push.read for push in found if not push.empty]
    assert read == [round * (s + 1) for round in range(len(read))]


def test_a_gate_is_offered_all_that_was_held_back() -> None:
    gate = Noting(2.5, [])
    found = pushes(gate, [1.0, 1.0, 1.0, 1.0])
    assert [push.empty for push in found] == [True, True, False, True]
    offered = [(offer.i, offer.age, float(offer.update[0])) for offer in gate.offers[::2] if offer.update is not None]
    assert offered == [(0, 1, 1.0), (1, 2, 2.0), (2, 3, 3.0), (3, 1, 1.0)]


@pytest.mark.parametrize("sync", ["ssp:2", "asp", "drop:2"])
def test_cached_is_every_where_nobody_joins(sync: str) -> None:
    def trace(gate: Gate) -> str:
        model = parse("sync", sync)
        mode, rule = settle_mode(None, None, (model,))
        strategy = ServerStrategy((model,), mode=mode, rule=rule, gate=gate)
        world = World(Scenario(Cluster(3, Lognormal(0.1, 0.5), None), strategy, 20), MadeUp(100, Draw(0)))
        world.run()
        return world.trace.sha256()

    if sync == "drop:2":  # whoever is late skips iterations, and then their numbers say nothing of age
        assert trace(Cached(0)) == trace(Every(1, 1))
    else:
        assert trace(Cached(2)) == trace(Every(3, 3))
