"""A long cable: a process that carries frames between a host and the switch, each of them some time later.

    python -m benchmarks.cluster.cable NEAR FAR SECONDS

It makes two TAP devices, NEAR and FAR, in the network namespace in which it runs, prints a line, and carries frames
until it is killed; the devices disappear with it. What is written to one device comes out of the other after SECONDS,
in the same order. Frames may be as large as TCP's largest segments (64 KiB), so they are few.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections import deque
from contextlib import suppress
from errno import EIO
from select import select
from time import monotonic

DEVICE = "/dev/net/tun"

# From the kernel's header if_tun.h.
_MAKE, _OFFLOAD = 0x400454CA, 0x400454D0
_TAP, _NO_HEADER, _OFFLOAD_HEADER = 0x0002, 0x1000, 0x4000
_CHECKSUM, _TSO4, _TSO6 = 0x01, 0x02, 0x04

LARGEST = 10 + 14 + 65_536
"""The bytes of the largest frame: the header about offloads, the Ethernet header, an IP packet."""

AT_ONCE = 64
"""The most frames that are read from one device before the other gets its turn."""


def make_tap(name: str) -> int:
    """Make a TAP device with this name; return its file descriptor."""
    tap = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tap, _MAKE, struct.pack("16sH22x", name.encode(), _TAP | _NO_HEADER | _OFFLOAD_HEADER))
    fcntl.ioctl(tap, _OFFLOAD, _CHECKSUM | _TSO4 | _TSO6)
    return tap


class Direction:
    """Frames on their way from one device to the other."""

    def __init__(self, source: int, target: int, delay: float) -> None:
        self.source = source
        self._target = target
        self._delay = delay
        self._frames: deque[tuple[float, bytes]] = deque()

    @property
    def due(self) -> float:
        """When the next frame arrives; infinite if there is none."""
        return self._frames[0][0] if self._frames else float("inf")

    def read(self) -> None:
        """Take the frames that wait at the source."""
        arrives = monotonic() + self._delay
        with suppress(BlockingIOError):
            for _ in range(AT_ONCE):
                self._frames.append((arrives, os.read(self.source, LARGEST)))

    def write(self, now: float) -> None:
        """Deliver the frames that have arrived."""
        while self.due <= now:
            _, frame = self._frames.popleft()
            try:
                os.write(self._target, frame)
            except OSError as error:
                if error.errno != EIO:  # the device is down: nobody is there to receive the frame
                    raise


def carry(near: int, far: int, delay: float) -> None:
    """Carry frames in both directions, without end."""
    directions = (Direction(near, far, delay), Direction(far, near, delay))
    while True:
        now = monotonic()
        for each in directions:
            each.write(now)
        due = min(each.due for each in directions)
        wait = None if due == float("inf") else max(0.0, due - monotonic())
        readable, _, _ = select((near, far), (), (), wait)
        for each in directions:
            if each.source in readable:
                each.read()


def main() -> None:
    near, far, delay = sys.argv[1:]
    ends = make_tap(near), make_tap(far)
    print("ready", flush=True)
    carry(*ends, float(delay))


if __name__ == "__main__":
    main()
