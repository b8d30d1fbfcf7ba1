"""The servers of one model that join and leave during training.

1. The coordinator first sends a joining server the description of the model, then its address to all workers and
   servers. Once all of them have connected to it, it is admitted. If one of them cannot connect, it is refused.
2. Servers join and leave only during training: not before all workers have started, nor after all have left.
3. A server that is to leave while no other server can take over its part waits until another one has joined.
4. If servers that join hold the whole model, they get the initial parameters from another server before they are
   admitted. A worker of the same launcher joins after that, so that the new server can serve it.
5. If the strategy survives the death of a server, the server is away until its launcher has started it again, or is
   lost for good. A server that has started again is introduced to all others like one that joins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from syncline.effects import Admit, Dismiss, Event, Restarted, ServerLost
from syncline.engines.coordinator.participant import Participant, RunContext
from syncline.engines.net import tokens
from syncline.engines.net.control import Begin, NodeAddress, Reach, Reached, Refused, layout_of
from syncline.errors import PeerError, UsageError
from syncline.layout import VALUE_BYTES
from syncline.messages import PAYLOAD, Holders, View
from syncline.nodes.protocol import ViewMaker
from syncline.strategies.protocol import Strategy
from syncline.strategies.settings import strategy_in


class ServerChanges:
    """The servers that are joining and leaving."""

    def __init__(self, run: RunContext, servers: dict[int, Participant], workers: Mapping[int, Participant]) -> None:
        """`servers`, `workers`: the current ones, shared with the `TrainedModel`."""
        self._run = run
        self._servers = servers
        self._workers = workers
        self._node: ViewMaker | None = None
        self._strategy = Strategy()
        self._leaving: set[int] = set()
        """The servers that are to be dismissed as soon as possible."""
        self._arriving: dict[int, set[Participant]] = {}
        self.arrivals: dict[int, int] = {}
        """How often each server has arrived: answers about an earlier arrival mean nothing."""
        """The servers that know the model and are not admitted yet, each with those that have not connected to it."""
        self.away: set[int] = set()
        """The servers that have died and may return, or have returned and are not introduced to all others yet."""
        self._incarnations: dict[int, int] = {}
        self._invited: set[int] = set()
        """The joining servers that know the model, without those that were refused."""

    def begin(
        self,
        begun: Begin,
        node: ViewMaker,
        handle: Callable[[Event], None],
        may_move: Callable[[], bool],
        arranged: Callable[[], None],
    ) -> None:
        """The model begins, and `node` makes its views. `begun`: the message for servers, with their secret.

        `arranged`: called when servers may have been admitted or refused.
        """
        self._arranged = arranged
        self._begun = begun
        self._strategy = strategy_in(begun.settings)
        self._handle = handle
        self._may_move = may_move
        self._node = node

    def choose(self, strategy: Strategy) -> None:
        """The strategy of the model is known; `begin` follows."""
        self._strategy = strategy

    def places(self, view: View) -> tuple[NodeAddress, ...]:
        """The addresses of the servers of this view."""
        count = max([len(view.holders), *(1 + number for number in self._strategy.servers_of(view))])
        return tuple(
            self._servers[number].place if number in self._servers else NodeAddress("", "", "")
            for number in range(count)
        )

    # Joining.

    def invite(self, number: int) -> None:
        """Send a joining server the description of the model, unless it has a part already."""
        if self._node is not None and number in self.away:
            self._describe(number)
            return
        if self._node is None or not self._node.view.members or self.holds(number):
            return
        if not (self._strategy.moves_servers or self._strategy.takes_servers) and self._servers[number].own:
            return  # the program chose a strategy that does not need it: it idles until the run ends
        problem = self._cannot_join()
        if problem is not None:
            self._refuse(number, problem)
            return
        self._invited.add(number)
        self._describe(number)

    def _cannot_join(self) -> str | None:
        """Why no server can join this run; None if one can."""
        if self._strategy.takes_servers:
            return None
        if not self._strategy.moves_servers:
            return f"strategy {self._strategy.name()!r} does not let servers join"
        if len(self._begun.settings["sync"].split()) > 1:
            return self._cannot_move() or "the servers that would give it a part have different sync models"
        return self._cannot_move()

    def _refuse(self, number: int, problem: str) -> None:
        self._invited.discard(number)
        self._run.departures.refuse(number, problem)

    def brings_server(self, peer: Participant) -> bool:
        """Is a server joining that the launcher of this worker has started?"""
        if self._node is None or not self._strategy.takes_servers:
            return False
        joining = [each for each in self._invited - self._leaving if each in self._servers and not self.holds(each)]
        return any(self._together(self._servers[number], peer) for number in joining)

    def _together(self, server: Participant, worker: Participant) -> bool:
        """Has one launcher started both while the run trains?"""
        if worker.own or server.own:
            return worker.own and server.own and worker.id.number >= self._run.expected
        return tokens.same(server.hello.token, worker.hello.token)

    def _describe(self, number: int) -> None:
        assert self._node is not None
        peer, view = self._servers[number], self._node.view
        peer.wire.further = self._strategy.messages
        self._run.out(peer.wire, replace(self._begun, view=view, servers=self.places(view), leader=-1))
        self.mention(peer)

    def mention(self, peer: Participant) -> None:
        """Tell a process that joins about the servers that are joining, and hold nothing yet."""
        assert self._node is not None
        for number, server in self._servers.items():
            if self._has_part(number) or server is peer or number not in {*self._arriving, *self._node.servers}:
                continue
            if number in self._arriving:
                self._arriving[number].add(peer)
            self._run.out(peer.wire, Reach(number, server.place, self.arrivals.get(number, 0)))

    def introduce(self, peer: Participant) -> None:
        """A joining server knows the model: tell everyone else its address."""
        number = peer.id.number
        known = self._node is not None and self.holds(number) and number not in self.away
        if self._node is None or known or number in self._arriving:
            raise PeerError("it sent Seated a second time")
        peer.named = True
        others = {each for each in (*self._servers.values(), *self._workers.values()) if each is not peer}
        self._arriving[number] = others
        self.arrivals[number] = arrival = 1 + self.arrivals.get(number, 0)
        for each in others:
            self._run.out(each.wire, Reach(number, peer.place, arrival))
        self.arrange()

    def reached(self, peer: Participant, message: Reached) -> None:
        """A worker or server says whether it has connected to a joining server."""
        waiting = self._arriving.get(message.server)
        if waiting is None or peer not in waiting or message.arrival != self.arrivals[message.server]:
            return  # the server is gone again, or another process has taken its place
        if message.problem and message.server in self.away:
            self.give_up(message.server)
        elif message.problem:
            del self._arriving[message.server]
            self._refuse(message.server, f"{peer.id} cannot reach it: {message.problem}")
            self._arranged()
        else:
            waiting.discard(peer)
            self.arrange()

    def excuse(self, peer: Participant) -> None:
        """A process is gone: stop waiting for it to connect to joining servers."""
        for waiting in self._arriving.values():
            waiting.discard(peer)
        self.arrange()

    def arrange(self) -> None:
        """Admit and dismiss the servers that are ready for it."""
        self._readmit()
        if self._node is None or not self._may_move():
            return
        for number in [number for number, waiting in self._arriving.items() if not waiting]:
            del self._arriving[number]
            if not self._strategy.takes_servers:  # else its first view is the one that names it
                self._run.out(self._servers[number].wire, self._node.view)
            try:
                self._handle(Admit(number))
                self._run.departures.joined(number, hands_over=self._strategy.moves_servers)
            except UsageError as error:
                self._refuse(number, error.problem)
        for number in sorted(self._leaving):
            if self._node.servers == {number}:
                break  # until another server has joined
            self._leaving.discard(number)
            try:
                if number in self._node.servers:
                    self._handle(Dismiss(number))
            except UsageError as error:
                self._run.departures.keep(number, error.problem)
        self._arranged()

    # Servers that die.

    def lose(self, peer: Participant, returns: bool) -> None:
        """A server is dead, without which the run can go on; `returns`: its launcher may start it again."""
        number = peer.id.number
        self.away.add(number)
        self.closed(number)
        if not returns:
            self.give_up(number)
        elif self._strategy.has_backups and self._node is not None and self._node.servers - {number}:
            self._handle(ServerLost(number))  # its backup takes over at once

    def give_up(self, number: int) -> None:
        """A server that has died will not return: tell the node."""
        if number not in self.away:
            return
        self.away.discard(number)
        self._arriving.pop(number, None)
        peer = self._servers.pop(number, None)
        if peer is not None:
            self._run.out(peer.wire, Refused("the run goes on without this server"))
        try:
            self._handle(ServerLost(number))
        except UsageError as error:
            self._run.abort(f"{error.option} {error.problem}")

    def _readmit(self) -> None:
        """Tell the node about the servers that have started again, and that all others can reach."""
        for number in [each for each in self._arriving if each in self.away and not self._arriving[each]]:
            del self._arriving[number]
            self.away.discard(number)
            self._incarnations[number] = 1 + self._incarnations.get(number, 0)
            self._handle(Restarted(number, self._incarnations[number]))
            self._run.departures.returned(number, not self._strategy.restores_servers)

    # Leaving.

    def check_merge(self, numbers: Collection[int]) -> None:
        """Raise `UsageError` if one of these servers has died, and may return."""
        gone = sorted(self.away.intersection(numbers))
        if gone:
            raise UsageError("nodes", f"node {gone[0]} has died and is not back yet; try again later")

    def check_leaving(self, number: int) -> None:
        """Raise `UsageError` if the other servers cannot take over the part of this one."""
        if self._node is None or not self._node.view.members or not self.holds(number):
            return
        if self._strategy.survives_servers and not self._strategy.restores_servers:
            return
        problem = self._cannot_move()
        if problem is not None:
            raise UsageError("server", problem)
        left = self._node.servers - {number} - self._leaving
        if left:  # else it leaves when the joining servers have been admitted
            self._replace(self._node.view.holders, left)

    def leave(self, number: int) -> None:
        """Let the other servers take over the part of this one."""
        self._arriving.pop(number, None)
        if self._node is None:
            self._servers.pop(number, None)
        else:
            self._leaving.add(number)
            self.arrange()

    def stay(self, number: int) -> bool:
        """Do not dismiss this server after all; return False if it has been dismissed already."""
        waits = number in self._leaving
        self._leaving.discard(number)
        return waits

    def closed(self, number: int) -> None:
        """A server that held nothing is gone."""
        peer = self._servers.pop(number, None)
        self._arriving.pop(number, None)
        if peer is not None:
            self.excuse(peer)

    # Who holds what.

    @property
    def holding(self) -> frozenset[int]:
        """The servers that hold buckets, or will once the current handovers are complete."""
        return frozenset() if self._node is None else self._node.servers

    @property
    def unsettled(self) -> bool:
        """Is a server joining or leaving?"""
        return bool(self._arriving or self._leaving or self.away) or (self._node is not None and self._node.moving)

    def resettle(self, words: Mapping[str, str]) -> None:
        """Send these settings to servers that join later."""
        self._begun = replace(self._begun, settings={**self._begun.settings, **words})

    def _has_part(self, number: int) -> bool:
        return self._node is not None and number in self._strategy.servers_of(self._node.view)

    def holds(self, number: int) -> bool:
        """Does this server hold buckets, or is it about to?"""
        return self._node is not None and (number in self._node.servers or self._has_part(number))

    def is_free(self, number: int) -> bool:
        """Does this server hold nothing, and take part in no handover?"""
        return self._node is None or not (self.holds(number) or number in self._node.movers)

    def _replace(self, held: Holders, servers: Collection[int]) -> Holders:
        return self._strategy.replacing(layout_of(self._begun.tables), held, servers)

    def _cannot_move(self) -> str | None:
        """Why buckets of this model cannot be handed over, or None: a handover with all its updates is one message."""
        assert self._node is not None
        strategy, view = self._strategy, self._node.view
        arrays = strategy.moved_arrays + len(view.members)
        largest = max(bucket.size for held in view.holders for bucket in held)
        if arrays * largest * VALUE_BYTES <= PAYLOAD:
            return None
        size, workers = self._begun.settings["bucket"], len(view.members)
        return f"a bucket of {size} is too large to move with the updates of {workers} workers; use a smaller --bucket"
