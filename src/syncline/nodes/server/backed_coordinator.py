"""The coordinator of the server strategy in a run with backups: it also says which server is the backup of which.

1. Every server that holds something has a backup, if there is another such server. A backup stays the same as long as
   it holds something itself. When it shall hold nothing any more, the server gets a second backup, and the first one
   stays until the second is complete. If no other server is left, there is no backup.
2. If a server dies, its first backup stands in for it (backed_shard.py): what it held belongs to the backup from the
   next view on, and is on its way from the dead server, as in a move. That is so even if the backup shall hold nothing:
   another server might get an older state first, from the server that had handed a bucket over.
3. What was on its way to the dead server is sent to the backup by the server that had it, or by the stand-in, if it had
   arrived. What was on its way from it comes from the stand-in.
4. If a stand-in dies before the move is complete, or does not have everything, what it should hand over is restored
   from the workers' copies. So is what a server held that had no backup.
5. When a move is complete, another view says so, so that servers can forget what they have handed over.
6. A server that has died and starts again holds nothing. It gets a part like a server that joins.
"""

from __future__ import annotations

from collections import defaultdict

from syncline.effects import Effect, Event, Received, Restarted
from syncline.errors import UsageError
from syncline.layout import Bucket
from syncline.messages import ActingServer, Holders, NodeId, View
from syncline.nodes.server.backups import assigned, first_backups
from syncline.nodes.server.coordinator import Coordinator, Replace, shared_out
from syncline.nodes.server.log_messages import BackedUp, LostLog, NoBackup


