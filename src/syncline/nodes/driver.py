"""The driver: gives events to a node and performs the effects that it returns.

Every engine implements `Host`: it sends messages, sets timers, delivers values to an application and handles failures.
Observers (meters, traces, recorders) see every event that a node has handled, with its effects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol, runtime_checkable

from syncline.effects import Deliver, Effect, Event, Fail, Load, Node, Reject, Save, Send, SetTimer
from syncline.messages import NodeId


class Host(Protocol):
    """Performs the effects of nodes; `me` is the node that returned the effect."""

    def send(self, me: NodeId, send: Send) -> None:
        """Send a message; its payload is valid until the node's next event."""
        ...

    def deliver(self, me: NodeId, deliver: Deliver) -> None:
        """Change the application's values."""
        ...

    def set_timer(self, me: NodeId, timer: SetTimer) -> None:
        """Give the node the event `Timer(key)` when the timer expires."""
        ...

    def reject(self, me: NodeId, reject: Reject) -> None:
        """Close the connection to a peer that broke the protocol."""
        ...

    def fail(self, me: NodeId, fail: Fail) -> None:
        """Handle the failure of a node that cannot continue."""
        ...


@runtime_checkable
class CheckpointHost(Protocol):
    """A host of nodes that write checkpoints."""

    def save(self, me: NodeId, save: Save) -> None:
        """Write a checkpoint of a bucket; its payload is valid until the node's next event."""
        ...

    def load(self, me: NodeId, load: Load) -> None:
        """Read the last checkpoint of a server that is lost."""
        ...


class Observer(Protocol):
    def handled(self, me: NodeId, event: Event, effects: Sequence[Effect], now: float) -> None:
        """Called after a node has handled an event, before its effects are performed."""
        ...


@runtime_checkable
class Deciding(Protocol):
    """A node whose messages leave later than it decides on them."""

    def observe(self, me: NodeId, observer: Observer) -> None:
        """Let an observer see events and decisions, instead of what leaves the node."""
        ...


class Driver:
    """Drives one node on one host."""

    __slots__ = ("_host", "me", "node")

    def __init__(self, me: NodeId, node: Node, host: Host) -> None:
        self.me = me
        self.node = node
        self._host = host

    def tell(self, event: Event, now: float) -> None:
        """Give the node an event and perform its effects."""
        me, host = self.me, self._host
        for effect in self.node.handle(event, now):
            kind = type(effect)  # nearly all are Send or Deliver: those skip a call
            if kind is Send:
                host.send(me, effect)  # type: ignore[arg-type]
            elif kind is Deliver:
                host.deliver(me, effect)  # type: ignore[arg-type]
            else:
                self.perform(effect)

    def close_observers(self) -> None:
        """Remove the observers: the report does not count later events."""

    def perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._host.send(self.me, effect)
            case Deliver():
                self._host.deliver(self.me, effect)
            case SetTimer():
                self._host.set_timer(self.me, effect)
            case Save():
                assert isinstance(self._host, CheckpointHost), "this host cannot write checkpoints"
                self._host.save(self.me, effect)
            case Load():
                assert isinstance(self._host, CheckpointHost), "this host cannot read checkpoints"
                self._host.load(self.me, effect)
            case Reject():
                self._host.reject(self.me, effect)
            case Fail():
                self._host.fail(self.me, effect)


class ObservedDriver(Driver):
    """Drives one node; observers see what it handles."""

    __slots__ = ("_observers",)

    def __init__(self, me: NodeId, node: Node, host: Host, observers: Iterable[Observer]) -> None:
        super().__init__(me, node, host)
        self._observers = tuple(observer.handled for observer in observers)

    def tell(self, event: Event, now: float) -> None:
        effects = self.node.handle(event, now)
        me, host = self.me, self._host
        for observe in self._observers:
            observe(me, event, effects, now)
        for effect in effects:
            if type(effect) is Send:
                host.send(me, effect)
            else:
                self.perform(effect)

    def handled(self, event: Event, now: float) -> list[Effect]:
        """Give the node an event and return its effects without performing them."""
        effects = self.node.handle(event, now)
        for observe in self._observers:
            observe(self.me, event, effects, now)
        return effects

    def close_observers(self) -> None:
        self._observers = ()


def driver_of(me: NodeId, node: Node, host: Host, observers: Collection[Observer] = ()) -> Driver:
    return ObservedDriver(me, node, host, observers) if observers else Driver(me, node, host)
