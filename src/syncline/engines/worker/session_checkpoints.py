"""What the checkpoints of the run need of one worker's session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.engines.net.control import CheckpointDue, CheckpointWritten
from syncline.engines.worker.checkpoint_writer import CheckpointWriter
from syncline.engines.worker.resumed_state import ResumedState

if TYPE_CHECKING:
    from syncline.engines.net.wiring import Wiring
    from syncline.engines.worker.link import WorkerLink
    from syncline.engines.worker.session import NumpySession


class SessionCheckpoints:
    """The checkpoints of the run, as one worker sees them."""

    def __init__(self, session: NumpySession, wiring: Wiring, link: WorkerLink | None = None, every: str = "") -> None:
        """`link`: the connection to the coordinator, if there is one. `every`: how often to save; empty: never."""
        self._session = session
        self._wiring = wiring
        self._link = link
        self.writer = CheckpointWriter(self, wiring.save_to, every) if every else None
        """Writes this worker's part of each checkpoint; None: the run writes none."""

    @property
    def rank(self) -> int:
        return self._session.rank

    @property
    def members(self) -> tuple[int, ...]:
        return self._session.members

    def resumed(self, *, torch: bool) -> ResumedState | None:
        """The checkpoint that the run goes on from; None: it begins anew, or this worker has returned to it."""
        folder = self._wiring.resume
        return ResumedState(folder, self.rank, torch=torch) if folder and not self._session.incarnation else None

    def tell(self, message: CheckpointWritten | CheckpointDue) -> None:
        """Tell the coordinator about a checkpoint."""
        if self._link is not None and self._link.error is None:
            self._link.tell(message)

    @property
    def save_step(self) -> int:
        """The number of the last checkpoint that the coordinator has asked for."""
        return -1 if self._link is None else self._link.news.save_step

    @property
    def whole_steps(self) -> tuple[int, ...]:
        """The numbers of the last checkpoints that are complete."""
        return () if self._link is None else self._link.news.whole_steps
