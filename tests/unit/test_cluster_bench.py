"""The benchmark on a network of namespaces: its descriptions, its options, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from io import StringIO
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from syncline.draw import Draw
from syncline.errors import RunError, UsageError
from syncline.recipes import build_layers
from syncline.recipes.layer_shares import multiplications
from syncline.sim.experiment import read_experiment
from syncline.sim.overlap import Overlap

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _within_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def own() -> Any:
    """The benchmark's modules, which are not installed."""
    names = ("cable", "cli", "engine", "experiment", "figures", "grid", "learning", "learning_cli", "link_samples")
    names += ("links", "measure", "models")
    names += ("network", "options", "predict", "progress", "report", "timeline", "timeline_plot", "window")
    return SimpleNamespace(**{name: import_module(f"benchmarks.cluster.{name}") for name in names})


needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")), reason="takes root, `ip` and `tc`"
)


# Models.


@pytest.mark.parametrize(
    ("name", "published"), [("resnet56", 125.5e6), ("googlenet", 1.50e9), ("inception-v4", 12.27e9)]
)
def test_the_multiplications_are_those_of_the_architecture(name: str, published: float) -> None:
    assert sum(multiplications(name)) == pytest.approx(published, rel=0.02)


def test_a_name_without_a_layer_list_is_refused() -> None:
    assert build_layers("resnet56", Draw(0)).layout.size == 853_018
    assert sum(build_layers("resnet56", Draw(0)).shares) == pytest.approx(1)
    with pytest.raises(UsageError, match="one of: resnet56, googlenet, inception-v4") as caught:
        build_layers("resnet57", Draw(0))
    assert caught.value.option == "model.layers"


def test_the_pauses_of_a_step_add_up_and_backward_takes_twice_as_long(own: Any) -> None:
    for name in own.models.MODELS:
        experiment = own.experiment.Experiment(name)
        forward = sum(each for _, each, _ in experiment.pauses)
        backward = sum(each for _, _, each in experiment.pauses)
        assert forward + backward == pytest.approx(experiment.seconds)
        assert backward == pytest.approx(2 * forward)
        assert [each for each, _, _ in experiment.pauses] == [t.name for t in experiment.layers.layout.tables]


def test_the_bits_a_second_of_one_worker_are_those_of_the_paper(own: Any) -> None:
    def bits(name: str) -> float:
        model = own.models.MODELS[name]
        return float(model.layout.size * 32 / model.seconds)

    assert bits("resnet56") == pytest.approx(746.5e6, rel=0.02)
    assert bits("inception-v4") == pytest.approx(2.01e9, rel=0.02)


# Descriptions.


def test_a_description_survives_the_way_to_another_process(own: Any) -> None:
    base = own.experiment.Experiment("googlenet", hosts=3, rate=1e6, pause=0.5)
    for name in own.experiment.CASES:
        made = own.experiment.case(name, base)
        assert msgspec.json.decode(msgspec.json.encode(made), type=own.experiment.Experiment) == made
        assert (made.model, made.hosts, made.rate, made.pause) == ("googlenet", 3, 1e6, 0.5)


def test_no_two_cases_are_the_same_experiment(own: Any) -> None:
    base = own.experiment.Experiment("resnet56")
    made = [own.experiment.case(name, base) for name in own.experiment.CASES]
    assert len(set(made)) == len(made)


def test_slower_keeps_the_proportion_of_computing_to_sending(own: Any) -> None:
    experiment = own.experiment.Experiment("resnet56")
    slow = experiment.slower(8)
    assert slow.seconds == 8 * experiment.seconds
    assert slow.rate * 8 == experiment.rate
    assert own.experiment.Experiment("resnet56", latency=0.02).slower(4).latency == pytest.approx(0.08)


def test_a_dense_iteration_moves_what_others_hold_there_and_back(own: Any) -> None:
    assert own.experiment.Experiment("resnet56", hosts=4).least_bytes == 2 * 853_018 * 4 * 3 / 4
    assert own.experiment.Experiment("resnet56", hosts=1).least_bytes == 0


def test_ddp_closes_a_bucket_once_it_is_large_enough_last_layers_first(own: Any) -> None:
    tables = own.experiment.Experiment("inception-v4").layers.layout.tables
    size = {table.name: table.size * 4 for table in tables}
    buckets = own.experiment.ddp_buckets(tables)
    assert [name for bucket in buckets for name in bucket] == [table.name for table in reversed(tables)]
    limits = [1 << 20, *[25 << 20] * (len(buckets) - 1)]
    for bucket, limit in zip(buckets[:-1], limits, strict=False):
        assert sum(size[name] for name in bucket) >= limit
        assert sum(size[name] for name in bucket[:-1]) < limit
    assert buckets[-1]


def test_the_engine_knows_every_case_but_codecs_that_are_skipped_with_a_reason(own: Any) -> None:
    base = own.experiment.Experiment("resnet56")
    for name in own.experiment.CASES:
        made = own.experiment.case(name, base)
        reason = own.measure.why_not(made)
        assert not reason or "codec" in reason or "torch" in reason


def test_settings_that_the_engine_refuses_are_a_skipped_row_with_the_reason(own: Any) -> None:
    base = own.experiment.Experiment("resnet56", placement="nowhere")
    row = own.measure.run_case("bsp", base, (), own.measure.Method(1.0), 1.0)
    assert "nowhere" in row.skipped
    assert row.figures is None


# Figures.


def windows(own: Any, marks: list[float], sent: int, received: int) -> Any:
    parts = steps(own, (marks[0], marks[-1], sent, received))
    return own.window.Window(marks, sent, received, processor_seconds=1.0, machine_seconds=2.0, parts=parts)


def test_the_rate_is_the_median_of_the_chunks(own: Any) -> None:
    steady = [0.1 * step for step in range(11)]
    stalled = [*steady[:9], *(mark + 5 for mark in steady[9:])]
    assert windows(own, steady, 0, 0).rate == pytest.approx(10)
    assert windows(own, stalled, 0, 0).rate == pytest.approx(10)
    assert windows(own, [0.0, 1.0, 2.0], 0, 0).rate == pytest.approx(1)


def test_figures_of_two_workers(own: Any) -> None:
    experiment = own.experiment.Experiment("resnet56", hosts=2, rate=100.0)
    marks = [0.2 * step for step in range(11)]
    both = [windows(own, marks, 100, 50), windows(own, marks, 60, 120)]
    figures = own.figures.figures_of(experiment, both, single=10.0)
    assert figures.iterations_per_second == pytest.approx(10)
    assert figures.speedup == pytest.approx(1)
    assert figures.bytes_per_iteration == pytest.approx(8)
    assert figures.most_bytes_per_iteration == pytest.approx(12)
    assert figures.utilisation == pytest.approx(0.6)
    assert figures.cores == pytest.approx(1)


