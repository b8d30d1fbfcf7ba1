"""The channel between the bench and its processes: JSON values over a socket pair, with blocking reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any


class Channel:
    """One end of the socket pair."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection

    def send(self, value: object) -> None:
        self.connection.send_bytes(json.dumps(value).encode())

    def receive(self) -> Any:
        """The next value; `EOFError` or `OSError` if the other end is closed."""
        return json.loads(self.connection.recv_bytes())

    def close(self) -> None:
        self.connection.close()

    def __iter__(self) -> Iterator[Any]:
        """All values until the other end is closed."""
        while True:
            try:
                value = self.receive()
            except (EOFError, OSError):
                return
            yield value
