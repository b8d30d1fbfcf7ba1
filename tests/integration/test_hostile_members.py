"""A run under TLS and a hostile member of it, which has the key: no frame of it ends a server or the coordinator."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from hostile import BUCKET, SHAPES, UPDATE, Caller, Recorded, Victim, every_message, until, variants
from syncline.engines.net.control import Begin, Declare, Declared, Hello, Read, Welcome, Whole
from syncline.engines.net.keys import client_context, make_key_file
from syncline.engines.net.tokens import new_token
from syncline.messages import JoinRequest, Push, Skipped, View, Wants

ITERATIONS = 40
TABLES = tuple(Declared(name, shape) for name, shape in SHAPES.items())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Victim, ssl.SSLContext]]:
    """A run under asp whose replies are encoded; after all attacks it ends as it should."""
    directory = tmp_path_factory.mktemp("run")
    make_key_file(directory / "key")
    made = Victim(directory, ITERATIONS, "asp", key_file=str(directory / "key"), reply_codec="int8")
    try:
        made.start_workers()
        made.pace(0.25)
        until(lambda: (directory / "under way").exists(), made)
        yield made, client_context(directory / "key")
        made.alive()
        final, _ = made.result()
        assert np.isfinite(final).all()
    finally:
        made.close()


class HostileMember:
    """A worker that has joined over TLS, is a member, and is connected to the first server."""

    def __init__(self, run: Victim, context: ssl.SSLContext) -> None:
        self._context = context
        self.coordinator = Caller(run.tcp, Hello("", "worker", token=new_token()), context)
        welcome: Welcome = self.coordinator.hears(Welcome)
        self.coordinator.say(Declare(TABLES))
        begin: Begin = self.coordinator.hears(Begin)
        self._where = begin.servers[0].tcp
        who = (welcome.worker, welcome.incarnation)
        self._hello = Hello(welcome.run, "worker", *who, word=begin.word)
        self.coordinator.say(JoinRequest(begin.view.view, welcome.incarnation))
        while all(each.worker != welcome.worker or each.first is None for each in self.coordinator.hears(View).members):
            pass
        self.connect()

    def connect(self) -> None:
        self.server = Caller(self._where, self._hello, self._context)

    def close(self) -> None:
        self.server.close()
        self.coordinator.close()

    def tell(self, whom: Caller, frame: Recorded) -> bool:
        """Send this and then something that is answered; return False if the connection was closed instead."""
        with suppress(ConnectionError, ssl.SSLError, EOFError):
            whom.sock.sendall(frame.whole)
            if whom is self.coordinator:
                return True
            whom.say(Read(BUCKET))
            whom.hears(Whole)
            return True
        return False


def frames() -> list[Recorded]:
    pushes = [Push(0, 0, 1, BUCKET, 1, wants, 0.5, True, 1, 1, Skipped.HELD) for wants in Wants]
    pushes.append(Push(0, 0, 1, BUCKET, 0, holds=1))
    found = [header for message in (*pushes, *every_message("r", "h", 1)) for header in variants(message)]
    return [Recorded(header, payload) for header in found for payload in (b"", UPDATE)]


@pytest.mark.parametrize("count", [150, pytest.param(4_000, marks=pytest.mark.slow)])
def test_no_frame_of_a_member_ends_the_run(run: tuple[Victim, ssl.SSLContext], count: int) -> None:
    victim, context = run
    draw = random.Random(count)
    every = frames()
    pushes = len(list(Wants)) + 1
    chosen = [*draw.choices(every[: pushes * 200], k=count // 2), *draw.choices(every, k=count // 2)]
    member = HostileMember(victim, context)
    for number, frame in enumerate(chosen):
        if not member.tell(draw.choice((member.server, member.server, member.coordinator)), frame):
            member.server.close()
            try:
                member.connect()
            except OSError:
                victim.alive()
                raise
        if not number % 10:
            member.close()
            member = HostileMember(victim, context)
        victim.pace(0.25 + 0.5 * number / len(chosen))
        victim.alive()
    member.close()


def test_the_frames_that_ended_servers(run: tuple[Victim, ssl.SSLContext]) -> None:
    """Each by itself: a reply number and an iteration that no server can have reached."""
    victim, context = run
    for push in (
        Push(0, 0, 0, BUCKET, 0, empty=True, holds=2**64 - 1),
        Push(0, 0, 2**62 + 5, BUCKET, 0, empty=True),
        Push(0, 0, 0, BUCKET, 2**63, empty=True),
    ):
        member = HostileMember(victim, context)
        with suppress(ssl.SSLError, ConnectionError):
            member.server.say(push)
        assert member.server.hangs_up()
        member.close()
        victim.alive()
