"""An emulated accelerator: it is busy for a given time, computes nothing, and leaves the host's cores free.

Work is queued, as on a real accelerator: a host that sends an update late does not delay the next layer.
"""

from __future__ import annotations

from time import monotonic, sleep

TICK = 0.0005
"""Waits shorter than this many seconds are added to the next wait. A model has some hundred small layers, and waking up
for each of them would cost the few cores of this machine more than it gains in precision.
"""


class Device:
    """A queue of work, processed in order."""

    def __init__(self) -> None:
        self._free = monotonic()

    def feed(self, seconds: float) -> None:
        """Add work that begins when all earlier work is done, but not before now."""
        self._free = max(self._free, monotonic()) + seconds

    def follow(self, seconds: float) -> None:
        """Add work that begins when all earlier work is done, and wait for its end.

        It may return up to `TICK` early; the next call makes up for that.
        """
        self._free += seconds
        if self._free - monotonic() > TICK:
            self.wait()

    def wait(self) -> None:
        """Wait until all work is done."""
        left = self._free - monotonic()
        if left > 0:
            sleep(left)

    def begin(self) -> None:
        """Clear the queue: the next work begins now."""
        self._free = monotonic()
