"""What a process writes, cut into lines as it comes."""

from __future__ import annotations

MOST = 1 << 16
"""Bytes of a line that are kept until its end comes; a longer one is shown in pieces."""


class Lines:
    """Cuts a stream at newlines and at carriage returns, which is how a progress bar ends each of its states."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._returned = False
        """A carriage return has just ended a line: a newline after it ends no further one."""

    def feed(self, data: bytes) -> list[str]:
        """The lines that these bytes complete."""
        found: list[str] = []
        for piece in data.splitlines(keepends=True):
            if self._returned and piece == b"\n":
                self._returned = False
                continue
            self._rest += piece.rstrip(b"\r\n")
            while len(self._rest) > MOST:
                found.append(self._cut(MOST))
            self._returned = piece.endswith(b"\r") and bool(self._rest)
            if self._returned or piece.endswith(b"\n"):  # a bar begins with a return: that is no empty line
                found.append(self._cut(len(self._rest)))
        return found

    def end(self) -> list[str]:
        """The stream is over: what is left of it."""
        return [self._cut(len(self._rest))] if self._rest else []

    def _cut(self, size: int) -> str:
        text = self._rest[:size].decode(errors="replace")
        del self._rest[:size]
        return text
