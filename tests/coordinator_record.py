"""Records what a coordinator with a journal sends on each connection, to compare it with a replay of the journal.

In a real run, the file `sitecustomize.py` calls `install` in the coordinator's process if RECORD names a folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path

from syncline.engines.coordinator.inputs import Inputs
from syncline.engines.coordinator.journal import Entry, Journal, entries_of
from syncline.engines.coordinator.process import CoordinatorProcess, made_of
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello
from syncline.engines.net.frames import Frame, header_of
from syncline.engines.net.lasting import LastingConnection, is_counted

RECORD = "RECORD_OF_THE_COORDINATOR"

Frames = dict[int, list[bytes]]
"""The counted frames on each connection, by its number in the journal."""


def install() -> None:
    """Record what this process sends; it is a coordinator."""
    folder = Path(os.environ[RECORD])
    first = not (folder / "process.json").exists()
    file = (folder / "frames").open("a")
    if first:
        words = {key: word for key, word in os.environ.items() if key.startswith("SYNCLINE_")}
        (folder / "process.json").write_text(json.dumps([sys.orig_argv[3:], words]))
    send, enter, opened = LastingConnection.send, Inputs._enter, Journal.open

    def record(*words: object) -> None:
        print(*words, file=file, flush=True)

    def sending(self: LastingConnection, message: Frame, *more: object, **options: object) -> None:
        if is_counted(message) and not self.away:
            record("sent", id(self), header_of(message).hex())
        send(self, message, *more, **options)  # type: ignore[arg-type]

    def entering(self: Inputs, wire: LastingConnection, number: int, hello: Hello) -> None:
        record("is", id(wire), number)
        wires.append(wire)
        enter(self, wire, number, hello)

    def opening(self: Journal) -> list[Entry]:
        found = opened(self)
        if first:
            os.link(self.path, folder / "journal")
        return found

    wires: list[Connection] = []  # kept, so that no two have the same `id`
    LastingConnection.send = sending  # type: ignore[method-assign]
    Inputs._enter = entering  # type: ignore[method-assign]
    Journal.open = opening  # type: ignore[method-assign]


def recorded(folder: Path) -> Frames:
    """What the coordinator has sent on each connection that the journal knows."""
    by_id: dict[str, list[bytes]] = defaultdict(list)
    found: Frames = {}
    for line in (folder / "frames").read_text().splitlines():
        word, wire, value = line.split()
        if word == "sent":
            by_id[wire].append(bytes.fromhex(value))
        else:
            found[int(value)] = by_id[wire]
    return found


def entries(folder: Path) -> list[Entry]:
    return entries_of((folder / "journal").read_bytes())[0]


def replayed(folder: Path, inputs: list[Entry]) -> Frames:
    """What a coordinator sends that handles these inputs again."""
    words, environment = json.loads((folder / "process.json").read_text())
    process: CoordinatorProcess = made_of(words, environment)
    found: Frames = {}
    made = process._inputs
    enter = made._enter
    kept: dict[int, LastingConnection] = {}

    def entering(wire: LastingConnection, number: int, hello: Hello) -> None:
        kept[number] = wire
        enter(wire, number, hello)

    made._enter = entering  # type: ignore[method-assign]
    try:
        made.replay(iter(inputs[1:]))
        for number, wire in kept.items():
            if wire.lasting:
                found[number] = [header_of(each) for each in wire._kept]
        return found
    finally:
        process._loop.close()
