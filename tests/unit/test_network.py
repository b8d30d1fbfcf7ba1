"""Links and processing rates, worked out by hand.

The rule: a message starts when the sender's link is free and ends at max(sender's end + latency, receiver's link free +
bytes / bandwidth). `apply`: one push at a time.

In the formulas  n: iterations,  N: workers,  c: seconds to compute,  t: seconds of one bucket on a link,  L: latency,
a: seconds to apply one bucket. A bucket is 1 MiB and a link 1 MiB/s, so t = 1; all numbers are binary fractions, and
all sums of them exact.
"""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from syncline.draw import Draw
from syncline.layout import BUCKET_VALUES
from syncline.messages import server_id, worker_id
from syncline.sim import Cluster, MadeUp, Outcome, Scenario, World
from syncline.sim.agenda import Agenda
from syncline.sim.compute import Trace
from syncline.sim.network import Links, Network, Transfer
from syncline.strategies.server.strategy import ServerStrategy, settle_mode
from syncline.sync import Asp, Bsp, SyncModel

MIB = float(1 << 20)
c, t, L = 0.5, 1.0, 0.25


def simulate(
    workers: int,
    iterations: int,
    *,
    servers: int = 1,
    buckets: int = 1,
    model: SyncModel | None = None,
    links: Links | None = None,
    apply: float | None = None,
) -> Outcome:
    sync = (model or Bsp(),) * servers
    mode, rule = settle_mode(None, None, sync)
    cluster = Cluster(workers, Trace(((c,) * iterations,) * workers), links, apply)
    scenario = Scenario(cluster, ServerStrategy(sync, mode=mode, rule=rule), iterations)
    return World(scenario, MadeUp(buckets * BUCKET_VALUES, Draw(0))).run()


WIRE = Links(MIB / t, L)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_one_worker_and_one_server(n: int) -> None:
    # Push: starts at c, has left at c + t, is there at c + t + L. The answer takes as long. So each iteration takes
    # c + 2t + 2L; both links are idle in between.
    outcome = simulate(1, n, links=WIRE)
    assert outcome.virtual_seconds == n * (c + 2 * t + 2 * L)
    assert outcome.waiting_seconds == 0
    assert outcome.bytes_pushed == outcome.bytes_pulled == n * MIB


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("N", [2, 4, 9])
def test_the_link_of_one_server(N: int, n: int) -> None:
    # Round 0: all push at c. The server's link takes them one after another: worker k is in at c + (k+1)t + L, so the
    # round closes at T0 = c + Nt + L. The answers leave one after another: worker k has its own at T0 + (k+1)t + L.
    # Round r + 1: worker k pushes at Tr + (k+1)t + L + c, just when the server's link is done with worker k-1, and is
    # in at Tr + (k+2)t + 2L + c. So T(r+1) = Tr + (N+1)t + 2L + c. The last answer of the last round: T(n-1) + Nt + L.
    outcome = simulate(N, n, links=WIRE)
    assert outcome.virtual_seconds == (c + N * t + L) + (n - 1) * (c + (N + 1) * t + 2 * L) + (N * t + L)
    assert outcome.bottleneck == "link:server0"
    # In every round worker k is parked for the N-1-k transfers behind its own; the last one is answered at once.
    assert outcome.waiting_seconds == n * t * N * (N - 1) / 2
    assert outcome.delayed_pulls == n * (N - 1)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("N", [2, 4, 9])
def test_two_servers(N: int, n: int) -> None:
    # Each server holds half a bucket: h = t/2. A worker sends to server 1 first (last layers first), then to server 0.
    # Round 0: server 1 has worker k's half at c + (k+1)h + L, server 0 one h later: server 0 closes at
    # T0 = c + (N+1)h + L, server 1 at T0 - h. Worker k has server 1's half at T0 + kh + L, server 0's at
    # T0 + (k+1)h + L. Round r + 1: it pushes at Tr + (k+1)h + L + c; server 1 has that h + L later, server 0 2h + L
    # later: T(r+1) = Tr + (N+2)h + 2L + c. The last answer: T(n-1) + Nh + L.
    h = t / 2
    outcome = simulate(N, n, servers=2, links=WIRE)
    assert outcome.virtual_seconds == (c + (N + 1) * h + L) + (n - 1) * (c + (N + 2) * h + 2 * L) + (N * h + L)
    assert outcome.virtual_seconds < simulate(N, n, links=WIRE).virtual_seconds
    # Worker k < N-1 waits from its arrival at server 1 to server 0's close: (N-k)h. The last one never waits.
    assert outcome.waiting_seconds == n * h * (N * (N + 1) / 2 - 1)
    assert outcome.delayed_pulls == 2 * n * (N - 1)


