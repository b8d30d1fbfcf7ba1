"""Answers that a server sends late: because they take it time, or because a central scheduler must allow them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from syncline.effects import Effect, Event, Node, Received, Send
from syncline.messages import NodeId, Params, Taken
from syncline.nodes.driver import Deciding, Driver, ObservedDriver, driver_of
from syncline.nodes.meter import Meter

if TYPE_CHECKING:
    from syncline.sim.world import World

ServerDriver = Callable[[NodeId, Node], Driver]
"""Makes the driver of a server's node."""


def server_driver(world: World) -> ServerDriver:
    """Choose the driver of the servers' nodes; by default it sends answers immediately."""
    observers = (world.meter,) if world.meter.observes == "server" else ()
    if world.scenario.central:
        held: defaultdict[int, list[tuple[NodeId, Send]]] = defaultdict(list)
        return lambda me, node: CentralDriver(me, node, world, observers, held)
    if world.scenario.cluster.delay_cost:
        return lambda me, node: CostlyDriver(me, node, world, observers)
    return lambda me, node: _driver(me, node, world, observers)


def _driver(me: NodeId, node: Node, world: World, observers: tuple[Meter, ...]) -> Driver:
    if not isinstance(node, Deciding):
        return driver_of(me, node, world, observers)
    for each in observers:
        node.observe(me, each)
    return driver_of(me, node, world)


class CostlyDriver(ObservedDriver):
    """Answering a delayed pull takes the server `delay_cost` seconds, during which it does nothing else."""

    __slots__ = ("_seconds", "_world")

    def __init__(self, me: NodeId, node: Node, world: World, observers: Iterable[object]) -> None:
        super().__init__(me, node, world, observers)  # type: ignore[arg-type]
        self._world = world
        self._seconds = world.scenario.cluster.delay_cost

    def tell(self, event: Event, now: float) -> None:
        source = event.source if type(event) is Received else None
        for effect in self.handled(event, now):
            if not self._delays(effect, source, now):
                self.perform(effect)

    def _delays(self, effect: Effect, source: NodeId | None, now: float) -> bool:
        """Schedule an answer for later. An answer to the message that has just arrived is not delayed."""
        answer = _answer(effect)
        if answer is None or answer.to == source:
            return False
        world = self._world
        server = world.servers[self.me.number]
        done = server.processor.take(now, self._seconds)
        server.busy += self._seconds
        world.agenda.at(done, answer.to.number, world.send, self.me, _copied(answer))
        return True


class CentralDriver(ObservedDriver):
    """As in PS-Lite: servers answer only after every shard has closed the round and the scheduler has told them."""

    __slots__ = ("_held", "_seconds", "_world")

    def __init__(
        self,
        me: NodeId,
        node: Node,
        world: World,
        observers: Iterable[object],
        held: defaultdict[int, list[tuple[NodeId, Send]]],
    ) -> None:
        super().__init__(me, node, world, observers)  # type: ignore[arg-type]
        self._world = world
        links = world.scenario.cluster.links
        self._seconds = 0.0 if links is None else 2 * links.latency
        """The latency from the last shard to the scheduler, and from there to all shards."""
        self._held = held

    def tell(self, event: Event, now: float) -> None:
        for effect in self.handled(event, now):
            answer = _answer(effect)
            if answer is None:
                self.perform(effect)
            else:
                self._hold(answer)

    def _hold(self, answer: Send) -> None:
        assert isinstance(answer.message, (Params, Taken))
        world = self._world
        held = self._held[answer.message.progress]
        held.append((self.me, _copied(answer)))
        if len(held) == len(world.buckets) * len(world.workers):
            for server, each in self._held.pop(answer.message.progress):
                world.agenda.at(world.agenda.now + self._seconds, each.to.number, world.send, server, each)


def _answer(effect: Effect) -> Send | None:
    return effect if type(effect) is Send and type(effect.message) in (Params, Taken) else None


def _copied(answer: Send) -> Send:
    """A copy of an answer; the node may overwrite the original payload at its next event."""
    return Send(answer.to, answer.message, None if answer.payload is None else answer.payload.copy())
