"""The servers as a worker reaches them: by memory that they share, or by wire.

1. ServerLanes of the same host share the worker's memory: a payload for them, or from them, stays where it lies.
2. Where nobody shared it at the start, it cannot be shared later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

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
    """Connections to servers, all of which are greeted alike."""

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
        """Reach every server, and say who this is; the worker's memory, of so many values twice.

        `messages`: those of the strategy's own.
        """
        self._hello = hello
        self._messages = messages
        lanes = open_lanes(places, self._wiring)
        for number, lane in lanes.items():
            self._traffic.add(server_id(number), lane.wire, messages)
        self._segment = new_segment(values) if any(lane.shared for lane in lanes.values()) else None
        memory = LaneMemory(values, self._segment)
        for number, lane in lanes.items():
            try:
                self._greet(number, lane)
            except RunError as error:
                raise self._traffic.fail(error) from None
        return memory

    def reach(self, number: int, place: NodeAddress) -> str:
        """A server has come: connect to it; what is in the way, if something is."""
        try:
            if server_id(number) in self._traffic:
                raise PeerError(f"server {number}, which is there already")
            lane = open_lane(number, place, self._wiring, share=self._segment is not None)
            self._traffic.add(server_id(number), lane.wire, self._messages)
            self._greet(number, lane)
        except (RunError, UsageError, OSError) as error:
            return str(error)[:1000]
        return ""

    def _greet(self, number: int, lane: Lane) -> None:
        try:
            if lane.shared and self._segment is not None:
                self._sharing.add(server_id(number))
                lane.wire.send_with(self._hello, self._segment)
            else:
                lane.wire.send(self._hello)
        except OSError as error:
            raise RunError(f"server {number} ended the connection: {error}") from None

    def share(self, server: NodeId) -> bool:
        """Does this server read and write the worker's memory itself?"""
        return server in self._sharing

    def send(self, to: NodeId, message: Frame, place: Payload | None = None) -> None:
        """Send a frame; what lies at this place rides along unless the server can read it there."""
        self._traffic.send(to, message, None if place is None or to in self._sharing else place.data)

    def forget(self, server: NodeId) -> None:
        self._sharing.discard(server)

    def let_go(self, server: NodeId) -> None:
        """Close the connection: this server holds nothing any more."""
        self.forget(server)
        self._traffic.end(server)

    def close(self) -> None:
        if self._segment is not None:
            os.close(self._segment)
            self._segment = None
