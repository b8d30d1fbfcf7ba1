"""Computing beside sending, worked out by hand.

A step takes 3 s: 1 s forward and 2 s backward. A link carries a bucket in 1 s, and a server takes 4 s to apply one, if
that is asked for. In the timelines `B 2.5-3.5` is bucket B on a link from 2.5 to 3.5.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from syncline.cli.config import read_config
from syncline.cli.main import main
from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import BUCKET_VALUES, Bucket, Layout
from syncline.messages import COORDINATOR, server_id, worker_id
from syncline.placement import Placement, RoundRobin
from syncline.sim import Cluster, MadeUp, Outcome, Scenario, World
from syncline.sim.agenda import Agenda
from syncline.sim.compute import Trace
from syncline.sim.experiment import read_experiment
from syncline.sim.faults import Crash, Fault, Freeze, Leave, Slow
from syncline.sim.link_turns import network_of
from syncline.sim.network import Links, Transfer
from syncline.sim.overlap import Overlap, departures, shares_of, starts
from syncline.sim.problem import Layers
from syncline.spec import parse
from syncline.strategies.server.strategy import ServerStrategy, settle_mode

BUCKET = float(BUCKET_VALUES * 4)
EVEN = Layout.of([("A", (BUCKET_VALUES,)), ("B", (BUCKET_VALUES,))])
LARGE_B = Layout.of([("A", (BUCKET_VALUES,)), ("B", (2, BUCKET_VALUES))])
SHARES = (0.25, 0.75)


def simulate(
    overlap: str,
    iterations: int,
    layout: Layout = EVEN,
    *,
    workers: int = 1,
    servers: int = 1,
    sync: str = "bsp",
    apply: float | None = None,
    colocated: bool = False,
    placement: Placement | None = None,
    faults: tuple[Fault, ...] = (),
    turn: int | None = None,
    handling: float = 0.0,
) -> Outcome:
    models = (parse("sync", sync),) * servers
    mode, rule = settle_mode(None, None, models)
    cluster = Cluster(
        workers, Trace(((3.0,) * iterations,) * workers), Links(BUCKET, turn=turn), apply, colocated, handling
    )
    strategy = ServerStrategy(models, mode=mode, rule=rule, placement=placement or RoundRobin())
    scenario = Scenario(cluster, strategy, iterations, faults=faults, overlap=Overlap(overlap))
    return World(scenario, Layers(layout, SHARES, Draw(0)), spans=True).run()


def finish(outcome: Outcome) -> float:
    """To a billionth of a second: thirds are not exact."""
    return round(outcome.virtual_seconds, 9)


# One worker.


@pytest.mark.parametrize("n", [1, 2, 5])
def test_without_overlap_all_leaves_when_the_step_is_done(n: int) -> None:
    # Up: B 3-4, A 4-5. Down: B 4-5, A 5-6.
    assert finish(simulate("none", n)) == 6 * n


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_bucket_leaves_when_backward_has_left_its_tables(n: int) -> None:
    # Forward 0-1; backward: B 1-2.5, A 2.5-3. Up: B 2.5-3.5, A 3.5-4.5. Down: B 3.5-4.5, A 4.5-5.5.
    assert finish(simulate("backward", n)) == 5.5 * n


@pytest.mark.parametrize("n", [1, 2, 5])
def test_forward_gains_nothing_while_the_first_table_is_answered_last(n: int) -> None:
    assert finish(simulate("forward", n)) == 5.5 * n


APPLY = BUCKET / 4


@pytest.mark.parametrize("n", [1, 2, 5])
def test_forward_goes_on_with_the_first_table_while_the_second_is_under_way(n: int) -> None:
    # A has one bucket, at server 0, and B two, C and D, at server 1.
    # none: up D 3-4, C 4-5, A 5-6; applied D 4-8, C 8-12, A 6-10; down D 8-9, A 10-11, C 12-13.
    assert finish(simulate("none", n, LARGE_B, servers=2, apply=APPLY)) == 13 * n
    # backward: up D 2.5-3.5, C 3.5-4.5, A 4.5-5.5; applied D 3.5-7.5, C 7.5-11.5, A 5.5-9.5; down D 7.5-8.5,
    # A 9.5-10.5, C 11.5-12.5.
    assert finish(simulate("backward", n, LARGE_B, servers=2, apply=APPLY)) == 12.5 * n
    # forward: the next step's forward pass of A is 10.5-10.75, then it waits for C until 12.5 and has only B to do: it
    # turns 12.25 after it turned before.
    outcome = simulate("forward", n, LARGE_B, servers=2, apply=APPLY)
    assert finish(outcome) == 12.5 + 12.25 * (n - 1)
    assert outcome.compute_seconds == pytest.approx(3 * n)
    spans = [(span.start, span.stop) for span in outcome.spans or () if span.what == "compute"]
    if n == 2:
        assert spans == [pytest.approx(each) for each in [(0, 3), (10.5, 10.75), (12.5, 15.25)]]


def test_a_bucket_across_tables_waits_for_the_first_of_them() -> None:
    # One bucket: it is there when backward is done, and is all that forward waits for.
    layout = Layout.of([("A", (BUCKET_VALUES // 4,)), ("B", (BUCKET_VALUES * 3 // 4,))])
    for overlap in Overlap:
        assert finish(simulate(overlap, 4, layout, placement=parse("placement", "elastic"))) == 5 * 4


def test_pieces_of_one_table_leave_together_last_first() -> None:
    found = starts(LARGE_B, SHARES, [Bucket(0, 9), Bucket(BUCKET_VALUES, 2 * BUCKET_VALUES), Bucket(600_000, 786_432)])
    assert found == [0.0, 0.25, 0.25]
    a, c, d = Bucket(0, 5), Bucket(5, 6), Bucket(6, 7)
    assert [(each.share, each.buckets) for each in departures([0.0, 0.25, 0.25], [a, c, d])] == [
        (0.75, ((2, d), (1, c))),
        (1.0, ((0, a),)),
    ]


def test_without_shares_tables_count_by_their_sizes() -> None:
    assert shares_of(MadeUp(100, Draw(0))) == [1.0]
    assert shares_of(Layers(LARGE_B, SHARES, Draw(0))) == list(SHARES)

    class Unknown:
        layout = LARGE_B

    problem: Any = Unknown()
    assert shares_of(problem) == pytest.approx([1 / 3, 2 / 3])


# Accidents.


def test_a_freeze_in_the_backward_pass_delays_what_has_not_left() -> None:
    # B is ready at 2.5; frozen from 2.75 to 4.75, so A is ready at 5: up 5-6, down 6-7. B's answer, there at 4.5, is
    # taken in at 4.75.
    assert finish(simulate("backward", 1, faults=(Freeze(2.75, 0, 2.0),))) == 7
    # Frozen in the forward pass, all comes two seconds later; and not at all by one that begins while it only waits.
    assert finish(simulate("backward", 1, faults=(Freeze(0.5, 0, 2.0),))) == 7.5
    assert finish(simulate("backward", 1, faults=(Freeze(3.25, 0, 1.0),))) == 5.5


def test_a_freeze_while_forward_waits_in_the_middle_costs_nothing() -> None:
    found = simulate("forward", 2, LARGE_B, servers=2, apply=APPLY, faults=(Freeze(11.0, 0, 1.0),))
    assert finish(found) == 24.75


def test_a_step_that_begins_early_is_slowed_from_its_own_begin_on() -> None:
    # Slowed after the second step has begun: only the third step takes 6 s. Its forward pass of A is 22.75-23.25, then
    # it waits for C until 24.75; forward B 1.5, backward B 3: C and D leave at 29.25, A at 30.25. Applied C until
    # 29.25 + 1 + 4 + 4, down 1.
    found = simulate("forward", 3, LARGE_B, servers=2, apply=APPLY, faults=(Slow(11.0, 0, 2.0),))
    assert finish(found) == 24.75 + 1.5 + 3 + 1 + 4 + 4 + 1


def test_a_worker_that_leaves_does_not_begin_another_step() -> None:
    outcome = simulate("forward", 5, LARGE_B, servers=2, apply=APPLY, faults=(Leave(9.0, 0),))
    assert finish(outcome) == 12.5
    assert outcome.compute_seconds == pytest.approx(3)


@pytest.mark.parametrize("at", [0.5, 2.6, 11.0])
def test_a_crash_ends_what_was_under_way(at: float) -> None:
    outcome = simulate("forward", 2, LARGE_B, workers=2, servers=2, apply=APPLY, faults=(Crash(at, 0),))
    assert outcome.train_progress == 2
    assert len([span for span in outcome.spans or () if span.worker == 0 and span.what == "compute"]) <= 1


# Nothing is lost, nothing comes twice.


@pytest.mark.parametrize("sync", ["bsp", "asp", "ssp:2", "drop:2"])
@pytest.mark.parametrize("overlap", ["none", "backward", "forward"])
def test_every_update_is_taken_once(sync: str, overlap: str) -> None:
    outcome = simulate(overlap, 6, LARGE_B, workers=3, servers=2, sync=sync)
    assert outcome.updates + outcome.dropped_updates == 3 * 6 * 2
    if sync == "bsp":
        assert outcome.replica_gap == 0
    again = simulate(overlap, 6, LARGE_B, workers=3, servers=2, sync=sync)
    assert again.trace_sha256 == outcome.trace_sha256


def test_overlap_does_not_change_what_bsp_computes() -> None:
    finals = [simulate(overlap, 4, LARGE_B, workers=3, servers=2).model_vector() for overlap in Overlap]
    assert all((some == others).all() for some, others in pairwise(finals))


# Hosts.


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_worker_and_a_server_on_one_host(n: int) -> None:
    # A is at server 0 and B at server 1, each beside a worker. All leaves at 3. Worker 0: A is there at once, B 3-4 to
    # host 1; worker 1 the other way round. Both rounds close at 4; the answer to the other host takes until 5.
    assert finish(simulate("none", n, workers=2, servers=2, colocated=True)) == 5 * n


@pytest.mark.parametrize("n", [1, 2])
def test_a_server_without_a_worker_of_its_number_has_its_own_host(n: int) -> None:
    # Server 1 is alone: B 3-4 up, 4-5 down. A needs no link.
    assert finish(simulate("none", n, servers=2, colocated=True)) == 5 * n
    assert finish(simulate("none", n, servers=1, colocated=True)) == 3 * n


def test_two_workers_beside_two_servers_with_overlap() -> None:
    # Worker 0: B leaves at 2.5, is at host 1 at 3.5; A is local at 3. Worker 1: B is local at 2.5, A leaves at 3 and is
    # at host 0 at 4. B closes at 3.5: local for worker 1, but host 1's link is taken by A until 4, so it is at worker 0
    # at 5. A closes at 4: local for worker 0, at worker 1 at 5.
    assert finish(simulate("backward", 1, workers=2, servers=2, colocated=True)) == 5


class Hosts:
    """Sends messages at time 0, of which a byte takes a second, and notes when they arrive."""

    def __init__(self, turn: int | None = None, colocated: bool = True) -> None:
        self.agenda = Agenda()
        self.network: Any = network_of(
            self.agenda, Links(1.0, 0.5, turn), (lambda node: node.number) if colocated else None
        )
        self.arrived: dict[str, float] = {}

    def send(self, name: str, sender: Any, receiver: Any, size: int = 1) -> None:
        self.network.send(Transfer(sender, receiver, 0, size, self._note, name, None))

    def _note(self, name: str, _: None) -> None:
        self.arrived[name] = self.agenda.now


@pytest.mark.parametrize("turn", [None, 1, 5])
def test_a_host_has_one_link_and_needs_none_within(turn: int | None) -> None:
    hosts = Hosts(turn)
    hosts.send("first", worker_id(0), server_id(1))
    hosts.send("second", server_id(0), worker_id(1))
    hosts.send("within", server_id(0), worker_id(0))
    hosts.send("control", COORDINATOR, worker_id(0))
    hosts.agenda.drain()
    assert hosts.arrived == {"within": 0.0, "first": 1.5, "second": 2.5, "control": 1.5}
    assert hosts.network.busiest()[0] == 2.0


@pytest.mark.parametrize("turn", [None, 1, 5])
def test_a_worker_that_crashes_takes_nothing_of_its_server_along(turn: int | None) -> None:
    hosts = Hosts(turn)
    for name, sender in (("begun", worker_id(0)), ("lost", worker_id(0)), ("kept", server_id(0))):
        hosts.send(name, sender, worker_id(1))
    hosts.agenda.run(3)
    hosts.network.forget(worker_id(0))
    hosts.agenda.drain()
    assert hosts.arrived == {"begun": 1.5, "kept": 2.5}


# Turns.


def test_a_small_message_waits_for_a_turn_not_for_a_large_message() -> None:
    # Turns of 2: L 0-2, S 2-3, L 3-5, L 5-7; a second one on L's connection follows when L is done.
    hosts = Hosts(2, colocated=False)
    hosts.send("large", server_id(0), worker_id(1), 6)
    hosts.send("small", server_id(0), worker_id(2))
    hosts.send("next", server_id(0), worker_id(1))
    hosts.agenda.drain()
    assert hosts.arrived == {"small": 3.5, "large": 7.5, "next": 8.5}
    assert hosts.network.busiest()[0] == 8.0


def test_what_two_send_to_one_comes_in_turns_as_well() -> None:
    # Both send 0-2 and 2-4; the receiver takes the first halves 0.5-2.5 and 2.5-4.5, then the second ones: 6.5 and 8.5.
    hosts = Hosts(2, colocated=False)
    hosts.send("one", worker_id(0), server_id(0), 4)
    hosts.send("other", worker_id(1), server_id(0), 4)
    hosts.agenda.drain()
    assert hosts.arrived == {"one": 6.5, "other": 8.5}


def test_a_message_that_is_half_sent_is_not_lost_in_a_crash() -> None:
    hosts = Hosts(2, colocated=False)
    hosts.send("begun", worker_id(0), server_id(0), 4)
    hosts.send("lost", worker_id(0), server_id(0), 4)
    hosts.send("lost too", worker_id(0), server_id(1), 4)
    hosts.agenda.at(1.0, 0, lambda network, node: network.forget(node), hosts.network, worker_id(0))
    hosts.agenda.drain()
    assert hosts.arrived == {"begun": 4.5}


def test_a_link_that_was_forgotten_serves_again() -> None:
    hosts = Hosts(2, colocated=False)
    hosts.send("begun", worker_id(0), server_id(0), 2)
    hosts.send("lost", worker_id(0), server_id(1), 2)
    hosts.agenda.run(2)
    hosts.network.forget(worker_id(0))
    hosts.send("again", worker_id(0), server_id(1), 3)
    hosts.agenda.drain()
    assert hosts.arrived == {"begun": 2.5, "again": 5.5}


def test_a_turn_as_long_as_any_message_changes_nothing_on_links_with_one_connection() -> None:
    finals = [simulate("forward", 4, LARGE_B, servers=1, turn=turn) for turn in (None, 1 << 30)]
    assert finals[0].trace_sha256 == finals[1].trace_sha256


# Processors.


@pytest.mark.parametrize("n", [1, 2, 5])
def test_each_message_that_comes_in_takes_its_time_one_after_another(n: int) -> None:
    # Handling takes 1.5 s. Up: B 3-4, A 4-5; handled B 4-5.5, A 5.5-7; down: B 5.5-6.5, A 7-8; handled B 6.5-8,
    # A 8-9.5.
    assert finish(simulate("none", n, handling=1.5)) == 9.5 * n
    # And 4 s more for an update that is applied: B 4-9.5, A 9.5-15; down B 9.5-10.5, A 15-16; handled B 10.5-12,
    # A 16-17.5.
    assert finish(simulate("none", n, handling=1.5, apply=APPLY)) == 17.5 * n


def test_nodes_of_one_host_share_its_processor() -> None:
    # No link is needed. Both updates come in at 3: handled B 3-4, A 4-5. B's answer comes in at 4, while A is handled:
    # it is done at 6, and that of A, which comes in at 5, at 7.
    assert finish(simulate("none", 1, colocated=True, handling=1.0)) == 7


def test_answers_wait_for_a_frozen_worker_once() -> None:
    # As above until 6.5 and 8, but frozen until 9: then both, which have been handled, are taken in, A at 9.5.
    assert finish(simulate("none", 1, handling=1.5, faults=(Freeze(6.0, 0, 3.0),))) == 9.5
    assert finish(simulate("none", 1, handling=1.5, faults=(Freeze(6.0, 0, 5.0),))) == 11


# The file.


def read(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "run.toml"
    file.write_text(text)
    return read_experiment(file)


def test_the_settings_are_read_and_shown(tmp_path: Path) -> None:
    experiment = read(
        tmp_path,
        '[cluster]\nworkers = 2\ncolocated = true\n[network]\nbandwidth = "1Gbit"\nturn = "64KiB"\nhandling = "0.1ms"\n'
        '[model]\nlayers = "resnet56"\n[strategy]\noverlap = "forward"\n',
    )
    assert experiment.scenario.overlap is Overlap.FORWARD
    assert experiment.scenario.cluster.colocated
    assert experiment.scenario.cluster.links == Links(125e6, 0.0, 65_536)
    assert experiment.scenario.cluster.handling == 1e-4
    assert experiment.model.layers == "resnet56"
    shown = {setting.key: (setting.value, setting.origin) for setting in experiment.settings}
    assert shown["cluster.colocated"] == ("true", "file")
    assert shown["strategy.overlap"] == ("forward", "file")
    assert shown["model.layers"] == ("resnet56", "file")
    assert "model.parameters" not in shown


@pytest.mark.parametrize(
    ("text", "option", "hint"),
    [
        ('[strategy]\noverlap = "backwards"', "strategy.overlap", "none, backward, forward"),
        ('[strategy]\noverlap = "forward"\n[dispatch]', "strategy.overlap", "no clock"),
        ('[network]\nbandwidth = "1Gbit"\nturn = "0.1B"', "network.turn", "at least 1B"),
        ('[network]\nhandling = "fast"', "network.handling", "is not a time"),
        ('[network]\nlatency = 1\nturn = "1MiB"', "network.turn", "network.bandwidth"),
        ('[model]\nlayers = "resnet56"\nparameters = 5', "model.parameters", "a list of layers"),
        ('[model]\nlayers = "resnet56"\nrecipe = "digits-mlp"', "model.layers", "a recipe"),
    ],
)
def test_invalid_settings_are_refused_by_their_key(tmp_path: Path, text: str, option: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint) as caught:
        read(tmp_path, f"[cluster]\nworkers = 2\n{text}\n")
    assert caught.value.option == option


def test_one_host_without_a_link_makes_no_sense(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"network\.bandwidth") as caught:
        read(tmp_path, "[cluster]\nworkers = 2\ncolocated = true\n")
    assert caught.value.option == "cluster.colocated"


def test_a_real_run_heeds_the_file_but_for_what_is_the_simulators(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[cluster]\nworkers = 2\ncolocated = true\n[strategy]\nsync = "asp"\noverlap = "forward"\n')
    config = read_config(file)
    assert config.settings == {"sync": "asp"}
    assert config.ignored == ("cluster.colocated", "strategy.overlap")


def test_a_layer_list_that_does_not_exist_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[cluster]\nworkers = 2\n[model]\nlayers = "resnet57"\n')
    monkeypatch.setattr(sys, "argv", ["syncline", "simulate", str(file)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert "model.layers" in shown.err
    assert "settings" not in shown.out
