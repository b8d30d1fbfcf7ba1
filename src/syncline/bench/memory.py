"""Whether a case fits into memory with all systems started at once, as measuring them in turn requires."""

from __future__ import annotations

from pathlib import Path

from syncline.bench.case import Case

_PROCESS = 64 * 2**20
"""What a process takes before it holds values, in bytes: 36 MiB with numpy, 222 MiB with torch, which few have."""


def needed(case: Case, systems: int) -> int:
    """An upper estimate in bytes: three arrays for each worker of each system, and one for its servers.

    Measured for 10 million values and 4 workers: 2 arrays for each worker of the floor and one more for all, 1.3 with
    gloo, and 3 with sockets.
    """
    arrays = (3 * case.workers + 1) * 4 * case.size
    processes = (case.workers + case.servers) * _PROCESS
    return systems * (arrays + processes)


def free() -> int | None:
    """How many bytes this machine can still give without swapping; None where the system does not say."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    lines = dict(line.split(":", 1) for line in text.splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else None