def steps(own: Any, *steps: tuple[float, float, int, int]) -> list[Any]:
    """Steps with these times of the first update and of the end of the exchange, and bytes in between."""
    return [
        own.window.StepTimes(first, first, first, exchanged, own.network.Count(sent, received), [])
        for first, exchanged, sent, received in steps
    ]


def test_exchanging_counts_from_the_first_update_to_the_end_of_the_exchange(own: Any) -> None:
    experiment = own.experiment.Experiment("resnet56", hosts=2, rate=100.0)
    first = replace(
        windows(own, [0.0, 10.0, 20.0], 500, 50), parts=steps(own, (0.0, 6.0, 200, 20), (10.0, 14.0, 300, 30))
    )
    second = replace(
        windows(own, [0.0, 10.0, 20.0], 50, 750), parts=steps(own, (1.0, 7.0, 5, 400), (11.0, 15.0, 5, 350))
    )
    figures = own.figures.figures_of(experiment, [first, second], single=1.0)
    assert figures.exchanging == pytest.approx(0.75)
    assert figures.utilisation == pytest.approx(0.375)


def test_with_overlap_the_first_update_is_that_of_the_last_layer_for_gloo_too(own: Any) -> None:
    base = own.experiment.Experiment("resnet56")
    for name in ("bsp", "gloo"):
        made = own.experiment.case(name, base)
        assert made.first_update == made.pauses[-1][2] > 0
    after = own.experiment.case("gloo-after", base)
    assert after.first_update == pytest.approx(base.seconds * 2 / 3)


def test_exchanges_that_overlap_the_next_step_have_no_utilisation_of_their_own(own: Any) -> None:
    for name in ("ssp", "cached", "all"):
        made = own.experiment.case(name, own.experiment.Experiment("resnet56", hosts=1))
        one = replace(windows(own, [0.0, 1.0], 5, 5), parts=steps(own, (0.0, 0.9, 5, 5)))
        assert own.figures.figures_of(made, [one], single=1.0).exchanging is None


def test_a_link_that_is_full_whenever_it_may_be_used_is_the_limit(own: Any) -> None:
    experiment = own.experiment.Experiment("resnet56", hosts=1, rate=100.0, pause=1e-9)
    quiet = replace(windows(own, [0.0, 10.0], 450, 0), machine_seconds=0.1, processor_seconds=0.1)
    figures = own.figures.figures_of(experiment, [replace(quiet, parts=steps(own, (0.0, 5.0, 450, 0)))], single=1.0)
    assert (figures.utilisation, figures.exchanging) == pytest.approx((0.45, 0.9))
    assert figures.limit == "link"


def test_several_runs_are_summed_up_by_their_medians(own: Any) -> None:
    experiment = own.experiment.Experiment("resnet56", hosts=1, rate=100.0)
    runs = []
    for end, sent in ((1.0, 10), (2.0, 90), (4.0, 50)):
        window = windows(own, [0.0, end], sent, 0)
        runs.append(own.measure.Row("bsp", experiment, own.figures.figures_of(experiment, [window], single=1.0)))
    failed = own.measure.Row("bsp", experiment, failed="out of memory")
    row = own.measure.summary([*runs, failed])
    assert row.figures.speedup == pytest.approx(0.5)
    assert row.figures.bytes_per_iteration == 50
    assert [each.speedup for each in row.runs] == pytest.approx([1.0, 0.5, 0.25])
    assert row.failed == "out of memory"
    assert own.measure.summary([failed]).figures is None


@pytest.mark.parametrize(
    ("link", "processors", "own_share", "linear", "limit"),
    [
        (0.9, 0.2, 0.9, 0.5, "link"),
        (0.2, 0.9, 0.9, 0.5, "processors"),
        (0.2, 0.9, 0.1, 0.5, "other programs"),
        (0.9, 0.9, 0.9, 0.5, "link and processors"),
        (0.2, 0.2, 0.1, 0.95, "computing"),
        (0.6, 0.6, 0.1, 0.5, "turns"),
    ],
)
def test_what_limits(own: Any, link: float, processors: float, own_share: float, linear: float, limit: str) -> None:
    assert own.figures.limit_of(link, processors, own_share, linear) == limit


def test_the_report_says_what_it_is_worth(own: Any) -> None:
    experiment = own.experiment.Experiment("resnet56")
    rows = [own.measure.Row("topk", experiment, skipped="no such codec")]
    made = own.report.Report(4, 125e6, 8.0, 5.0, {"resnet56": 27.0}, rows).as_json()
    notes = " ".join(made["notes"])
    assert "workers sleep instead of computing" in notes
    assert "8 times slower" in notes
    assert made["schema"] == 1
    assert made["rows"][0]["experiment"]["sync"] == "bsp"
    assert msgspec.json.decode(msgspec.json.encode(made)) == made


# Predictions.


def test_the_scenario_is_the_same_experiment(own: Any) -> None:
    base = own.experiment.Experiment("resnet56", hosts=3, rate=1e6, pause=0.5)
    scenario = own.predict.scenario_of(own.experiment.case("all", base), 7)
    assert scenario.overlap is Overlap.FORWARD
    assert (scenario.iterations, scenario.cluster.workers, scenario.strategy.servers) == (7, 3, 3)
    assert scenario.cluster.colocated
    assert scenario.cluster.links.bandwidth == 1e6 * own.predict.GOODPUT
    assert set(scenario.cluster.compute.block(0, 0, Draw(0))) == {0.5}
    assert [str(model) for model in scenario.strategy.sync] == ["ssp:5"] * 3
    assert (str(scenario.strategy.codec), str(scenario.strategy.reply_codec)) == ("topk:0.01", "topk:0.01")


def test_the_file_in_the_docs_is_the_same_experiment(own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs/cluster.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "run.toml").write_text(block)
    read = read_experiment(tmp_path / "run.toml")
    monkeypatch.setattr(own.predict, "cores", lambda: 4)
    made = own.predict.scenario_of(own.experiment.Experiment("resnet56"), read.scenario.iterations)
    ours, theirs = read.scenario.cluster, made.cluster
    assert (ours.links.bandwidth, ours.compute.mean) == pytest.approx(
        (theirs.links.bandwidth, theirs.compute.mean), 0.01
    )
    assert read.model.layers == "resnet56"
    assert replace(made, cluster=ours) == read.scenario
    for key in ("colocated", "handling", "workers"):
        assert getattr(theirs, key) == getattr(ours, key)
    assert theirs.links.turn == ours.links.turn


