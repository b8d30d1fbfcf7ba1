"""An accelerator that computes nothing: it is busy for a given time, and its host is free meanwhile.

As on a real one, work is queued: a host that is late with sending an update does not hold up the next layer.
"""

from __future__ import annotations

from time import monotonic, sleep

TICK = 0.0005
"""Seconds: a shorter wait within a pass is left to the next one. A model has some hundred small layers, and to wake up
for each of them would cost the few cores of this machine more than it adds to the truth.
"""


class Device:
    """Does what it is given, one piece after another."""

    def __init__(self) -> None:
        self._free = monotonic()

    def feed(self, seconds: float) -> None:
        """A piece of work that begins when all earlier ones are done, but not before now."""
        self._free = max(self._free, monotonic()) + seconds

    def follow(self, seconds: float) -> None:
        """A piece of work that begins when all earlier ones are done, and was queued before that; wait for its end.

        It may return a tick early; the next one makes up for that.
        """
        self._free += seconds
        if self._free - monotonic() > TICK:
            self.wait()

    def wait(self) -> None:
        """Wait until nothing is left to do."""
        left = self._free - monotonic()
        if left > 0:
            sleep(left)

    def begin(self) -> None:
        """Nothing is queued: what follows begins now."""
        self._free = monotonic()
