"""The coordinator from its first frame to its last, in a thread of this process: which messages it sends, and when.

Launcher, server and workers are sockets of the test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hostile import SECONDS
from office import TABLES, Crew, Office, open_office, silent
from syncline.engines.net.control import (
    Abort,
    Begin,
    Declare,
    Figures,
    Gathered,
    Notice,
    Pulse,
    Refused,
    Seen,
    Share,
    Started,
    Stop,
    Waiting,
)
from syncline.messages import Member, View


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    with open_office(monkeypatch) as made:
        yield made


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


def test_the_run_waits_for_a_worker_that_has_left_and_still_reads(crew: Crew) -> None:
    crew.begin().leave()
    crew.workers[0].close()
    crew.launcher.say(Stop())
    crew.office.has_handled_all()
    assert silent(crew.server), "worker 1 may still read the final parameters"
    crew.workers[1].close()
    assert crew.server.hear() == Stop()


def test_nobody_can_join_a_run_that_has_ended(crew: Crew) -> None:
    crew.begin().leave()
    assert crew.office.call("worker", 0, again=True).hear() == Refused("this run has ended")


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


def test_workers_that_wait_for_each_other_for_ever_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCLINE_PATIENCE", "0.01")
    with open_office(monkeypatch) as office:
        crew = Crew(office).begin()
        crew.workers[0].say(Share("barrier"))
        crew.workers[0].say(Waiting(12, still=True))
        crew.workers[1].say(Waiting(30, still=True))
        for worker in crew.workers:
            refused = worker.hear()
            assert isinstance(refused, Refused)
            assert refused.usage
            assert re.match(
                r"deadlock for \d+ s: worker 0 waits in barrier for all workers, and worker 1 waits", refused.reason
            )


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
    """The worker was restarted in a new process before the end of the old process was reported."""
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


def test_the_run_ends_if_all_workers_are_gone_before_it_begins(crew: Crew) -> None:
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


def test_a_frame_that_is_not_allowed_closes_the_connection_of_its_sender(crew: Crew) -> None:
    crew.begin()
    crew.workers[1].say(Stop())
    assert crew.workers[1].hangs_up()
    what = "its connection ended: it sent Stop, which a worker may not send"
    assert crew.launcher.hear() == Seen("worker", 1, 0, what, of=4243)


def test_a_process_that_is_stopped_before_it_connects_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else watches it: the coordinator knows it only from the launcher."""
    monkeypatch.setenv("SYNCLINE_PATIENCE", "0.1")
    command = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]
    with subprocess.Popen(command, start_new_session=True) as process, open_office(monkeypatch) as office:
        os.kill(process.pid, signal.SIGSTOP)
        office.launcher.say(Started(process.pid))
        assert process.wait(SECONDS) == -signal.SIGKILL
