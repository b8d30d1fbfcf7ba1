"""A worker of any system, seen from inside its process: wait for a command, run a burst, tell the times."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Protocol

from syncline.bench.channel import Channel


class BurstMember(Protocol):
    """What one worker does; only `round` is timed."""

    def prepare(self) -> None:
        """Set the buffers up for a burst."""
        ...

    def round(self) -> None:
        """Hand in the update and wait for the new values."""
        ...

    def check(self) -> None:
        """After a burst: fail unless the values are right."""
        ...


def serve(channel: Channel, member: BurstMember) -> None:
    """Say that this worker is ready, then run bursts of as many rounds as asked for until the bench hangs up."""
    channel.send("ready")
    for rounds in channel:
        member.prepare()
        seconds = timed(member.round, rounds)
        member.check()
        channel.send(seconds)


def timed(action: Callable[[], None], rounds: int) -> list[float]:
    """The seconds from one round's end to the next; a first round, not counted, lines the workers up."""
    ends = []
    for _ in range(rounds + 1):
        action()
        ends.append(perf_counter())
    return [end - begin for begin, end in pairwise(ends)]
