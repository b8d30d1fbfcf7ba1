"""Which server is the backup of which."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from syncline.messages import Backup, Holders


def first_backups(holders: Holders, view: int) -> tuple[Backup, ...]:
    """The backups at the start, by the placement of the first view."""
    return assigned((), {number for number, held in enumerate(holders) if held}, view)


def assigned(known: Sequence[Backup], holding: Collection[int], view: int) -> tuple[Backup, ...]:
    """Give a backup to each server that holds something, and has none that holds something too.

    `known`: the backups so far, which stay. `view`: the view that names the new ones first.
    """
    found = list(known)
    for server in sorted(holding):
        mine = [each.backup for each in found if each.server == server]
        others = [each for each in sorted(holding) if each != server and each not in mine]
        if others and (not mine or mine[-1] not in holding):
            found.append(Backup(server, _least_busy(others, server, found), view))
    return tuple(found)


def _least_busy(candidates: Collection[int], server: int, known: Iterable[Backup]) -> int:
    """The candidate that is the backup of the fewest servers; of several, the next one after `server`."""
    duties = [each.backup for each in known]
    return min(candidates, key=lambda each: (duties.count(each), each < server, each))
