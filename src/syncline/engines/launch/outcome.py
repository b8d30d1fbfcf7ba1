"""The outcome of a run: which events end it, and the error that is reported when it is over."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.engines.failure_report import without_numbers
from syncline.engines.launch.child import Child
from syncline.engines.net.control import Seen
from syncline.errors import RunError, SynclineError, UsageError


class RunOutcome:
    """Records what happens to a run; with `alone=True` its workers joined another run, which continues without them."""

    def __init__(self, alone: bool) -> None:
        self.alone = alone
        self.over: str | None = None
        """Why the run ended before its workers were done."""
        self.known = False
        """True if this launcher found that cause, False if the coordinator reported it."""
        self.refused: Seen | None = None
        """The worker that was refused because its settings are invalid."""
        self.done = False
        """Training has ended; servers may end."""
        self.survives_servers = False
        """The run goes on without a server that has died."""
        self.failed: str | None = None
        """Which of the workers that joined another run failed, and how."""

    def heard(self, reason: str) -> None:
        """The coordinator reports that the run is over, for this reason."""
        self.over = self.over or reason

    def found(self, reason: str) -> None:
        """This launcher found that the run is over, for this reason."""
        self.over, self.known = reason, True

    def is_fatal(self, child: Child, worker: bool) -> bool:
        """Return True if the failure of this process ends the run.

        The run survives a worker that was killed by a signal, that was removed because it was stopped, or that was
        restarted, or started later, and came after the training had ended. It does not survive an exception in a
        worker.
        """
        assert child.code
        if worker:
            late = (child.restarts or child.later) and self.done
            return child.code > 0 and not child.frozen and not late
        return child.name != "coordinator" and not self.done and not self.survives_servers

    def no_worker_connected(self, workers: Sequence[Child], servers: Sequence[Child]) -> bool:
        """Return True if all workers succeeded without connecting to the run.

        Then the coordinator has ended the run, and no server was lost.
        """
        lost = any(server.code is not None and server.code < 0 for server in servers)
        well = bool(workers) and all(worker.code == 0 for worker in workers)
        return well and self.over is not None and not self.known and not lost

    def judge(self, workers: Sequence[Child], coordinator: Child | None) -> SynclineError | None:
        """The error of the run, after all processes have ended; None if it succeeded."""
        refused, reason = self.refused, self.over or self.failed
        if refused is not None and (self.failed or not self.alone):
            return UsageError(f"{refused.role} {refused.number}", refused.what)
        if reason is None and workers and not any(worker.code == 0 for worker in workers):
            reason = coordinator_died(coordinator) or "no worker ended with exit code 0"
        if reason is not None and not self.known:
            reason += _unfinished(workers)
        return None if reason is None else _error(reason, workers)


def _unfinished(workers: Sequence[Child]) -> str:
    """What a worker has said of its failure before it was ended because it did not end in time; "": nothing."""
    said = [each for each in workers if each.reason and each.code is not None and each.code < 0]
    return f": {said[0].name} ended: {said[0].reason}" if said else ""


def _error(reason: str, workers: Sequence[Child]) -> SynclineError:
    """The error of a run that ended for this reason; it names all workers that failed for it."""
    plain = without_numbers(reason)
    alike = [each for each in workers if each.reason and plain.endswith(without_numbers(each.reason))]
    others = [each.name for each in alike if f"{each.name} ended" not in reason]
    if others:
        reason += f" ({', '.join(others)}: the same)"
    if any(each.failure is not None and each.failure.usage for each in alike):
        what, _, problem = reason.partition(": ")
        return UsageError(what, problem)
    return RunError(reason)


def coordinator_died(coordinator: Child | None) -> str | None:
    """The reason to report if the coordinator has died; None if it has not."""
    if coordinator is None or not coordinator.code:
        return None
    end = "coordinator was stopped for too long" if coordinator.frozen else coordinator.end
    return f"the {end}; without it no process can join or leave the run"
