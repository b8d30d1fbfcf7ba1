"""The settings of the exchange strategy: text, defaults, and what is refused before anything runs."""

from __future__ import annotations

import pytest

from syncline.codecs import TopK
from syncline.draw import Draw
from syncline.effects import Received, Send
from syncline.errors import UsageError
from syncline.layout import Layout
from syncline.messages import (
    Donation,
    Gone,
    JoinRequest,
    LeaveNotice,
    Member,
    Mesh,
    Report,
    View,
    worker_id,
)
from syncline.nodes.exchange.membership import PeerMembership
from syncline.sim import Cluster, Links, Scenario
from syncline.sim.experiment import read_experiment
from syncline.strategies.exchange.strategy import ExchangeStrategy
from syncline.strategies.protocol import Job
from syncline.strategies.settings import settle, strategy_of


def settled(text: str, workers: int = 4, **others: str) -> ExchangeStrategy:
    found = settle({"command line": {"strategy": text, **others}}, None, workers)
    strategy = strategy_of({key: word for key, (word, _) in found.items()}, None)
    assert isinstance(strategy, ExchangeStrategy)
    return strategy


def test_its_text_says_all_that_it_is() -> None:
    assert settled("exchange") == ExchangeStrategy()
    assert settled("exchange:4") == ExchangeStrategy(4)
    assert settled("exchange:partitions=4,tau=1,accumulate=false") == ExchangeStrategy(4, 1, accumulate=False)
    for text in ("exchange", "exchange:4", "exchange:partitions=4,tau=1", "exchange:codec=topk:0.01"):
        assert str(settled(text)) == text


def test_only_one_range_without_slack_is_synchronous() -> None:
    assert settled("exchange:1").synchronous
    assert not settled("exchange:2").synchronous
    assert not settled("exchange:1,1").synchronous
    assert not settled("exchange").synchronous