def test_a_worker_that_waits_for_nobody_is_as_fast_as_alone(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own.predict, "HANDLING", 0.0)
    for name in ("bsp", "bsp-after", "gloo"):
        alone = own.experiment.case(name, own.experiment.Experiment("resnet56", hosts=1))
        assert own.predict.predict(alone).speedup == pytest.approx(1)
    free = own.experiment.Experiment("resnet56", hosts=3, rate=1e15)
    assert own.predict.predict(free).speedup == pytest.approx(3)


def test_many_small_messages_take_processors_that_hosts_share(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = own.experiment.case("uniform", own.experiment.Experiment("resnet56"))
    monkeypatch.setattr(own.predict, "cores", lambda: 4)
    each_its_own = own.predict.scenario_of(experiment, 2).cluster.handling
    monkeypatch.setattr(own.predict, "cores", lambda: 1)
    assert own.predict.scenario_of(experiment, 2).cluster.handling == 4 * each_its_own == 4 * own.predict.HANDLING


def test_predictions_keep_their_proportions_when_all_is_slower(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own.predict, "HANDLING", 0.0)
    experiment = own.experiment.Experiment("resnet56", hosts=3)
    fast, slow = own.predict.predict(experiment), own.predict.predict(experiment.slower(8))
    assert slow.speedup == pytest.approx(fast.speedup)
    assert slow.iterations_per_second * 8 == pytest.approx(fast.iterations_per_second)
    assert slow.bytes_per_iteration == fast.bytes_per_iteration == pytest.approx(experiment.least_bytes)


def test_a_ring_without_overlap_is_all_computing_and_then_all_bytes(own: Any) -> None:
    experiment = own.experiment.case("gloo-after", own.experiment.Experiment("googlenet"))
    seconds = experiment.seconds + experiment.least_bytes / experiment.rate / own.predict.GOODPUT
    assert own.predict.predict(experiment).iterations_per_second == pytest.approx(4 / seconds)
    beside = own.experiment.case("gloo", own.experiment.Experiment("googlenet"))
    assert own.predict.predict(beside).speedup > own.predict.predict(experiment).speedup


def test_latency_costs_a_ring_two_trips_to_each_other_host_for_each_bucket(own: Any) -> None:
    near = own.experiment.case("gloo-after", own.experiment.Experiment("googlenet"))
    far = replace(near, latency=0.02)
    buckets = len(own.experiment.ddp_buckets(near.layers.layout.tables))
    step = {each: 4 / own.predict.predict(each).iterations_per_second for each in (near, far)}
    assert step[far] - step[near] == pytest.approx(buckets * 6 * 0.02)
    alone = own.experiment.case("gloo", own.experiment.Experiment("resnet56", hosts=1, latency=1.0))
    assert own.predict.predict(alone).speedup == pytest.approx(1)


def test_predictions_alone_need_no_root(
    own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    words = ["--hosts", "2", "--models", "resnet56", "--cases", "bsp,gloo"]
    assert own.cli.main(words) == 2
    assert "--predict-only" in capsys.readouterr().err
    file = tmp_path / "figures.json"
    assert own.cli.main([*words, "--predict-only", "--report", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "predicted" in shown
    assert "cores" not in shown
    written = msgspec.json.decode(file.read_bytes())
    assert [row["case"] for row in written["rows"]] == ["bsp", "gloo"]
    assert not written["measured"]
    assert all(0 < row["predicted"]["speedup"] <= 2 and row["figures"] is None for row in written["rows"])


def test_a_case_that_is_refused_has_no_prediction(own: Any) -> None:
    row = own.measure.predict_case("bsp", own.experiment.Experiment("resnet56", placement="nowhere"))
    assert row.predicted is None
    assert "nowhere" in own.measure.outcome(row)


def test_predicted_stands_beside_measured(own: Any) -> None:
    experiment = own.experiment.Experiment("resnet56", hosts=2, rate=100.0)
    figures = own.figures.figures_of(experiment, [windows(own, [0.0, 1.0, 2.0], 1, 1)] * 2, single=1.0)
    expected = own.predict.Prediction(2.0, 1.6, 5e6)
    rows = [
        own.measure.Row("bsp", experiment, figures, predicted=expected),
        own.measure.Row("gloo", experiment, figures),
    ]
    made = own.report.Report(2, 125e6, 1.0, 5.0, {"resnet56": 1.0}, rows)
    output = StringIO()
    own.report.show(made, Console(width=120, file=output))
    text = output.getvalue()
    assert figures.speedup == 2.0
    assert "1.60  -20%" in text
    assert made.as_json()["rows"][0]["predicted"]["speedup"] == 1.6


# Without servers.


def test_without_servers_the_engine_and_the_simulator_get_the_same_strategy(own: Any) -> None:
    made = own.experiment.case("exchange", own.experiment.Experiment("resnet56", hosts=3, rate=1e7))
    assert (made.servers, made.exchanges, made.lockstep) == (0, True, False)
    assert made.settings == {"strategy": "exchange", "partitions": "auto", "codec": "dense"}
    scenario = own.predict.scenario_of(made, 7)
    assert (scenario.strategy.kind, scenario.strategy.servers, scenario.overlap) == ("exchange", 0, Overlap.NONE)
    assert not scenario.cluster.colocated
    assert own.experiment.Experiment("resnet56").warm < made.warm


@pytest.mark.parametrize("hosts", [4, 8])
def test_a_prediction_without_servers_has_the_ranges_that_the_load_asks_for(own: Any, hosts: int) -> None:
    base = own.experiment.Experiment("resnet56", hosts=hosts)
    base = replace(base, rate=base.rate * own.predict.load_of(base) / 1.5)
    assert own.predict.load_of(base) == pytest.approx(1.5)
    expected = own.predict.predict(own.experiment.case("exchange", base))
    assert expected.partitions == 2
    assert expected.speedup == pytest.approx(hosts, rel=0.02)
    whole = base.layers.layout.size * 4 * (hosts - 1)
    assert expected.bytes_per_iteration == pytest.approx(whole / 2, rel=0.05)
    all_to_all = own.predict.predict(own.experiment.case("all-to-all", base))
    assert all_to_all.partitions == 1
    assert all_to_all.speedup < hosts / 1.5


def test_final_parameters_may_differ_by_rounding_only_without_servers(own: Any) -> None:
    base = windows(own, [0.0, 1.0], 1, 1)
    own.engine.check_same([replace(base, sample=[1.0, 0.0]), replace(base, sample=[1.0 + 1e-6, 1e-9])])
    for others in ({"sample": [1.0, 0.1]}, {"sample": [1.0, 0.0], "digest": "other"}):
        with pytest.raises(RunError, match="differ"):
            own.engine.check_same([replace(base, sample=[1.0, 0.0]), replace(base, **others)])


def test_the_table_shows_the_ranges_beside_the_load(own: Any) -> None:
    experiment = own.experiment.case("exchange", own.experiment.Experiment("resnet56", hosts=2, rate=1e7))
    found = [replace(windows(own, [0.0, 1.0, 2.0], 1, 1), partitions=3)] * 2
    figures = own.figures.figures_of(experiment, found, single=1.0)
    assert (figures.partitions, figures.exchanging) == (3, None)
    made = own.report.Report(2, 1e7, 1.0, 5.0, {"resnet56": 1.0}, [own.measure.Row("exchange", experiment, figures)])
    output = StringIO()
    own.report.show(made, Console(width=140, file=output))
    assert f"3 ({own.predict.load_of(experiment):.2f})" in output.getvalue()
    assert made.as_json()["rows"][0]["load"] == pytest.approx(853_018 * 4 / 0.037 / (1e7 * 1448 / 1514), rel=0.01)


@needs_namespaces
def test_workers_on_two_hosts_exchange_updates_without_servers(own: Any) -> None:
    base = own.experiment.Experiment("resnet56", hosts=2, rate=125e6, pause=0.02)
    with own.network.network(2, base.rate) as hosts:
        found = own.engine.run(own.experiment.case("exchange", base), hosts, 0.1)
    assert all(window.partitions >= 1 and window.sent > 853_018 for window in found)
    assert left_behind(own, os.getpid()) == []


# Hosts that learn.


def curve(own: Any, *accuracies: float) -> Any:
    return own.learning.LearningCurve(tuple(range(len(accuracies))), accuracies)


def test_an_accuracy_is_reached_when_two_looks_in_a_row_have_it(own: Any) -> None:
    assert curve(own, 0.1, 0.96, 0.9, 0.95, 0.97).reached(0.95) == 3
    assert curve(own, 0.1, 0.96, 0.9).reached(0.95) is None
    assert curve(own, 0.1, 0.96).reached(0.95) is None


def learned(own: Any, case: str, optimizer: str, *accuracies: float) -> Any:
    task = replace(own.learning.learning_case(case, own.learning.LearningTask("digits-cnn")), optimizer=optimizer)
    run = own.learning.LearningRun(curve(own, *accuracies), 10.0, 5e5, 0.8, 3 if case == "exchange" else 0)
    return own.learning_cli.LearningRow(case, task, (run,))


def test_the_table_shows_the_optimizer_that_suits_each_system(own: Any) -> None:
    request = own.learning_cli.parse_learning(["--cases", "exchange,gloo,bsp", "--target", "0.9"])
    rows = [
        learned(own, "exchange", "momentum:0.08", 0.1, 0.5, 0.6),
        learned(own, "exchange", "sgd:0.4", 0.1, 0.9, 0.9),
        learned(own, "gloo", "momentum:0.08", 0.1, 0.5, 0.9, 0.9),
        learned(own, "gloo", "sgd:0.4", 0.1, 0.5, 0.5, 0.9, 0.9),
        own.learning_cli.LearningRow("bsp", request.task, reason="failed: out of memory"),
    ]
    first, second, third = own.learning_cli.learning_cells(request, rows)
    assert first == ["exchange", "sgd:0.4", "1.0", "0.50", "90.0%", "10.00", "500", "80%", "3"]
    assert second[:4] == ["gloo", "momentum:0.08", "2.0", "1.00"]
    assert third == ["bsp", *["-"] * 8]
    output = StringIO()
    own.learning_cli.show_learning(request, rows, Console(width=140, file=output))
    assert "bsp: failed: out of memory" in output.getvalue()
    written = own.learning_cli.as_json(request, rows)
    assert [row["seconds_to_target"] for row in written["rows"]] == [None, 1, 2, 3, None]
    assert msgspec.json.decode(msgspec.json.encode(written))["schema"] == 1


def test_a_learning_task_survives_the_way_to_another_process(own: Any) -> None:
    base = own.learning.LearningTask("digits-mlp", hosts=3, optimizer="sgd:0.4")
    for name in own.learning.LEARNING_CASES:
        made = own.learning.learning_case(name, base)
        assert msgspec.json.decode(msgspec.json.encode(made), type=own.learning.LearningTask) == made
        assert made.servers == (0 if name.startswith("exchange") else 3)
        assert not own.learning.why_not(made)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--recipe", "mnist-mlp"], "--recipe"),
        (["--recipe", "letters"], "--recipe"),
        (["--hosts", "1"], "--hosts"),
        (["--rate", "0"], "--rate"),
        (["--step", "quick"], "--step"),
        (["--step", "0ms"], "--step"),
        (["--steps", "0"], "--steps"),
        (["--batch", "5000"], "--batch"),
        (["--target", "1.5"], "--target"),
        (["--cases", "exchange,quick"], "--cases"),
        (["--cases", ","], "--cases"),
        (["--optimizers", "fasgd:0.1"], "--optimizers"),
        (["--optimizers", "quick"], "--optimizers"),
        (["--report", "/nowhere/at/all.json"], "--report"),
    ],
)
def test_nonsense_in_the_learning_mode_names_its_option(own: Any, words: list[str], option: str) -> None:
    with pytest.raises(UsageError) as caught:
        own.learning_cli.parse_learning(words)
    assert caught.value.option == option


@pytest.mark.slow
@needs_namespaces
def test_two_hosts_learn_with_exchange_and_with_ddp(own: Any, tmp_path: Path) -> None:
    file = tmp_path / "learned.json"
    words = ["learn", "--recipe", "digits-mlp", "--hosts", "2", "--rate", "100Mbit", "--step", "1ms", "--steps", "40"]
    words += ["--every", "20", "--cases", "exchange,gloo", "--optimizers", "sgd:0.2", "--target", "0.3"]
    assert own.cli.main([*words, "--report", str(file)]) == 0
    for row in msgspec.json.decode(file.read_bytes())["rows"]:
        assert len(row["runs"][0]["curve"]["times"]) == 3
        assert row["runs"][0]["curve"]["accuracies"][-1] > 0.3
        assert row["runs"][0]["bytes_per_step"] > 9_610 * 4 / 4
    assert left_behind(own, os.getpid()) == []


# Several networks.


def test_one_line_for_each_network_with_the_ratio_to_gloo(own: Any) -> None:
    reports = []
    for hosts, marks in ((2, [0.0, 1.0]), (4, [0.0, 2.0])):
        experiment = own.experiment.Experiment("resnet56", hosts=hosts, rate=100.0)
        figures = own.figures.figures_of(experiment, [windows(own, marks, 1, 1)] * hosts, single=1.0)
        slow = replace(figures, speedup=figures.speedup / 2, limit="turns")
        expected = own.predict.Prediction(2.0, 1.6, 5e6)
        gloo = own.experiment.case("gloo", experiment)
        rows = [own.measure.Row("bsp", experiment, figures, predicted=expected), own.measure.Row("gloo", gloo, slow)]
        reports.append(own.report.Report(hosts, 125e6, 4.0, 5.0, {"resnet56": 1.0}, rows, latency=0.02))
    reports[1].rows[1] = replace(rows[1], figures=None, failed="worker1 ended: out of memory")
    first, rule, two, four = own.grid.as_markdown(reports).splitlines()
    assert first == (
        "| hosts | rate | latency | slower | model | bsp | predicted | limit | gloo | limit | bsp / gloo |"
    )
    assert rule.count("---") == 11
    limit = reports[0].rows[0].figures.limit
    assert two == f"| 2 | 1 Gbit | 20 ms | 4 | resnet56 | 2.00 | 1.60 | {limit} | 1.00 | turns | 2.00 |"
    assert four.endswith("| - | failed | - |")
    output = StringIO()
    own.grid.show_grid(reports, Console(width=140, file=output))
    assert "4 hosts, resnet56, gloo: failed: worker1 ended: out of memory" in output.getvalue()
    assert [each["hosts"] for each in own.grid.as_json(reports)["networks"]] == [2, 4]
    assert own.grid.as_json(reports[:1])["hosts"] == 2


def test_the_time_that_is_left_follows_from_the_runs_so_far(own: Any) -> None:
    told: list[str] = []
    clock = iter([100.0, 120.0, 400.0])
    progress = own.progress.Progress([10.0, 30.0], told.append, lambda: next(clock))
    progress.start()
    progress.done("first")
    progress.done("second")
    assert told == ["2 runs, about 40 s", "[1/2, about 60 s left] first", "[2/2] second"]
    assert [own.progress.words(seconds) for seconds in (89, 600, 7200)] == ["89 s", "10 min", "2.0 h"]


def test_a_table_of_predictions_is_written_after_each_network(own: Any, tmp_path: Path) -> None:
    file = tmp_path / "table.md"
    words = ["--hosts", "1,2", "--models", "resnet56", "--latency", "20ms", "--predict-only", "--table", str(file)]
    request = own.options.parse(words)
    reports = []
    for report in own.cli.predict(request, lambda _: None):
        reports.append(report)
        own.cli._write(request, reports)
        assert len(file.read_text().splitlines()) == 2 + len(reports)
    assert len(reports) == 2


# Timelines.


def test_bytes_that_come_at_once_keep_the_link_busy_until_it_has_carried_them(own: Any) -> None:
    counts = [(0.0, 0), (1.0, 0), (2.0, 300), (3.0, 300), (4.0, 400), (9.0, 400), (10.0, 450)]
    spans = own.link_samples.busy_spans(counts, 100.0)
    assert spans == [(1.0, 5.0), (9.0, 9.5)]
    assert own.link_samples.shares(spans, 0.0, 10.0, 5) == pytest.approx([0.5, 1.0, 0.5, 0.0, 0.25])
    assert own.link_samples.shares(spans, 4.0, 6.0, 2) == pytest.approx([1.0, 0.0])


def recorded(own: Any, folder: Path) -> tuple[Any, list[Any]]:
    """Two hosts, each with a worker and a server, and one bucket on each server, in the step that is drawn."""
    experiment = own.experiment.Experiment("resnet56", hosts=2, rate=1000.0)
    tables = experiment.layers.layout.tables
    half, size = tables[60].start, experiment.layers.layout.size
    ready = [0.01 * number for number in range(len(tables))]
    parts = [
        own.window.StepTimes(
            10.0 * n, 10.0 * n, 10.0 * n + 2, 10.0 * n + 7, own.network.Count(1, 1), [10.0 * n + r for r in ready]
        )
        for n in range(3)
    ]
    window = replace(windows(own, [0.0, 10.0, 20.0, 30.0], 1, 1), parts=parts)
    progress = experiment.warm + 1 + 1
    for number in range(2):
        me, lines = f"worker{number}", [own_header()]
        for server, (start, stop) in enumerate(((0, half), (half, size))):
            name = f"server{server}"
            lines.append(f"12.5,{me},{name},push,{progress},8,{start},{stop},0,")
            lines.append(f"16.5,{name},{me},params,{progress},8,{start},{stop},1,1")
        lines.append(f"22.5,{me},server0,push,{progress + 1},8,0,{half},0,")
        (folder / f"{me}.csv").write_text("\n".join(lines) + "\n")
        server, (start, stop) = f"server{number}", ((0, half), (half, size))[number]
        lines = [own_header()]
        for worker in ("worker0", "worker1"):
            lines.append(f"13.5,{worker},{server},push,{progress},8,{start},{stop},0,")
            lines.append(f"14.5,{server},{worker},params,{progress},8,{start},{stop},1,1")
        (folder / f"{server}.csv").write_text("\n".join(lines) + "\n")
        samples = [(10.0, 0, 0), (15.0, 0, 4_000), (20.0, 0, 4_000)]
        data = b"".join(own.link_samples.RECORD.pack(*sample) for sample in samples)
        own.link_samples.samples_of(folder, number).write_bytes(data)
    return experiment, [window, window]


def own_header() -> str:
    return "time,from,to,kind,progress,bytes,start,stop,version,v"


def test_a_timeline_has_the_moments_of_every_bucket_of_the_middle_step(own: Any, tmp_path: Path) -> None:
    experiment, both = recorded(own, tmp_path)
    made = own.timeline.timeline("bsp", experiment, both, tmp_path)
    assert (made.step, made.steps, made.start, made.stop) == (1, 3, 10.0, 20.0)
    for worker in made.workers:
        first, second = worker.buckets
        assert (first.server, second.server) == (0, 1)
        assert first.stop == second.start
        assert (first.pushed, first.arrived, first.answered, first.applied) == (12.5, 13.5, 14.5, 16.5)
        assert first.ready == max(worker.parts.ready)
        assert second.ready == worker.parts.ready[-61]
        assert sum(worker.sent) == 0
        assert sum(worker.received) == pytest.approx(10 * 4 / own.predict.GOODPUT)


def test_a_timeline_of_gloo_has_only_links(own: Any, tmp_path: Path) -> None:
    experiment, both = recorded(own, tmp_path)
    made = own.timeline.timeline("gloo", own.experiment.case("gloo", experiment), both, tmp_path)
    assert [worker.buckets for worker in made.workers] == [(), ()]
    assert sum(made.workers[0].received) > 0


def test_traces_without_pushes_are_no_timeline(own: Any, tmp_path: Path) -> None:
    experiment, both = recorded(own, tmp_path)
    (tmp_path / "worker1.csv").write_text(own_header() + "\n")
    with pytest.raises(RunError, match="no step in which all workers pushed"):
        own.timeline.timeline("bsp", experiment, both, tmp_path)


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_a_timeline_is_drawn_with_its_legend(own: Any, tmp_path: Path, form: str) -> None:
    pytest.importorskip("matplotlib")
    experiment, both = recorded(own, tmp_path)
    file = tmp_path / f"step.{form}"
    for name in ("bsp", "gloo"):
        made = own.timeline.timeline(name, own.experiment.case(name, experiment), both, tmp_path)
        own.timeline_plot.draw_timeline(made, file, ", everything 4 times slower")
        assert file.stat().st_size > 5_000
        labels = [handle.get_label() for handle in own.timeline_plot._legend(made)]
        assert ("held by server 1" in labels) == (name == "bsp")
        assert "link busy: the host sends" in labels


# Options.


def test_options(own: Any) -> None:
    words = ["--hosts", "3", "--rate", "100Mbit", "--models", "googlenet, resnet56", "--cases", "gloo,bsp,gloo"]
    request = own.options.parse([*words, "--slower", "2"])
    (network,) = request.networks
    assert (network.hosts, network.rate, network.latency, network.slower) == (3, 12.5e6, 0.0, 2.0)
    assert request.models == ("googlenet", "resnet56")
    assert request.cases == ("gloo", "bsp")
    base = network.base("resnet56")
    assert (base.rate, base.hosts) == (6.25e6, 3)
    assert own.options.parse([]).models == tuple(own.models.MODELS)


def test_lists_are_all_combinations_of_hosts_rates_and_latencies(own: Any) -> None:
    words = ["--hosts", "2,4", "--rate", "100Mbit,1Gbit", "--latency", "0ms,20ms", "--slower", "4"]
    request = own.options.parse(words)
    assert len(set(request.networks)) == 8
    assert request.networks[1] == own.options.Network(2, 12.5e6, 0.02, 4.0)
    assert request.cases == ("bsp", "gloo")
    assert request.networks[1].base("resnet56").latency == pytest.approx(0.08)


def test_slower_by_itself_as_much_as_the_cores_need(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own.options, "cores", lambda: 2)
    request = own.options.parse(["--hosts", "2,4,16", "--rate", "100Mbit,1Gbit,10Gbit", "--slower", "auto"])
    slower = {(each.hosts, each.rate * 8e-9): each.slower for each in request.networks}
    assert slower[4, 1.0] == 4
    assert slower[2, 0.1] == 1
    assert slower[16, 10.0] == 160


def test_one_timeline_has_the_given_name_and_several_that_of_their_case(own: Any) -> None:
    one = own.options.parse(["--timeline", "step.svg", "--models", "resnet56", "--cases", "bsp"])
    assert one.picture(one.networks[0].base("resnet56"), "bsp") == Path("step.svg")
    two = own.options.parse(["--timeline", "step.svg", "--models", "resnet56", "--cases", "bsp,gloo"])
    assert two.picture(two.networks[0].base("resnet56"), "gloo") == Path("step-resnet56-gloo.svg")
    assert own.options.parse([]).picture(two.networks[0].base("resnet56"), "gloo") is None


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--rate", "fast"], "--rate"),
        (["--models", "resnet57"], "--models"),
        (["--models", ","], "--models"),
        (["--cases", "bsp,quick"], "--cases"),
        (["--seconds", "0"], "--seconds"),
        (["--slower", "nan"], "--slower"),
        (["--report", "/nowhere/at/all.json"], "--report"),
        (["--plot", "figure.txt"], "--plot"),
        (["--timeline", "figure.txt"], "--timeline"),
        (["--timeline", "figure.png", "--latency", "0ms,1ms"], "--timeline"),
        (["--plot", "figure.png", "--hosts", "2,4"], "--plot"),
        (["--timeline", "figure.png", "--predict-only"], "--timeline"),
        (["--table", "/nowhere/at/all.md"], "--table"),
        (["--hosts", "2,many"], "--hosts"),
        (["--hosts", "2.5"], "--hosts"),
        (["--latency", "20"], "--latency"),
        (["--slower", "very"], "--slower"),
        (["--repeat", "0"], "--repeat"),
    ],
)
def test_nonsense_names_its_option(own: Any, words: list[str], option: str) -> None:
    with pytest.raises(UsageError) as caught:
        own.options.parse(words)
    assert caught.value.option == option


