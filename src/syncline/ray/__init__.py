"""Runs on a Ray cluster: `run` for plain Ray, `SynclineConfig` for Ray Train. docs/ray.md shows both."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from syncline.ray.function_run import run
    from syncline.ray.train_config import SynclineConfig

__all__ = ["SynclineConfig", "run"]

_PLACES = {"run": "syncline.ray.function_run", "SynclineConfig": "syncline.ray.train_config"}


def __getattr__(name: str) -> object:
    """A public name, loaded when it is first asked for: Ray Train takes seconds to import."""
    if name in _PLACES:
        value = globals()[name] = getattr(import_module(_PLACES[name]), name)
        return value
    raise AttributeError(f"module 'syncline.ray' has no attribute {name!r}")
