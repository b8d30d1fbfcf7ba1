"""How many ranges the exchange strategy chooses: the paper's equation 3, and the measurements behind it."""

from __future__ import annotations

from math import ceil, inf

import pytest

from syncline.draw import Draw
from syncline.effects import Idle, LinkUse
from syncline.messages import worker_id
from syncline.nodes.exchange.marks import Marks
from syncline.nodes.exchange.partitioning import Chooser, SpeedMeasure
from syncline.nodes.range_count import MOST_CHOSEN, best_parts, load
from syncline.sim import Cluster, Links, Lognormal, MadeUp, Scenario, World
from syncline.strategies.exchange.strategy import ExchangeStrategy


@pytest.mark.parametrize(
    ("rate", "size", "workers", "bandwidth", "parts"),
    [
        (10, 4_000_000, 8, 125e6, 3),  # 280 MB/s over links of 125 MB/s
        (1, 1_000, 2, 1e9, 1),
        (1, 1_000, 2, inf, 1),
        (10, 4_000_000, 8, 140e6, 2),
        (10, 4_000_000, 8, 1.0, MOST_CHOSEN),
    ],
)
def test_the_number_of_ranges_is_that_of_equation_3(
    rate: float, size: int, workers: int, bandwidth: float, parts: int
) -> None:
    assert best_parts(load(rate, size, workers, bandwidth), size // 4) == parts


def test_a_model_has_no_more_ranges_than_values() -> None:
    assert best_parts(100.0, 3) == 3


def test_a_measurement_counts_computing_and_sending_only() -> None:
    measure = SpeedMeasure()
    measure.begins(0.0)
    measure.ends(0.5)
    measure.sends(1, 100, 0.5)
    measure.sends(2, 100, 0.5)
    measure.arrived(1, 1.0)
    measure.arrived(2, 1.5)
    measure.begins(9.0)
    measure.ends(9.5)
    assert measure.take() == (2.0, 200.0)


def idle(arrived: int, seconds: float) -> Idle:
    return Idle(worker_id(1), use=LinkUse(arrived, seconds))


def test_the_counts_of_the_operating_system_come_first_and_at_the_start_the_best_step_counts() -> None:
    measure = SpeedMeasure()
    measure.ends(0.0)
    for step, (arrived, seconds) in enumerate(((100, 1.0), (400, 2.0), (500, 4.0))):
        measure.begins(float(step))
        measure.sends(1, 1_000_000, float(step))
        measure.idle(idle(arrived, seconds), float(step))  # long before everything has arrived
        measure.ends(step + 0.5)
    assert measure.take() == (2.0, 300.0)
    for arrived, seconds in ((600, 5.0), (1400, 6.0)):
        measure.idle(idle(arrived, seconds), 9.0)
        measure.ends(9.0)
    assert measure.take()[1] == 450.0


def test_links_in_shared_memory_do_not_count() -> None:
    measure = SpeedMeasure()
    measure.sends(1, 100, 0.0)
    measure.idle(Idle(worker_id(1), shared=True), 1.0)
    assert measure.take()[1] == 0.0


def test_the_leader_changes_its_mind_only_if_it_is_wrong_twice() -> None:
    chooser = Chooser(1000, 1000, again=True)

    def hear(rate: float) -> None:
        for worker in (0, 1):
            chooser.heard(worker, rate, 1000.0)

    chooser.heard(0, 3.5, 1000.0)
    assert chooser.choose({0, 1}, 1) is None  # worker 1 has not reported
    hear(3.5)
    assert chooser.choose({0, 1}, 1) == 4
    for rate in (4.1, 2.9, 9.0):
        hear(rate)
        assert chooser.choose({0, 1}, 4) is None
    hear(9.0)
    assert chooser.choose({0, 1}, 4) == 9


def test_without_remeasuring_the_first_choice_stays() -> None:
    chooser = Chooser(1000, 1000, again=False)
    for expected in (4, None, None, None):
        chooser.heard(0, 3.5 if expected else 99.0, 1000.0)
        chooser.heard(1, 3.5 if expected else 99.0, 1000.0)
        assert chooser.choose({0, 1}, 4 if expected is None else 1) == expected


@pytest.mark.parametrize(("bandwidth", "parts"), [(125e6, 1), (2.9e5, 3), (1.1e5, 6)])
def test_workers_choose_by_what_they_measure(bandwidth: float, parts: int) -> None:
    """Six workers, 3000 values, 0.1 s a step: a load of 600 kB/s."""
    strategy = ExchangeStrategy("auto", tau=1)
    scenario = Scenario(Cluster(6, Lognormal(0.1, 0.0), Links(bandwidth)), strategy, 60, 3)
    world = World(scenario, MadeUp(3000, Draw(3)))
    world.run()
    assert {worker.node.parts for worker in world.workers.values()} == {parts}  # type: ignore[attr-defined]


@pytest.mark.parametrize("turn", [None, 1000])
@pytest.mark.parametrize("workers", [4, 8])
@pytest.mark.parametrize("load_of_a_link", [0.6, 1.5, 2.9, 7.5])
def test_simulated_workers_choose_what_equation_3_says(load_of_a_link: float, workers: int, turn: int | None) -> None:
    """A link that takes whole messages counts what it carries; with turns, workers see only when sums arrive."""
    links = Links(10 * 4000 * (workers - 1) / load_of_a_link, 1e-4, turn)
    scenario = Scenario(Cluster(workers, Lognormal(0.1, 0.1), links), ExchangeStrategy("auto"), 60, 3)
    found = World(scenario, MadeUp(1000, Draw(3))).run().partitions
    assert (
        found == ceil(load_of_a_link) if turn is None else found in (ceil(load_of_a_link), ceil(1.15 * load_of_a_link))
    )


def test_marks_before_the_start_are_as_if_ranges_had_been_sent_in_turn() -> None:
    marks = Marks.in_turn(receiver=1, clock=0, parts=3)
    assert marks.values == [-1, 0, -2]
    assert marks.clock == 0
    assert marks.reached == (0, 0, 0)
    marks.advance(2, 1)
    assert marks.clock == 1
    marks.advance(1, 3)  # the range of update 2 is missing
    assert marks.clock == 1