@pytest.mark.parametrize("hosts", [0, 65])
def test_so_many_hosts_are_refused(own: Any, hosts: int) -> None:
    with pytest.raises(UsageError, match="from 1 to 64"):
        own.network.check_possible(hosts)


# The processes.


class Here:
    """A host that is this one."""

    def inside(self, *command: str) -> list[str]:
        return list(command)


@pytest.fixture
def crew(own: Any, tmp_path: Path) -> Iterator[Any]:
    made = own.engine.Crew((Here(),), tmp_path)
    yield made
    made.stop()


def test_a_worker_that_fails_is_named_with_its_last_line(crew: Any) -> None:
    idle = crew.start("worker0", Here(), ["-c", "import signal; signal.pause()"], {})
    failing = crew.start("worker1", Here(), ["-c", "print('first'); raise SystemExit('no such table')"], {})
    with pytest.raises(RunError, match="worker1 ended with exit code 1: no such table"):
        crew.wait([idle, failing], 60)


def test_a_server_that_ends_before_the_workers_is_named(crew: Any) -> None:
    crew.start("server0", Here(), ["-c", ""], {})
    worker = crew.start("worker0", Here(), ["-c", "import signal; signal.pause()"], {})
    with pytest.raises(RunError, match="server0 ended with exit code 0: it printed nothing"):
        crew.wait([worker], 60)