class BackedCoordinator(Coordinator):
    """The node that manages membership, placement and backups."""

    def __init__(self, view: View, replace: Replace | None = None) -> None:
        super().__init__(view, replace)
        self._backups = first_backups(view.holders, view.view)
        self._stand_ins: tuple[ActingServer, ...] = ()
        self._moving_since = 0
        self._passed_through: defaultdict[Bucket, set[int]] = defaultdict(set)
        """Dead servers that may have had a bucket that was on its way to them, before it goes to its holder."""

    @property
    def view(self) -> View:
        found = super().view
        said = (self._backups, self._stand_ins, self._moving_since)
        return View(found.view, found.members, found.topology, found.lost, *said)

    @property
    def movers(self) -> frozenset[int]:
        """A server that has handed over everything is still needed while it is a backup.

        It is needed too until that has arrived: if the receiver dies, it hands it over again.
        """
        return super().movers | {each.backup for each in self._backups} | set(self._givers.values())

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Received(source, BackedUp(since=since)):
                return self._back_up(source.number, since)
            case Received(source, LostLog(since=since)):
                return self._begin_anew(source.number, since)
            case Received(source, NoBackup(server=server)):
                return self._miss_backup(source, server)
            case Restarted(server):
                return self._return(server)
        return super().handle(event, now)

    # Who is the backup of whom.

    def _publish(self) -> list[Effect]:
        holding = {number for number, held in enumerate(self._holders) if held}
        involved = holding | self._unsettled | set(self._givers.values())
        known = [each for each in self._backups if each.server in involved]
        if len(holding) == 1 and not self._unsettled:
            known = []
        self._backups = assigned(known, holding, self._number + 1)
        return super()._publish()

    def _back_up(self, server: int, since: int) -> list[Effect]:
        """A server has a complete new backup: it needs no earlier one."""
        kept = tuple(each for each in self._backups if each.server != server or each.since >= since)
        if kept == self._backups or all((each.server, each.since) != (server, since) for each in kept):
            return []
        self._backups = kept
        return self._publish()

    def _begin_anew(self, server: int, since: int) -> list[Effect]:
        """A log has a gap: the server writes another one."""
        kept = tuple(each for each in self._backups if (each.server, each.since) != (server, since))
        if kept == self._backups:
            return []
        self._backups = kept
        return self._publish()

    # Moves.

    def _place(self, holders: Holders, servers: set[int], movers: set[int]) -> list[Effect]:
        if not self._unsettled:
            self._moving_since = self._number + 1
        return super()._place(holders, servers, movers)

    def _settle(self, server: int, number: int) -> list[Effect]:
        moved = bool(self._unsettled)
        if number >= self.moved and server < len(self._holders):
            for bucket in self._holders[server]:
                self._passed_through.pop(bucket, None)
        effects = super()._settle(server, number)
        return effects if effects or not moved or self._unsettled else self._publish()

    def _expect_nothing_from(self, server: int) -> None:
        super()._expect_nothing_from(server)
        if not self._unsettled:
            self._stand_ins, self._moving_since = (), 0
            self._givers.clear()
            self._passed_through.clear()

    # Servers that die.

    def _lose(self, server: int) -> list[Effect]:
        if server not in self._involved():
            return []
        heirs = self._heirs(server)
        if not heirs:
            raise UsageError("server", f"{server} was the only server, so what it held is lost")
        self._wanted = self._wanted - {server} or set(heirs)
        return self._take_over(server, heirs)

    def _heirs(self, server: int) -> set[int]:
        """If no other server shall hold anything, the backup does, although it was to leave."""
        return super()._heirs(server) or {each.backup for each in self._backups if each.server == server}

    def _involved(self) -> set[int]:
        backups = {each.backup for each in self._backups}
        return self._servers | self._wanted | self._unsettled | set(self._givers.values()) | backups

    def _take_over(self, server: int, heirs: set[int]) -> list[Effect]:
        """The backup of a dead server stands in for it; what has no backup is restored from the workers' copies."""
        held = set(self._holders[server]) if server < len(self._holders) else set()
        lost = self._end_stand_ins(server) | {each.bucket for each in self._lost if each.bucket in held}
        self._backups = tuple(each for each in self._backups if each.backup != server)
        acting = next((each for each in self._backups if each.server == server), None)
        self._backups = tuple(each for each in self._backups if each.server != server)
        given = {bucket for bucket, giver in self._givers.items() if giver == server}
        if any(each.server == server for each in self._stand_ins):
            given = set()  # another one stands in for the process before this one
        if not (lost or held or given):
            self._expect_nothing_from(server)
            return self._begin_next_move() or self._publish()
        if acting is None:
            lost |= held | given
        else:
            heirs = {acting.backup}
            self._stand_ins += (ActingServer(server, acting.backup, acting.since, self._number + 1),)
            for bucket in held - lost:
                if bucket in self._givers:
                    self._passed_through[bucket].add(server)
                else:
                    self._givers[bucket] = server
        holders = shared_out(self._holders, server, heirs) if held else self._holders
        return self._place_lost(holders, lost, self._unsettled - {server})

    def _end_stand_ins(self, server: int) -> set[Bucket]:
        """This server stands in for nobody any more; return what only it had."""
        ended = {each.server for each in self._stand_ins if each.backup == server}
        self._stand_ins = tuple(each for each in self._stand_ins if each.backup != server)
        return self._relying_on(ended)

    def _relying_on(self, servers: set[int]) -> set[Bucket]:
        """The buckets on their way that only came from these servers, or may have been there."""
        passed = {bucket for bucket, through in self._passed_through.items() if through & servers}
        return passed | {bucket for bucket, giver in self._givers.items() if giver in servers}

    def _place_lost(self, holders: Holders, lost: set[Bucket], alive: set[int]) -> list[Effect]:
        for bucket in lost:
            self._passed_through.pop(bucket, None)
        return super()._place_lost(holders, lost, alive)

    def _miss_backup(self, source: NodeId, server: int) -> list[Effect]:
        """A stand-in does not have what a dead server held."""
        missed = [each for each in self._stand_ins if (each.server, each.backup) == (server, source.number)]
        if not missed:
            return []
        self._stand_ins = tuple(each for each in self._stand_ins if each not in missed)
        lost = self._relying_on({server})
        return self._place_lost(self._holders, lost, self._unsettled) if lost else []

    def _return(self, server: int) -> list[Effect]:
        """A server has started again, and holds nothing."""
        others = self._heirs(server)
        if not others:
            self._backups = ()
            return self._restore(server, self._holders)
        dead = {each.server for each in self._stand_ins}
        effects = self._take_over(server, others) if server in self._involved() - dead else []
        self._wanted = self._wanted | {server}
        return effects or self._begin_next_move()
