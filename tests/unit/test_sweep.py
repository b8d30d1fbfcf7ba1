"""A sweep: every combination of settings is a flat row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.sim import MadeUp, Problem, sweep
from syncline.sim.experiment import Experiment, read_experiment
from syncline.sim.world import simulate
from syncline.sync import Asp, Ssp

SMALL = {"cluster.workers": 3, "iterations": 4, "model.parameters": 40}


def eight_values(experiment: Experiment) -> Problem:
    return MadeUp(8, Draw(experiment.scenario.seed))


def test_every_combination_is_a_row() -> None:
    rows = sweep({**SMALL, "strategy.sync": ["bsp", Asp(), Ssp(3)], "seed": range(2)})
    assert [(row["strategy.sync"], row["seed"]) for row in rows] == [
        (sync, seed) for sync in ("bsp", "asp", "ssp:3") for seed in (0, 1)
    ]
    assert all(row["updates"] == 12 and row["error"] is None for row in rows)
    assert all(value is None or isinstance(value, str | int | float) for row in rows for value in row.values())
    assert len({tuple(row) for row in rows}) == 1


def test_processes_find_what_this_one_finds() -> None:
    grid = {**SMALL, "strategy.sync": ["bsp", "asp"]}
    assert sweep(grid, problem=eight_values, jobs=2) == sweep(grid, problem=eight_values)
    assert sweep(grid, problem=f"{__name__}.eight_values") == sweep(grid, problem=eight_values)
    assert sweep(grid) != sweep(grid, problem=eight_values)


def test_a_file_has_the_other_settings(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("iterations = 5\n[cluster]\nworkers = 2\n[model]\nparameters = 40\n")
    (row,) = sweep({"seed": 3}, base=file)
    experiment = read_experiment(file, {"seed": 3})
    assert row["trace_sha256"] == simulate(experiment.scenario, MadeUp(40, Draw(3))).trace_sha256
    (same,) = sweep({"seed": 3}, base={"iterations": 5, "cluster": {"workers": 2}, "model": {"parameters": 40}})
    assert same == row


def test_a_run_that_fails_is_a_row_too() -> None:
    crash = {"faults": [{"at": 0.5, "kind": "crash", "worker": worker} for worker in range(3)]}
    rows = sweep({**SMALL, "cluster.compute.mean": [0.1, 1.0]}, base=crash)
    assert rows[0]["error"] is None
    assert rows[1] == {"error": rows[1]["error"], **SMALL, "cluster.compute.mean": 1.0}
    assert rows[1]["error"].startswith("no worker is left")


def test_nothing_runs_if_a_combination_is_wrong() -> None:
    def unused(experiment: Experiment) -> Problem:
        raise AssertionError(experiment)

    with pytest.raises(UsageError, match=r"strategy\.sync: 'spp' is unknown; .* \(at .*strategy\.sync = spp:3\)"):
        sweep({**SMALL, "strategy.sync": ["bsp", "spp:3"]}, problem=unused)
    with pytest.raises(UsageError, match="seed: has an empty list of values"):
        sweep({**SMALL, "seed": []}, problem=unused)
    with pytest.raises(UsageError, match=r"problem: .* put it in a module, or use jobs=1"):
        sweep(SMALL, problem=unused, jobs=2)
    with pytest.raises(UsageError, match="jobs: must be a whole number of at least 1, not 0"):
        sweep(SMALL, jobs=0)
    with pytest.raises(UsageError, match=r"problem: cannot import 'nowhere\.at_all'"):
        sweep(SMALL, problem="nowhere.at_all")


def test_a_grid_of_arrays() -> None:
    rows = sweep({**SMALL, "cluster.compute.sigma": np.linspace(0, 0.5, 2), "seed": np.arange(2)}, progress=False)
    assert {(row["cluster.compute.sigma"], row["seed"]) for row in rows} == {(0.0, 0), (0.0, 1), (0.5, 0), (0.5, 1)}
    assert sweep({**SMALL, "seed": [np.int64(1)]}, progress=False)[0]["seed"] == 1


def test_a_problem_that_cannot_be_imported_is_named_before_anything_runs() -> None:
    with pytest.raises(UsageError, match=r"problem: cannot import 'no_such_module\.make': No module named"):
        sweep({**SMALL, "seed": 0}, problem="no_such_module.make", jobs=2)
