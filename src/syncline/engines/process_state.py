"""Ask the kernel whether a process of this host is alive, stopped or gone. A busy process never counts as dead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from syncline.errors import UsageError

PATIENCE = 10.0
"""Seconds for which a worker may be stopped (SIGSTOP) before it counts as dead."""


def patience(environment: Mapping[str, str]) -> float:
    """The value of SYNCLINE_PATIENCE in the environment, in seconds, or the default."""
    word = environment.get("SYNCLINE_PATIENCE", "")
    try:
        seconds = float(word or PATIENCE)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        problem = f"{word!r} is not a number of seconds above 0; the default is {PATIENCE:g}"
        raise UsageError("SYNCLINE_PATIENCE", problem)
    return seconds


def state_of(pid: int) -> str | None:
    """The kernel's letter for the state of a process (`T`: stopped); None if no such process exists."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()[0]


class Stopped:
    """Records since when each process has been stopped."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def seconds(self, pid: int, now: float) -> float:
        """How long this process has been stopped, since the first call that found it stopped."""
        if state_of(pid) not in ("T", "t"):
            self._since.pop(pid, None)
            return 0.0
        return now - self._since.setdefault(pid, now)


def host() -> str:
    """An identifier of this host: boot id, network namespace and pid namespace.

    Processes with the same identifier can share memory and agree on process ids.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    spaces = (str(Path(f"/proc/self/ns/{each}").readlink()) for each in ("net", "pid"))
    return "/".join((boot, *spaces))
