"""What a process that has joined can do to a run: learn and train what a member may, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from hostile import Caller
from office import RUN, TABLES, WIRING, Crew, Office, open_office, silent
from peers import Peer
from syncline.engines.coordinator.trained_models import MOST_UNCONFIRMED
from syncline.engines.net.control import (
    Abort,
    Another,
    Begin,
    ChangeReply,
    ChangeRequest,
    Declare,
    Declared,
    EpochBegun,
    Figures,
    Frozen,
    Gathered,
    Hello,
    NewTerms,
    NodeAddress,
    Refused,
    Seated,
    Seen,
    Share,
    TermsTaken,
    Welcome,
)
from syncline.engines.net.wiring import Wiring
from syncline.engines.server.process import ServerProcess
from syncline.engines.worker.link import WorkerLink
from syncline.errors import UsageError
from syncline.layout import Bucket
from syncline.messages import JoinRequest, LeaveNotice, Member, Report, View
from syncline.strategies.settings import defaults

EVIL = "evil_parts"
TOKEN = "the token of a process that joined"


class Imports(MetaPathFinder):
    """Notes every module that anybody in this process tries to import for the first time."""

    def __init__(self) -> None:
        self.tried: list[str] = []

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        self.tried.append(name)
        return None

    @property
    def evil(self) -> list[str]:
        return [name for name in self.tried if name.partition(".")[0] == EVIL]


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Imports]:
    """A hook before all others, and a module that can be imported."""
    (tmp_path / f"{EVIL}.py").write_text("from syncline.sync import Asp as Model\ndef f(*_): raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    hook = Imports()
    sys.meta_path.insert(0, hook)
    yield hook
    sys.meta_path.remove(hook)
    sys.modules.pop(EVIL, None)


def test_the_hook_sees_what_is_imported(imports: Imports) -> None:
    assert __import__(EVIL).f
    assert imports.evil == [EVIL]


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    with open_office(monkeypatch, listen="127.0.0.1") as made:
        yield made


@pytest.fixture
def crew(office: Office) -> Crew:
    return Crew(office)


def joiner(office: Office, token: str = TOKEN) -> tuple[Caller, Welcome]:
    """A worker that has joined; it is not a member yet."""
    caller = office.join("worker", token=token)
    return caller, caller.hears(Welcome)


def member(crew: Crew) -> tuple[Caller, Welcome]:
    """A worker that has joined and is a member."""
    caller, welcome = joiner(crew.office)
    caller.say(Declare(TABLES))
    caller.hears(Begin)
    caller.say(JoinRequest(0, 0))
    view = caller.hears(View)
    assert any(each.worker == welcome.worker for each in view.members)
    crew.server.say(Report(view.view, 0))
    caller.hears(View)
    return caller, welcome


def begun(crew: Crew) -> Crew:
    """Training under asp, which others may join."""
    for worker in crew.workers:
        worker.say(Declare(TABLES, {"mode": "changes"}))
    crew.server.hears(Begin)
    crew.server.say(Seated())
    for worker in crew.workers:
        worker.hears(Begin)
        worker.say(Seated())
    return crew


# Identity.


def test_a_joiner_that_knows_the_run_from_its_welcome_cannot_be_worker_0(office: Office, imports: Imports) -> None:
    """Not even before worker 0 has connected."""
    _, welcome = joiner(office)
    assert welcome.run == RUN
    for token in ("", TOKEN, WIRING.of("worker", 1).token, WIRING.of("server", 0).token, RUN):
        caller = office.call("worker", 0, token=token)
        assert caller.hear() == Refused("worker 0 is another process: you did not show its token")
    for role, token in (("server", TOKEN), ("launcher", TOKEN), ("launcher", WIRING.of("worker", 0).token)):
        assert isinstance(office.call(role, 0 if role == "server" else -1, token=token).hear(), Refused)
    assert office.call("worker", 0).hear() == Welcome(RUN, 0, 0, 2)


def test_a_further_connection_needs_the_token_of_the_first(office: Office) -> None:
    _, welcome = joiner(office)
    for number, token in ((welcome.worker, "another"), (welcome.worker, ""), (0, TOKEN)):
        caller = office.call("worker", number, again=True, token=token)
        assert isinstance(caller.hear(), Refused)
    assert isinstance(office.call("worker", welcome.worker, again=True, token=TOKEN).hear(), Welcome)


def test_a_joiner_without_a_token_has_one_connection(office: Office) -> None:
    _, welcome = joiner(office, token="")
    assert isinstance(office.call("worker", welcome.worker, again=True, token="").hear(), Refused)


def test_a_launcher_that_joined_speaks_for_its_own_processes_only(crew: Crew) -> None:
    begun(crew)
    elsewhere = {"host": "elsewhere", "pid": 7}
    victim = crew.office.join("worker", token="victim", **elsewhere)
    victim.hears(Welcome)
    for token in ("agent", ""):
        agent = crew.office.join("agent", token=token, host="elsewhere")
        agent.hears(Welcome)
        agent.say(Frozen("elsewhere", 7, 1e9))
    crew.office.has_handled_all()
    assert silent(victim)
    own = crew.office.join("agent", token="victim", host="elsewhere")
    own.hears(Welcome)
    own.say(Frozen("elsewhere", 7, 1e9))
    assert "stopped for more than" in victim.hears(Refused).reason


# Settings.


WISHES = {
    "placement": f"{EVIL}.f",
    "sync": f"{EVIL}.Model",
    "rule": f"{EVIL}.Model:3",
    "codec": f"by_size:1000,large=[{EVIL}.Model]",
    "strategy": f"{EVIL}.Model",
}


@pytest.mark.parametrize("key", WISHES)
def test_no_module_is_imported_for_a_joiner_that_declares_another_model(crew: Crew, imports: Imports, key: str) -> None:
    """The model begins when nobody else can declare it any more, and has the launcher's settings."""
    begun(crew)
    first, welcome = joiner(crew.office)
    second = crew.office.call("worker", welcome.worker, again=True, token=TOKEN)
    second.hears(Welcome)
    second.say(Declare(TABLES, {key: WISHES[key]}, "another"))
    crew.server.hears(Another)
    server = crew.office.call("server", 0, again=True, unix="@there")
    for worker in crew.workers:
        worker.close()
    begin = server.hears(Begin)
    assert begin.model == "another"
    assert EVIL not in str(begin.settings)
    assert imports.evil == []
    first.close()


