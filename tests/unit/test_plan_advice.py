"""A whole plan: its rows, the search for the best split, the recommendation, its commands and its report."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import cache

import pytest

from syncline.errors import UsageError
from syncline.layout import Layout
from syncline.plan.advice import notes, reason
from syncline.plan.candidates import Candidate, Form, colocated, exchange, split
from syncline.plan.codec_work import FREE, CodecWork
from syncline.plan.commands import commands_of
from syncline.plan.forecast import COMPUTE, Forecast, forecast
from syncline.plan.machines import Machines
from syncline.plan.model import PlannedModel, by_size
from syncline.plan.planner import ClusterPlan, best_split, make_plan
from syncline.plan.report import plan_report
from syncline.sim.overlap import Overlap

SLOW = 125e6 / 8
"""The rate of a slow link, in bytes per second."""

MB = 250_000
"""The values of a megabyte."""


def model_of(values: int, step: float, recipe: str | None = None, batch: int | None = None) -> PlannedModel:
    layout = Layout.of([(f"layer{number}", (values // 4,)) for number in range(4)])
    return PlannedModel("toy", layout, by_size(layout), step, "given", batch, recipe)


def free(codec: str) -> CodecWork:
    return FREE


@cache
def slow() -> ClusterPlan:
    """The links are the bottleneck."""
    return make_plan(model_of(MB, 0.1), Machines(4, SLOW), work=free)


@cache
def fast() -> ClusterPlan:
    return make_plan(model_of(MB, 0.1), Machines(4, 1000 * SLOW), work=free)


def test_rows_are_sorted_by_the_speed_of_the_whole_cluster() -> None:
    rates = [row.rate for row in slow().rows]
    assert rates == sorted(rates, reverse=True)
    seconds = [row.seconds for row in slow().rows]
    assert seconds != sorted(seconds), "a split has short iterations, but few workers"


def test_a_plan_has_all_forms() -> None:
    assert {row.candidate.form for row in slow().rows} == set(Form)
    labels = [row.candidate.label for row in slow().rows]
    assert len(set(labels)) == len(labels)
    for wanted in ("exchange, p = 3", "exchange, p = 1 (all-to-all)", "bsp with gloo's ring (DDP)"):
        assert wanted in labels


@pytest.mark.parametrize(("values", "bandwidth"), [(MB, SLOW), (MB, 20 * SLOW), (MB // 4, SLOW)])
def test_the_search_finds_the_best_of_all_splits(values: int, bandwidth: float) -> None:
    model, machines = model_of(values, 0.05), Machines(9, bandwidth)
    told: list[str] = []
    found = best_split(model, machines, None, told.append)
    every = {servers: forecast(model, machines, split(servers, model, None)).rate for servers in range(1, 9)}
    assert found.best.rate == max(every.values())
    assert found.rates == {servers: every[servers] for servers in found.rates}
    assert len(told) == len(found.rates)


def test_on_slow_links_it_recommends_an_exchange() -> None:
    assert slow().best.candidate == exchange(3)
    assert slow().best is slow().rows[0]
    assert reason(slow()).startswith("Exchange, p = 3 does 40 steps/s: the machines compute 100% of the time")
    assert reason(slow()).count(". ") == 1


def test_on_fast_links_it_recommends_what_has_no_stale_updates() -> None:
    assert fast().best.candidate.staleness == 0
    assert fast().best.candidate.lossless
    assert fast().best.limit == COMPUTE


def test_a_lossy_row_is_never_recommended_but_mentioned() -> None:
    row = next(row for row in slow().rows if row.candidate.codec == "topk:0.01")
    plan = replace(slow(), rows=(replace(row, seconds=row.seconds / 100), *slow().rows))
    assert plan.best is slow().best
    assert any("topk:0.01 would do" in note and "sends less than every update" in note for note in notes(plan))
    assert not any("topk" in note for note in notes(slow()))


def test_ddp_is_mentioned_if_it_is_faster() -> None:
    row = next(row for row in slow().rows if row.candidate.form is Form.RING)
    plan = replace(slow(), rows=(replace(row, seconds=row.seconds / 100), *slow().rows))
    assert plan.best is slow().best
    assert any("DistributedDataParallel with gloo would do" in note for note in notes(plan))


def test_late_updates_come_with_an_alternative() -> None:
    plan = make_plan(model_of(MB, 0.02), Machines(4, SLOW), work=free)
    assert plan.best.candidate.staleness > 4
    (late,) = [note for note in notes(plan) if "iterations late" in note]
    assert "try co-located servers" in late


def test_what_does_not_fit_into_memory_is_not_recommended() -> None:
    model = model_of(MB, 0.02)
    roomy = make_plan(model, Machines(4, SLOW), work=free)
    tight = make_plan(model, Machines(4, SLOW, memory=roomy.best.memory - 1), work=free)
    assert roomy.best.candidate.form is Form.EXCHANGE
    assert tight.best.candidate != roomy.best.candidate
    assert tight.best.fits
    assert not tight.rows[-1].fits
    assert any("more memory" in note for note in notes(tight))


def test_a_model_that_does_not_fit_at_all() -> None:
    with pytest.raises(UsageError, match=r"toy has 250,000 values and needs at least 4 MB") as refused:
        make_plan(model_of(MB, 0.1), Machines(4, SLOW, memory=1_000_000), work=free)
    assert refused.value.option == "--memory"


@pytest.mark.parametrize("workers", [-1, 0, 1, 10**6])
def test_numbers_of_machines(workers: int) -> None:
    with pytest.raises(UsageError) as refused:
        Machines(workers, SLOW).check()
    assert refused.value.option == "--workers"


def lines(candidate: Candidate, machines: int = 4, recipe: str | None = None) -> list[tuple[str, str]]:
    found = commands_of(candidate, model_of(MB, 0.1, recipe), machines, "192.0.2.7:7070", "data")
    return [(each.where, each.line) for each in found]


def test_the_commands_of_an_exchange() -> None:
    key = "--key-file syncline.key"
    assert lines(exchange(3, codec="fp16")) == [
        (
            "on the first machine",
            "syncline run -n 1 --strategy exchange:partitions=3,codec=fp16 "
            f"--listen 192.0.2.7:7070 {key} train.py",
        ),
        ("on each of 3 other machines", f"syncline run --join 192.0.2.7:7070 {key} -n 1 train.py"),
    ]  # fmt: skip


def test_a_loopback_address_needs_no_key() -> None:
    model = model_of(MB, 0.1)
    for address in ("127.0.0.1:7070", "localhost:0", "[::1]:7070"):
        found = commands_of(exchange(2), model, 4, address)
        assert len(found) == 2
        assert not any("--key-file" in each.words for each in found)
    assert "--key-file" in commands_of(exchange(2), model, 4, "gpu1:7070")[0].words


def test_the_commands_of_servers() -> None:
    found = lines(colocated(model_of(MB, 0.1), None, sync="ssp:3"))
    assert found[0][1].startswith("syncline run -n 1 --servers 1 --sync ssp:3 --listen")
    assert found[1][0] == "on each of 3 other machines"
    assert found[1][1].endswith("-n 1 --servers 1 train.py")
    found = lines(split(3, model_of(MB, 0.1), None, "ssp:3"), 8)
    assert [where for where, _ in found][1:] == ["on each of 2 other machines", "on each of 5 other machines"]
    assert found[1][1].endswith("-n 0 --servers 1")
    assert found[2][1].endswith("-n 1 train.py")


def test_what_cannot_be_started_has_no_commands() -> None:
    assert lines(Candidate(Form.RING)) == []
    assert lines(colocated(model_of(MB, 0.1), None)) == []


def test_a_recipe_is_trained_on_one_host() -> None:
    model = model_of(MB, 0.1, "digits-cnn")
    ((where, line),) = lines(colocated(model, None), recipe="digits-cnn")
    assert where.startswith("on one host")
    assert line == "syncline train digits-cnn --data data --workers 4 --servers 4"
    ((_, line),) = lines(split(1, model, None, "ssp:3"), recipe="digits-cnn")
    assert line == "syncline train digits-cnn --data data --workers 3 --servers 1 --sync ssp:3"


def test_what_overlaps() -> None:
    program, recipe = model_of(MB, 0.1), model_of(MB, 0.1, "digits-cnn")
    assert colocated(program, None).overlap is Overlap.BACKWARD
    assert colocated(program, None, sync="ssp:3").overlap is Overlap.NONE
    assert colocated(program, None, mode="changes").overlap is Overlap.NONE
    assert colocated(recipe, None).overlap is Overlap.NONE
    assert colocated(recipe, Overlap.FORWARD, sync="ssp:3").overlap is Overlap.FORWARD


def test_the_report_has_every_row_and_the_recommendation() -> None:
    found = json.loads(json.dumps(plan_report(slow()), allow_nan=False))
    assert [row["name"] for row in found["rows"]] == [row.candidate.label for row in slow().rows]
    first = found["rows"][0]
    assert (first["form"], first["partitions"], first["staleness_bound"]) == ("exchange", 3, 2)
    assert first["seconds_per_iteration"] == slow().best.seconds
    assert found["recommendation"]["name"] == first["name"]
    assert found["recommendation"]["commands"] == first["commands"]
    assert shlex.split(first["commands"][0]["command"])[:2] == ["syncline", "run"]
    assert {row["servers"] for row in found["splits"]} == set(slow().splits)


def test_examples_instead_of_steps() -> None:
    plan = make_plan(model_of(MB, 0.1, batch=16), Machines(4, SLOW), work=free)
    assert "does 640 examples/s" in reason(plan)
    assert plan_report(plan)["rows"][0]["examples_per_second"] == 16 * plan.rows[0].rate


def test_a_plan_that_has_only_one_form_gives_one_sentence() -> None:
    rows: tuple[Forecast, ...] = (slow().best,)
    plan = ClusterPlan(slow().model, slow().machines, rows, {}, slow().load)
    assert reason(plan).count(".") == 1
