"""Hints that a user gets once, not in every run: a file in the user's cache folder says that it was given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def first_time(hint: str, environment: Mapping[str, str]) -> bool:
    """Return True if this user has not been given this hint yet, and remember it.

    If it cannot be remembered (a home that cannot be written), this returns False: no hint is better than one in every
    run.
    """
    try:
        folder = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "syncline"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"told-{hint}").touch(exist_ok=False)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return False
    return True
