"""A coordinator in a thread of this process; launcher, server and workers are sockets of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from hostile import SECONDS, Caller
from syncline.engines.coordinator import launchers, process
from syncline.engines.coordinator.process import CoordinatorProcess
from syncline.engines.net.control import Begin, Declare, Declared, Ended, Go, Hello, Refused, Seated, Welcome
from syncline.engines.net.wiring import Wiring, listen
from syncline.engines.process_state import host
from syncline.messages import LeaveNotice, Member, View

RUN = "run"
WIRING = Wiring(run=RUN, token="the secret of the run")
TABLES = (Declared("w", (1000,)),)


class Office:
    """A coordinator of a run with two workers and one server."""

    def __init__(self, places: Queue[str], wiring: Wiring = WIRING) -> None:
        self.process = CoordinatorProcess(2, 1, {}, wiring)
        self._thread = Thread(target=self.process.run, daemon=True)
        self._thread.start()
        self._unix = places.get()
        self._callers: list[Caller] = []
        self.launcher = self.call("launcher")
        assert self.launcher.hear() == Welcome(RUN, -1, 0, 2)

    def call(self, role: str, number: int = -1, **fields: Any) -> Caller:
        fields = {"token": WIRING.of(role, number).token, **fields}
        self._callers.append(Caller(self._unix, Hello(RUN, role, number, **fields)))
        return self._callers[-1]

    def join(self, role: str, **fields: Any) -> Caller:
        """A process that joins, with the same knowledge as any joiner."""
        self._callers.append(Caller(self._unix, Hello("", role, **fields)))
        return self._callers[-1]

    def has_handled_all(self) -> None:
        """Wait until the coordinator has handled everything so far: it answers this new connection last."""
        assert isinstance(self.call("launcher").hear(), Refused)

    def over(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def close(self) -> None:
        for caller in self._callers:
            caller.close()  # a coordinator ends with its launcher
        self.over()


@contextmanager
def open_office(monkeypatch: pytest.MonkeyPatch, **wiring: str) -> Iterator[Office]:
    """A coordinator that runs; `wiring`: fields of its wiring."""
    places: Queue[str] = Queue()

    def noting(*words: Any) -> tuple[str, str]:
        found = listen(*words)
        places.put(found[0])
        return found

    monkeypatch.setattr(process, "listen", noting)
    monkeypatch.setattr(launchers, "outlive_parent", lambda: None)
    made = Office(places, replace(WIRING, **wiring))
    try:
        yield made
    finally:
        made.close()


def silent(caller: Caller) -> bool:
    """True if nothing that was sent to it is unread."""
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
        self.passes = []
        for worker in self.workers:
            begin = worker.hear()
            assert isinstance(begin, Begin)
            self.passes.append(begin.word)
            assert (begin.leader, begin.view) == (0, secret.view)
        assert secret.word not in self.passes
        assert len(set(self.passes)) == 2
        return self

    def begin(self) -> Crew:
        """No worker starts before all hold the initial parameters."""
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
