"""Functions for all processes of a run: messages to the user, module search path, environment, end with the parent."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from syncline.errors import SynclineError, printable

_PR_SET_PDEATHSIG = 1

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment variables that limit numpy and torch to one thread."""

_NON_TEMPORAL_BYTES = 1 << 19
"""Copies of at least this many bytes bypass the cache."""


def say(line: str) -> None:
    """Write one line to stderr, in one call, so that lines of several processes do not mix.

    The line may contain texts of other processes, such as the name of a table, so it is written with escapes.
    """
    sys.stderr.write(printable(line) + "\n")
    sys.stderr.flush()


def here() -> str:
    """The folder in which `python -m` finds modules; "" if it was removed, or is not searched (`python -P`)."""
    try:
        return "" if sys.flags.safe_path else os.getcwd()
    except FileNotFoundError:
        return ""


def folders(*names: str) -> str:
    """Several folders as one text, as in PATH; "" is left out."""
    return os.pathsep.join(dict.fromkeys(filter(None, names)))


def also_look_in(names: str) -> None:
    """Add these folders (as in PATH) to the end of the module search path, so that they hide no other module."""
    for folder in filter(None, names.split(os.pathsep)):
        if folder not in sys.path:
            sys.path.append(folder)


def beside(*files: Path | None) -> str:
    """The folders of these files, in which a user's own modules are searched; none with `python -P`."""
    return "" if sys.flags.safe_path else folders(*(str(file.resolve().parent) for file in files if file is not None))


def run(main: Callable[[], int]) -> int:
    """Run the main function of a process; an expected error becomes one line on stderr and exit code 1."""
    try:
        return main()
    except SynclineError as error:
        say(str(error))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        say(os_problem(error))
    return 1


def os_problem(error: OSError) -> str:
    """One line about an error of the operating system; it names the limit if this process has too many files open."""
    if error.errno == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"too many open files: a process may have {limit}; raise the limit first, e.g. with `ulimit -n 4096`"
    if error.filename is None and _is_folder_gone():
        return "the current folder was removed; change to another one first"
    return f"{error.filename or 'a file'}: {error.strerror}"


def _is_folder_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies; exit now if `parent`, a process id, is dead already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undo `end_with_parent`, for a process that notices the death itself and has work to do before it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, 0)


def share_of_cores(processes: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that divide the cores among this many processes; {} for one process, or if the user has set them."""
    variable = "OMP_NUM_THREADS"
    if processes <= 1 or variable in environment:
        return {}
    return {variable: str(max(1, len(os.sched_getaffinity(0)) // processes))}


def lean() -> dict[str, str]:
    """The environment of a process that only adds and copies arrays: one thread, and large copies bypass the cache.

    A bucket that a server writes into a worker's memory is read by the worker, not by the server. Without this setting
    glibc would evict other data from the cache for it.
    """
    known = os.environ.get("GLIBC_TUNABLES")
    tuned = f"glibc.cpu.x86_non_temporal_threshold={_NON_TEMPORAL_BYTES:#x}"
    return {**ONE_THREAD, "GLIBC_TUNABLES": f"{known}:{tuned}" if known else tuned}
