"""The processes of one run, found by a mark in their environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "CHAOS_RUN"


def marked(mark: str) -> list[int]:
    """All live processes of the run with this mark."""
    wanted = f"{MARK}={mark}".encode()
    return [pid for pid in _all() if wanted in _read(pid, "environ").split(b"\0")]


def find(mark: str, launcher: int, who: str) -> int | None:
    """The process of `worker0`, `server1` or the `coordinator`; None if it does not run."""
    role, number = who[:-1], who[-1]
    for pid in marked(mark):
        if who == "coordinator":
            found = _read(pid, "cmdline").split(b"\0")[1:3] == [b"-m", b"syncline.engines.coordinator"]
        elif role == "server":
            found = _read(pid, "cmdline").split(b"\0")[1:4] == [b"-m", b"syncline.engines.server", number.encode()]
        else:
            mine = f"SYNCLINE_WORKER={number}".encode() in _read(pid, "environ").split(b"\0")
            found = mine and _parent(pid) == launcher
        if found:
            return pid
    return None


def send(pid: int, number: int) -> None:
    """Send a signal, unless the process has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _all() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""  # it has ended


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0
