"""Servers die: what any live worker has read is not lost, nothing is applied twice, and all make progress."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from random_scripts import (
    CHANGING,
    COMING,
    KILLING,
    MORTAL,
    MOVING,
    STEADY,
    UNSURE,
    blocks,
    gates,
    placements,
    runs,
    scripts,
    under_each_model,
    under_two_models,
)
from rough_model import links, run, seconds
from scheduler import Action, Schedule, Setup
from syncline.effects import Effect
from syncline.errors import PeerError, RunError
from syncline.messages import Push, View
from syncline.nodes.server.bucket import HeldBucket
from syncline.nodes.server.parked_pulls import ParkedRequest
from syncline.nodes.server.recovery import Recovery
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.server.worker import Worker
from syncline.placement import Elastic, RoundRobin, Uniform
from syncline.rules import Momentum, Rule, Sgd
from syncline.sim import AddServer, Cluster, CrashServer, RemoveServer, Scenario
from syncline.sim.compute import Trace
from syncline.sim.faults import Fault
from syncline.strategies.server.strategy import Mode, ServerStrategy, settle_mode
from syncline.sync import Asp, Bsp, Release, Ssp, SyncModel

mortal = st.just(True)

test_servers_die = under_each_model(20, STEADY, KILLING, patience=None, mortal=mortal)
test_servers_and_workers_die = under_each_model(
    20, STEADY, UNSURE, MORTAL, COMING, KILLING, blocks=blocks, mortal=mortal
)

EVERYTHING = (STEADY, STEADY, UNSURE, MORTAL, COMING, CHANGING, MOVING, KILLING)
WITH = {"workers": st.integers(1, 4), "gate": gates, "blocks": blocks, "placement": placements, "mortal": mortal}

test_everything_at_once = under_two_models(150, *EVERYTHING, **WITH)
test_everything_at_once_for_long = pytest.mark.slow(under_two_models(6000, *EVERYTHING, **WITH))


# Whole runs in the simulator.


@st.composite
def crashes(draw: st.DrawFn, servers: int) -> tuple[Fault, ...]:
    """Servers die, join and leave; there is always one left."""
    there, following, found = set(range(servers)), servers, []
    for at in sorted(draw(st.lists(st.floats(0, 8), min_size=1, max_size=5))):
        what = draw(st.sampled_from(["die", "die", "return", "return", "add", "leave"]))
        if what == "add" and len(there) < 4:
            there.add(following)
            following += 1
            found.append(AddServer(at))
            continue
        which = draw(st.sampled_from(sorted(there)))
        if what in ("return", "add") or len(there) == 1:
            found.append(CrashServer(at, which, duration=draw(st.sampled_from([0.01, 0.3, 2.0]))))
        elif what == "die":
            there.discard(which)
            found.append(CrashServer(at, which, draw(st.sampled_from([0.0, 0.1, 1.0]))))
        else:
            there.discard(which)
            found.append(RemoveServer(at, which))
    return tuple(found)


def check_undisturbed(scenario: Scenario, optimizer: Rule) -> None:
    """The final parameters are those of a run in which no server died, to the bit."""
    calm = Scenario(scenario.cluster, scenario.strategy, scenario.iterations)
    disturbed, undisturbed = run(scenario, optimizer), run(calm, optimizer)
    assert disturbed.model_vector().tobytes() == undisturbed.model_vector().tobytes()
    assert disturbed.replica_gap == 0
    assert disturbed.train_progress == scenario.iterations
    assert not (disturbed.restored or {}).get("lost_updates")


@st.composite
def synchronous(draw: st.DrawFn) -> tuple[Scenario, Rule]:
    workers, iterations, servers = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    model, mode = draw(st.sampled_from([Bsp(), Ssp(0)])), draw(st.sampled_from(Mode))
    chosen, rule = settle_mode(mode, Sgd(0.1) if mode is Mode.RULE else None, [model])
    strategy = ServerStrategy(
        (model,) * servers,
        draw(st.sampled_from(Release)),
        chosen,
        rule,
        placement=draw(st.sampled_from([Elastic(), Uniform(), RoundRobin()])),
        bucket_values=draw(st.sampled_from([3, 10, 1000])),
    )
    rows = draw(st.lists(st.lists(seconds, min_size=6, max_size=6), min_size=workers, max_size=workers))
    cluster = Cluster(workers, Trace(tuple(map(tuple, rows))), draw(links), draw(st.sampled_from([None, 500.0])))
    scenario = Scenario(cluster, strategy, iterations, faults=draw(crashes(servers)))
    return scenario, draw(st.sampled_from([Momentum(0.1), Momentum(0.05)]))


@runs(100)
@given(synchronous())
def test_under_bsp_the_model_is_that_of_a_run_without_deaths_to_the_bit(case: tuple[Scenario, Rule]) -> None:
    check_undisturbed(*case)


@pytest.mark.slow
@runs(6000)
@given(synchronous())
def test_under_bsp_the_model_is_that_of_a_run_without_deaths_for_long(case: tuple[Scenario, Rule]) -> None:
    check_undisturbed(*case)


# Each of these mistakes must be found.

MISTAKES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "answers do not say what they contain": lambda patch: patch.setattr(HeldBucket, "_last_updates", lambda _: ()),
    "workers do not send again": lambda patch: patch.setattr(Worker, "_ask_again", lambda *_: None),
    "any copy will do": lambda patch: patch.setattr(Recovery, "freshest", _any_copy),
    "the first report will do": lambda patch: patch.setattr(Recovery, "is_complete", lambda self, _: self._reports),
    "a contained push is answered at once": lambda patch: patch.setattr(HeldBucket, "_pull", _answer_at_once),
    "a stale holder keeps its bucket": lambda patch: patch.setattr(Shard, "_hand_over", _keep_lost),
}


def _any_copy(recovery: Recovery, terms: ShardTerms) -> tuple[int, int] | None:
    held = sorted(who for who in terms.present if recovery._reports[who].held)
    if not held:
        raise RunError("nobody has a copy")
    return held[0]


_pull, _hand_over = HeldBucket._pull, Shard._hand_over


def _answer_at_once(bucket: HeldBucket, arrived: ParkedRequest, now: float, out: list[Effect]) -> None:
    last = bucket._contained.get(arrived.source.number, (-1, -1))
    if type(arrived.message) is Push and last >= (arrived.message.incarnation, arrived.message.progress):
        bucket._answer(arrived, now, out)
    else:
        _pull(bucket, arrived, now, out)


def _keep_lost(shard: Shard, view: View, known: int, out: list[Effect]) -> None:
    held = {loss.bucket for loss in view.lost} & shard.buckets.keys()
    _hand_over(shard, replace(view, lost=tuple(each for each in view.lost if each.bucket not in held)), known, out)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_protocol_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[mistake](monkeypatch)
    kinds = (STEADY, STEADY, MOVING, KILLING)
    several = st.integers(2, 4)

    @settings(
        deadline=None,
        max_examples=3000,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(script=scripts(*kinds), model=st.sampled_from([Asp(), Ssp(1)]), workers=several, blocks=blocks)
    def play(script: list[Action], model: SyncModel, workers: int, blocks: int) -> None:
        Schedule(Setup((model, model), workers=workers, blocks=blocks, mortal=True)).play(script)

    with pytest.raises((AssertionError, PeerError, KeyError)):
        play()
