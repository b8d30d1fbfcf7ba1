"""Synchronous SGD with L clients of batch M equals plain SGD with batch L * M, in every mode that supports it."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.layout import Bucket, Values
from syncline.recipes import build
from syncline.rules import Momentum, Rule, Sgd
from syncline.sim import Cluster, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.sim.report import params_sha256
from syncline.strategies.server.strategy import Mode, ServerStrategy, settle_mode
from syncline.sync import Bsp, Drop, Ssp, SyncModel

CLIENTS, BATCH, STEPS = 4, 16, 40
UNEVEN = Lognormal(0.1, 0.5, 0.1, 5.0)


def plain(rule: Rule) -> Values:
    """One process, one batch of CLIENTS * BATCH, a loop."""
    problem = build("digits-mlp", draw=Draw(3), workers=1, batch=CLIENTS * BATCH)
    (params,) = problem.start([Bucket(0, problem.layout.size)])
    memory = rule.start(params)
    for step in range(STEPS):
        (gradient,) = problem.gradient([params], 0, step)
        rule.apply(params, gradient, memory, 0, None, np.empty_like(params))
    return params


def simulated(rule: Rule, mode: Mode, model: SyncModel, servers: int) -> tuple[Values, str]:
    settled, shard_rule = settle_mode(mode, rule if mode is Mode.RULE else None, (model,))
    strategy = ServerStrategy((model,) * servers, mode=settled, rule=shard_rule, bucket_values=3000)
    problem = build("digits-mlp", draw=Draw(3), workers=CLIENTS, batch=BATCH, optimizer=rule)
    outcome = World(Scenario(Cluster(CLIENTS, UNEVEN), strategy, STEPS, seed=3), problem).run()
    return outcome.model_vector(), params_sha256(outcome)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize(
    ("rule", "mode", "model"),
    [
        (Sgd(0.3), Mode.GRADIENTS, Bsp()),
        (Sgd(0.3), Mode.RULE, Bsp()),
        (Sgd(0.3), Mode.CHANGES, Bsp()),
        (Sgd(0.3), Mode.RULE, Drop(CLIENTS)),
        (Momentum(0.1, 0.9), Mode.GRADIENTS, Bsp()),
        (Momentum(0.1, 0.9), Mode.RULE, Bsp()),
        (Momentum(0.1, 0.9), Mode.GRADIENTS, Ssp(0)),
    ],
)
def test_many_clients_are_one_large_batch(rule: Rule, mode: Mode, model: SyncModel, servers: int) -> None:
    params, digest = simulated(rule, mode, model, servers)
    np.testing.assert_allclose(params, plain(rule), rtol=0, atol=1e-6)
    assert simulated(rule, mode, model, servers)[1] == digest


def test_the_order_of_arrival_does_not_change_a_bit() -> None:
    rule = Momentum(0.1, 0.9)
    strategy = ServerStrategy(mode=Mode.RULE, rule=rule)
    digests = set()
    for compute in (Lognormal(0.1), UNEVEN, Lognormal(0.1, 2.0)):
        problem = build("digits-mlp", draw=Draw(3), workers=CLIENTS, batch=BATCH)
        digests.add(params_sha256(World(Scenario(Cluster(CLIENTS, compute), strategy, STEPS, seed=3), problem).run()))
    assert len(digests) == 1
