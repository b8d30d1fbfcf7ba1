"""The predictions of a plan: formulas by hand, measured figures, and the small cluster that stands for a large one."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import pytest

from syncline.layout import Layout
from syncline.plan import scale_model
from syncline.plan.candidates import Candidate, Form, colocated, exchange, partitions, split, tree
from syncline.plan.codec_work import CodecWork, measured_work
from syncline.plan.forecast import COMPUTE, Forecast, forecast
from syncline.plan.machines import Machines
from syncline.plan.memory import models_of
from syncline.plan.model import PlannedModel, by_size
from syncline.plan.ring import ddp_buckets, ring_step
from syncline.plan.sources import ModelRequest, find_model
from syncline.sim.overlap import Overlap
from syncline.sim.tcp_links import GOODPUT

GBIT = 125e6
MB = 250_000
"""The values of a megabyte."""


def model_of(*sizes: int, step: float = 0.1, **others: Any) -> PlannedModel:
    layout = Layout.of([(f"layer{number}", (size,)) for number, size in enumerate(sizes)])
    return PlannedModel("toy", layout, by_size(layout), step, "given", **others)


def predicted(model: PlannedModel, candidate: Candidate, workers: int = 4, **machines: float) -> Forecast:
    return forecast(model, Machines(workers, GBIT, **machines), candidate)  # type: ignore[arg-type]


def test_the_ring_by_hand() -> None:
    """Two buckets, last layers first: the second one waits for the first one and for its own part of backward."""
    layout = Layout.of([("first", (10 * MB,)), ("last", (2 * MB,))])
    assert ddp_buckets(layout.tables) == [["last"], ["first"]]
    rate, latency, step = 100e6, 0.001, 0.3
    forward, backward = 0.1, 0.2
    per_byte = 2 * 3 / 4 / rate
    last = backward / 2 + 2e6 * per_byte + 6 * latency
    first = max(last, backward) + 10e6 * per_byte + 6 * latency
    assert ring_step(layout, (0.5, 0.5), step, 4, rate, latency) == pytest.approx(forward + first)
    alone = backward + 12e6 * per_byte + 12 * latency
    assert ring_step(layout, (0.5, 0.5), step, 4, rate, latency, overlap=False) == pytest.approx(forward + alone)


@pytest.mark.parametrize("workers", [2, 4, 9, 64])
@pytest.mark.parametrize(("values", "step"), [(MB, 0.01), (7 * MB, 0.05), (25 * MB, 1.0), (1000, 0.5)])
def test_the_number_of_ranges_is_that_of_equation_3(workers: int, values: int, step: float) -> None:
    found, parts = partitions(Machines(workers, GBIT), 4 * values, step, values)
    load = (1 / step) * 4 * values * (workers - 1) / (GBIT * GOODPUT)
    assert found == pytest.approx(load)
    assert parts == max(1, min(ceil(load), 256))


@pytest.mark.parametrize("workers", [3, 8, 32])
def test_an_exchange_with_that_number_keeps_computing(workers: int) -> None:
    model = model_of(5 * MB, step=0.06)
    load, parts = partitions(Machines(workers, GBIT), model.size, 0.06, model.layout.size)
    found = predicted(model, exchange(parts), workers)
    assert parts > 1
    assert found.seconds == pytest.approx(0.06, rel=1e-6)
    assert found.limit == COMPUTE
    assert found.link_used == pytest.approx(load / parts, rel=0.02)
    assert found.round_bytes == pytest.approx(model.size * (workers - 1) / parts, rel=0.02)
    assert found.candidate.staleness == parts - 1


@pytest.mark.parametrize(("topology", "machines", "hops"), [("chain", 4, 3), ("tree:2", 4, 3), ("tree:2", 13, 6)])
def test_a_tree_leaves_its_links_half_free_so_its_workers_keep_computing(
    topology: str, machines: int, hops: int
) -> None:
    model = model_of(*[MB] * 5, step=0.1)
    candidate = tree(topology, Machines(machines, GBIT), model)
    found = predicted(model, candidate, machines)
    assert 0.0999 < found.seconds < 0.115
    assert found.limit == COMPUTE
    assert 0.3 < found.link_used < 0.6
    most = 2 if topology == "chain" or machines == 4 else 3
    period = float(candidate.words["period"])
    assert period == pytest.approx(2 * most * model.size / (GBIT * GOODPUT), rel=0.05)
    assert candidate.staleness == hops * (ceil(period / 0.1) + 1)
    assert models_of(candidate, machines) == 14 + 6 * most


def test_all_to_all_grows_with_the_number_of_workers() -> None:
    """A link cannot carry n - 1 models faster than its rate."""
    model = model_of(5 * MB, step=0.05)
    for workers in (3, 12, 40):
        found = predicted(model, exchange(1), workers)
        assert found.round_bytes == pytest.approx(model.size * (workers - 1), rel=0.01)
        assert found.seconds >= model.size * (workers - 1) / (GBIT * GOODPUT)
        assert found.limit == "every machine's link"


MEASURED = {
    ("resnet56", "bsp"): (2.60, 2.59),
    ("googlenet", "bsp"): (1.10, 1.08),
    ("resnet56", "gloo"): (2.29, 2.30),
    ("googlenet", "gloo"): (1.09, 1.06),
}
"""Steps per second as a multiple of one worker, over links of 1 Gbit between 4 hosts (docs/cluster.md)."""


@pytest.mark.parametrize(("name", "case"), MEASURED)
def test_predictions_are_near_the_measured_figures(name: str, case: str) -> None:
    model = find_model(ModelRequest(name), 4)
    ring = Candidate(Form.RING, overlap=Overlap.BACKWARD)
    found = predicted(model, ring if case == "gloo" else colocated(model, None))
    assert model.step is not None
    for figure in MEASURED[name, case]:
        assert found.rate * model.step == pytest.approx(figure, rel=0.15)


def test_the_documentation_has_these_figures() -> None:
    page = (Path(__file__).parents[2] / "docs/cluster.md").read_text()
    for (name, case), figures in MEASURED.items():
        for slower, figure in zip((1, 4), figures, strict=True):
            model = {"resnet56": "ResNet-56", "googlenet": "GoogLeNet"}[name]
            (row,) = [line for line in page.splitlines() if line.startswith(f"| {model} | {slower} |")]
            assert float(row.split("|")[{"bsp": 3, "gloo": 5}[case]]) == figure


@pytest.mark.parametrize(
    "candidate", [exchange(4), exchange(1), colocated(model_of(MB), None), split(5, model_of(MB), None)], ids=str
)
def test_a_small_cluster_stands_for_a_large_one(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(*[MB // 8] * 8, step=0.03)
    small = predicted(model, candidate, 18)
    for name, value in (("PEERS", 99), ("SPLIT_MACHINES", 99), ("MESSAGES", 10**6), ("EXCHANGE_BYTES", 1 << 40)):
        monkeypatch.setattr(scale_model, name, value)
    whole = predicted(model, candidate, 18)
    assert small.seconds == pytest.approx(whole.seconds, rel=0.1)
    assert small.link_used == pytest.approx(whole.link_used, rel=0.1)


def test_a_split_is_limited_by_the_link_that_carries_most() -> None:
    model = model_of(*[2 * MB] * 4, step=0.01)
    few, many = (predicted(model, split(servers, model, None), 8) for servers in (1, 7))
    assert (few.limit, few.trainers) == ("every server's link", 7)
    assert (many.limit, many.trainers) == ("every worker's link", 1)
    assert few.round_bytes == pytest.approx(7 * model.size, rel=0.02)
    assert many.round_bytes == pytest.approx(model.size, rel=0.02)


def test_a_slow_processor_is_the_limit() -> None:
    model = model_of(*[2 * MB] * 4, step=0.01)
    found = forecast(model, Machines(4, GBIT * 100, apply=20e6), split(1, model, None))
    assert found.limit == "a server's processor"
    assert found.seconds >= 3 * model.size / 20e6


def test_latency_makes_a_synchronous_step_longer() -> None:
    model = model_of(MB)
    near, far = (predicted(model, colocated(model, None), latency=latency) for latency in (0.0, 0.05))
    assert far.seconds >= near.seconds + 0.09


def test_a_codec_costs_processor_time() -> None:
    model = model_of(4 * MB, step=0.05)
    half = colocated(model, None, mode="changes", codec="fp16", reply_codec="fp16")
    free, dear = (forecast(model, Machines(4, GBIT), half, CodecWork(cost, cost)) for cost in (0.0, 50e-9))
    whole = predicted(model, colocated(model, None, mode="changes"))
    assert free.round_bytes == pytest.approx(whole.round_bytes / 2, rel=0.02)
    assert dear.seconds >= free.seconds + 0.09
    work = measured_work("fp16", 1000)
    assert work.encode > 0
    assert work.decode > 0


@pytest.mark.parametrize(
    ("candidate", "models"),
    [
        (exchange(1), 2 + 2 + 2 + 1),
        (exchange(4), 2 + 2 + 5 + 1),
        (exchange(20), 2 + 2 + 41 + 1),
        (exchange(4, codec="fp16"), 2 + 2 + 5 + 1 + 7),
        (Candidate(Form.RING), 3),
        (Candidate(Form.COLOCATED), 2 + 2 + 10 / 8),
        (Candidate(Form.SPLIT, servers=1), 9),
        (Candidate(Form.SPLIT, servers=7), 4),
    ],
    ids=str,
)
def test_memory_as_a_multiple_of_the_model(candidate: Candidate, models: float) -> None:
    assert models_of(candidate, 8) == models
