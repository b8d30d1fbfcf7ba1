"""Whole runs with gates: one that skips nothing equals `always`, the others save what they report."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_scripts import runs
from samples import sampled
from syncline.draw import Draw
from syncline.effects import Effect, Event, Send
from syncline.layout import Bucket, Layout
from syncline.messages import Params, Taken
from syncline.rules import Fasgd, Rule
from syncline.sim import Cluster, MadeUp, Outcome, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.sim.faults import AddServer, RemoveServer
from syncline.sim.report import report
from syncline.spec import parse
from syncline.strategies.server.strategy import ServerStrategy, settle_mode
from trainings import simulated, train

WORKERS, ITERATIONS, VALUES = 3, 12, 100
UNEVEN = Lognormal(0.1, 0.8)
FASGD = Fasgd(0.01, 0.9, 0.9)


def world(gate: str, sync: str = "ssp:2", rule: Rule | None = FASGD, servers: int = 2, seed: int = 0) -> World:
    models = (parse("sync", sync),) * servers
    mode, settled = settle_mode(None, rule, models)
    strategy = ServerStrategy(models, mode=mode, rule=settled, gate=parse("gate", gate), bucket_values=25)
    scenario = Scenario(Cluster(WORKERS, UNEVEN, None), strategy, ITERATIONS, seed)
    return World(scenario, MadeUp(VALUES, Draw(seed)))


def outcome(gate: str, sync: str = "ssp:2", rule: Rule | None = FASGD) -> Outcome:
    return world(gate, sync, rule).run()


def bits(found: Outcome) -> tuple[str, bytes]:
    return found.trace_sha256, found.model_vector().tobytes()


@pytest.mark.parametrize(
    "gate", ["every:push=1,fetch=1", "every:on_skip=reapply", "cached:0", "bandwidth", "significance:0", "budget:1GB"]
)
@pytest.mark.parametrize("sync", ["bsp", "asp", "ssp:2", "drop:2", "pssp:s=1,p=0.5"])
def test_a_gate_that_skips_nothing_is_always_to_the_bit(gate: str, sync: str) -> None:
    plain, gated = outcome("always", sync), outcome(gate, sync)
    assert bits(gated) == bits(plain)
    assert (gated.pushes_skipped, gated.fetches_skipped) == (0, 0)


def test_a_bandwidth_gate_with_c_0_is_always() -> None:
    assert bits(outcome("bandwidth:push=0,fetch=0,per=table")) == bits(outcome("always"))


def test_what_is_skipped_is_counted_and_saved() -> None:
    """Four buckets; every second update and every fourth fetch of 12 iterations and 3 workers."""
    plain, found = report(outcome("always")), report(outcome("every:push=2,fetch=4"))
    assert (plain["pushes_skipped"], plain["fetches_skipped"]) == (0, 0)
    assert (found["pushes_skipped"], found["fetches_skipped"]) == (3 * 4 * 6, 3 * 4 * 9)
    assert found["bytes_pushed"] == plain["bytes_pushed"] // 2
    assert found["bytes_pulled"] == plain["bytes_pulled"] // 4
    assert found["updates"] == plain["updates"]


def test_a_budget_is_what_a_worker_spends() -> None:
    """100 values take 800 bytes an iteration, both ways; what is held back is sent at the end, beyond the budget."""
    found = report(outcome("budget:300B"))
    spent = found["bytes_pushed"] + found["bytes_pulled"]
    assert 300 * WORKERS * ITERATIONS - 200 * WORKERS <= spent <= 300 * WORKERS * ITERATIONS + 400 * WORKERS


@pytest.mark.parametrize("per", ["model", "table"])
def test_a_large_c_saves_much(per: str) -> None:
    plain, found = outcome("always"), outcome(f"bandwidth:fetch=9,per={per}")
    assert found.bytes_pulled < plain.bytes_pulled / 4
    assert found.bytes_pushed == plain.bytes_pushed


@pytest.mark.parametrize(
    ("gate", "apart"),
    [
        ("always", False),
        ("every:push=2", False),
        ("bandwidth:push=1", False),
        ("bandwidth:push=1,per=table", True),
        ("bandwidth:per=table", False),
        ("significance:0.1", True),
        ("significance:0", False),
        ("budget:1MB", True),
    ],
)
def test_a_gate_that_chooses_among_tables_has_a_bucket_for_each(gate: str, apart: bool) -> None:
    layout = Layout.of([("weight", (10, 4)), ("bias", (4,))])
    whole, cut = (Bucket(0, 44),), (Bucket(0, 40), Bucket(40, 44))
    assert ServerStrategy(gate=parse("gate", gate)).cut(layout, [Bucket(0, 44)]) == (cut if apart else whole)


@pytest.mark.parametrize("gate", ["every:push=2,fetch=3,on_skip=reapply", "every:push=3,fetch=2", "cached:2"])
def test_servers_come_and_go_beside_a_gate(gate: str) -> None:
    """What the rule and the gate remember moves along: under bsp the model ends as if nothing had moved."""
    calm = world(gate, "bsp")
    faults = (AddServer(0.35), RemoveServer(0.75, 0))
    moved = World(replace(calm.scenario, faults=faults), MadeUp(VALUES, Draw(0)))
    one, other = calm.run(), moved.run()
    assert moved.view_maker.moved >= 2
    assert other.model_vector().tobytes() == one.model_vector().tobytes()


# The bound of ssp, whatever the gate. (Gates that accumulate are also in properties/test_schedules.py.)


class Watched:
    """Checks for every answer of a shard that the worker's lead is below the bound."""

    def __init__(self, shard: Any, s: int) -> None:
        self.most = -ITERATIONS
        self._handle, self._s = shard.handle, s
        shard.handle = self.handle

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects: list[Effect] = self._handle(event, now)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Params | Taken):
                self.most = max(self.most, effect.message.progress - effect.message.v)
        assert self.most < self._s
        return effects


