"""Whole traces, message by message, as a person last reviewed them.

To accept a change of the protocol: `syncline simulate tests/golden/NAME.toml --trace tests/golden/NAME.csv`, and read
the difference.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from syncline.draw import Draw
from syncline.sim import MadeUp, World
from syncline.sim.experiment import read_experiment
from syncline.sim.trace import TraceLog

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ["ssp_lazy", "bsp_linked", "drop_faults"])
def test_the_trace_is_the_golden_one(name: str) -> None:
    experiment = read_experiment(HERE / f"{name}.toml")
    text = io.StringIO()
    problem = MadeUp(experiment.model.parameters, Draw(experiment.scenario.seed))
    World(experiment.scenario, problem, trace=TraceLog(text)).run()
    assert text.getvalue() == (HERE / f"{name}.csv").read_text()
