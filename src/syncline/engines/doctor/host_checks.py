"""Checks of this host that need no network: versions, processors, memory for data loaders, open files, clock."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from syncline.engines.doctor.finding import Finding, note, ok, wrong

SHARED_FOLDER = Path("/dev/shm")

LEAST_SHARED = 256 << 20
"""The least free bytes of /dev/shm for PyTorch's data loaders. Containers often have only 64 MiB."""

LEAST_FILES = 1024
"""The least number of files that a process must be allowed to open: a server has one connection for each worker."""

FIRST_YEAR = 2024
"""A clock that shows an earlier year was never set."""

_CLOCK_ERROR = 5
"""The result of adjtimex() if the clock is not synchronised (TIME_ERROR)."""

MISSING = "not installed"


def version_of(package: str) -> str:
    """The installed version of a package. The package is not imported, because torch takes seconds."""
    try:
        return version(package)
    except PackageNotFoundError:
        return MISSING


def versions() -> Finding:
    found = {
        "syncline": version_of("syncline"),
        "python": platform.python_version(),
        "numpy": version_of("numpy"),
        "torch": version_of("torch"),
    }
    text = ", ".join(f"{name} {each}" for name, each in found.items())
    if found["torch"] == MISSING:
        return note("versions", text, "PyTorch programs need it: pip install 'syncline[torch]'", **found)
    return ok("versions", text, **found)


def processors(quota: float | None = None) -> Finding:
    """`quota`: how many processors the control group allows; None: it is looked up."""
    count, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    limit = processor_quota() if quota is None else quota
    text = f"{count} processors, load {load:.1f}"
    figures = {"processors": float(count), "load": load}
    if limit < count:
        text += f", of which this container may use {limit:g}"
        remedy = f"set OMP_NUM_THREADS to {max(1, int(limit))} / workers: PyTorch counts all processors"
        return note("processors", text, remedy, **figures, quota=limit)
    if load > count:
        remedy = "other programs slow the workers down; stop them, or start fewer workers"
        return note("processors", text, remedy, **figures)
    return ok("processors", text, **figures)


def processor_quota(file: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """How many processors the control group of this container allows; infinite without a limit."""
    try:
        share, period = file.read_text().split()
    except (OSError, ValueError):
        return float("inf")
    return float("inf") if share == "max" else int(share) / int(period)


def shared_memory(folder: Path = SHARED_FOLDER) -> Finding:
    why = "PyTorch's data loaders put batches there (Syncline itself needs no room there)"
    remedy = "in a container, start it with a larger one, for example docker run --shm-size=1g"
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return wrong("shared memory", f"{folder} cannot be used: {error.strerror}; {why}", remedy)
    size, free = found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail
    text = f"{folder} has {_mebibytes(free)} free of {_mebibytes(size)}"
    figures = {"size_bytes": float(size), "free_bytes": float(free)}
    if free < LEAST_SHARED:
        remedy = remedy if size < LEAST_SHARED else f"remove what fills it: ls {folder}"
        return wrong("shared memory", f"{text}; {why}", remedy, **figures)
    return ok("shared memory", text, **figures)


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"


def open_files() -> Finding:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    text = f"a process may open {limit}"
    if limit < LEAST_FILES:
        return wrong("open files", text, "raise the limit before the run starts: ulimit -n 4096", limit=float(limit))
    return ok("open files", text, limit=float(limit))


def clock(now: datetime | None = None, synchronised: bool | None = None) -> Finding:
    """`synchronised`: whether a time service sets the clock; None: the kernel is asked."""
    now = datetime.now(UTC) if now is None else now
    synchronised = is_synchronised() if synchronised is None else synchronised
    text = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if now.year < FIRST_YEAR:
        remedy = "set it, or start a time service such as chrony: keys are not valid before they were made"
        return wrong("clock", f"{text}, which is in the past", remedy)
    if not synchronised:
        return note("clock", f"{text}; no time service sets it", "compare hosts with --listen and --join")
    return ok("clock", f"{text}, set by a time service")


def is_synchronised() -> bool:
    """Whether the kernel's clock is synchronised. Without a C library that says so, it counts as synchronised."""
    timex = ctypes.create_string_buffer(512)  # struct timex with modes = 0, which only asks; it is smaller than this
    try:
        return int(ctypes.CDLL(None).adjtimex(timex)) != _CLOCK_ERROR
    except AttributeError:
        return True


def about_this_host() -> list[Finding]:
    """All checks of this file."""
    return [versions(), processors(), shared_memory(), open_files(), clock()]