@pytest.mark.parametrize(
    ("text", "workers", "others", "problem"),
    [
        ("exchange:0", 4, {}, "partitions: must be at least 1"),
        ("exchange:-1", 4, {}, "partitions: must be at least 1"),
        ("exchange:partitions=many", 4, {}, "partitions: must be a whole number or 'auto', not 'many'"),
        ("exchange:partitions=2.5", 4, {}, "partitions: must be a whole number or 'auto'"),
        ("exchange:tau=-1", 4, {}, "tau: must be at least 0"),
        ("exchange:accumulate=maybe", 4, {}, "accumulate: must be true or false"),
        ("exchange", 1, {}, "workers: strategy 'exchange' needs at least 2 workers"),
        (
            "exchange",
            4,
            {"gate": "every:2"},
            "gate: strategy 'exchange' sends every value of every update exactly once",
        ),
        ("exchange", 4, {"rule": "sgd:0.1"}, "rule: strategy 'exchange' adds up the changes"),
        ("exchange", 4, {"mode": "gradients"}, "mode: strategy 'exchange' supports only mode 'changes'"),
        ("exchange", 4, {"sync": "ssp:3"}, "sync: strategy 'exchange' has its own bound"),
        ("exchange", 4, {"placement": "uniform"}, "placement: strategy 'exchange' has no servers"),
        ("exchange", 4, {"reply_codec": "fp16"}, "reply_codec: strategy 'exchange' has no replies"),
        ("exchange:accumulate=false,codec=fp16", 4, {}, "codec: 'fp16' keeps what it does not send"),
        ("exchange:codec=topk:ratio=0.1,momentum=0.9", 4, {}, "momentum"),
    ],
)
def test_what_cannot_work_is_refused_with_what_would_be_right(
    text: str, workers: int, others: dict[str, str], problem: str
) -> None:
    with pytest.raises(UsageError) as found:
        settled(text, workers, **others)
    assert problem in str(found.value)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("strategy.gate", "every:2", "strategy.gate: strategy 'exchange' sends every value"),
        ("strategy.servers", 2, "strategy.servers: strategy 'exchange' has no servers"),
        ("strategy.mode", "gradients", "strategy.mode: strategy 'exchange' has one mode, 'changes'"),
        ("strategy.window", "1MiB", "strategy.window: strategy 'exchange' has no servers that answer"),
        ("strategy.partitions", 0, "strategy.partitions: must be at least 1"),
        ("strategy.partitions", 1.5, "strategy.partitions: must be a whole number"),
        ("strategy.tau", -1, "strategy.tau: must be at least 0"),
        ("cluster.workers", 1, "workers: strategy 'exchange' needs at least 2 workers"),
        ("network.bandwidth", "0Gbit", "network.bandwidth: '0Gbit' must be finite and above 0"),
        (
            "strategy.overlap",
            "forward",
            "strategy.overlap: strategy 'exchange' sends and receives while workers compute",
        ),
        ("strategy.central", True, "strategy.central: is about servers"),
        ("dispatch.rule", "uniform", "dispatch: has no clock"),
        ("network.apply", "1GB/s", "network.apply: is about servers"),
        ("strategy.partitions", 0, "partitions: must be at least 1"),
        ("network.bandwidth", "0", "network.bandwidth"),
        ("cluster.workers", 1, "needs at least 2 workers"),
    ],
)
def test_an_experiment_that_makes_no_sense_is_refused(
    key: str, value: object, problem: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("file") / "run.toml"
    path.write_text('[cluster]\nworkers = 4\n[strategy]\nkind = "exchange"\n')
    with pytest.raises(UsageError) as found:
        read_experiment(path, {key: value}).scenario.check()
    assert problem in str(found.value)


# The coordinator's node.


def view(*members: Member, number: int = 0, donor: int | None = None) -> View:
    donations = () if donor is None else (Donation(2, 0, donor),)
    return View(number, members, Mesh(donations))


def sent_view(membership: PeerMembership, message: object, source: int) -> View | None:
    effects = membership.handle(Received(worker_id(source), message), 0.0)  # type: ignore[arg-type]
    views = [each.message for each in effects if isinstance(each, Send) and isinstance(each.message, View)]
    return views[-1] if views else None


def test_the_most_advanced_member_becomes_the_donor() -> None:
    old = (Member(0, 0, 0), Member(1, 0, 0))
    membership = ExchangeStrategy().coordinator(Job(Layout.of([("a", (4,))]), Draw(0)), view(*old))
    assert sent_view(membership, JoinRequest(0, 0), 2) == view(*old, Member(2, 0, None), number=1)
    assert sent_view(membership, Report(1, 5), 0) is None
    assert sent_view(membership, Report(1, 7), 1) == view(*old, Member(2, 0, 7), number=2, donor=1)
    assert sent_view(membership, Report(2, 8), 2) == view(*old, Member(2, 0, 8), number=3)


def test_if_the_donor_goes_the_members_report_again() -> None:
    membership = PeerMembership(view(Member(0, 0, 0), Member(1, 0, 0)))
    for message, source in ((JoinRequest(0, 0), 2), (Report(1, 5), 0), (Report(1, 7), 1)):
        sent_view(membership, message, source)
    assert sent_view(membership, LeaveNotice(2, 0), 1) == view(Member(0, 0, 0), Member(2, 0, None), number=3)
    assert sent_view(membership, Report(3, 9), 0) == view(Member(0, 0, 0), Member(2, 0, 9), number=4, donor=0)


def test_without_a_possible_donor_a_joiner_is_refused() -> None:
    membership = PeerMembership(view(Member(0, 0, 0)))
    sent_view(membership, JoinRequest(0, 0), 2)
    effects = membership.handle(Received(worker_id(0), Report(1, 5, leaving=True)), 0.0)
    assert effects[0] == Send(worker_id(2), Gone(1, 0))
    assert membership.view == view(Member(0, 0, 0), number=2)


def test_joiners_wait_for_each_other() -> None:
    membership = PeerMembership(view(Member(0, 0, 0)))
    sent_view(membership, JoinRequest(0, 0), 2)
    assert sent_view(membership, JoinRequest(0, 0), 3) is None
    sent_view(membership, Report(1, 5), 0)
    following = sent_view(membership, Report(2, 6), 2)
    assert following == view(Member(0, 0, 0), Member(2, 0, 6), Member(3, 0, None), number=4)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"partitions": 0}, "partitions: must be at least 1"),
        ({"partitions": 1.5}, "partitions: must be a whole number or 'auto', not 1.5"),
        ({"partitions": True}, "partitions: must be a whole number or 'auto', not True"),
        ({"partitions": "many"}, "partitions: must be a whole number or 'auto', not 'many'"),
        ({"tau": -1}, "tau: must be at least 0"),
        ({"tau": 0.5}, "tau: must be a whole number, not 0.5"),
        ({"accumulate": "no"}, "accumulate: must be True or False, not 'no'"),
        ({"remeasure": 1}, "remeasure: must be True or False, not 1"),
        ({"codec": "nonsense"}, "codec: "),
        ({"codec": 3}, "codec: 3 is not a Codec"),
        ({"codec": "fp16", "accumulate": False}, "codec: 'fp16' keeps what it does not send"),
    ],
)
def test_a_program_that_gives_nonsense_is_refused_too(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError) as found:
        Scenario(Cluster(2), ExchangeStrategy(**settings), 5).check()  # type: ignore[arg-type]
    assert str(found.value).startswith(problem)


@pytest.mark.parametrize(
    ("links", "problem"),
    [
        (Links(bandwidth=0.0), "network.bandwidth: must be above 0 bytes per second, not 0.0"),
        (Links(bandwidth=-1.0), "network.bandwidth: must be above 0 bytes per second, not -1.0"),
        (Links(bandwidth=float("nan")), "network.bandwidth: must be above 0 bytes per second, not nan"),
        (Links(latency=-1.0), "network.latency: must be finite and at least 0, not -1.0"),
    ],
)
def test_links_that_cannot_carry_anything_are_refused(links: Links, problem: str) -> None:
    with pytest.raises(UsageError) as found:
        Scenario(Cluster(2, links=links), ExchangeStrategy(), 5).check()
    assert str(found.value) == problem


def test_a_codec_may_be_its_text() -> None:
    assert ExchangeStrategy(codec="topk:0.1") == ExchangeStrategy(codec=TopK(0.1))  # type: ignore[arg-type]