def test_no_module_is_imported_for_an_early_joiner(office: Office, imports: Imports) -> None:
    caller, _ = joiner(office)
    caller.say(Declare(TABLES, WISHES))
    crew = Crew(office)
    for worker in crew.workers:
        worker.say(Declare(TABLES))
    office.has_handled_all()
    assert imports.evil == []


def test_no_module_is_imported_for_a_member_that_changes_the_sync_model(crew: Crew, imports: Imports) -> None:
    caller, _ = member(begun(crew))
    for sync in ((f"{EVIL}.Model",), ("bsp", f"{EVIL}.Model:3")):
        caller.say(ChangeRequest(4, sync))
        reply = caller.hears(ChangeReply)
        assert f"names {EVIL}.Model, which is not a shipped part" in reply.problem
        assert "--allow-parts evil_parts" in reply.problem
    assert imports.evil == []


def test_the_launcher_can_allow_a_module(monkeypatch: pytest.MonkeyPatch, imports: Imports) -> None:
    with open_office(monkeypatch, listen="127.0.0.1", allow_parts=f"other,{EVIL}") as office:
        crew = begun(Crew(office))
        caller, _ = member(crew)
        caller.say(ChangeRequest(4, (f"{EVIL}.Model",)))
        told = crew.server.hears(NewTerms)
        crew.server.say(TermsTaken(told.number))
        assert caller.hears(ChangeReply) == ChangeReply(4)
    assert imports.evil == [EVIL]


def test_what_the_runs_own_workers_ask_for_is_loaded(crew: Crew, imports: Imports) -> None:
    for worker in crew.workers:
        worker.say(Declare(TABLES, {"mode": "changes", "sync": f"{EVIL}.Model"}))
    assert crew.server.hears(Begin).settings["sync"] == f"{EVIL}.Model"
    assert imports.evil == [EVIL]


def begin_with(**settings: str) -> Begin:
    whole = Bucket(0, 1000)
    view, place = View(0, (Member(0, 0, 0),), ((whole,),)), NodeAddress("elsewhere", "", "127.0.0.1:1")
    words = {**defaults(), "mode": "changes", "rule": "add", **settings}
    return Begin(TABLES, words, view, (place,), 0, word="secret")


def test_no_module_is_imported_by_a_server_that_joined(peer: Callable[[], Peer], imports: Imports) -> None:
    coordinator = peer()
    server = ServerProcess(-1, Wiring())
    server._coordinator[coordinator.wire] = None
    for key in ("sync", "codec", "placement"):
        with pytest.raises(UsageError, match=f"{key}: .* names {EVIL}"):
            server.frame(coordinator.wire, begin_with(**{key: WISHES[key]}), None)
    server.frame(coordinator.wire, begin_with(), None)
    assert [type(each) for each in coordinator.heard()] == [Seated]
    server.frame(coordinator.wire, NewTerms(3, f"{EVIL}.Model", "lazy"), None)
    (taken,) = coordinator.heard()
    assert isinstance(taken, TermsTaken)
    assert f"names {EVIL}.Model" in taken.problem
    assert imports.evil == []


