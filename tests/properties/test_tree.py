"""Properties of the tree strategy over random trees, schedules, crashes, losses and reconfigurations.

The invariants stand in `tree_schedule.py`: no replica contains an update twice; a replica never lacks what it had, if
nothing that was not stored is lost; the bounds hold; at rest all replicas are equal, and contain all that was pushed.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.codecs import Int8, TopK
from tree_schedule import TreeCase, TreeSchedule, play

COMMON = {
    "seed": st.integers(0, 1 << 32),
    "nodes": st.integers(1, 7),
    "workers": st.integers(1, 5),
    "steps": st.integers(1, 3),
    "buckets": st.sampled_from([1, 1, 2]),
    "lossy": st.booleans(),
    "hurry": st.sampled_from([0.2, 1.0]),
}
FEW = st.integers(0, 2)
PLANNED = {"reshapes": FEW, "leaves": FEW, "merges": FEW, "absorbs": FEW, "adds": FEW}
WORKERS = {"deaths": FEW, "joins": FEW}


@settings(max_examples=60)
@given(case=st.builds(TreeCase, **COMMON, **PLANNED))
def test_planned_changes_take_nothing_from_any_replica(case: TreeCase) -> None:
    play(case)


@settings(max_examples=60)
@given(case=st.builds(TreeCase, **COMMON, durable=st.just(True), crashes=st.integers(1, 4), **PLANNED, **WORKERS))
def test_what_a_durable_run_has_acknowledged_survives_crashes(case: TreeCase) -> None:
    play(case)


@settings(max_examples=60)
@given(case=st.builds(TreeCase, **COMMON, crashes=FEW, losses=FEW, copies=st.booleans(), **PLANNED, **WORKERS))
def test_replicas_agree_after_all_that_can_happen(case: TreeCase) -> None:
    play(case)


@settings(max_examples=60)
@given(
    case=st.builds(
        TreeCase,
        **COMMON,
        durable=st.just(True),
        copies=st.just(True),
        crashes=FEW,
        losses=st.integers(1, 2),
        **PLANNED,
        **WORKERS,
    )
)
def test_copies_replace_lost_nodes(case: TreeCase) -> None:
    play(case)


@settings(max_examples=60)
@given(
    case=st.builds(
        TreeCase,
        **COMMON,
        consistency=st.sampled_from(["eventual", "ssp:2", "bsp"]),
        durable=st.just(True),
        shared=st.just(True),
        crashes=FEW,
        losses=st.integers(1, 3),
        **PLANNED,
        **WORKERS,
    )
)
def test_checkpoints_in_a_shared_directory_replace_lost_nodes(case: TreeCase) -> None:
    schedule = play(case)
    assert not schedule.coordinator.lost_origins


@settings(max_examples=60)
@given(
    case=st.builds(
        TreeCase,
        **COMMON,
        consistency=st.sampled_from(["ssp:1", "ssp:3", "approximate:1", "approximate:4"]),
        durable=st.booleans(),
        crashes=FEW,
        **PLANNED,
        **WORKERS,
    )
)
def test_no_worker_passes_the_bound(case: TreeCase) -> None:
    play(case)


@settings(max_examples=30)
@given(
    case=st.builds(
        TreeCase, **COMMON, codec=st.sampled_from([TopK(0.2), Int8()]), durable=st.booleans(), crashes=FEW, **PLANNED
    )
)
def test_codecs_lose_nothing(case: TreeCase) -> None:
    play(case)


@settings(max_examples=150)
@given(
    case=st.builds(
        TreeCase,
        **COMMON,
        consistency=st.just("bsp"),
        durable=st.just(True),
        copies=st.booleans(),
        crashes=FEW,
        losses=FEW,
        **PLANNED,
        **WORKERS,
    )
)
def test_rounds_are_those_of_synchronous_sgd(case: TreeCase) -> None:
    play(case)


@pytest.mark.parametrize("seed", range(3))
def test_thirty_nodes(seed: int) -> None:
    consistency = ("eventual", "ssp:2", "bsp")[seed]
    play(TreeCase(seed, 30, 12, 2, 1, consistency, True, True, crashes=4, reshapes=2, merges=2, leaves=3, adds=2))


@pytest.mark.slow
@settings(max_examples=3000)
@given(
    case=st.builds(
        TreeCase,
        **COMMON,
        consistency=st.sampled_from(["eventual", "ssp:2", "approximate:3"]),
        durable=st.booleans(),
        copies=st.booleans(),
        crashes=FEW,
        losses=FEW,
        **PLANNED,
        **WORKERS,
    )
    | st.builds(
        TreeCase,
        **COMMON,
        consistency=st.just("bsp"),
        durable=st.just(True),
        copies=st.booleans(),
        crashes=FEW,
        losses=FEW,
        **PLANNED,
        **WORKERS,
    )
)
def test_all_that_can_happen_for_long(case: TreeCase) -> None:
    play(case)


ALL = {"durable": True, "copies": True, "lossy": True, "crashes": 2, "reshapes": 2, "leaves": 1, "merges": 1, "adds": 1}
FOUND = {
    "a keeper that leaves and is the only one to have a copy stays": TreeCase(
        697, 5, 2, 3, hurry=1, losses=1, **ALL
    ),
    "a node that was to take an origin over, and moved on without it, cannot give it": TreeCase(
        736, 4, 5, 2, hurry=1, losses=1, **ALL
    ),
    "what waits for a copy is shown when no copy is wanted any more": TreeCase(16, 1, 3, 1, hurry=1, losses=1, **ALL),
    "a copy and a checkpoint contain what a node has still to give": TreeCase(
        6155, 6, 1, 1, durable=True, copies=True, crashes=2, reshapes=1, merges=1, leaves=2, losses=1, hurry=1
    ),
    "a joiner's first iteration is part of its node's clock": TreeCase(
        212, 3, 5, 3, 2, "ssp:1", durable=True, crashes=3, deaths=1, joins=1, hurry=1
    ),
    "a worker does not send again what was acknowledged for one bucket, and lost with its node": TreeCase(
        616, 3, 5, 3, 2, "ssp:2", copies=True, lossy=True, crashes=2, leaves=1, losses=2, adds=2, deaths=1, joins=1,
        hurry=1,
    ),
    "an origin is taken over when the copy has it too": TreeCase(
        211, 5, 2, 1, 2, "ssp:2", copies=True, crashes=2, reshapes=2, leaves=1, merges=1, adds=1, losses=1, deaths=1,
        joins=1, hurry=1,
    ),
    "a late answer of a node that served the worker before does no harm": TreeCase(
        117, 2, 3, 3, lossy=True, leaves=2, reshapes=3, merges=2, adds=2, hurry=1
    ),
    "bsp: a replica that has just arrived is newer than that of the node that gives it on": TreeCase(
        20944, 2, 2, 2, 1, "bsp", True, True, crashes=3, leaves=2, losses=2, reshapes=2, merges=2, adds=1, hurry=1
    ),
    "bsp: a round without pushes ends if a worker is beyond it": TreeCase(
        136, 1, 2, 2, 2, "bsp", True, lossy=True, leaves=2, losses=2, reshapes=2, merges=1, adds=2, deaths=2, hurry=1
    ),
    "bsp: both sides have the round, and the node between them does not": TreeCase(
        103, 3, 2, 2, 2, "bsp", True, True, True, crashes=2, reshapes=1, merges=1, adds=2, hurry=0.2
    ),
    "bsp: a checkpoint has a replica for the node, and others for what it gives": TreeCase(
        5782, 3, 1, 3, 2, "bsp", True, True, crashes=2, leaves=2, reshapes=2, merges=1, deaths=1, joins=2, hurry=1
    ),
    "an orphan whose holder is lost too is an orphan of the next holder": TreeCase(
        133, 5, 3, 1, 2, "ssp:2", copies=True, lossy=True, crashes=2, losses=2, merges=1, absorbs=2, adds=2, deaths=2,
        joins=1, hurry=1,
    ),
    "a node is lost that has stored an origin, and its giver has forgotten it before the coordinator knows": TreeCase(
        595, 2, 5, 3, 2, "bsp", True, shared=True, losses=2, leaves=1, reshapes=2, merges=2, adds=2, joins=1, hurry=1
    ),
    "the same with ssp, and crashes": TreeCase(
        1401, 7, 1, 3, 1, "ssp:2", True, shared=True, losses=3, crashes=2, leaves=2, reshapes=1, absorbs=1, adds=2,
        deaths=2, joins=2, hurry=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", FOUND)
def test_schedules_that_once_failed(why: str) -> None:
    schedule = play(FOUND[why])
    assert not (schedule.case.shared and schedule.coordinator.lost_origins)


@pytest.mark.parametrize("seed", range(5))
def test_a_node_that_starts_again_takes_the_copy_if_that_is_newer_than_its_checkpoint(seed: int) -> None:
    schedule = play(TreeCase(seed, buckets=2, copies=True, checkpoint=False, crashes=1, hurry=0))
    before = {name: schedule.nodes[0].node.buckets[name].theta for name in schedule.names}
    assert any(values.any() for values in before.values())
    for number in sorted(schedule.coordinator.servers):  # one after another: a keeper has its copies in memory
        schedule._crash(schedule.nodes[number])
        assert not schedule.disk[number]
        schedule.play()
    for process in schedule.nodes.values():
        for name in schedule.names:
            assert np.array_equal(process.node.buckets[name].theta, before[name])


def test_float32_stays_close_to_the_oracle() -> None:
    """Many updates of any size: at rest every replica is within 1e-5 of the largest value."""
    schedule = TreeSchedule(TreeCase(1, nodes=6, workers=6, steps=1))
    random = np.random.default_rng(3)
    node = schedule.nodes[0].node
    total = np.zeros(schedule.slots)
    bucket = node.buckets[schedule.names[0]]
    for _ in range(20_000):
        update = random.normal(size=schedule.slots) * 10.0 ** random.integers(-6, 3)
        total += update.astype(np.float32)
        bucket._take_update(0, _push(bucket), update.astype(np.float32).astype(np.float64), 0.0)
    effects: list[object] = []
    bucket.advance(1e6, effects)  # type: ignore[arg-type]
    schedule._perform(schedule.nodes[0].id, effects, schedule.nodes[0])  # type: ignore[arg-type]
    for worker in schedule.workers.values():
        worker.alive = worker.computing = False
        worker.told = True
    while actions := schedule._actions():
        schedule.random.choice(actions)()
    for process in schedule.nodes.values():
        replica = process.node.buckets[schedule.names[0]].shown()
        assert np.abs(replica - total).max() <= 1e-5 * np.abs(total).max()


def _push(bucket: object) -> object:
    from syncline.messages import Push

    held = bucket.held  # type: ignore[attr-defined]
    return Push(0, 0, held.progress(0, 0) + 1, bucket.name, 0)  # type: ignore[attr-defined]
