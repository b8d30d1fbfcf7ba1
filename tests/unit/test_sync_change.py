"""A change of the sync model: how it is asked for, what is refused, and what the coordinator makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.server_departures import ServerDepartures
from syncline.engines.coordinator.sync_changes import SyncChanges
from syncline.engines.net.control import ChangeReply, ChangeRequest, Hello, InForce, TermsTaken
from syncline.errors import PeerError, UsageError
from syncline.messages import server_id, worker_id
from syncline.strategies.allowed_parts import AllowedParts
from syncline.strategies.mode import Mode
from syncline.strategies.protocol import Strategy
from syncline.strategies.settings import strategy_in
from syncline.strategies.sync_change import check_change, words_of, written
from syncline.sync import Asp, Pssp, Release, Ssp

# In words.


@pytest.mark.parametrize(
    ("sync", "release", "words"),
    [
        ("ssp:3", None, (("ssp:3",), "")),
        (Ssp(3), "soft", (("ssp:3",), "soft")),
        ([Ssp(3), "bsp"], Release.LAZY, (("ssp:3", "bsp"), "lazy")),
        (("pssp:3,0.5",), None, (("pssp:s=3,p=0.5",), "")),
        (Pssp(3, p=0.5), None, (("pssp:s=3,p=0.5",), "")),
        (None, "soft", ((), "soft")),
    ],
)
def test_a_change_may_be_asked_for_by_objects_or_by_text(sync: object, release: object, words: object) -> None:
    assert words_of(sync, release) == words


@pytest.mark.parametrize(
    ("sync", "release", "others", "problem"),
    [
        (None, None, (), "sync: there is nothing to change"),
        ([], None, (), "sync: the list is empty"),
        ("sometimes", None, (), "sync: 'sometimes' is unknown"),
        ("ssp:-1", None, (), "sync: 'ssp:-1': s must be at least 0"),
        (7, None, (), "sync: "),
        (None, "hard", (), "release: 'hard' is not one of lazy, soft"),
        ("bsp", None, ("codec",), "codec: cannot change during a run; only sync and release can"),
    ],
)
def test_invalid_changes_are_refused(sync: object, release: object, others: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        words_of(sync, release, others)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("sync", "mode", "servers", "problem"),
    [
        (("ssp:3",), Mode.GRADIENTS, 1, "sync: 'gradients' works only with bsp, not 'ssp:3'"),
        (("drop:4",), Mode.CHANGES, 1, "sync: 'drop:4' waits for 4 of 3 workers; use drop:3 or a smaller number"),
        (("bsp", "asp"), Mode.CHANGES, 3, "sync: has 2 models for 3 servers; give one for all, or one for each"),
        (("bsp", "drop:4"), Mode.RULE, 2, "sync: 'drop:4' waits for 4 of 3 workers"),
    ],
)
def test_what_the_strategy_refuses(sync: tuple[str, ...], mode: Mode, servers: int, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_change(sync, "", of(mode), 3, servers)
    assert str(caught.value).startswith(problem)


def of(mode: Mode) -> Strategy:
    """A strategy in this mode."""
    return strategy_in({"mode": mode.value, **({"rule": "sgd:0.1"} if mode is Mode.RULE else {})})


def test_changes_that_the_strategy_accepts() -> None:
    check_change(("ssp:0",), "soft", of(Mode.GRADIENTS), 3, 2)
    check_change(("ssp:3", "bsp"), "", of(Mode.CHANGES), 3, 2)
    check_change((), "soft", of(Mode.GRADIENTS), 3, 2)


def test_the_setting_is_one_word_if_all_have_the_same_model() -> None:
    assert written(("bsp", "bsp")) == "bsp"
    assert written(("bsp", "asp")) == "bsp asp"
    assert written(()) == ""


# At the coordinator.


@dataclass(eq=False)
class Wire:
    """Notes what is sent."""

    name: str
    is_near: bool = True
    sent: list[Any] = field(default_factory=list)


@dataclass
class Servers:
    """Who holds something."""

    holding: frozenset[int]
    unsettled: bool = False


class Model:
    """A model as far as changes are concerned, on servers of these numbers."""

    begun, running, ended, most_workers = True, True, False, 3

    def __init__(self, *servers: int, name: str = "model", sync: str = "bsp", mode: str = "changes") -> None:
        self.name = name
        self.settings = {"sync": sync, "release": "lazy", "mode": mode}
        self.strategy = of(Mode(mode))
        self.servers = {number: self._peer("server", number) for number in servers}
        self.workers = {0: self._peer("worker", 0)}
        self.changes = Servers(frozenset(servers))

    def _peer(self, role: str, number: int) -> Participant:
        id = server_id(number) if role == "server" else worker_id(number)
        return Participant(id, Hello("a run", role, number), Wire(str(id)))  # type: ignore[arg-type]

    def resettle(self, words: dict[str, str]) -> None:
        self.settings |= words

    def is_member(self, peer: Participant) -> bool:
        return peer in self.workers.values()


class Desk:
    """The coordinator's part, and what it has said."""

    def __init__(self, *models: Model, allowed: str = "") -> None:
        self.models = {each.name: each for each in models}
        self.notices: list[str] = []
        out = lambda wire, message: wire.sent.append(message)  # noqa: E731
        departures = ServerDepartures({}, self.models, 0, out, lambda *_: None)  # type: ignore[arg-type]
        self.changes = SyncChanges(
            self.models,  # type: ignore[arg-type]
            out,
            self.notices.append,
            AllowedParts(allowed),
            departures,
        )
        self.operator = Wire("operator")

    def ask(self, *sync: str, release: str = "", wire: Wire | None = None, models: tuple[str, ...] = ()) -> None:
        self.changes.ask(wire or self.operator, ChangeRequest(1, sync, release, models))  # type: ignore[arg-type]

    def told(self, server: int, model: str = "model") -> list[Any]:
        """What this server was told, which it forgets."""
        sent = self.models[model].servers[server].wire.sent  # type: ignore[attr-defined]
        found = [(each.sync, each.release) for each in sent]
        self.number = sent[-1].number if sent else 0
        sent.clear()
        return found

    def confirm(self, server: int, problem: str = "", model: str = "model") -> None:
        number = self.changes._number
        self.changes.applied(self.models[model].servers[server], TermsTaken(number, problem))

    def replies(self) -> list[Any]:
        found, self.operator.sent = self.operator.sent, []
        return found


