"""What servers say to a worker: everything is checked before it is believed, or written where the program finds it.

1. A server may speak of what it holds, or held when it was asked by that name (placement_history.py), or was asked for
   outside of any iteration (reads.py).
2. A payload is read straight to where it belongs. If a codec has written it, nobody awaits it, or it comes by a view
   that is not here yet, it is kept aside until it can be judged.
"""

from __future__ import annotations

import numpy as np

from syncline.codecs import Bytes
from syncline.effects import Received
from syncline.engines.net.control import Noted, Whole
from syncline.engines.net.frames import Frame
from syncline.engines.net.shared_memory import LaneMemory
from syncline.engines.worker.placement_history import PlacementHistory
from syncline.engines.worker.reads import PendingReads
from syncline.engines.worker.server_lanes import ServerLanes
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Payload
from syncline.messages import Gone, Moved, NodeId, Params, Taken
from syncline.nodes.server.worker import Worker

MOST = 1 << 62
"""No iteration, version or V is as large: what is computed from them fits into a frame."""

Said = Params | Taken | Gone | Moved | Whole | Noted


class AnswerChecks:
    """Answers to one worker about one model."""

    def __init__(
        self,
        node: Worker,
        where: PlacementHistory,
        readings: PendingReads,
        servers: ServerLanes,
        memory: LaneMemory,
        means: bool,
    ) -> None:
        """`means`: answers are the mean of a round, which is zero if nobody had a gradient."""
        self._node = node
        self._history = where
        self._reads = readings
        self._servers = servers
        self._memory = memory
        self._means = means
        self._aside: dict[NodeId, Bytes] = {}

    def sink(self, source: NodeId, message: Frame, size: int) -> memoryview:
        """Where the payload of this message goes."""
        if not isinstance(message, Params | Whole) or self._servers.share(source):
            raise PeerError(f"{type(message).__name__} with a payload")
        bucket = message.bucket
        if isinstance(message, Whole) and bucket not in self._reads:
            raise PeerError(f"{bucket}, which nobody has asked for")
        written = message.size if isinstance(message, Params) else 0
        early = isinstance(message, Params) and message.view > self._history.view
        if not (early or self._may_say(source, message)) or size != (written or bucket.size * VALUE_BYTES):
            raise PeerError(f"{type(message).__name__} of {bucket} with a payload of {size:,} bytes")
        if written > bucket.size * VALUE_BYTES:
            raise PeerError(f"Params of {bucket} in {written:,} bytes")
        awaited = not isinstance(message, Params) or self._node.awaits(message)
        if early and not awaited:
            raise PeerError(f"{bucket}, which nobody has asked for")
        if early or written or not awaited:
            self._aside[source] = np.empty(size, np.uint8)
            return self._aside[source].data
        remembered = isinstance(message, Whole) and message.memory
        return (self._memory.update(bucket) if remembered else self._memory.param(bucket)).data.cast("B")

    def hear(self, source: NodeId, message: Frame, carried: bool) -> Received | None:
        """A server's frame; what the node is to be told now, if anything."""
        return self._hear(source, message, carried, self._aside.pop(source, None) if carried else None)

    def hear_now(self, source: NodeId, message: Frame, aside: Bytes | None) -> Received | None:
        """A view is here for which this has waited; if its server may say it, plain parameters go where they belong."""
        if (
            aside is not None
            and isinstance(message, Params)
            and message.view <= self._history.view
            and not message.size
        ):
            if not self._may_say(source, message):
                raise PeerError(f"Params of {message.bucket}, which it does not hold")
            self._memory.param(message.bucket)[:] = aside.view(np.float32)
        return self._hear(source, message, aside is not None, aside)

    def _hear(self, source: NodeId, message: Frame, carried: bool, aside: Bytes | None) -> Received | None:
        """`aside`: what it carried, if that was not read to its place."""
        if not isinstance(message, Said):
            raise PeerError(f"{type(message).__name__} from a server")
        if not isinstance(message, Whole | Noted) and message.view > self._history.view:
            self._history.defer((source, message, aside))
            return None
        if not self._may_say(source, message):
            raise PeerError(f"{type(message).__name__} of {message.bucket}, which it does not hold")
        if isinstance(message, Params | Whole) and carried == self._servers.share(source):
            raise PeerError(f"{type(message).__name__} {'with' if carried else 'without'} a payload")
        if isinstance(message, Params | Taken) and not (0 <= message.version < MOST and 0 <= message.v < MOST):
            raise PeerError(f"{type(message).__name__} of version {message.version} and V {message.v}")
        if isinstance(message, Whole | Noted):
            self._reads.arrived(message.bucket)
            return None
        if isinstance(message, Moved) and message.bucket in self._reads:
            self._reads.moved(message)
            return None
        if type(message) is Taken and self._means:
            self._memory.param(message.bucket)[:] = 0
        return Received(source, message, self._payload_of(message, aside) if type(message) is Params else None)

    def _may_say(self, source: NodeId, message: Said) -> bool:
        if self._history.may_say(source, message.bucket) or isinstance(message, Gone):
            return True
        return self._reads.asked(source, message.bucket)

    def _payload_of(self, params: Params, aside: Bytes | None) -> Payload:
        """What came with these parameters."""
        place = self._memory.param(params.bucket)
        if not params.size:
            return place
        if not 0 < params.size <= place.nbytes:
            raise PeerError(f"Params of {params.bucket} in {params.size:,} bytes")
        payload = place.view(np.uint8)[: params.size] if aside is None else aside
        self._node.check_reply(params.bucket, payload)
        return payload

    def waits_for(self, server: NodeId) -> bool:
        """May an answer come from this server: was it asked, or has it held since then what was asked for?"""
        return self._reads.waits_for(server) or any(
            to == server or self._history.held_since(server, piece, request.view)
            for piece, to, request in self._node.awaited()
        )
