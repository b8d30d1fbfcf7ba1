"""A sync model of your own: synchronous at first, `ssp` later.

syncline train --sync own.sync.Loosening:100,s=3
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Loosening:
    """In the first rounds, when updates are large, all workers wait; later a worker may be `s` iterations ahead."""

    rounds: int
    s: int = 3

    def may_answer(self, state, worker, i, draw):
        return i < state.v + (0 if state.v < self.rounds else self.s)

    def may_close(self, state):
        return state.missing == 0
