"""The figures of the Ako paper: the cost model, the bytes between pairs, and verdicts that can go either way."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.nodes.range_count import best_parts, load
from syncline.recipes import RECIPES
from syncline.reproduce.figure import FigureRun, Result
from syncline.reproduce.figures import ako_accumulation, ako_partitions, ako_usage
from syncline.reproduce.figures.ako_cluster import BYTES, CLOUD, PRIVATE, RECIPE, AkoCluster, accuracy_at, reached
from syncline.reproduce.kept import order_of
from syncline.reproduce.worker import simulated
from syncline.sim.curve import Point


class Silent:
    def progress(self, done: int, total: int) -> None:
        pass


def curve(*accuracies: float) -> list[Point]:
    return [Point(float(at), at, 0.0, each, 0, 0) for at, each in enumerate(accuracies)]


@pytest.mark.parametrize("model_seconds", [CLOUD, PRIVATE])
def test_the_figures_use_the_cost_model_of_the_workers(model_seconds: float) -> None:
    cluster = AkoCluster(model_seconds, 10.0, 64)
    for machines in range(2, 65):
        found = load(1.0, BYTES, machines, BYTES / model_seconds)
        assert cluster.load(machines) == pytest.approx(found)
        assert cluster.parts(machines) == best_parts(found, RECIPES[RECIPE].values)


def test_the_paper_used_20_ranges_on_64_machines_and_3_on_16() -> None:
    assert (AkoCluster(CLOUD, 1.0, 64).parts(64), AkoCluster(PRIVATE, 1.0, 16).parts(16)) == (20, 3)


def test_an_accuracy_is_reached_when_three_points_have_it_on_average() -> None:
    result = Result({}, curve(0.1, 0.9, 0.1, 0.7, 0.8, 0.9))
    assert reached(result, 0.75) == 4.0
    assert reached(result, 0.95) is None
    assert (accuracy_at(result, 3.5), accuracy_at(result, -1.0)) == (0.7, 0.0)


def test_the_bytes_between_pairs_are_those_of_the_report() -> None:
    plain = AkoCluster(PRIVATE, 6.0, 4).exchange("exchange", 4, partitions=2)
    run = FigureRun(plain.name, plain.experiment, pairs=True)
    result = simulated(order_of(run, None), Silent())  # type: ignore[arg-type]
    assert sum(size for _, _, size in result.pairs) == result.report["bytes_pushed"] > 0
    assert {(source, to) for source, to, _ in result.pairs} == {
        (f"worker{a}", f"worker{b}") for a in range(4) for b in range(4) if a != b
    }
    matrix = ako_usage._matrix(result, 4)
    assert np.all(np.diag(matrix) == 0)
    assert np.all(matrix[4:] == 0)
    assert order_of(run, None).key != order_of(plain, None).key


@pytest.mark.parametrize(("without", "status"), [(0.4, "holds"), (0.7, "in part"), (0.86, "does not hold")])
def test_accumulation_is_judged_by_what_a_run_without_it_has_by_then(without: float, status: str) -> None:
    results = {}
    for p in ako_accumulation.PARTS:
        results[f"p = {p}, with accumulation"] = Result({}, curve(0.1, 0.5, 0.86, 0.86, 0.86, 0.9))
        results[f"p = {p}, without"] = Result({}, curve(0.1, 0.2, without, without, without, without))
    assert ako_accumulation.FIGURE.judge(results).status == status


@pytest.mark.parametrize(
    ("best", "used", "status"), [(3, 1.0, "holds"), (4, 0.95, "holds"), (6, 1.0, "in part"), (3, 0.85, "in part")]
)
def test_ranges_are_judged_by_the_best_number_and_by_the_bandwidth(best: int, used: float, status: str) -> None:
    def result(p: int, accuracy: float, share: float = 1.0) -> Result:
        sent = share * ako_partitions._expected(p) * 16 * 60
        points = [Point(float(at), 16 * at, 0.0, accuracy, round(sent * at / 60), 0) for at in range(60)]
        return Result({"bytes_pushed": sent, "virtual_seconds": 60.0}, points)

    results = {f"p = {p}, seed 3": result(p, 0.9 if p == best else 0.8, used) for p in ako_partitions.PARTS}
    results["p = auto, seed 3"] = result(3, 0.8)
    verdict = ako_partitions.FIGURE.judge(results)
    assert verdict.status == status
    assert verdict.numbers["auto"] == 3
