"""Syncline keeps the replicas of a model in step while many uneven machines train it over ordinary networks."""

from syncline.errors import GoneError, NotFinite, PeerError, RunError, Stalled, SynclineError, UsageError
from syncline.layout import Bucket, Layout, Table
from syncline.pytorch.session import Session, connect
from syncline.spec import parse
from syncline.sync import Asp, Bsp, Drop, Dsps, Pssp, Release, Ssp, SyncModel

__version__ = "0.1.0"

__all__ = [
    "Asp",
    "Bsp",
    "Bucket",
    "Drop",
    "Dsps",
    "GoneError",
    "Layout",
    "NotFinite",
    "PeerError",
    "Pssp",
    "Release",
    "RunError",
    "Session",
    "Ssp",
    "Stalled",
    "SyncModel",
    "SynclineError",
    "Table",
    "UsageError",
    "__version__",
    "connect",
    "parse",
]