def test_two_servers_halve_the_time_of_many_workers() -> None:
    # As N grows the ratio tends to (N+1)t : (N+2)t/2.
    one, two = (simulate(64, 20, servers=servers, links=WIRE) for servers in (1, 2))
    assert one.virtual_seconds / two.virtual_seconds == pytest.approx(2, rel=0.05)
    assert one.bottleneck == "link:server0"
    assert two.bottleneck in ("link:server0", "link:server1")


def test_a_gigabit_link() -> None:
    # The same with "1Gbit" and 0.1 ms: t = 8 * 2^20 / 10^9 s, no binary fraction.
    N, n, gigabit, latency = 16, 10, 1e9 / 8, 1e-4
    bucket = MIB / gigabit
    outcome = simulate(N, n, links=Links(gigabit, latency))
    by_hand = c + 2 * N * bucket + 2 * latency + (n - 1) * (c + (N + 1) * bucket + 2 * latency)
    assert outcome.virtual_seconds == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("N", [1, 2, 4])
def test_latency_only(N: int) -> None:
    # No link is ever busy: every iteration takes c + 2L, with any number of workers.
    outcome = simulate(N, 5, links=Links(inf, L))
    assert outcome.virtual_seconds == 5 * (c + 2 * L)
    assert outcome.waiting_seconds == 0


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("N", [1, 2, 4])
def test_apply_only(N: int, n: int) -> None:
    # Messages take no time: all arrive at c and are handled at c + a, ..., c + Na; then all go on at once.
    a = 2.0
    outcome = simulate(N, n, apply=MIB / a)
    assert outcome.virtual_seconds == n * (c + N * a)
    assert outcome.bottleneck == "apply:server0"
    # The first is handled at c + a and parked for (N-1)a, and so on.
    assert outcome.waiting_seconds == n * a * N * (N - 1) / 2


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("N", [2, 4])
def test_apply_slower_than_the_link(N: int, n: int) -> None:
    # a > t: from the first arrival on the server is never idle. Round 0: first in at c + t + L, closed at
    # T0 = c + t + L + Na. Worker 0 has its answer at T0 + t + L, its next push is in at T0 + 2t + 2L + c, and worker
    # k's k t later, while the server is busy: T(r+1) = Tr + 2t + 2L + c + Na. The last answer: T(n-1) + Nt + L.
    a = 3.0
    outcome = simulate(N, n, links=WIRE, apply=MIB / a)
    assert outcome.virtual_seconds == (c + t + L + N * a) + (n - 1) * (c + 2 * t + 2 * L + N * a) + (N * t + L)
    assert outcome.bottleneck == "apply:server0"


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("N", [2, 4])
def test_apply_faster_than_the_link(N: int, n: int) -> None:
    # a < t: each push is handled before the next one is in; a round closes a later than by the link alone.
    a = 0.25
    outcome = simulate(N, n, links=WIRE, apply=MIB / a)
    assert outcome.virtual_seconds == (c + N * t + L + a) + (n - 1) * (c + (N + 1) * t + 2 * L + a) + (N * t + L)
    assert outcome.bottleneck == "link:server0"


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("M", [1, 2, 3, 8])
def test_buckets_overlap(M: int, n: int) -> None:
    # One worker: bucket j (of M, in order of sending) is in at c + (j+1)t + L and is answered at once, while bucket j+1
    # is on its way up: the last answer is there at c + (M+1)t + 2L, not at c + 2Mt + 2L.
    outcome = simulate(1, n, buckets=M, links=WIRE)
    assert outcome.virtual_seconds == n * (c + (M + 1) * t + 2 * L)


@pytest.mark.parametrize("N", [1, 2, 4])
def test_asp_answers_while_others_still_push(N: int) -> None:
    # Worker k is in at c + (k+1)t + L and its answer leaves at once: there at c + (k+2)t + 2L. Under bsp the last
    # answer comes at c + 2Nt + 2L.
    outcome = simulate(N, 1, model=Asp(), links=WIRE)
    assert outcome.virtual_seconds == c + (N + 1) * t + 2 * L


