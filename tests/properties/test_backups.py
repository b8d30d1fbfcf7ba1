"""Servers with backups die: nothing that was answered is lost, nothing is applied twice, and all make progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from backed_schedule import BackedSchedule, Remember
from random_scripts import (
    CHANGING,
    COMING,
    KILLING,
    MODELS,
    MORTAL,
    MOVING,
    STEADY,
    UNSURE,
    Kind,
    blocks,
    gates,
    models,
    placements,
    releases,
    runs,
    scripts,
    seeds,
    windows,
)
from rough_model import links, run, seconds
from scheduler import Action, Setup
from syncline.effects import Effect, Event, Send
from syncline.errors import PeerError
from syncline.layout import Payload
from syncline.messages import Handover
from syncline.nodes.server.backed_shard import BackedShard
from syncline.nodes.server.follower import Follower
from syncline.nodes.server.handover import pack
from syncline.nodes.server.log_messages import LogEntry
from syncline.nodes.server.sent_handovers import SentHandovers
from syncline.nodes.server.shard import Shard
from syncline.placement import Elastic, RoundRobin, Uniform
from syncline.rules import Adam, Momentum, Rule
from syncline.sim import AddServer, Cluster, CrashServer, Scenario
from syncline.sim.compute import Trace
from syncline.sim.faults import Fault
from syncline.strategies.server.strategy import Mode, ServerStrategy, settle_mode
from syncline.sync import Asp, Bsp, Release, Ssp, SyncModel


def play(script: list[Action], first: SyncModel, others: tuple[SyncModel, ...], spaced: bool, **setup: Any) -> None:
    known = Setup((first, *others), rule=Remember(), mortal=True, **setup)
    BackedSchedule(known, spaced=spaced).play(script)


def under_each_model(examples: int, *kinds: Kind, servers: int, spaced: bool, **drawn: Any) -> Callable[..., None]:
    @pytest.mark.parametrize("model", MODELS, ids=repr)
    @runs(examples)
    @given(script=scripts(*kinds), release=releases, seed=seeds, window=windows, **drawn)
    def test(model: SyncModel, script: list[Action], **setup: Any) -> None:
        play(script, model, (model,) * (servers - 1), spaced, **setup)

    return test


def under_several_models(examples: int, *kinds: Kind, spaced: bool, **drawn: Any) -> Callable[..., None]:
    several = st.lists(models, min_size=1, max_size=2).map(tuple)

    @runs(examples)
    @given(script=scripts(*kinds), first=models, others=several, release=releases, seed=seeds, window=windows, **drawn)
    def test(script: list[Action], first: SyncModel, others: tuple[SyncModel, ...], **setup: Any) -> None:
        play(script, first, others, spaced, **setup)

    return test


test_servers_die = under_each_model(5, STEADY, KILLING, servers=2, spaced=True, patience=st.none())
test_one_after_another = under_each_model(5, STEADY, KILLING, servers=3, spaced=True, gate=gates)
test_several_at_once = under_each_model(5, STEADY, KILLING, servers=3, spaced=False, patience=st.none())

EVERYTHING = (STEADY, STEADY, UNSURE, MORTAL, COMING, CHANGING, MOVING, KILLING)
WITH = {"workers": st.integers(1, 4), "gate": gates, "blocks": blocks, "placement": placements}

test_everything = under_several_models(60, *EVERYTHING, spaced=True, **WITH)
test_everything_at_once = under_several_models(40, *EVERYTHING, spaced=False, **WITH)
test_everything_for_long = pytest.mark.slow(under_several_models(6000, *EVERYTHING, spaced=True, **WITH))
test_everything_at_once_for_long = pytest.mark.slow(under_several_models(6000, *EVERYTHING, spaced=False, **WITH))


# Whole runs in the simulator.


@st.composite
def crashes(draw: st.DrawFn, servers: int) -> tuple[Fault, ...]:
    """Servers die, return and join. There are always two, and time enough between two deaths."""
    there, following, at, found = set(range(servers)), servers, 0.0, list[Fault]()
    for _ in range(draw(st.integers(1, 3))):
        at += draw(st.sampled_from([1.5, 2.0, 2.25])) + draw(st.floats(0, 0.5))
        if len(there) < 4 and draw(st.booleans()):
            there.add(following)
            following += 1
            found.append(AddServer(at))
            at += draw(st.sampled_from([0.001, 0.5]))
        which = draw(st.sampled_from(sorted(there)))
        if len(there) > 2 and draw(st.booleans()):
            there.discard(which)
            found.append(CrashServer(at, which, draw(st.sampled_from([0.0, 0.1]))))
        else:
            found.append(CrashServer(at, which, draw(st.sampled_from([0.0, 0.1])), duration=0.4))
    return tuple(found)


@st.composite
def synchronous(draw: st.DrawFn) -> tuple[Scenario, Rule]:
    workers, iterations, servers = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(2, 3))
    model, mode = draw(st.sampled_from([Bsp(), Ssp(0)])), draw(st.sampled_from(Mode))
    on_servers = draw(st.sampled_from([Momentum(0.1), Adam(0.01)])) if mode is Mode.RULE else None
    chosen, rule = settle_mode(mode, on_servers, [model])
    lossy = draw(st.booleans())
    strategy = ServerStrategy(
        (model,) * servers,
        draw(st.sampled_from(Release)),
        chosen,
        rule,
        placement=draw(st.sampled_from([Elastic(), Uniform(), RoundRobin()])),
        bucket_values=draw(st.sampled_from([3, 10, 1000])),
        codec=draw(st.sampled_from(["topk:0.3", "int8"])) if lossy else "dense",
        reply_codec=draw(st.sampled_from(["dense", "int8"])) if lossy and chosen is Mode.GRADIENTS else "dense",
        backups=1,
    )
    rows = draw(st.lists(st.lists(seconds, min_size=6, max_size=6), min_size=workers, max_size=workers))
    apply = draw(st.sampled_from([None, 5000.0]))
    cluster = Cluster(workers, Trace(tuple(map(tuple, rows))), draw(links), apply)
    faults = draw(crashes(servers))
    if lossy:  # the buckets must stay as they are: a codec writes pieces of a bucket differently
        faults = (CrashServer(draw(st.floats(0.01, 8)), draw(st.integers(0, servers - 1))),)
    scenario = Scenario(cluster, strategy, iterations, faults=faults)
    return scenario, draw(st.sampled_from([Momentum(0.1), Momentum(0.05)]))


def check_undisturbed(scenario: Scenario, optimizer: Rule) -> None:
    """The final parameters are those of a run without backups in which no server died, to the bit.

    On slow links a server can die before the copies that it needs are complete; then the workers' copies are used, and
    what a rule remembers is lost.
    """
    plain = ServerStrategy(**{**_fields(scenario.strategy), "backups": 0})
    calm = Scenario(scenario.cluster, plain, scenario.iterations)
    disturbed, undisturbed = run(scenario, optimizer), run(calm, optimizer)
    assert disturbed.train_progress == scenario.iterations
    restored = (disturbed.restored or {}).get("restored_buckets")
    assert not restored or scenario.cluster.links is not None or scenario.cluster.apply is not None
    if not restored:
        assert disturbed.model_vector().tobytes() == undisturbed.model_vector().tobytes()


def _fields(strategy: Any) -> dict[str, Any]:
    return {field.name: getattr(strategy, field.name) for field in fields(strategy)}


@runs(40)
@given(synchronous())
def test_under_bsp_the_model_is_that_of_a_run_without_deaths_to_the_bit(case: tuple[Scenario, Rule]) -> None:
    check_undisturbed(*case)


@pytest.mark.slow
@runs(6000)
@given(synchronous())
def test_under_bsp_the_model_is_that_of_a_run_without_deaths_for_long(case: tuple[Scenario, Rule]) -> None:
    check_undisturbed(*case)


# Each of these mistakes must be found.


def _send_at_once(server: BackedShard, effects: list[Effect], out: list[Effect]) -> None:
    server._sent.keep(effects)
    out.extend(effects)


_take, _handle = Follower.take, Shard.handle


def _skip_some(follower: Follower, entry: LogEntry, payload: Payload | None) -> None:
    if follower.is_complete and entry.number % 5 == 3:
        follower.number = entry.number
    else:
        _take(follower, entry, payload)


def _acknowledge_early(server: BackedShard, event: Event, entry: LogEntry, out: list[Effect]) -> None:
    """The backup answers before it has handled the last event."""
    follower = server._followers.get(event.source.number)
    if follower is None or follower.since != entry.since:
        return
    waiting = getattr(follower, "waiting", None)
    if waiting is not None:
        _take(follower, *waiting)
    follower.waiting = (entry, event.payload)
    follower.number = entry.number
    server._acknowledge(event.source, follower, out)


def _pack_only(shard: Shard, now: float, out: list[Effect]) -> list[tuple[Handover, Payload]]:
    return [pack(bucket, name, shard.terms) for name, bucket in shard.buckets.items()]


def _only_new(sent: SentHandovers, view: Any, *, everything: bool) -> list[Send]:
    return [each for each in _again(sent, view, everything=everything) if everything]


_again = SentHandovers.again

MISTAKES: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "an answer leaves before the backup has the event": (BackedShard, "_send", _send_at_once),
    "the backup skips an event": (Follower, "take", _skip_some),
    "the backup answers before it has read the payload": (BackedShard, "_follow", _acknowledge_early),
    "nobody sends a handover again": (SentHandovers, "again", _only_new),
    "the server keeps its own state when a log begins": (Shard, "renew", _pack_only),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_protocol_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])

    @settings(
        deadline=None,
        max_examples=3000,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        script=scripts(STEADY, STEADY, MOVING, KILLING),
        model=st.sampled_from([Asp(), Ssp(1), MODELS[-1]]),
        workers=st.integers(2, 4),
        blocks=blocks,
        gate=gates,
    )
    def check(script: list[Action], model: SyncModel, **setup: Any) -> None:
        play(script, model, (model,), True, **setup)

    with pytest.raises((AssertionError, PeerError, KeyError)):
        check()
