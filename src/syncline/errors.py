"""Every error that Syncline raises, in one tree.

    SynclineError
      UsageError      what you asked for makes no sense      exit code 2
      RunError        a run could not go on                  exit code 1
        NotFinite     an update held NaN or infinity
        Stalled       nobody can make the next move
      PeerError       a peer broke the protocol
      GoneError       this worker is no longer a member

A message names the option, the worker, the shard or the step, and says what would be right.
"""

from __future__ import annotations


class SynclineError(Exception):
    """The root: catch this to catch everything that Syncline raises on purpose."""


class UsageError(SynclineError):
    """The request makes no sense; `option` is the key, flag or argument to change."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option}: {problem}")
        self.option = option
        self.problem = problem


class RunError(SynclineError):
    """A run that had started well could not go on."""


class NotFinite(RunError):
    """An update that holds NaN or infinity; it was not sent."""

    def __init__(self, worker: int, progress: int, table: str) -> None:
        super().__init__(
            f"worker {worker}, iteration {progress}: the update of table {table!r} holds NaN or infinity; "
            "it was not sent (a smaller learning rate is the usual cure)"
        )
        self.worker = worker
        self.progress = progress
        self.table = table


class Stalled(RunError):
    """Members are left, but none of them will ever move again."""


class PeerError(SynclineError):
    """A peer sent what the protocol does not allow."""


class GoneError(SynclineError):
    """This worker was removed from the membership: declared dead, or replaced by a newer incarnation."""

    def __init__(self, worker: int, incarnation: int, progress: int) -> None:
        super().__init__(
            f"worker {worker} (incarnation {incarnation}) is no longer a member at iteration {progress}: "
            "it was declared dead or replaced; join again to go on"
        )
        self.worker = worker
        self.incarnation = incarnation
        self.progress = progress
