"""Every error that Syncline raises, in one tree.

    SynclineError
      UsageError      a setting is invalid                   exit code 2
      RunError        a run failed after it had started      exit code 1
        NotFinite     an update contained NaN or infinity
        Stalled       the run deadlocked: every remaining member waits for another
      PeerError       a peer broke the protocol
      GoneError       this worker is no longer a member

A message names the option, the worker, the shard or the step, and says how to fix the problem.
"""

from __future__ import annotations

import re

LONG_WORD, LONG_TEXT = 200, 1000
"""A word, or a message, of more characters than this is cut when it is shown."""


def brief(text: str) -> str:
    """The text with its long words cut, and cut in the middle if it is still long."""
    text = _LONG_WORD.sub(lambda found: f"{found[0][:60]}... ({len(found[0]):,} characters)", text)
    return text if len(text) <= LONG_TEXT else f"{text[:300]} ... ({len(text):,} characters) ... {text[-300:]}"


def one_line(text: str) -> str:
    """The text for a terminal: control characters, such as newlines and escape codes, are written as Python does."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in brief(text))


_LONG_WORD = re.compile(rf"\S{{{LONG_WORD + 1},}}")


def printable(text: str) -> str:
    """The text with everything escaped that is not a printable character: line ends, and codes that terminals obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class SynclineError(Exception):
    """The base class: catch this to catch every error that Syncline raises on purpose."""


class UsageError(SynclineError):
    """A setting is invalid; `option` is the key, flag or argument to change."""

    def __init__(self, option: str, problem: str) -> None:
        self.option, self.problem = brief(option), brief(problem)
        super().__init__(f"{self.option}: {self.problem}")


class RunError(SynclineError):
    """A run failed after it had started."""


class NotFinite(RunError):
    """An update contains NaN or infinity; the worker did not send it."""

    def __init__(self, worker: int, progress: int, table: str) -> None:
        super().__init__(
            f"worker {worker}, iteration {progress}: the update of table {table!r} contains NaN or infinity; "
            "it was not sent (a smaller learning rate usually helps)"
        )
        self.worker = worker
        self.progress = progress
        self.table = table


class Stalled(RunError):
    """The run deadlocked: members remain, but each of them waits for another."""


class PeerError(SynclineError):
    """A peer sent something that the protocol does not allow."""


class GoneError(SynclineError):
    """This worker was removed from the run: it was declared dead, or a newer incarnation replaced it."""

    def __init__(self, worker: int, incarnation: int, progress: int) -> None:
        super().__init__(
            f"worker {worker} (incarnation {incarnation}) is no longer a member at iteration {progress}: "
            "it was declared dead or replaced; join again to continue"
        )
        self.worker = worker
        self.incarnation = incarnation
        self.progress = progress
