"""A worker's lanes to the servers: shared memory or TCP.

1. Servers on the same host share the worker's memory, so payloads to and from them are not sent over the connection.
2. If no server shared the memory at the start, no server can share it later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from syncline.engines.net.control import Hello, NodeAddress
from syncline.engines.net.frames import Frame
from syncline.engines.net.lanes import Lane, open_lane, open_lanes
from syncline.engines.net.shared_memory import LaneMemory, new_segment
from syncline.engines.net.wiring import Wiring
from syncline.engines.worker.traffic import Traffic
from syncline.errors import PeerError, RunError, UsageError
from syncline.layout import Payload
from syncline.messages import Message, NodeId, server_id


class ServerLanes:
    """The connections to the servers; the worker sends the same hello on each."""

    def __init__(self, wiring: Wiring, traffic: Traffic) -> None:
        self._wiring = wiring
        self._traffic = traffic
        self._segment: int | None = None
        self._sharing: set[NodeId] = set()

    def open(
        self,
        places: Mapping[int, NodeAddress],
        values: int,
        hello: Hello,
        messages: tuple[type[Message], ...] = (),
    ) -> LaneMemory:
        """Connect to every server, send `hello`, and return the worker's memory for a model of `values` values.

        `messages`: the message types of the strategy.
        """
        self._hello = hello
        self._messages = messages
        lanes = open_lanes(places, self._wiring)
        for number, lane in lanes.items():
            self._traffic.add(server_id(number), lane.wire, messages)
        self._segment = new_segment(values) if any(lane.shared for lane in lanes.values()) else None
        memory = LaneMemory(values, self._segment)
        self._sharing |= {server_id(number) for number, lane in lanes.items() if lane.shared}
        for number, lane in lanes.items():
            try:
                self._greet(number, lane)
            except RunError as error:
                raise self._traffic.fail(error) from None
        return memory

    def reach(self, number: int, place: NodeAddress, done: Callable[[str], None]) -> None:
        """Connect to a server that joins, aside; then call `done` with the problem, or ""."""
        if server_id(number) in self._traffic:
            raise PeerError(f"it named server {number} as new, which is already connected")

        def work() -> Callable[[], None]:
            try:
                lane = open_lane(number, place, self._wiring, share=self._segment is not None)
                self._greet(number, lane)  # at once: a server closes connections that do not identify themselves
            except (RunError, UsageError, OSError) as error:
                problem = str(error)[:1000]
                return lambda: done(problem)
            return lambda: self._reached(number, lane, done)

        self._traffic.loop.aside(work)

    def _reached(self, number: int, lane: Lane, done: Callable[[str], None]) -> None:
        self._traffic.add(server_id(number), lane.wire, self._messages)
        if lane.shared:
            self._sharing.add(server_id(number))
        done("")

    def _greet(self, number: int, lane: Lane) -> None:
        try:
            if lane.shared and self._segment is not None:
                lane.wire.send_with(self._hello, self._segment)
            else:
                lane.wire.send(self._hello)
        except OSError as error:
            raise RunError(f"server {number} closed the connection: {error}") from None

    def share(self, server: NodeId) -> bool:
        """Does this server share the worker's memory?"""
        return server in self._sharing

    def send(self, to: NodeId, message: Frame, place: Payload | None = None) -> None:
        """Send a frame, with the values at `place` as payload unless the server shares the memory."""
        self._traffic.send(to, message, None if place is None or to in self._sharing else place.data)

    def forget(self, server: NodeId) -> None:
        self._sharing.discard(server)

    def let_go(self, server: NodeId) -> None:
        """Close the connection to a server that holds nothing any more."""
        self.forget(server)
        self._traffic.end(server)

    def close(self) -> None:
        if self._segment is not None:
            os.close(self._segment)
            self._segment = None
