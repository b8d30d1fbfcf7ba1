"""The processor time of processes, for the benchmarks in this folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def family(pid: int) -> list[int]:
    """This process and all its descendants."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def busy(pids: Iterable[int]) -> float:
    """The processor time of these processes, in seconds."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9