def test_no_module_is_imported_by_a_worker_that_joined(imports: Imports) -> None:
    """Unless its own program has named the part."""
    link = WorkerLink(Wiring())
    link.news.welcome = Welcome(RUN, 5, 0, 2)
    declare = Declare(TABLES, {"sync": "ssp:3"})
    with pytest.raises(UsageError, match=f"sync: .* names {EVIL}"):
        link._set_up(begin_with(sync=f"{EVIL}.Model"), declare)
    assert imports.evil == []
    link.close()


# What a member must not do.


def test_a_value_from_one_who_is_not_a_member_disturbs_no_barrier(crew: Crew) -> None:
    begun(crew)
    guest, _ = joiner(crew.office)
    guest.say(Share("something else", b"x"))
    assert "can take part when it is a member" in guest.hears(Refused).reason
    for worker in crew.workers:
        worker.say(Share("barrier"))
    assert [worker.hears(Gathered).data for worker in crew.workers] == [(b"", b"")] * 2


def test_a_member_that_joined_takes_part(crew: Crew) -> None:
    caller, _ = member(begun(crew))
    for each in (*crew.workers, caller):
        each.say(Share("barrier", b"1"))
    assert caller.hears(Gathered).data == (b"1",) * 3


def test_a_server_that_holds_nothing_cannot_end_the_run(crew: Crew) -> None:
    begun(crew)
    guest = crew.office.join("server", token=TOKEN, host="elsewhere", unix="@nobody", tcp="127.0.0.1:1")
    guest.hears(Begin)
    guest.say(Abort("stop it"))
    assert guest.hangs_up()
    seen = crew.launcher.hears(Seen)
    assert (seen.role, seen.number) == ("server", 1)
    crew.office.has_handled_all()
    for worker in crew.workers:
        worker.say(Share("barrier"))
    assert [worker.hears(Gathered).data for worker in crew.workers] == [(b"", b"")] * 2


def test_a_server_has_only_its_own_figures(crew: Crew) -> None:
    begun(crew)
    guest = crew.office.join("server", token=TOKEN, host="elsewhere", unix="@nobody", tcp="127.0.0.1:1")
    guest.hears(Begin)
    guest.say(Figures(0, 1, 1, 1, 1, 1, 1))
    assert guest.hangs_up()


def test_a_worker_has_only_its_own_figures_once_it_has_left(crew: Crew) -> None:
    begun(crew)
    first, second = crew.workers
    mine = Figures(0, 5, 0, 0, 5, 100, 0, staleness={0: 5}, of_worker=True)
    second.say(replace(mine, server=1))
    assert second.hangs_up()  # it has not left
    first.say(LeaveNotice(0, 0))
    first.say(mine)
    assert crew.launcher.hears(Figures) == mine
    first.say(mine)
    assert first.hangs_up()


def test_one_who_is_not_a_member_sets_no_epoch(crew: Crew) -> None:
    begun(crew)
    guest, _ = joiner(crew.office)
    guest.say(EpochBegun(3, 2**61))
    assert guest.hangs_up()
    other, _ = joiner(crew.office)
    other.say(Declare(TABLES))
    assert other.hears(Begin).epochs == ()


def test_joiners_cannot_use_up_the_models(crew: Crew) -> None:
    """The number of models that only joiners train is limited."""
    begun(crew)
    _, welcome = joiner(crew.office)
    for number in range(MOST_UNCONFIRMED):
        caller = crew.office.call("worker", welcome.worker, again=True, token=TOKEN)
        caller.hears(Welcome)
        caller.say(Declare(TABLES, {}, f"model {number}"))
    crew.office.has_handled_all()
    caller = crew.office.call("worker", welcome.worker, again=True, token=TOKEN)
    caller.hears(Welcome)
    caller.say(Declare(TABLES, {}, "one more"))
    assert caller.hangs_up()


def test_names_are_told_without_codes_that_terminals_obey(crew: Crew) -> None:
    begun(crew)
    caller, _ = joiner(crew.office)
    caller.say(Declare((Declared("w\x1b[2J\r\nsyncline: all is well\u202e", (7,)),)))
    what = crew.launcher.hears(Seen).what
    assert what.isprintable()
    assert r"w\x1b[2J\r\nsyncline: all is well\u202e" in what
    assert caller.hears(Refused).reason.isprintable()


def test_hello_of_a_stranger_names_no_token_of_others() -> None:
    """What the coordinator tells a joiner has nothing in it that proves anything."""
    assert set(Welcome.__struct_fields__) == {
        "run",
        "worker",
        "incarnation",
        "workers",
        "save_every",
        "late",
        "lasting",
    }
    assert Hello("", "worker").token == ""