def test_every_server_is_told_and_the_change_is_confirmed_when_all_have_changed() -> None:
    model = Model(0, 1)
    desk = Desk(model)
    desk.ask("ssp:3", release="soft")
    assert desk.told(0) == desk.told(1) == [("ssp:3", "soft")]
    assert model.settings["sync"] == "ssp:3", "a process that joins now gets the new model"
    desk.confirm(0)
    assert desk.replies() == desk.notices == []
    desk.confirm(1)
    assert desk.replies() == [ChangeReply(1)]
    assert desk.notices == ["sync ssp:3, release soft from now on, as an operator asked"]
    assert model.workers[0].wire.sent == [InForce({"sync": "ssp:3", "release": "soft"})]  # type: ignore[attr-defined]


def test_a_model_for_each_server_that_holds_something() -> None:
    model = Model(0, 2, 3)
    model.changes.holding = frozenset((0, 3))
    desk = Desk(model)
    desk.ask("ssp:3", "bsp")
    assert [desk.told(number) for number in (0, 2, 3)] == [[("ssp:3", "lazy")], [("ssp:3", "lazy")], [("bsp", "lazy")]]
    assert model.settings["sync"] == "ssp:3 bsp"
    for number in (0, 2, 3):
        desk.confirm(number)
    desk.ask(release="soft")
    assert [desk.told(number) for number in (0, 3)] == [[("ssp:3", "soft")], [("bsp", "soft")]], "models stay"


def test_the_release_alone_leaves_each_server_its_model() -> None:
    desk = Desk(Model(0, 1, sync="bsp ssp:2"))
    desk.ask(release="soft")
    assert (desk.told(0), desk.told(1)) == ([("bsp", "soft")], [("ssp:2", "soft")])


def test_changes_happen_one_after_the_other() -> None:
    desk, other = Desk(Model(0)), Wire("another operator")
    desk.ask("asp")
    desk.ask("ssp:2", wire=other)
    assert desk.told(0) == [("asp", "lazy")]
    desk.confirm(0)
    assert desk.replies() == [ChangeReply(1)]
    assert desk.told(0) == [("ssp:2", "lazy")]
    assert other.sent == []
    desk.confirm(0)
    assert other.sent == [ChangeReply(1)]


def test_who_asks_twice_at_once_breaks_the_protocol() -> None:
    desk = Desk(Model(0))
    desk.ask("asp")
    with pytest.raises(PeerError, match="a second change before the first was answered"):
        desk.ask("bsp")


