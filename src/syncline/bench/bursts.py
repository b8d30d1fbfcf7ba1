"""The loop of a worker process of any system: wait for a command, run a burst of rounds, report the times."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Protocol

from syncline.bench.channel import Channel


class BurstMember(Protocol):
    """The work of one worker; only `round` is timed."""

    def prepare(self) -> None:
        """Prepare the buffers for a burst."""
        ...

    def round(self) -> None:
        """Send the update and wait for the new values."""
        ...

    def check(self) -> None:
        """Raise RunError after a burst if the values are wrong."""
        ...


def serve(channel: Channel, member: BurstMember) -> None:
    """Report that this worker is ready, then run the bursts that the bench asks for until it closes the channel."""
    channel.send("ready")
    for rounds in channel:
        member.prepare()
        seconds = timed(member.round, rounds)
        member.check()
        channel.send(seconds)


def timed(action: Callable[[], None], rounds: int) -> list[float]:
    """The seconds from the end of one round to the end of the next; an extra first round synchronises the workers."""
    ends = []
    for _ in range(rounds + 1):
        action()
        ends.append(perf_counter())
    return [end - begin for begin, end in pairwise(ends)]
