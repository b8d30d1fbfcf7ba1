"""The hosts of a run that begins on several: which of their launchers have connected, and who has started what.

1. The coordinator knows the share of its own launcher. Every other launcher names its share when it connects.
2. A launcher whose terms differ is refused, with the first difference. It may start again with the right ones.
3. Until all have connected, the user is told at growing intervals which ones are missing.
4. A launcher that comes when training has begun is late: it has been part of the run before. Its workers join.
"""

from __future__ import annotations

from math import inf

import msgspec

from syncline.engines.coordinator.roster import Refusal
from syncline.engines.coordinator.waiting import listed
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import HostShare

FIRST_SECONDS = 10.0
"""Seconds after which the user is told which hosts are missing; each further pause is twice as long."""


class Disagreement(Refusal):
    """A launcher was started with other options than the first one."""


class FirstHosts:
    """The launchers that begin a run together; `own`: the share of the first one, None if there are no others."""

    def __init__(self, own: HostShare | None) -> None:
        self._own = own
        self._shares: dict[Connection, HostShare] = {}
        self._begun = -inf
        self._pause = FIRST_SECONDS

    @property
    def missing(self) -> list[int]:
        """The ranks whose launcher is not connected."""
        if self._own is None:
            return []
        there = {self._own.rank, *(share.rank for share in self._shares.values())}
        return [rank for rank in range(self._own.hosts) if rank not in there]

    def check(self, share: HostShare) -> None:
        """Raise `Refusal` if this launcher cannot be part of the run."""
        if self._own is None:
            raise Refusal("this run does not begin on several hosts; join it with --join")
        if share.terms != self._own.terms:
            raise Disagreement(_difference(share.terms, self._own.terms, share.rank))
        if share.hosts != self._own.hosts or share.rank not in range(1, self._own.hosts):
            raise Refusal(f"this run has the hosts 0 to {self._own.hosts - 1}, and no other host {share.rank}")
        if share.rank not in self.missing:
            raise Refusal(f"host {share.rank} is connected already: give every host another --host-rank")

    def enter(self, wire: Connection, share: HostShare) -> None:
        self._shares[wire] = share

    def leave(self, wire: Connection) -> None:
        self._shares.pop(wire, None)

    def rank(self, wire: Connection) -> int | None:
        """The rank of the host whose launcher this is; None for any other peer."""
        return self._shares[wire].rank if wire in self._shares else None

    def has_started(self, wire: Connection, role: str, number: int) -> bool:
        """Whether this launcher, of a host with a rank above 0, has started this worker or server of the first ones."""
        share = self._shares.get(wire)
        if share is None:
            return False
        first, end = share.workers if role == "worker" else share.servers
        return first <= number < end

    def line(self, now: float) -> str | None:
        """The line for the user that says which hosts are missing, if it is due."""
        missing = self.missing
        if not missing or self._own is None:
            return None
        if self._begun == -inf:
            self._begun = now
        if now - self._begun < self._pause:
            return None
        self._pause *= 2
        names = listed([f"host {rank}" for rank in missing])
        return f"waiting for {names} of {self._own.hosts} to start for {now - self._begun:.0f} s"


def share_of(text: str) -> HostShare | None:
    """The share that a launcher has written for its coordinator; "": the run begins on one host."""
    return msgspec.json.decode(text, type=HostShare) if text else None


def _difference(theirs: dict[str, str], ours: dict[str, str], rank: int) -> str:
    """The first option that differs, and what to do about it."""
    option = next(key for key in (*ours, *theirs) if ours.get(key) != theirs.get(key))
    own, other = (f"{words[option]!r}" if option in words else "not given" for words in (ours, theirs))
    return f"{option}: is {other} on host {rank}, and {own} on host 0; start all hosts with the same options"
