"""The trace of a server or worker: a file with one line per message, in the order in which its node handled them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

from syncline.effects import Change, Effect, Event, Received, Send
from syncline.engines.process import say
from syncline.layout import Payload
from syncline.messages import COORDINATOR, Message, NodeId, Push

HEADER = "time,from,to,kind,progress,bytes,start,stop,version,v\n"


class MessageTrace:
    """Writes the trace of a node to DIRECTORY/server0.csv, or server0.NAME.csv if the user has named the model.

    A worker that was started again writes another file (`worker0-1.csv`).
    """

    def __init__(self, directory: str, node: NodeId, model: str, incarnation: int = 0) -> None:
        self._file: TextIO | None = None
        self.lost = False
        """True if a full disk, for example, has ended the trace before the run."""
        self.on = bool(directory)
        if directory:
            who = f"{node}-{incarnation}" if incarnation else str(node)
            name = "" if model == "model" else f".{quote(model, safe='')}"
            self._path = Path(directory) / f"{who}{name}.csv"
            try:
                self._file = self._path.open("w", buffering=1 << 20)
            except OSError as error:
                self._lose(error)
            self._write(HEADER)

    def handled(self, me: NodeId, event: Event, effects: Sequence[Effect], now: float) -> None:
        if type(event) is Received:
            self._line(now, event.source, me, event.message, _bytes(event.payload))
        elif type(event) is Change:
            self._write(f"{now!r},{COORDINATOR},{me},change,-1,0,,,,\n")
        for effect in effects:
            if type(effect) is Send:
                self._line(now, me, effect.to, effect.message, _bytes(effect.payload))

    def close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self._lose(error)

    def _write(self, line: str) -> None:
        try:
            if self._file is not None:
                self._file.write(line)
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        """The trace cannot be written: say so once, and go on without it."""
        self.lost, file, self._file = True, self._file, None
        say(f"--trace: cannot write {str(self._path)!r}: {error.strerror}; the rest of this trace is missing")
        with suppress(OSError):  # what could not be written is not written now, either
            if file is not None:
                file.close()

    def _line(self, now: float, source: NodeId, to: NodeId, message: Message, size: int) -> None:
        if self._file is None:
            return
        bucket = getattr(message, "bucket", None)
        start, stop = ("", "") if bucket is None else (bucket.start, bucket.stop)
        version = message.read if type(message) is Push else getattr(message, "version", "")
        kind = message.__struct_config__.tag
        progress, v = getattr(message, "progress", -1), getattr(message, "v", "")
        self._write(f"{now!r},{source},{to},{kind},{progress},{size},{start},{stop},{version},{v}\n")


def _bytes(payload: Payload | None) -> int:
    return 0 if payload is None else payload.nbytes
