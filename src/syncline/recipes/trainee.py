"""One worker's training of one model: the simulator's problem and replica, over the engine's exchange.

The gradient, the optimizer and what the modes make of an answer are the code that the simulator runs, so a run whose
outcome does not depend on time (bsp) comes to the same bits in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np

from syncline.engines.net.control import Pulse
from syncline.engines.worker.replica import Replica
from syncline.layout import Table, Values
from syncline.sim.problem import Problem
from syncline.sim.worker_model import WorkerModel
from syncline.strategies.mode import Mode


class Trainee:
    """A replica that is kept in step; `late(seconds)` is called when an update is computed, which took so long."""

    def __init__(self, problem: Problem, replica: Replica, late: Callable[[float], None]) -> None:
        self._problem = problem
        self._replica = replica
        self._late = late
        self.iterations = 0
        """How many it has done."""
        self.computed = 0.0
        """Seconds of its own steps, so far."""
        self.waited = 0.0
        """Seconds from handing in an update to the answer, so far."""
        self.most_stale = 0

    def declare(self, first: Values, wishes: Mapping[str, str]) -> None:
        """Say what is trained; all start with the first worker's parameters."""
        tables = {table.name: first[table.start : table.stop].reshape(table.shape) for table in self._tables}
        self._replica.declare(tables, wishes)
        self._mode = self._replica.mode
        self._model = WorkerModel(self._problem, [self._answer()])

    @property
    def _tables(self) -> tuple[Table, ...]:
        return self._problem.layout.tables

    @property
    def iteration(self) -> int:
        """The one that comes next."""
        return self._replica.iteration

    @property
    def params(self) -> Values:
        """The parameters as this worker holds them; replaced by a step, never written."""
        return self._model.pieces[0]

    def step(self) -> None:
        """One iteration: compute, hand in, wait, and take what has come."""
        began = perf_counter()
        (update,) = self._model.update(self._mode, self._replica.rank, self._replica.iteration)
        self._late(perf_counter() - began)
        computed = perf_counter()
        self._hand_in(update)
        self._model.fresh(self._mode, 0, self._answer())
        if self._mode is Mode.GRADIENTS:
            self._model.whole()
        self.iterations += 1
        self.computed += computed - began
        self.waited += perf_counter() - computed
        self.most_stale = max(self.most_stale, self._replica.staleness)

    def _hand_in(self, update: Values) -> None:
        """Send it, last tables first, and wait as the sync model says."""
        for table in reversed(self._tables):
            self._replica.update(table.name, update[table.start : table.stop].reshape(table.shape))
        self._replica.clock()
        self._replica.sync()

    def _answer(self) -> Values:
        """A copy of what has come back: parameters, or a round's mean."""
        return np.concatenate([self._replica.arrays[table.name].ravel() for table in self._tables])

    def final(self) -> Values:
        """After the last iteration of all: the model; in mode `gradients` it lives in the workers."""
        self._replica.leave()
        self._replica.read_final()
        return self.params if self._mode is Mode.GRADIENTS else self._answer()

    def pulse(self, loss: float | None = None, accuracy: float | None = None) -> Pulse:
        """How far it is."""
        stale = self._replica.staleness
        return Pulse(self.iterations, self.computed, self.waited, stale, loss, accuracy, self._replica.name)
