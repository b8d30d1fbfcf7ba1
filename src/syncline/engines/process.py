"""What all processes of a run have in common: a word to the user, and an end when their parent ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def say(line: str) -> None:
    """One line on stderr, whole even where many processes write."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; `parent` is its id, in case it is dead already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def one_thread() -> dict[str, str]:
    """The environment that keeps the arithmetic of a process on one thread."""
    return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
