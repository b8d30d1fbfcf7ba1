"""Is a process of this host alive, stopped, or gone? Asked of the kernel, so one that computes is never mistaken."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from syncline.errors import UsageError

PATIENCE = 10.0
"""Seconds for which a worker may be stopped before it counts as dead."""


def patience(environment: Mapping[str, str]) -> float:
    """The same, as the environment says (SYNCLINE_PATIENCE)."""
    word = environment.get("SYNCLINE_PATIENCE", "")
    try:
        seconds = float(word or PATIENCE)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise UsageError("SYNCLINE_PATIENCE", f"{word!r} is no number of seconds above 0; {PATIENCE:g} is the default")
    return seconds


def state_of(pid: int) -> str | None:
    """The kernel's letter for a process (`T`: stopped), or None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()[0]


class Stopped:
    """Notes since when each process has been stopped."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def seconds(self, pid: int, now: float) -> float:
        """How long this process has been stopped without a break, as far as was seen."""
        if state_of(pid) not in ("T", "t"):
            self._since.pop(pid, None)
            return 0.0
        return now - self._since.setdefault(pid, now)


def host() -> str:
    """What names this host to processes that could share memory, and mean the same by a pid: kernel, network, pids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    spaces = (str(Path(f"/proc/self/ns/{each}").readlink()) for each in ("net", "pid"))
    return "/".join((boot, *spaces))
