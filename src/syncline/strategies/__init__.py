"""What a run is made of: who talks to whom, and with which parts."""

from syncline.strategies.mode import Mode
from syncline.strategies.protocol import Job, Strategy

__all__ = ["Job", "Mode", "Strategy"]
