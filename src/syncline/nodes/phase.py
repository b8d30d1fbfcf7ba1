"""The phases of a worker's membership."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    JOINING = auto()
    RUNNING = auto()
    LEAVING = auto()
    GONE = auto()
