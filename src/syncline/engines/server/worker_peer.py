"""A worker's connection to a server, and how a server sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Read
from syncline.engines.net.frames import Frame
from syncline.engines.net.shared_memory import LaneMemory
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Values
from syncline.messages import NodeId, Pull, Push, Skipped


@dataclass(eq=False, slots=True)
class WorkerPeer:
    """A worker's connection to a server, for one model."""

    id: NodeId
    incarnation: int
    wire: Connection
    memory: LaneMemory
    shared: bool
    asked: dict[Bucket, int] = field(default_factory=dict)
    """The iteration whose push or pull is not answered yet. The worker may repeat it, but not send another one."""
    early: list[Push | Pull] = field(default_factory=list)
    """Those of them that wait for the initial parameters."""
    reads: list[Read] = field(default_factory=list)
    """Reads that wait for a bucket or for a view."""
    copy: Values | None = None
    """The copy of a lost bucket that it sends."""
    wrote: bool = False
    """It has sent a payload, so that memory was allocated for it."""

    @property
    def who(self) -> tuple[int, int]:
        return self.id.number, self.incarnation


class Out(Protocol):
    """Sends a frame, now or as soon as the socket accepts it.

    `lasting`: the payload will not change. `gathered`: the frame, which has no payload, may wait until everything that
    has been received is handled.
    """

    def __call__(
        self,
        wire: Connection,
        message: Frame,
        payload: memoryview | None = None,
        *,
        lasting: bool = False,
        gathered: bool = False,
    ) -> None: ...


def check_push(push: Push) -> None:
    """Raise `PeerError` if a push contradicts itself."""
    if push.size > push.bucket.size * VALUE_BYTES:
        raise PeerError(f"it sent a push of {push.bucket} in {push.size:,} bytes")
    if push.skipped is not Skipped.NOTHING and not push.empty:
        raise PeerError(f"it sent a push of {push.bucket} that is marked as skipped and has an update")
