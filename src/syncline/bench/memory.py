"""Check whether a case fits into memory. All systems run at once, since they are measured in turn."""

from __future__ import annotations

from pathlib import Path

from syncline.bench.case import Case

_PROCESS = 64 * 2**20
"""The bytes of a process without values: 36 MiB with numpy, 222 MiB with torch, which only a few processes use."""


def needed(case: Case, systems: int) -> int:
    """An upper estimate in bytes: for each system, three arrays per worker and one for all its servers.

    Measured with 10 million values and 4 workers, in arrays per worker: floor 2 (and one more in total), gloo 1.3,
    sockets 3.
    """
    arrays = (3 * case.workers + 1) * 4 * case.size
    processes = (case.workers + case.servers) * _PROCESS
    return systems * (arrays + processes)


def free() -> int | None:
    """The bytes that this machine can provide without swapping; None if the system does not report them."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    lines = dict(line.split(":", 1) for line in text.splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else None