def test_workers_that_end_well_leave_the_server_to_be_ended(crew: Any) -> None:
    server = crew.start("server0", Here(), ["-c", "import signal; signal.pause()"], {})
    crew.wait([crew.start("worker0", Here(), ["-c", ""], {})], 60)
    crew.stop()
    assert server.handle.returncode == -signal.SIGKILL


def test_servers_may_finish_their_traces_and_one_that_does_not_end_is_named(
    own: Any, crew: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = "import signal; print('@', flush=True); signal.pause()"
    coordinator = crew.start("coordinator", Here(), ["-c", pause], {})
    slow = "import os, sys; os.read(0, 1); open(sys.argv[1], 'w').write('all of it')"
    server = crew.start("server0", Here(), ["-c", slow, str(tmp_path / "trace")], {})
    crew.end_recording()
    assert (tmp_path / "trace").read_text() == "all of it"
    assert (coordinator.handle.returncode, server.handle.returncode) == (-signal.SIGKILL, 0)
    crew.start("server1", Here(), ["-c", pause], {})
    monkeypatch.setattr(own.engine, "END_SECONDS", 0.1)
    with pytest.raises(RunError, match="server1 did not end"):
        crew.end_recording()


def test_a_coordinator_that_does_not_start_says_why(own: Any, crew: Any) -> None:
    failing = crew.start("coordinator", Here(), ["-c", "raise SystemExit('the port is taken')"], {})
    with pytest.raises(RunError, match="did not start: the port is taken"):
        own.engine._address_of(failing)


def test_a_case_that_fails_is_a_row_with_the_reason(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RunError("worker1 ended with code 1: out of memory")

    monkeypatch.setattr(own.engine, "run", fail)
    row = own.measure.run_case("bsp", own.experiment.Experiment("resnet56"), (), own.measure.Method(1.0), 1.0)
    assert row.failed == "worker1 ended with code 1: out of memory"
    assert own.measure.outcome(row) == "failed: worker1 ended with code 1: out of memory"


# The network.


def left_behind(own: Any, pid: int) -> list[str]:
    return sorted(name for name in own.network.names() if name.startswith(f"cluster{pid}-"))


@needs_namespaces
def test_hosts_reach_each_other_over_links_that_are_held_to_the_rate(own: Any) -> None:
    with own.network.network(3, 12.5e6) as hosts:
        assert len(left_behind(own, os.getpid())) == 4
        assert len({host.address for host in hosts}) == 3
        for end in hosts:
            listed = subprocess.run(end.inside("tc", "qdisc", "show", "dev", "eth0"), capture_output=True, text=True)
            assert "tbf" in listed.stdout
            assert "rate 100Mbit" in listed.stdout
        receive = "import socket, sys; s = socket.create_server((sys.argv[1], 7000)); print(1, flush=True)\n"
        receive += "c, _ = s.accept()\nwhile c.recv(65536): pass"
        send = "import socket, sys; socket.create_connection((sys.argv[1], 7000)).sendall(bytes(1_000_000))"
        command = hosts[0].inside(sys.executable, "-c", receive, hosts[0].address)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as receiver:
            assert receiver.stdout is not None
            receiver.stdout.readline()
            subprocess.run(hosts[2].inside(sys.executable, "-c", send, hosts[0].address), check=True, timeout=30)
            assert receiver.wait(30) == 0
        count = f"import sys; sys.path[:0] = {sys.path!r}\n"
        count += "from benchmarks.cluster.network import count_bytes; print(count_bytes().received)"
        seen = subprocess.run(hosts[0].inside(sys.executable, "-c", count), check=True, capture_output=True, text=True)
        assert 1_000_000 < int(seen.stdout) < 1_200_000
    assert left_behind(own, os.getpid()) == []


ECHO = """
import socket, sys, time
if sys.argv[1] == "answer":
    listener = socket.create_server((sys.argv[2], 7000))
    print("ready", flush=True)
    peer, _ = listener.accept()
    while data := peer.recv(65536):
        peer.sendall(data)
else:
    peer = socket.create_connection((sys.argv[2], 7000))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    best = float("inf")
    for number in range(5):
        begun = time.monotonic()
        peer.sendall(bytes([number]))
        assert peer.recv(1) == bytes([number])
        best = min(best, time.monotonic() - begun)
    print(best)
    sent, back = bytes(range(250)) * 4000, bytearray()
    peer.sendall(sent[: len(sent) // 2])
    while len(back) < len(sent) // 2:
        back += peer.recv(65536)
    assert bytes(back) == sent[: len(sent) // 2]
"""


@needs_namespaces
def test_a_round_trip_takes_twice_the_latency_at_least_and_nothing_is_left(own: Any) -> None:
    with own.network.network(2, 125e6, latency=0.05) as hosts:
        answer = hosts[0].inside(sys.executable, "-c", ECHO, "answer", hosts[0].address)
        with subprocess.Popen(answer, stdout=subprocess.PIPE, text=True) as there:
            assert there.stdout is not None
            assert there.stdout.readline() == "ready\n"
            ask = hosts[1].inside(sys.executable, "-c", ECHO, "ask", hosts[0].address)
            asked = subprocess.run(ask, check=True, capture_output=True, text=True, timeout=60)
            assert there.wait(30) == 0
        assert float(asked.stdout) >= 2 * 0.05  # a lower bound, which a busy machine cannot break
        pids = [cable_pid for host in hosts for cable_pid in processes_in(host)]
    assert left_behind(own, os.getpid()) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@needs_namespaces
def test_the_link_between_two_regions_has_its_rate_and_its_latency(own: Any) -> None:
    between = own.network.LinkBetween(2.5e6, 0.02)
    with own.network.network(4, 125e6, between=between) as hosts:
        assert [own.network.region_of(number, 4) for number in range(4)] == [0, 0, 1, 1]
        assert len(left_behind(own, os.getpid())) == 6
        answer = hosts[0].inside(sys.executable, "-c", ECHO, "answer", hosts[0].address)
        with subprocess.Popen(answer, stdout=subprocess.PIPE, text=True) as there:
            assert there.stdout is not None
            assert there.stdout.readline() == "ready\n"
            begun = monotonic()
            ask = hosts[3].inside(sys.executable, "-c", ECHO, "ask", hosts[0].address)
            asked = subprocess.run(ask, check=True, capture_output=True, text=True, timeout=60)
            seconds = monotonic() - begun
            assert there.wait(30) == 0
        assert float(asked.stdout) >= 2 * between.latency  # lower bounds, which a busy machine cannot break
        assert seconds >= (500_000 - own.links.LEAST_BURST) / between.rate
    assert left_behind(own, os.getpid()) == []


@pytest.mark.parametrize("name", ["tree-star", "tree-chain", "tree-2"])
def test_a_tree_has_a_node_on_each_host_and_keeps_no_copies_like_servers(own: Any, name: str) -> None:
    made = own.experiment.case(name, own.experiment.Experiment("resnet56"))
    assert (made.servers, made.lockstep, made.same_bits) == (4, False, False)
    assert made.settings["copies"] == "false"
    assert own.measure.why_not(made) == ""


def test_the_predicted_bytes_of_a_tree_are_those_of_its_links(own: Any) -> None:
    """Every update crosses every link at most once in one direction; changes that are on their way add up."""
    base = own.experiment.Experiment("resnet56", hosts=3)
    size = base.layers.layout.size * 4
    predicted = own.predict.predict(own.experiment.case("tree-chain", base))
    assert 0 < predicted.bytes_per_iteration <= 2 * size * 2 * (3 - 1) / 3
    assert 1 < predicted.speedup <= 3


def processes_in(host: Any) -> list[str]:
    listed = subprocess.run(["ip", "netns", "pids", host.name], check=True, capture_output=True, text=True)
    return listed.stdout.split()


@needs_namespaces
def test_a_cable_that_cannot_be_made_says_why(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own.links, "has_netem", lambda _: False)
    monkeypatch.setattr(own.links, "INTERFACE", "lo")  # this name is taken
    with pytest.raises(RunError, match="cannot delay frames"), own.network.network(1, 1e6, latency=0.01):
        pass
    assert left_behind(own, os.getpid()) == []


def test_a_cable_keeps_the_order_and_delivers_nothing_early(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(own.cable, "monotonic", lambda: now[0])
    near, far = (
        socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
        socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
    )
    with near[0], near[1], far[0], far[1]:
        near[1].setblocking(False)
        far[1].setblocking(False)
        way = own.cable.Direction(near[1].fileno(), far[0].fileno(), 0.5)
        assert way.due == float("inf")
        near[0].send(b"first")
        near[0].send(b"second")
        way.read()
        now[0] = 100.25
        near[0].send(b"third")
        way.read()
        assert way.due == 100.5
        way.write(100.49)
        with pytest.raises(BlockingIOError):
            far[1].recv(100)
        way.write(100.5)
        assert [far[1].recv(100), far[1].recv(100)] == [b"first", b"second"]
        assert way.due == 100.75
        way.write(200.0)
        assert far[1].recv(100) == b"third"


def test_netem_delays_at_the_switch_if_the_kernel_has_it(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(own.links, "call", lambda *command: called.append(command))
    own.links.plug_in(own.links.Link("h0", "10.0.0.1", "switch", "port0"), 1e6, 0.02)
    (netem,) = [command for command in called if "netem" in command]
    assert netem[:3] == ("tc", "-n", "switch")
    assert netem[-4:] == ("delay", "20000us", "limit", "100000")
    below = [command for command in called if "tbf" in command and "parent" in command]
    assert len(below) == 1
    assert called.index(netem) < called.index(below[0])


@needs_namespaces
@pytest.mark.parametrize("error", [ValueError("on purpose"), KeyboardInterrupt()])
def test_a_failure_leaves_no_namespace_and_no_process(own: Any, error: BaseException) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def fail() -> None:
        with own.network.network(2, 1e6) as hosts:
            assert len(left_behind(own, os.getpid())) == 3
            sleeper = hosts[1].inside(sys.executable, "-c", "import signal; print(1, flush=True); signal.pause()")
            started.append(subprocess.Popen(sleeper, stdout=subprocess.PIPE))
            assert started[0].stdout is not None
            started[0].stdout.readline()
            raise error

    with pytest.raises(type(error)):
        fail()
    assert left_behind(own, os.getpid()) == []
    with started[0] as process:
        assert process.wait(10) == -signal.SIGKILL


@needs_namespaces
def test_a_network_that_cannot_be_finished_leaves_nothing(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = own.links.call

    def failing(*command: str) -> str:
        if command[0] == "tc":
            raise ValueError("on purpose")
        return str(call(*command))

    monkeypatch.setattr(own.links, "call", failing)
    with pytest.raises(ValueError, match="on purpose"), own.network.network(2, 1e6):
        pass
    assert left_behind(own, os.getpid()) == []


@pytest.mark.slow
@needs_namespaces
def test_a_short_measurement_with_latency_is_drawn_and_reported(
    own: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    words = ["--hosts", "2", "--latency", "1ms", "--models", "resnet56", "--cases", "bsp", "--seconds", "0.1"]
    files = ["--timeline", str(tmp_path / "step.png"), "--report", str(tmp_path / "report.json")]
    assert own.cli.main([*words, *files, "--repeat", "2"]) == 0, capsys.readouterr().err
    assert (tmp_path / "step.png").stat().st_size > 50_000
    report = msgspec.json.decode((tmp_path / "report.json").read_bytes())
    assert (report["latency"], report["repeat"]) == (0.001, 2)
    (row,) = report["rows"]
    assert len(row["runs"]) == 2
    assert all(0 < run["utilisation"] < run["exchanging"] < 1.1 for run in row["runs"])
    assert left_behind(own, os.getpid()) == []


@pytest.fixture
def command() -> Iterator[subprocess.Popen[str]]:
    """The benchmark, started as a folder, with one case that lasts until it is interrupted."""
    words = ["benchmarks/cluster", "--hosts", "2", "--models", "resnet56", "--cases", "bsp", "--seconds", "600"]
    words += ["--latency", "10ms"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@needs_namespaces
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(own: Any, command: subprocess.Popen[str], number: int) -> None:
    assert command.stderr is not None
    assert command.stderr.readline() == "1 run, about 10 min\n"
    assert "one worker without communication" in command.stderr.readline()  # the network is there, and the case begins
    assert len(left_behind(own, command.pid)) == 3
    command.send_signal(number)
    _, errors = command.communicate(timeout=60)
    assert command.returncode == 130, errors
    assert "interrupted" in errors
    assert left_behind(own, command.pid) == []
