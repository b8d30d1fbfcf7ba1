"""How a function reaches the workers of a host, and how what it returns comes back: by a Unix socket without a file.

A worker of the host connects, gets the function, calls it, and sends what it returned on the same connection. Nothing
is written to a disk. Only processes of the same user are answered.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

from syncline.engines.net import addresses

MODULE = "syncline.ray.function_worker"

SECONDS = 60.0
"""How long the last results may take to arrive after the workers have ended."""


class FunctionCall(msgspec.Struct, frozen=True):
    """What a worker is to call."""

    function: bytes
    searched: tuple[str, ...]
    """Folders in which its modules may lie."""


class FunctionResult(msgspec.Struct, frozen=True):
    """What a worker's call has returned, pickled."""

    worker: int
    value: bytes


class FunctionServer:
    """Hands out one function, and collects what it returns."""

    def __init__(self, function: bytes, searched: tuple[str, ...], returned: Callable[[int, bytes], None]) -> None:
        self._call = msgspec.msgpack.encode(FunctionCall(function, searched))
        self._returned = returned
        name = f"syncline-function-{secrets.token_hex(8)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind("\0" + name)
        self._socket.listen()
        self.command = [sys.executable, "-m", MODULE, name]
        self._threads: list[threading.Thread] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed: the run is over
            while True:
                wire, _ = self._socket.accept()
                if addresses.peer_credentials(wire).uid != os.geteuid():
                    wire.close()
                    continue
                thread = threading.Thread(target=self._serve, args=(wire,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, wire: socket.socket) -> None:
        """One worker, until it ends; a worker that dies sends nothing."""
        with wire, suppress(OSError):
            wire.sendall(self._call)
            wire.shutdown(socket.SHUT_WR)
            said = received(wire)
            if said:
                result = msgspec.msgpack.decode(said, type=FunctionResult)
                self._returned(result.worker, result.value)

    def settle(self) -> None:
        """Wait until the results of all workers that have ended are there."""
        for thread in self._threads:
            thread.join(SECONDS)

    def close(self) -> None:
        self._socket.close()


def received(wire: socket.socket) -> bytes:
    """Everything that the peer sends."""
    parts = []
    while part := wire.recv(1 << 20):
        parts.append(part)
    return b"".join(parts)
