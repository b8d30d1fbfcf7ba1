"""How a run ends: what is fatal to it, and what is said of it when it is over."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.engines.launch.child import Child
from syncline.engines.net.control import Seen
from syncline.errors import RunError, SynclineError, UsageError


class RunOutcome:
    """Collects what happens to a run; `alone`: its workers have joined another run, which goes on whatever they do."""

    def __init__(self, alone: bool) -> None:
        self._alone = alone
        self.over: str | None = None
        """Why the run is over before its workers are done."""
        self.known = False
        """That was found here, and not only heard."""
        self.refused: Seen | None = None
        """A worker was refused because what it asks for makes no sense."""
        self.done = False
        """Nobody trains any more; servers may go."""
        self.failed: str | None = None
        """Of workers that have joined another run: which one failed."""

    def heard(self, reason: str) -> None:
        """The coordinator says that the run is over."""
        self.over = self.over or reason

    def found(self, reason: str) -> None:
        """It is over, and this is the cause."""
        self.over, self.known = reason, True

    def is_fatal(self, child: Child, worker: bool) -> bool:
        """Whether the end of this process, which was not a good one, ends the run.

        A worker that dies by a signal, or is out already because it was stopped, is survivable; an exception is not. So
        is one that was started again, and came when nobody trained any more.
        """
        assert child.code
        if worker:
            late = child.restarts and self.done
            return child.code > 0 and not child.frozen and not late
        return child.name != "coordinator" and not self.done

    def nobody_came(self, workers: Sequence[Child], servers: Sequence[Child]) -> bool:
        """Have all workers ended well, without a run? Then the coordinator has said so, and lost no server."""
        lost = any(server.code is not None and server.code < 0 for server in servers)
        well = bool(workers) and all(worker.code == 0 for worker in workers)
        return well and self.over is not None and not self.known and not lost

    def judge(self, workers: Sequence[Child], coordinator: Child | None) -> SynclineError | None:
        """What went wrong, now that everything is over."""
        refused, reason = self.refused, self.over or self.failed
        if refused is not None and (self.failed or not self._alone):
            return UsageError(f"{refused.role} {refused.number}", refused.what)
        if reason is None and workers and not any(worker.code == 0 for worker in workers):
            reason = without(coordinator) or "no worker has ended well"
        return None if reason is None else RunError(reason)


def without(coordinator: Child | None) -> str | None:
    """What there is to say if the coordinator has died."""
    if coordinator is None or not coordinator.code:
        return None
    return f"the {coordinator.end}, and without it nobody can join or leave"
