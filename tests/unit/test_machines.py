"""The same job on machines of their own, simulated."""

from __future__ import annotations

import pytest

from syncline.recipes.job import RecipeJob
from syncline.recipes.machines import LINK_BITS, Measured, simulated_machines
from syncline.recipes.turns import ALONE, DDP
from syncline.sim.tcp_links import GOODPUT

JOB = RecipeJob("digits-cnn", workers=4, iterations=100, batch=16, slow={3: 5.0}, compare=True)
STEP, VALUES = 0.01, 50_000
MEASURED = Measured(STEP, 4 * STEP, [("one", (VALUES // 2,)), ("two", (VALUES // 2, 1))])


def rates(measured: Measured = MEASURED) -> dict[str, tuple[float, float]]:
    """Images a second of each system: with equal machines, and with a slow one."""
    rows = simulated_machines(JOB, measured)["rows"]
    return {row["system"]: (row["images_per_second_equal"], row["images_per_second"]) for row in rows}


def test_one_process_and_ddp_follow_from_what_was_measured() -> None:
    found = rates()
    assert found[ALONE] == pytest.approx((64 / (4 * STEP),) * 2)
    ring = 2 * 3 / 4 * VALUES * 4 * 8 / (LINK_BITS * GOODPUT)
    assert found[DDP] == pytest.approx((64 / (STEP + ring), 64 / (5 * STEP + ring)))


def test_the_slow_machine_sets_the_pace_unless_the_sync_model_goes_on_without_it() -> None:
    found = rates()
    step = 16 / STEP  # images a second of one machine that only computes
    for sync in ("bsp", "ssp:3"):
        equal, slow = found[f"Syncline, {sync}"]
        assert 2 * step < equal < 4 * step
        assert slow < 0.9 * step
    assert 2 * step < found["Syncline, asp"][1] < 3.2 * step
    assert 2 * step < found["Syncline, drop:3"][1] < 3 * step


def test_a_network_that_takes_no_time_leaves_only_computing() -> None:
    found = rates(Measured(10.0, 40.0, [("one", (100,))]))
    assert found["Syncline, bsp"] == pytest.approx((6.4, 64 / 50), rel=0.01)
    assert found["Syncline, asp"] == pytest.approx((6.4, 16 * 3.2 / 10), rel=0.02)
    assert found["Syncline, drop:3"][1] == pytest.approx(4.8, rel=0.01)


def test_the_report_says_what_was_simulated() -> None:
    report = simulated_machines(JOB, MEASURED)
    assert (report["machines"], report["link_bits_per_second"], report["model_bytes"]) == (4, 1e9, 4 * VALUES)
    assert report == simulated_machines(JOB, MEASURED)
