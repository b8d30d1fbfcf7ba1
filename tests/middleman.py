"""A man in the middle: it forwards the traffic on one worker's connections and injects a message of its own.

A worker accepts no connections. It receives messages only on its connections to the coordinator and the servers, so an
attacker must be on one of them. This one is a thread that listens at the addresses that the worker connects to.

Run as a program, this file is a worker whose updates are whole numbers, so that sums are exact in any order. It takes
the arguments of hostile.py:

    python tests/middleman.py DIRECTORY ITERATIONS
"""

from __future__ import annotations

import random
import selectors
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, NamedTuple

import msgspec
import numpy as np

from hostile import NASTY, SECONDS, SEED, SHAPES, Recorded, dial, may_begin, recorded, split
from syncline import Session, connect
from syncline.engines.net.control import Begin
from syncline.engines.net.frames import unpack
from syncline.layout import Values

IDLE = 0.05
"""The seconds without traffic after the attack until a hasty middleman closes the connections. A worker waits for a
silent server forever, so something must end the test; ending it too early does no harm."""


class Attack(NamedTuple):
    """Send something on the connection to `whom` after this many frames have arrived from all peers."""

    whom: str
    after: int
    says: Callable[[Recorded], bytes]
    """Makes the injected bytes from the next frame."""


class Swallow(NamedTuple):
    """Lose the first message of this kind and iteration on the connection to `whom`, in either direction."""

    whom: str
    kind: str
    progress: int


def derails(bad: bytes) -> bool:
    """True if the bytes end in the middle of a frame, so that what follows is misread."""
    return sum(len(each.whole) for each in split(bad)) != len(bad)


def twist(draw: random.Random, frame: Recorded) -> bytes:
    """Remove a nested value of a header, change it slightly, or replace it."""
    fields = within = msgspec.msgpack.decode(frame.header)
    while True:
        key = draw.choice(list(within) if isinstance(within, dict) else range(len(within)))
        value = within[key]
        if not isinstance(value, dict | list) or not value or draw.random() < 0.1:
            break
        within = value
    match draw.randrange(4):
        case 0:
            del within[key]
        case 1 if isinstance(value, int):
            within[key] = min(value + draw.choice((-1, 1, 100)), 2**64 - 1)
        case _:
            within[key] = draw.choice(NASTY)
    return Recorded(msgspec.msgpack.encode(fields), frame.payload).whole


class Side(msgspec.Struct, eq=False):
    """One end of a connection that passes through here."""

    sock: socket.socket
    whom: str
    """The peer to which the worker believes it is connected."""
    to_worker: bool
    """True if the worker is at this end, False if the peer is."""
    other: Any = None
    stream: bytes = b""
    """The incomplete frame received so far."""
    derailed: bool = False