@pytest.mark.parametrize(
    "gate",
    [
        "every:push=2,fetch=3,on_skip=reapply",
        "bandwidth:push=2,fetch=2,on_skip=reapply",
        "bandwidth:push=2,fetch=2,per=table,on_skip=reapply",
        "cached:5",
        "budget:100B",
    ],
)
@runs(10)
@given(s=st.integers(1, 4), seed=st.integers(0, 1000))
def test_under_ssp_no_gate_lets_a_worker_pass_its_bound(gate: str, s: int, seed: int) -> None:
    run = world(gate, f"ssp:{s}", seed=seed)
    watched = [Watched(server.node, s) for server in run.servers]
    run.run()
    assert min(each.most for each in watched) >= -1, "no answer was seen"


# Real runs.

OPTIONS = ("-n", "2", "--iterations", "31", "--batch", "16", "--sync", "bsp")


GATES = (
    "bandwidth:push=0.5,fetch=2,on_skip=reapply",
    "bandwidth:push=1,fetch=1,per=table,on_skip=reapply",
    "bandwidth:push=1,fetch=1",
    "every:push=4,fetch=2",
    "every:push=3,fetch=2,on_skip=reapply",
    "budget:30kB",
    "budget:20kB,of=fetch",
    "significance:0.3",
    "cached:50",
)
SAME = ("updates", "pushes_skipped", "fetches_skipped", "bytes_pushed", "bytes_pulled", "params_sha256")


def skips_the_same(folder: Path, lane: str, *options: str) -> None:
    real, _ = train(folder, *options, "--lane", lane, "-q")
    expected = simulated(folder, *options)
    assert {key: real[key] for key in SAME} == {key: expected[key] for key in SAME}
    assert real["pushes_skipped"] + real["fetches_skipped"] > 0


@pytest.mark.parametrize(("gate", "lane"), sampled(product(GATES, ("shm", "tcp")), (GATES[0], "tcp")))
def test_a_real_run_skips_what_the_simulated_one_skips(tmp_path: Path, gate: str, lane: str) -> None:
    """The results are bit-identical: a worker that leaves, as all do at the end, sends what it holds back."""
    skips_the_same(tmp_path, lane, *OPTIONS, "--rule", "fasgd:0.005", "--gate", gate)


MORE = {
    "a codec": ("--rule", "adam:0.005", "--gate", "budget:9kB", "--codec", "topk:0.1", "--reply-codec", "int8"),
    "gradients": ("--mode", "gradients", "--gate", "every:push=3"),
    "changes": ("--mode", "changes", "--gate", "every:push=4,fetch=2"),
}


@pytest.mark.parametrize("how", sampled(MORE, "a codec"))
def test_a_real_run_with_a_codec_skips_the_same_in_every_mode(tmp_path: Path, how: str) -> None:
    """A budget counts what codecs write; the mean of a round without an update is zero, and is stepped by."""
    skips_the_same(tmp_path, "shm", *OPTIONS, *MORE[how])


def test_b_fasgd_trains_and_saves(tmp_path: Path) -> None:
    options = ("-n", "4", "--iterations", "150", "--sync", "asp", "--rule", "fasgd:0.01")
    plain = simulated(tmp_path, *options)
    found = simulated(tmp_path, *options, "--gate", "bandwidth:fetch=0.3")
    assert found["accuracy"] >= plain["accuracy"] - 0.02
    assert found["bytes_pulled"] < 0.7 * plain["bytes_pulled"]
    assert found["fetches_skipped"] > 0
