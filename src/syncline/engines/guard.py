"""The guard: a small process that ends what another process has started, if that one dies or stays stopped.

    python -I -S guard.py WATCHED PARENT PATIENCE

`WATCHED` is the id of the process to watch: a launcher, or torchrun. `PARENT` is the id of the process that starts the
guard. The guard reads lines from stdin:

    + PID     a process that leads a session; the guard kills the session if the watched process dies
    ++ PID    the same, but the guard first gives it a moment to end by itself
    - PID     this process and its session have ended
    pause     the user has stopped the watched process (Ctrl-Z): do not count the time
    resume    it continues
    quit      end, and leave everything as it is

1. The guard sees the death of the watched process by a pidfd, even if other processes hold its pipes.
2. A watched process that is stopped (SIGSTOP) for more than PATIENCE seconds is killed, and counts as dead.
3. The guard ends with the process that has started it.
4. Only the standard library is used, without `site`, so that the process starts in some milliseconds.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

LOOK_SECONDS = 0.5
"""Seconds between two checks whether the watched process is stopped."""

MOMENT_SECONDS = 1.0
"""Seconds in which a process that was named by `++` may end by itself."""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def processes_of(session: int) -> Iterator[int]:
    """The processes of a session that have not ended."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields and int(fields[3]) == session and fields[0] not in "ZX":
                yield int(name)


def kill_session(leader: int) -> None:
    """Kill every process of the session that this process leads, whatever its process group."""
    killed: set[int] = set()
    while found := set(processes_of(leader)) - killed:  # again: one of them may have forked meanwhile
        for pid in found:
            _kill(pid)
        killed |= found


def parent_of_session(session: int) -> int:
    """The process that has started the leader of this session; 0 if the leader does not exist."""
    return int((_stat(session) or ["", "0"])[1])


def _kill(pid: int) -> None:
    with suppress(OSError):  # it has ended, or belongs to somebody else
        os.kill(pid, signal.SIGKILL)


class _Guard:
    def __init__(self, watched: int, parent: int, patience: float) -> None:
        self._watched = watched
        self._patience = patience
        self._sessions: dict[int, bool] = {}
        """The sessions to kill; True: after a moment."""
        self._stopped: float | None = None
        self._paused = False
        self._half = b""
        self._parent = parent
        self._over = False

    def run(self) -> None:
        os.set_blocking(0, False)
        try:
            watched = os.pidfd_open(self._watched)
        except ProcessLookupError:
            return  # it died before it could name a session
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        poll.register(0, select.POLLIN)
        while not self._over:
            ready = [fd for fd, _ in poll.poll(LOOK_SECONDS * 1000)]
            if 0 in ready and not self._read():
                poll.unregister(0)
            if watched in ready:
                while self._read():
                    pass  # what it has written before its death
                self._end()
                return
            self._look()

    def _read(self) -> bool:
        """Handle the lines that have come; return False at the end of the file."""
        try:
            data = os.read(0, 1 << 16)
        except BlockingIOError:  # another process still holds the other end
            return False
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            self._handle(line.decode().split())
        return bool(data)

    def _handle(self, words: list[str]) -> None:
        match words:
            case ["+" | "++" as how, pid]:
                self._sessions[int(pid)] = how == "++"
            case ["-", pid]:
                self._sessions.pop(int(pid), None)
            case ["pause" | "resume" as word]:
                self._paused = word == "pause"
            case ["quit"]:
                self._over = True

    def _look(self) -> None:
        """Kill the watched process if it has been stopped for too long."""
        self._over |= os.getppid() != self._parent and self._parent != self._watched
        if self._paused or (_stat(self._watched) or [""])[0] != "T":
            self._stopped = None
            return
        now = time.monotonic()
        self._stopped = self._stopped or now
        if now - self._stopped > self._patience:
            sys.stderr.write(f"syncline: process {self._watched} was stopped for more than {self._patience:g} s; ")
            sys.stderr.write("it counts as dead, and is killed together with all that it has started\n")
            _kill(self._watched)

    def _end(self) -> None:
        for leader, wait in self._sessions.items():
            if not wait:
                kill_session(leader)
        until = time.monotonic() + MOMENT_SECONDS
        late = [leader for leader, wait in self._sessions.items() if wait]
        while any(_stat(leader) for leader in late) and time.monotonic() < until:
            time.sleep(0.01)
        for leader in late:
            kill_session(leader)


if __name__ == "__main__":
    _Guard(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).run()
