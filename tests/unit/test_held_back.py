"""The end of a simulated run with a gate: what was held back is sent when all leave, and counts like the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.effects import Send
from syncline.layout import Bucket, Layout, Values
from syncline.messages import NodeId, Push
from syncline.rules import Add, Rule
from syncline.sim import Cluster, Links, Scenario, World
from syncline.sim.faults import Fault, Freeze, Join, Leave, Slow
from syncline.sim.problem import Quality
from syncline.spec import parse
from syncline.strategies.server.strategy import Mode, ServerStrategy, settle_mode

GATE = "every:push=4"


@dataclass(frozen=True)
class Seconds:
    """The compute time of a step of each worker."""

    of: tuple[float, ...]

    def block(self, worker: int, number: int, draw: Draw) -> Sequence[float]:
        return [self.of[worker]] * 64


class Ones:
    """Every update is 1: in mode `changes` the model counts the iterations that all have done."""

    optimizer: Rule = Add()
    always_finite = True
    layout = Layout.of([("w", (8,))])

    def start(self, buckets: Sequence[Bucket]) -> list[Values]:
        return [np.zeros(bucket.size, np.float32) for bucket in buckets]

    def gradient(self, pieces: Sequence[Values], worker: int, iteration: int) -> list[Values]:
        return [np.ones_like(piece) for piece in pieces]

    def quality(self, pieces: Sequence[Values]) -> Quality | None:
        return None


def world(
    sync: str, seconds: tuple[float, ...], iterations: int, *faults: Fault, gate: str = GATE, links: Links | None = None
) -> World:
    models = (parse("sync", sync),)
    mode, rule = settle_mode(Mode.CHANGES, None, models)
    strategy = ServerStrategy(models, mode=mode, rule=rule, gate=parse("gate", gate), bucket_values=4)
    workers = len(seconds) - sum(isinstance(fault, Join) for fault in faults)
    return World(Scenario(Cluster(workers, Seconds(seconds), links), strategy, iterations, faults=faults), Ones())


@pytest.mark.parametrize("links", [None, Links(1e6, 0.001)], ids=["free", "links"])
@pytest.mark.parametrize("iterations", [1, 2, 4, 7])
@pytest.mark.parametrize("sync", ["bsp", "asp", "ssp:2", "drop:4"])
def test_all_of_it_counts_as_if_nothing_had_been_held_back(sync: str, iterations: int, links: Links | None) -> None:
    outcome = world(sync, (1.0,) * 4, iterations, links=links).run()
    assert outcome.model_vector().tolist() == [iterations] * 8
    assert outcome.updates == 4 * (iterations + (iterations % 4 > 0))


def test_a_worker_that_joins_at_the_very_end_delays_nobody() -> None:
    run = world("bsp", (1.0,) * 5, 10, Join(9.5, 4))
    assert run.run().model_vector().tolist() == [10] * 8
    assert not any(worker.node.is_waiting for worker in run.workers.values())


def test_the_last_one_leaves_with_all_that_it_holds() -> None:
    """Worker 1 has done two iterations when it leaves; worker 0 has done eight by then."""
    run = world("asp", (1.0, 5.0), 8, Leave(7.0, 1))
    assert run.run().model_vector().tolist() == [5] * 8


def test_a_frozen_worker_sends_when_it_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, float]] = []
    send = World.send

    def noting(self: World, source: NodeId, message: Send) -> None:
        if type(message.message) is Push and message.message.progress == 2:
            sent.append((source.number, self.agenda.now))
        send(self, source, message)

    monkeypatch.setattr(World, "send", noting)
    run = world("asp", (1.0, 0.5), 2, Freeze(1.5, 1, 50.0))
    assert run.run().model_vector().tolist() == [2] * 8
    assert sent == [(0, 2.0)] * 2 + [(1, 51.5)] * 2


@pytest.mark.parametrize("gate", ["always", GATE])
def test_faults_that_come_too_late_are_told(gate: str) -> None:
    outcome = world("asp", (1.0, 1.0), 2, Slow(1000.0, 0, 2.0), gate=gate).run()
    assert outcome.notes == ("1 of 1 faults came after the end of the run and had no effect",)


def test_pushes_of_leaving_workers_do_not_count_as_pulls() -> None:
    plain, gated = world("bsp", (1.0,) * 3, 10, gate="always").run(), world("bsp", (1.0,) * 3, 10).run()
    assert gated.delayed_pulls == plain.delayed_pulls == 20
