"""The one loop that performs what a node asks for.

An engine is a host: it sends, sets timers, delivers to an application, and says what a failure means. Observers see
every event that a node has handled, with its effects: meters, traces, recorders.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from syncline.effects import Deliver, Effect, Event, Fail, Node, Reject, Send, SetTimer
from syncline.messages import NodeId


class Host(Protocol):
    """What performs the effects of nodes; `me` is the node that asks."""

    def send(self, me: NodeId, send: Send) -> None:
        """Send a message; its payload is valid until the node's next event."""
        ...

    def deliver(self, me: NodeId, deliver: Deliver) -> None:
        """Change what the application holds."""
        ...

    def set_timer(self, me: NodeId, timer: SetTimer) -> None:
        """Tell the node `Timer(key)` after so many seconds."""
        ...

    def reject(self, me: NodeId, reject: Reject) -> None:
        """End the connection to a peer that broke the protocol."""
        ...

    def fail(self, me: NodeId, fail: Fail) -> None:
        """The node cannot go on."""
        ...


class Observer(Protocol):
    def handled(self, me: NodeId, event: Event, effects: Sequence[Effect], now: float) -> None:
        """A node has handled an event; its effects are about to be performed."""
        ...


class Driver:
    """Drives one node on one host."""

    __slots__ = ("_deliver", "_fail", "_observers", "_reject", "_send", "_set_timer", "me", "node")

    def __init__(self, me: NodeId, node: Node, host: Host, observers: Iterable[Observer] = ()) -> None:
        self.me = me
        self.node = node
        self._send = host.send
        self._deliver = host.deliver
        self._set_timer = host.set_timer
        self._reject = host.reject
        self._fail = host.fail
        self._observers = tuple(observer.handled for observer in observers)

    def tell(self, event: Event, now: float) -> None:
        """Tell the node something, and perform what it asks for."""
        effects = self.node.handle(event, now)
        for observe in self._observers:
            observe(self.me, event, effects, now)
        self.perform(effects)

    def handled(self, event: Event, now: float) -> list[Effect]:
        """Tell the node something; what it asks for is yet to be performed."""
        effects = self.node.handle(event, now)
        for observe in self._observers:
            observe(self.me, event, effects, now)
        return effects

    def close_observers(self) -> None:
        """What happens from now on is in no figure."""
        self._observers = ()

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._send(self.me, effect)  # type: ignore[arg-type]
            elif kind is Deliver:
                self._deliver(self.me, effect)  # type: ignore[arg-type]
            elif kind is SetTimer:
                self._set_timer(self.me, effect)  # type: ignore[arg-type]
            elif kind is Reject:
                self._reject(self.me, effect)  # type: ignore[arg-type]
            else:
                self._fail(self.me, effect)  # type: ignore[arg-type]
