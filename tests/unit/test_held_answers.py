"""Answers that leave later, worked out by hand: what a delayed pull costs, and a central scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncline.errors import UsageError
from syncline.recipes.experiments import problem_of
from syncline.sim import Outcome, World
from syncline.sim.experiment import experiment_of


def run(folder: Path, rows: list[list[float]], **sections: Any) -> Outcome:
    (folder / "times.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    data = {
        "iterations": len(rows[0]),
        "cluster": {"workers": len(rows), "compute": {"trace": "times.csv"}},
        "model": {"parameters": 1000},
        **sections,
    }
    experiment = experiment_of(data, folder)
    return World(experiment.scenario, problem_of(experiment)).run()


def test_delayed_pulls_are_answered_one_after_another(tmp_path: Path) -> None:
    # Workers 0 and 1 wait from 1 s on for worker 2, whose own pull is not delayed: answers at 3.5 s and 4 s. Then all
    # compute for 1 s: they push at 4.5, 5 and 4 s, so worker 1 is last: 0 is answered at 5.5 s, and 2 at 6 s.
    found = run(tmp_path, [[1, 1], [1, 1], [3, 1]], network={"delay_cost": "500ms"})
    assert found.virtual_seconds == 6.0
    assert found.delayed_pulls == 4
    assert run(tmp_path, [[1, 1], [1, 1], [3, 1]]).virtual_seconds == 4.0


@pytest.mark.parametrize("release", ["lazy", "soft"])
def test_what_is_never_delayed_costs_nothing(release: str, tmp_path: Path) -> None:
    costly = {"network": {"delay_cost": 10.0}, "strategy": {"sync": "asp", "release": release}}
    assert run(tmp_path, [[1, 2], [3, 4]], **costly).virtual_seconds == 7.0


def test_a_central_scheduler_answers_when_every_shard_is_done(tmp_path: Path) -> None:
    # Two buckets of 4,000 bytes on a server each, links of 4,000 bytes a second. Alone, the first to arrive is back
    # while the second is still under way: 1 s of computing, 2 s of sending, 1 s for the second one's way back.
    shape: dict[str, Any] = {"model": {"parameters": 2000}, "network": {"bandwidth": "4kB/s", "latency": 0.25}}
    own = run(tmp_path, [[1]], strategy={"servers": 2}, **shape)
    assert own.virtual_seconds == 1 + 2 + 0.25 + 1 + 0.25
    # The scheduler lets both leave only now, half a second after it has heard of the last one, one after the other.
    central = run(tmp_path, [[1]], strategy={"servers": 2, "central": True}, **shape)
    assert central.virtual_seconds == 1 + 2 + 0.25 + 0.5 + 2 + 0.25


@pytest.mark.parametrize(
    ("strategy", "more", "said"),
    [
        ({"sync": "ssp:1"}, {}, "works only with sync"),
        ({}, {"faults": [{"at": 1, "kind": "crash", "worker": 0}]}, "nor with faults"),
        ({}, {"dispatch": {"rule": "uniform"}}, "cannot be used with"),
    ],
)
def test_a_central_scheduler_is_refused_where_it_cannot_work(
    strategy: dict[str, Any], more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"strategy.central: .*{said}"):
        run(tmp_path, [[1], [1]], strategy={"central": True, **strategy}, **more)


def test_a_curve_has_points_at_even_distances() -> None:
    data = {"iterations": 10, "cluster": {"workers": 2}, "model": {"recipe": "digits-mlp"}, "strategy": {"sync": "asp"}}
    experiment = experiment_of(data, Path())
    found = World(experiment.scenario, problem_of(experiment), every=4).run()
    assert [point.iterations for point in found.curve] == [4, 8, 12, 16, 20]
    assert found.quality is not None
    assert found.curve[-1][2:4] == found.quality
    assert [point.bytes_pushed for point in found.curve] == [each * 4 * 9610 * 4 for each in range(1, 6)]
    again = World(experiment.scenario, problem_of(experiment)).run()
    assert again.trace_sha256 == found.trace_sha256, "to look changes nothing"
