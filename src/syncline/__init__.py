"""Syncline keeps the replicas of a model in step while many uneven machines train it over ordinary networks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from syncline.codecs import Codec
    from syncline.errors import GoneError, NotFinite, PeerError, RunError, Stalled, SynclineError, UsageError
    from syncline.layout import Bucket, Layout, Table
    from syncline.pytorch.session import Session, connect
    from syncline.spec import parse
    from syncline.strategies import Strategy
    from syncline.sync import Asp, Bsp, Drop, Dsps, Psp, Pssp, Release, Ssp, SyncModel

__version__ = "0.1.0"

__all__ = [
    "Asp",
    "Bsp",
    "Bucket",
    "Codec",
    "Drop",
    "Dsps",
    "GoneError",
    "Layout",
    "NotFinite",
    "PeerError",
    "Psp",
    "Pssp",
    "Release",
    "RunError",
    "Session",
    "Ssp",
    "Stalled",
    "Strategy",
    "SyncModel",
    "SynclineError",
    "Table",
    "UsageError",
    "__version__",
    "connect",
    "parse",
]

_PLACES = {
    "syncline.codecs": ("Codec",),
    "syncline.errors": ("GoneError", "NotFinite", "PeerError", "RunError", "Stalled", "SynclineError", "UsageError"),
    "syncline.layout": ("Bucket", "Layout", "Table"),
    "syncline.pytorch.session": ("Session", "connect"),
    "syncline.spec": ("parse",),
    "syncline.strategies": ("Strategy",),
    "syncline.sync": ("Asp", "Bsp", "Drop", "Dsps", "Psp", "Pssp", "Release", "Ssp", "SyncModel"),
}


def __getattr__(name: str) -> object:
    """A public name, loaded when it is first asked for: servers and commands need few of them, and start sooner."""
    for module, names in _PLACES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module 'syncline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
