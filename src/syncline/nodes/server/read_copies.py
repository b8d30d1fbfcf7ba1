"""Copies of the parameters that each worker has read last, for a rule that needs them (`Need.READ`).

1. The server makes the copy when it answers with parameters, and sends the copy itself. With a reply codec the copy is
   what the worker really has. Workers that read the same version share a copy.
2. A repeat of an answered request is answered with the same copy. So the worker has what the copy says, no matter which
   of the answers arrives.
3. An update must name the version of the copy. A gate can add updates that were computed from different versions, so
   such a rule works only without one.
4. All members have the first parameters, as the first version. The copies move with the bucket. They are not in a
   checkpoint, since all workers begin with the saved parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from syncline.errors import PeerError
from syncline.layout import Values
from syncline.messages import LastPush
from syncline.nodes.server.kept_updates import Who


class ReadCopy(NamedTuple):
    """The parameters that this incarnation of a worker has read; `values` never change."""

    incarnation: int
    version: int
    values: Values
    v: int = 0
    seen: tuple[LastPush, ...] = ()
    """V at that time, and which updates the values contain, if servers can be lost."""


class ReadCopies:
    """One copy for each worker."""

    __slots__ = ("_last", "_of")

    def __init__(self) -> None:
        self._of: dict[int, ReadCopy] = {}
        self._last: tuple[int, Values] | None = None
        """The version that was copied last, and the copy."""

    def begin(self, members: Iterable[Who], version: int, params: Values) -> None:
        """All these workers begin with the first parameters, which have this version."""
        for who in members:
            self.copy(who, version, params)

    def copy(self, who: Who, version: int, params: Values, v: int = 0, seen: tuple[LastPush, ...] = ()) -> Values:
        """Copy what this worker is about to read, and return the copy."""
        if self._last is None or self._last[0] != version:
            self._last = (version, params.copy())
        self.keep(who, version, self._last[1], v, seen)
        return self._last[1]

    def keep(self, who: Who, version: int, values: Values, v: int = 0, seen: tuple[LastPush, ...] = ()) -> None:
        """Keep an array that never changes as the copy of this worker."""
        self._of[who[0]] = ReadCopy(who[1], version, values, v, seen)

    def of(self, who: Who) -> ReadCopy | None:
        found = self._of.get(who[0])
        return found if found is not None and found.incarnation == who[1] else None

    def read_at(self, who: Who, version: int) -> Values:
        """What this worker has computed an update from; `PeerError` unless that is what the server sent to it."""
        found = self.of(who)
        if found is None or found.version != version:
            sent = "nothing" if found is None else f"version {found.version}"
            raise PeerError(f"worker {who[0]} sent an update of version {version}, but the server sent {sent} to it")
        return found.values

    def forget(self, worker: int) -> None:
        self._of.pop(worker, None)

    def everything(self) -> list[tuple[int, ReadCopy]]:
        return list(self._of.items())
