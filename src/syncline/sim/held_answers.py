"""Answers that do not leave their server at once: they cost it time, or wait for a central scheduler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from syncline.effects import Effect, Event, Received, Send
from syncline.messages import NodeId, Params, Taken
from syncline.sim.processes import SimulatedServer

if TYPE_CHECKING:
    from syncline.sim.world import World


class Answers(Protocol):
    def keep_back(self, server: SimulatedServer, event: Event, effects: Iterable[Effect]) -> list[Effect]:
        """Of what a server does about an event: what it does at once. The rest is done later."""
        ...


def answers_of(world: World) -> Answers | None:
    """None: every answer leaves at once."""
    if world.scenario.central:
        return Central(world)
    cost = world.scenario.cluster.delay_cost
    return Costly(world, cost) if cost else None


class Costly:
    """Answering a delayed pull takes the server so many seconds, one after another; it does nothing else meanwhile."""

    def __init__(self, world: World, seconds: float) -> None:
        self._world = world
        self._seconds = seconds

    def keep_back(self, server: SimulatedServer, event: Event, effects: Iterable[Effect]) -> list[Effect]:
        source = event.source if type(event) is Received else None
        agenda, at_once = self._world.agenda, list[Effect]()
        for effect in effects:
            answer = _answer(effect)
            if answer is None or answer.to == source:  # a pull that is answered as it comes is not delayed
                at_once.append(effect)
                continue
            done = server.processor.take(agenda.now, self._seconds)
            server.busy += self._seconds
            agenda.at(done, answer.to.number, self._world.send, server.id, _kept(answer))
        return at_once


class Central:
    """As in PS-Lite: nobody is answered before every shard has closed the round, and the scheduler has said so."""

    def __init__(self, world: World) -> None:
        self._world = world
        links = world.scenario.cluster.links
        self._seconds = 0.0 if links is None else 2 * links.latency
        """From the last shard to the scheduler, and on to the shards."""
        self._held: defaultdict[int, list[tuple[NodeId, Send]]] = defaultdict(list)

    def keep_back(self, server: SimulatedServer, event: Event, effects: Iterable[Effect]) -> list[Effect]:
        at_once: list[Effect] = []
        for effect in effects:
            answer = _answer(effect)
            if answer is None:
                at_once.append(effect)
            else:
                self._hold(server.id, answer)
        return at_once

    def _hold(self, source: NodeId, answer: Send) -> None:
        assert isinstance(answer.message, (Params, Taken))
        world = self._world
        held = self._held[answer.message.progress]
        held.append((source, _kept(answer)))
        if len(held) == len(world.buckets) * len(world.clients):
            for server, each in self._held.pop(answer.message.progress):
                world.agenda.at(world.agenda.now + self._seconds, each.to.number, world.send, server, each)


def _answer(effect: Effect) -> Send | None:
    return effect if type(effect) is Send and type(effect.message) in (Params, Taken) else None


def _kept(answer: Send) -> Send:
    """An answer that outlives its node's next event."""
    return Send(answer.to, answer.message, None if answer.payload is None else answer.payload.copy())
