"""The coordinator from its first frame to its last, in a thread of this process: who is told what, and in which order.

Launcher, server and workers are sockets of the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from hostile import SECONDS, Caller
from syncline.engines.coordinator import launchers, process
from syncline.engines.coordinator.process import CoordinatorProcess
from syncline.engines.net.control import (
    Abort,
    Begin,
    Declare,
    Declared,
    Ended,
    Figures,
    Gathered,
    Go,
    Hello,
    Notice,
    Pulse,
    Refused,
    Seated,
    Seen,
    Share,
    Stop,
    Waiting,
    Welcome,
)
from syncline.engines.net.wiring import Wiring, listen
from syncline.engines.process_state import host
from syncline.messages import LeaveNotice, Member, View

RUN = "run"
TABLES = (Declared("w", (1000,)),)


class Office:
    """A coordinator of a run with two workers and one server."""

    def __init__(self, places: Queue[str]) -> None:
        self._thread = Thread(target=CoordinatorProcess(2, 1, {}, Wiring(run=RUN)).run, daemon=True)
        self._thread.start()
        self._unix = places.get()
        self._callers: list[Caller] = []
        self.launcher = self.call("launcher")
        assert self.launcher.hear() == Welcome(RUN, -1, 0, 2)

    def call(self, role: str, number: int = -1, **fields: Any) -> Caller:
        self._callers.append(Caller(self._unix, Hello(RUN, role, number, **fields)))
        return self._callers[-1]

    def has_handled_all(self) -> None:
        """Whatever was sent before is handled: whoever calls is accepted and answered after it."""
        assert isinstance(self.call("launcher").hear(), Refused)

    def over(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def close(self) -> None:
        for caller in self._callers:
            caller.close()  # a coordinator ends with its launcher
        self.over()


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    places: Queue[str] = Queue()

    def noting(*words: Any) -> tuple[str, str]:
        found = listen(*words)
        places.put(found[0])
        return found

    monkeypatch.setattr(process, "listen", noting)
    monkeypatch.setattr(launchers, "outlive_parent", lambda: None)
    made = Office(places)
    yield made
    made.close()


def silent(caller: Caller) -> bool:
    """Has nothing been said to it that it has not heard?"""
    caller.sock.setblocking(False)
    try:
        caller.hear()
    except BlockingIOError:
        return True
    finally:
        caller.sock.settimeout(SECONDS)
    return False


class Crew:
    """A server and two workers."""

    def __init__(self, office: Office) -> None:
        self.office, self.launcher = office, office.launcher
        self.server = office.call("server", 0, unix="@there")
        self.workers = [office.call("worker", number, pid=4242 + number, host=host()) for number in range(2)]
        for number, worker in enumerate(self.workers):
            assert worker.hear() == Welcome(RUN, number, 0, 2)

    def declare(self) -> Crew:
        """Servers are told first; then workers."""
        for worker in self.workers:
            worker.say(Declare(TABLES))
        secret = self.server.hear()
        assert isinstance(secret, Begin)
        assert secret.word
        assert secret.view.members == (Member(0, 0, 0), Member(1, 0, 0))
        self.office.has_handled_all()
        assert all(map(silent, self.workers))
        self.server.say(Seated())
        for worker in self.workers:
            begin = worker.hear()
            assert isinstance(begin, Begin)
            assert (begin.leader, begin.word, begin.view) == (0, "", secret.view)
        return self

    def begin(self) -> Crew:
        """Nobody goes before all hold the first parameters."""
        self.declare()
        self.workers[0].say(Seated())
        self.office.has_handled_all()
        assert silent(self.workers[0])
        self.workers[1].say(Seated())
        assert [worker.hear() for worker in self.workers] == [Go(), Go()]
        return self

    def leave(self) -> Crew:
        """One after the other; when both have, all are told."""
        for worker, members in zip(self.workers, [(Member(1, 0, 0),), ()], strict=True):
            worker.say(LeaveNotice(0, 0))
            assert self.view() == members
        for worker in self.workers:
            assert worker.hears(Ended) == Ended()
        assert self.launcher.hear() == Ended()
        return self

    def view(self) -> tuple[Member, ...]:
        """The members of the view that the server is told."""
        view = self.server.hear()
        assert isinstance(view, View)
        return view.members


@pytest.fixture
def crew(office: Office) -> Crew:
    return Crew(office)


# From start to end.


def test_a_run_from_start_to_end(crew: Crew) -> None:
    crew.begin().leave()
    for worker in crew.workers:
        worker.close()
    crew.launcher.say(Stop())
    assert crew.server.hear() == Stop()
    figures = Figures(0, 6, 0, 0, 3, 48, 48)
    crew.server.say(figures)
    assert crew.launcher.hear() == figures
    crew.server.close()
    assert crew.launcher.hangs_up()
    crew.office.over()


def test_whoever_has_left_and_still_reads_is_waited_for(crew: Crew) -> None:
    crew.begin().leave()
    crew.workers[0].close()
    crew.launcher.say(Stop())
    crew.office.has_handled_all()
    assert silent(crew.server), "worker 1 may still read the final parameters"
    crew.workers[1].close()
    assert crew.server.hear() == Stop()


def test_nobody_comes_when_all_is_over(crew: Crew) -> None:
    crew.begin().leave()
    assert crew.office.call("worker", 0, again=True).hear() == Refused("this run is over")


def test_workers_meet(crew: Crew) -> None:
    crew.begin()
    crew.workers[1].say(Share("mean", b"1"))
    crew.office.has_handled_all()
    assert silent(crew.workers[1])
    crew.workers[0].say(Share("mean", b"0"))
    assert [worker.hear() for worker in crew.workers] == [Gathered("mean", (b"0", b"1"))] * 2


def test_how_far_a_worker_is_goes_to_the_launcher_under_its_own_number(crew: Crew) -> None:
    crew.begin()
    crew.workers[1].say(Pulse(7, 1.0, 2.0, worker=0))
    assert crew.launcher.hear() == Pulse(7, 1.0, 2.0, worker=1)


def test_the_launcher_is_told_for_whom_a_worker_waits(crew: Crew) -> None:
    crew.begin()
    crew.workers[0].say(Waiting(12))
    notice = crew.launcher.hear()
    assert isinstance(notice, Notice)
    assert re.fullmatch(r"waiting for worker 1 for 1[2-9] s", notice.text)
    crew.workers[1].say(Waiting(12))
    notice = crew.launcher.hear()
    assert isinstance(notice, Notice)
    assert notice.text.startswith("waiting for server 0 for "), "all workers wait"


def test_the_launcher_is_told_who_has_not_connected(office: Office) -> None:
    office.call("server", 0)
    worker = office.call("worker", 1)
    worker.say(Declare(TABLES))
    worker.say(Waiting(10))
    notice = office.launcher.hear()
    assert isinstance(notice, Notice)
    assert notice.text.startswith("waiting for worker 0 (not connected) for ")


# Life and death.


def test_a_worker_that_is_lost_is_no_member(crew: Crew) -> None:
    crew.begin()
    crew.workers[1].close()
    assert crew.launcher.hear() == Seen("worker", 1, 0, "its connection ended", of=4243)
    assert crew.view() == (Member(0, 0, 0),)
    view = crew.workers[0].hear()
    assert isinstance(view, View)
    assert view.members == (Member(0, 0, 0),)


def test_a_worker_whose_process_has_ended_is_lost_though_its_connection_is_open(crew: Crew) -> None:
    crew.begin()
    crew.launcher.say(Seen("worker", 1, 0, "ended by signal 9", pid=4243))
    assert crew.launcher.hear() == Seen("worker", 1, 0, "its connection ended: its process ended by signal 9", of=4243)
    assert crew.view() == (Member(0, 0, 0),)
    assert crew.workers[1].hangs_up()


def test_the_end_of_another_process_with_that_number_is_no_news(crew: Crew) -> None:
    """It came back in a new process before the end of the old one was seen."""
    crew.begin()
    crew.launcher.say(Seen("worker", 1, 0, "ended by signal 9", pid=1))
    crew.office.has_handled_all()
    assert all(map(silent, (crew.server, crew.launcher, *crew.workers)))


def test_a_worker_that_never_comes_is_not_waited_for(office: Office) -> None:
    server, worker = office.call("server", 0), office.call("worker", 1)
    worker.say(Declare(TABLES))
    office.has_handled_all()
    assert silent(server)
    office.launcher.say(Seen("worker", 0, 0, "ended with exit code 0", pid=7))
    begin = server.hear()
    assert isinstance(begin, Begin)
    assert begin.view.members == (Member(1, 0, 0),)
    assert begin.leader == 1


def test_where_all_workers_are_gone_before_the_beginning_the_run_is(crew: Crew) -> None:
    for number, worker in enumerate(crew.workers):
        worker.close()
        assert crew.launcher.hear() == Seen("worker", number, 0, "gone before the run began", of=4242 + number)
    assert crew.launcher.hear() == Abort("every worker is gone before the run began")


def test_the_leader_is_needed_until_all_have_its_parameters(crew: Crew) -> None:
    crew.declare()
    crew.workers[0].close()
    assert isinstance(crew.launcher.hear(), Seen)
    why = crew.workers[1].hears(Abort).reason
    assert why.startswith("worker0 is gone before the other workers had its initial parameters")
    assert crew.launcher.hear() == Abort(why)


def test_a_server_that_is_lost_ends_the_run(crew: Crew) -> None:
    crew.begin()
    crew.server.close()
    why = Abort("server0 is gone: its connection ended")
    assert [each.hear() for each in (*crew.workers, crew.launcher)] == [why] * 3


def test_without_its_launcher_a_run_is_over(crew: Crew) -> None:
    crew.begin()
    crew.launcher.close()
    assert [worker.hear() for worker in crew.workers] == [Abort("the launcher is gone")] * 2
    crew.office.over()


def test_a_frame_that_nobody_may_send_costs_its_sender_the_connection(crew: Crew) -> None:
    crew.begin()
    crew.workers[1].say(Stop())
    assert crew.workers[1].hangs_up()
    what = "its connection ended: it sent Stop, which a worker may not send"
    assert crew.launcher.hear() == Seen("worker", 1, 0, what, of=4243)
