"""A sync model that is synchronous at first, and allows staleness later.

syncline train --sync own.sync.Loosening:100,s=3
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Loosening:
    """No worker is ahead in the first `rounds`, when updates are large; then a worker may be `s` iterations ahead."""

    rounds: int
    s: int = 3

    def may_answer(self, state, worker, i, draw):
        return i < state.v + (0 if state.v < self.rounds else self.s)

    def may_close(self, state):
        return state.missing == 0
