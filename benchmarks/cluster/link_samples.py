"""Samples of the bytes on a host's link, taken by a process on that host.

    python -m benchmarks.cluster.link_samples SECONDS FILE

It writes one record every SECONDS until SIGTERM: the time, the bytes sent, the bytes received.
"""

from __future__ import annotations

import signal
import struct
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from time import monotonic

from benchmarks.cluster.network import count_bytes

RECORD = struct.Struct("dQQ")

Span = tuple[float, float]
"""The start and the end of something, in seconds of the machine's monotonic clock."""


def samples_of(folder: Path, host: int) -> Path:
    """The file of a host's samples."""
    return folder / f"link{host}.samples"


def read_samples(path: Path) -> list[tuple[float, int, int]]:
    """The samples of a host: (time, bytes sent so far, bytes received so far)."""
    data = path.read_bytes()
    return list(RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size]))


def busy_spans(counts: Iterable[tuple[float, int]], rate: float) -> list[Span]:
    """When a link of `rate` bytes per second was busy, from samples of (time, bytes so far).

    The emulated link passes on some tens of kilobytes at once and then none for a while. A real one would have been
    busy from the moment at which they came, until it had carried them.
    """
    spans: list[Span] = []
    for (before, less), (_, more) in pairwise(counts):
        if more > less:
            start = max(before, spans[-1][1]) if spans else before
            stop = start + (more - less) / rate
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], stop)
            else:
                spans.append((start, stop))
    return spans


def shares(spans: Sequence[Span], start: float, stop: float, parts: int) -> list[float]:
    """For each of the equal parts of the time from `start` to `stop`, the fraction of it that is in the spans."""
    width = (stop - start) / parts
    found = [0.0] * parts
    for begun, ended in spans:
        first, last = max(0, int((begun - start) // width)), min(parts - 1, int((ended - start) // width))
        for part in range(first, last + 1):
            left = start + part * width
            found[part] += max(0.0, min(ended, left + width) - max(begun, left)) / width
    return found


def main() -> None:
    seconds, file = float(sys.argv[1]), Path(sys.argv[2])
    end = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, end)
    with file.open("wb") as output:
        while signal.sigtimedwait(end, seconds) is None:
            carried = count_bytes()
            output.write(RECORD.pack(monotonic(), carried.sent, carried.received))


if __name__ == "__main__":
    main()
