"""A launcher's connection to the coordinator: what is sent, what is received, and the end of the connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peers import Peer
from syncline.engines.launch.coordinator_link import CoordinatorLink, reach
from syncline.engines.net.addresses import listen_unix
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Abort, Ended, Figures, Hello, Seen, Started, Stop, Welcome
from syncline.engines.net.wiring import Wiring
from syncline.errors import RunError

FIGURES = Figures(0, 1, 0, 0, 1, 8, 8)


@pytest.fixture
def office(peer: Callable[[], Peer]) -> Peer:
    return peer()


@pytest.fixture
def link(office: Peer) -> CoordinatorLink:
    return CoordinatorLink(office.wire, Wiring(coordinator="@there"))


def test_what_is_said_arrives_in_order(link: CoordinatorLink, office: Peer) -> None:
    said = [Started(7), Seen("worker", 0, 0, "ended", pid=7), Abort("enough"), Stop()]
    for message in said:
        link.tell(message)
    assert office.heard() == said
    assert link.fileno() == office.wire.fileno()


def test_what_has_come_is_heard_once(link: CoordinatorLink, office: Peer) -> None:
    assert link.receive() == []
    office.say(Welcome("run", -1, 0, 2))
    office.say(FIGURES)
    assert link.receive() == [Welcome("run", -1, 0, 2), FIGURES]
    assert link.receive() == []
    assert not link.gone


def test_what_came_before_the_end_counts(link: CoordinatorLink, office: Peer) -> None:
    office.say(Ended())
    office.say(FIGURES)
    office.hang_up()
    assert link.receive() == [Ended(), FIGURES]
    assert link.gone
    assert link.receive() == []


def test_sending_to_a_coordinator_that_is_gone_is_no_error(link: CoordinatorLink, office: Peer) -> None:
    office.hang_up()
    for _ in range(3):
        link.tell(Stop())
    assert link.receive() == []
    assert link.gone
    link.tell(Stop())


def test_a_coordinator_that_sends_a_payload_is_gone(link: CoordinatorLink, office: Peer) -> None:
    office.say(Ended())
    office.say(FIGURES, bytes(8))
    assert link.receive() == [Ended()]
    assert link.gone


def test_the_first_place_where_a_coordinator_answers_is_taken() -> None:
    sock, name = listen_unix()
    hello = Hello("run", "launcher", pid=7)
    with sock:
        link = reach(("@syncline-nobody", f"@{name}", "@syncline-never-asked"), Wiring(run="run"), hello)
        theirs = Connection(sock.accept()[0])
        assert [message for message, _ in theirs.receive(lambda *_: memoryview(b""))] == [hello]
        assert link.wiring == Wiring(run="run", coordinator=f"@{name}")
        link.close()
        theirs.close()


def test_where_none_answers_all_are_named() -> None:
    with pytest.raises(RunError, match=r"coordinator at @syncline-nobody: .*; .* at @syncline-nowhere: ") as caught:
        reach(("@syncline-nobody", "@syncline-nowhere"), Wiring(), Hello("run", "launcher"))
    assert str(caught.value).count("cannot reach the coordinator") == 2