def test_what_makes_no_sense_is_refused_and_nothing_has_happened() -> None:
    model = Model(0, mode="gradients")
    desk = Desk(model)
    desk.ask("ssp:3")
    (reply,) = desk.replies()
    assert reply.option == "sync"
    assert reply.problem.startswith("'gradients' works only with bsp")
    assert (desk.told(0), desk.notices, model.settings["sync"]) == ([], [], "bsp")
    desk.ask("ssp:0")
    assert desk.told(0) == [("ssp:0", "lazy")], "the next request is heard"


def test_a_server_that_is_gone_is_not_waited_for() -> None:
    model = Model(0, 1)
    desk = Desk(model)
    desk.ask("asp")
    desk.confirm(0)
    desk.changes.gone(model.servers[1])
    assert desk.replies() == [ChangeReply(1)]


def test_if_a_server_cannot_read_the_model_all_go_back() -> None:
    model = Model(0, 1)
    desk = Desk(model)
    desk.ask("asp")
    desk.told(0), desk.told(1)
    desk.confirm(1, "cannot import 'mine.Patient'")
    desk.confirm(0)
    assert desk.told(0) == desk.told(1) == [("bsp", "lazy")]
    assert model.settings["sync"] == "bsp"
    assert desk.replies() == []
    desk.confirm(0)
    desk.confirm(1)
    assert desk.replies() == [ChangeReply(1, "sync", "server1: cannot import 'mine.Patient'")]
    assert desk.notices == []


def test_only_those_who_are_trusted_may_name_a_class_of_their_own() -> None:
    desk, far = Desk(Model(0)), Wire("far away", is_near=False)
    desk.ask("own_parts.Patient", wire=far)
    assert "comes from another process and names own_parts.Patient" in far.sent[0].problem
    desk.ask("asp", wire=far)
    assert desk.told(0) == [("asp", "lazy")]


def test_a_worker_can_change_what_it_trains_and_nothing_else() -> None:
    model, stranger = Model(0), Model(0).workers[0]
    desk = Desk(model)
    desk.changes.ask(stranger.wire, ChangeRequest(4, ("asp",)), stranger)
    problem = "worker0 is not a member of model 'model', so it cannot change it"
    assert stranger.wire.sent == [ChangeReply(4, "", problem)]  # type: ignore[attr-defined]
    member = model.workers[0]
    desk.changes.ask(member.wire, ChangeRequest(4, ("asp",)), member)
    desk.confirm(0)
    assert ChangeReply(4) in member.wire.sent  # type: ignore[attr-defined]
    assert desk.notices == ["sync asp, release lazy from now on, as worker 0 asked"]


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"begun": False}, "training has not started yet"),
        ({"running": False}, "training has not started yet"),
        ({"ended": True}, "this run has ended"),
    ],
)
def test_a_change_before_the_start_or_after_the_end_is_refused(state: dict[str, bool], problem: str) -> None:
    model = Model(0)
    for key, value in state.items():
        setattr(model, key, value)
    desk = Desk(model)
    desk.ask("asp")
    (reply,) = desk.replies()
    assert (reply.option, reply.problem[: len(problem)]) == ("", problem)


def test_models_by_name() -> None:
    desk = Desk(Model(0, name="d"), Model(0, name="g"))
    desk.ask("asp", models=("e",))
    assert desk.replies() == [ChangeReply(1, "model", "this run has no model 'e'; it has d, g")]
    desk.ask("asp", models=("g",))
    assert (desk.told(0, "d"), desk.told(0, "g")) == ([], [("asp", "lazy")])
    desk.confirm(0, model="g")
    assert desk.notices == ["model 'g': sync asp, release lazy from now on, as an operator asked"]
    desk.replies()
    desk.ask("bsp")
    assert desk.told(0, "d") == desk.told(0, "g") == [("bsp", "lazy")]


def test_several_models_are_refused_while_a_server_is_coming() -> None:
    model = Model(0, 1)
    model.changes.unsettled = True
    desk = Desk(model)
    desk.ask("asp", "bsp")
    assert desk.replies()[0].problem.startswith("a server is joining or leaving")
    desk.ask("asp", "asp")
    assert desk.told(0) == desk.told(1) == [("asp", "lazy")]


def test_models_of_a_list_are_taken_as_they_are() -> None:
    assert words_of([Asp(), Asp()], None) == (("asp", "asp"), "")