class Middleman(Thread):
    """Sits between one worker and its peers, and attacks once."""

    def __init__(
        self, coordinator: str, attack: Attack | None = None, *, hasty: bool = False, swallow: Swallow | None = None
    ) -> None:
        """`hasty`: close the connections as soon as the worker may be waiting forever.

        `swallow`: one frame that never arrives."""
        super().__init__(daemon=True)
        self._hasty = hasty
        self.attacked = False
        self.heard: list[Recorded] = []
        """The frames that the peers have sent."""
        self._attack = attack
        self._swallow = swallow
        self.swallowed: list[Recorded] = []
        self._selector = selectors.DefaultSelector()
        self._bell, self._rope = socket.socketpair()
        self._selector.register(self._bell, selectors.EVENT_READ)
        self.address = self._open("coordinator", coordinator)
        """The address that the worker uses for the coordinator."""

    def __enter__(self) -> Middleman:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rope.close()
        self.join()

    def run(self) -> None:
        try:
            while self._turn():
                pass
        finally:
            self._close()

    def _turn(self) -> bool:
        """Wait for traffic and forward it; return False at the end."""
        ready = self._selector.select((IDLE if self._hasty else SECONDS) if self.attacked else None)
        if not ready:
            self._hang_up()
        for key, _ in ready:
            if key.fileobj is self._bell:
                return False
            if isinstance(key.data, Side):
                self._pass(key.data)
            else:
                self._accept(key.fileobj, *key.data)  # type: ignore[arg-type]
        return True

    def _open(self, whom: str, where: str) -> str:
        """Listen in place of a peer, and return the address."""
        door = socket.create_server(("127.0.0.1", 0))
        self._selector.register(door, selectors.EVENT_READ, (whom, where))
        return "{}:{}".format(*door.getsockname())

    def _accept(self, door: socket.socket, whom: str, where: str) -> None:
        ours, theirs = Side(door.accept()[0], whom, True), Side(dial(where), whom, False)
        ours.other, theirs.other = theirs, ours
        for side in (ours, theirs):
            side.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(side.sock, selectors.EVENT_READ, side)

    def _sides(self) -> list[Side]:
        return [key.data for key in self._selector.get_map().values() if isinstance(key.data, Side)]

    def _pass(self, side: Side) -> None:
        if side.sock.fileno() < 0:
            return
        try:
            data = side.sock.recv(1 << 16)
            if side.to_worker and self._swallow is None:
                side.other.sock.sendall(data)
            elif side.to_worker:
                self._pass_frames(side, data)
            else:
                self._tell(side, data)
        except OSError:
            data = b""
        if not data or side.derailed:
            self._end(side)

    def _tell(self, side: Side, data: bytes) -> None:
        """Forward the complete frames to the worker, with the attack before one of them."""
        side.stream += data
        for frame in split(side.stream):
            side.stream = side.stream[len(frame.whole) :]
            if self._is_time(side.whom):
                self._strike(frame)
            self.heard.append(frame)
            if not self._swallows(side.whom, frame):
                side.other.sock.sendall(self._led_here(frame).whole)

    def _pass_frames(self, side: Side, data: bytes) -> None:
        """Pass on what the worker says, frame by frame."""
        side.stream += data
        for frame in split(side.stream):
            side.stream = side.stream[len(frame.whole) :]
            if not self._swallows(side.whom, frame):
                side.other.sock.sendall(frame.whole)

    def _swallows(self, whom: str, frame: Recorded) -> bool:
        """Is this the frame that gets lost, without any connection being closed?"""
        swallow = self._swallow
        if swallow is None or self.swallowed or whom != swallow.whom:
            return False
        fields = msgspec.msgpack.decode(frame.header)
        if fields["type"] != swallow.kind or fields.get("progress") != swallow.progress:
            return False
        self.swallowed.append(frame)
        return True

    def _is_time(self, source: str) -> bool:
        """A fake server attacks just before the real one sends; a fake coordinator at any time, since the real one is
        silent."""
        attack = self._attack
        if attack is None or self.attacked or len(self.heard) < attack.after:
            return False
        return attack.whom in (source, "coordinator")

    def _strike(self, coming: Recorded) -> None:
        assert self._attack is not None
        for side in self._sides():
            if side.whom == self._attack.whom and not side.to_worker:
                self.attacked = True
                bad = self._attack.says(coming)
                side.derailed = self._hasty and derails(bad)
                side.other.sock.sendall(bad)

    def _led_here(self, frame: Recorded) -> Recorded:
        """Replace the servers' addresses in a frame with the middleman's."""
        message = unpack(frame.header)
        if not isinstance(message, Begin):
            return frame
        places = [
            msgspec.structs.replace(place, tcp=self._open(f"server{number}", place.tcp))
            for number, place in enumerate(message.servers)
        ]
        return recorded(msgspec.structs.replace(message, servers=tuple(places)))

    def _hang_up(self) -> None:
        for side in self._sides():
            self._end(side)

    def _end(self, side: Side) -> None:
        for each in (side, side.other):
            if each.sock.fileno() >= 0:
                self._selector.unregister(each.sock)
                each.sock.close()

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()


# A worker whose updates are whole numbers.


def whole_update(rank: int, iteration: int) -> dict[str, Values]:
    draw = np.random.default_rng([SEED, rank, iteration])
    return {name: draw.integers(-8, 9, shape).astype(np.float32) for name, shape in SHAPES.items()}


def vector(tables: dict[str, Values]) -> Values:
    return np.concatenate([tables[name].ravel() for name in SHAPES])


def train(session: Session, directory: Path, iterations: int) -> None:
    tables = session.tables({name: np.zeros(shape) for name, shape in SHAPES.items()})
    for iteration in range(iterations):
        while not may_begin(directory, iteration):
            sleep(0.005)
        for name, update in whole_update(session.rank, iteration).items():
            session.update(name, update)
        session.clock()
        session.sync()
        if iteration == 0:
            (directory / "under way").touch()
    session.close()
    np.save(directory / f"final{session.rank}.npy", vector(tables))


if __name__ == "__main__":
    train(connect(), Path(sys.argv[1]), int(sys.argv[2]))
