"""The conformance suite passes correct sync models, and gives the reason for wrong ones."""

from __future__ import annotations

import pytest

from own_parts import Deaf, Hasty, Impatient, Moody, Patient
from syncline.draw import Draw
from syncline.sim import Cluster, MadeUp, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.spec import parse, write
from syncline.strategies.server.strategy import ServerStrategy, settle_mode
from syncline.sync import Asp, Bsp, Drop, Dsps, Psp, Pssp, Ssp, SyncModel
from syncline.testing import check_sync_model


@pytest.mark.parametrize(
    ("model", "bound"),
    [
        (Bsp(), 0),
        (Asp(), None),
        (Ssp(0), 0),
        (Ssp(3), 3),
        (Dsps(1, 4), 4),
        (Drop(2), 0),
        (Drop(4), 0),
        (Pssp(3, p=0.5), None),
        (Pssp(3, p=1.0), 3),
        (Pssp(2, alpha=0.8), None),
        (Pssp(2, alpha="significance"), None),
        (Psp(1, 0), None),
        (Psp(2, 1), None),
        (Psp(10, 3), 3),
        (Patient(2), None),
        (Impatient(2, 5.0), None),
    ],
    ids=write,
)
def test_models_conform(model: SyncModel, bound: int | None) -> None:
    check_sync_model(model, bound=bound)


@pytest.mark.parametrize(
    ("model", "bound", "reason"),
    [
        (Deaf(), None, "wait forever"),
        (Hasty(), 1, "was answered for iteration"),
        (Moody(), None, "hashable"),
    ],
    ids=["deaf", "hasty", "moody"],
)
def test_bad_models_are_refused_with_the_reason(model: SyncModel, bound: int | None, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        check_sync_model(model, bound=bound)


def test_a_model_of_ones_own_is_written_by_its_path_and_runs() -> None:
    model = parse("sync", "own_parts.Patient:2")
    assert model == Patient(2)
    assert parse("sync", write(model)) == model
    mode, rule = settle_mode(None, None, (model,))
    scenario = Scenario(Cluster(4, Lognormal(0.1, 0.5)), ServerStrategy((model,), mode=mode, rule=rule), 20)
    outcome = World(scenario, MadeUp(1000, Draw(0))).run()
    assert outcome.train_progress == 20
    assert outcome.delayed_pulls > 0
