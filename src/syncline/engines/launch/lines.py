"""Split the output of a process into lines as it arrives."""

from __future__ import annotations

MOST = 1 << 16
"""The longest line in bytes that is buffered until it ends; a longer line is shown in pieces."""


class Lines:
    """Splits a stream at newlines and at carriage returns, since a progress bar ends each state with one."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._returned = False
        """A carriage return has just ended a line; a newline right after it belongs to the same line end."""

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
            if self._returned or piece.endswith(b"\n"):  # a return alone is not an empty line: a bar begins with one
                found.append(self._cut(len(self._rest)))
        return found

    def end(self) -> list[str]:
        """The rest of the stream after its end."""
        return [self._cut(len(self._rest))] if self._rest else []

    def _cut(self, size: int) -> str:
        text = self._rest[:size].decode(errors="replace")
        del self._rest[:size]
        return text
