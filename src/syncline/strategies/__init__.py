"""Strategies: which nodes a run has, how they are connected, and which parts it uses."""

from syncline.strategies.mode import Mode
from syncline.strategies.protocol import Job, Strategy

__all__ = ["Job", "Mode", "Strategy"]
