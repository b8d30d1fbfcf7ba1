"""What all processes of a run have in common: a word to the user, and an end when their parent ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping

from syncline.errors import SynclineError

_PR_SET_PDEATHSIG = 1

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The environment that keeps the arithmetic of a process on one thread."""

_PAST_THE_CACHE = 1 << 19
"""Bytes from which on a copy passes the cache by."""


def say(line: str) -> None:
    """One line on stderr, whole even where many processes write."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def here() -> str:
    """The folder whose modules `python -m` would find; nothing, if it is gone, or not to be looked in (`python -P`)."""
    try:
        return "" if sys.flags.safe_path else os.getcwd()
    except FileNotFoundError:
        return ""


def also_look_in(folder: str) -> None:
    """Find modules in this folder too, if it is named; last, so that no other import becomes a file of that folder."""
    if folder and folder not in sys.path:
        sys.path.append(folder)


def run(main: Callable[[], int]) -> int:
    """Run a process; what went wrong is one line, and exit code 1."""
    try:
        return main()
    except SynclineError as error:
        say(str(error))
        return 1


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; `parent` is its id, in case it is dead already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Take that back: this process finds out by itself, and has something to do first."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, 0)


def share_of_cores(processes: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that keep so many processes out of each other's way, unless there are some already, or it is alone."""
    variable = "OMP_NUM_THREADS"
    if processes <= 1 or variable in environment:
        return {}
    return {variable: str(max(1, len(os.sched_getaffinity(0)) // processes))}


def lean() -> dict[str, str]:
    """The environment of a process that only adds and copies: one thread, and copies that pass the cache by.

    A bucket that is written into a worker's memory is read there, not here; glibc would push other data out for it.
    """
    known = os.environ.get("GLIBC_TUNABLES")
    tuned = f"glibc.cpu.x86_non_temporal_threshold={_PAST_THE_CACHE:#x}"
    return {**ONE_THREAD, "GLIBC_TUNABLES": f"{known}:{tuned}" if known else tuned}