def test_compute_is_the_bottleneck_of_a_fast_network() -> None:
    assert simulate(4, 5, links=Links(1024 * MIB, 0.0)).bottleneck == "compute"


# The links alone: a byte takes a second.


class Wire:
    """Sends messages at given times and notes when they arrive."""

    def __init__(self, latency: float = 0.0) -> None:
        self.arrived: list[tuple[str, float]] = []
        self._agenda = Agenda()
        self._network = Network(self._agenda, Links(1.0, latency))

    def at(self, time: float, name: str, sender: Any, receiver: Any, worker: int, size: int) -> None:
        transfer = Transfer(sender, receiver, worker, size, self._note, name, None)
        self._agenda.at(time, worker, lambda network, what: network.send(what), self._network, transfer)

    def forget(self, time: float, worker: int) -> None:
        self._agenda.at(time, worker, lambda network, who: network.forget(who), self._network, worker_id(worker))

    def run(self) -> list[tuple[str, float]]:
        self._agenda.drain()
        return self.arrived

    def _note(self, name: str, _: None) -> None:
        self.arrived.append((name, self._agenda.now))


def test_a_link_is_first_in_first_out() -> None:
    # The sender's link is taken until 4; the second message starts then.
    wire = Wire(latency=0.5)
    wire.at(0.0, "long", worker_id(0), server_id(0), 0, 4)
    wire.at(1.0, "short", worker_id(0), server_id(1), 0, 1)
    assert wire.run() == [("long", 4.5), ("short", 5.5)]


def test_a_short_message_waits_behind_a_long_one_at_the_receiver() -> None:
    # max(5 + 1, 10 + 1)
    wire = Wire()
    wire.at(0.0, "long", worker_id(0), server_id(0), 0, 10)
    wire.at(5.0, "short", worker_id(1), server_id(0), 1, 1)
    assert wire.run() == [("long", 10.0), ("short", 11.0)]


def test_at_one_moment_the_lower_worker_comes_first() -> None:
    wire = Wire()
    for worker in (3, 1, 2):
        wire.at(0.0, f"{worker}", worker_id(worker), server_id(0), worker, 2)
    assert wire.run() == [("1", 2.0), ("2", 4.0), ("3", 6.0)]


def test_links_are_taken_in_the_order_of_the_senders_start() -> None:
    # Worker 0 asked at 0 for both, but its second message starts at 10; worker 5's starts at 3: max(4, 0 + 1) = 4.
    wire = Wire()
    wire.at(0.0, "first", worker_id(0), server_id(0), 0, 10)
    wire.at(0.0, "second", worker_id(0), server_id(1), 0, 1)
    wire.at(3.0, "other", worker_id(5), server_id(1), 5, 1)
    assert wire.run() == [("other", 4.0), ("first", 10.0), ("second", 11.0)]


def test_both_directions_are_independent() -> None:
    wire = Wire()
    wire.at(0.0, "up", worker_id(0), server_id(0), 0, 4)
    wire.at(0.0, "down", server_id(0), worker_id(0), 0, 4)
    assert wire.run() == [("up", 4.0), ("down", 4.0)]


def test_a_message_without_payload_takes_only_latency() -> None:
    wire = Wire(latency=0.5)
    wire.at(1.0, "empty", worker_id(0), server_id(0), 0, 0)
    assert wire.run() == [("empty", 1.5)]


def test_a_dead_sender_finishes_what_it_has_begun_to_send() -> None:
    wire = Wire()
    wire.at(0.0, "begun", worker_id(0), server_id(0), 0, 4)
    wire.at(0.0, "queued", worker_id(0), server_id(0), 0, 4)
    wire.forget(1.0, 0)
    assert wire.run() == [("begun", 4.0)]


def test_a_link_goes_on_after_its_sender_was_restarted() -> None:
    wire = Wire()
    wire.at(0.0, "begun", worker_id(0), server_id(0), 0, 4)
    wire.at(0.0, "queued", worker_id(0), server_id(0), 0, 4)
    wire.forget(1.0, 0)
    wire.at(2.0, "new", worker_id(0), server_id(0), 0, 1)
    wire.at(2.0, "newer", worker_id(0), server_id(0), 0, 1)
    assert wire.run() == [("begun", 4.0), ("new", 5.0), ("newer", 6.0)]
