"""One worker's training of one model, with the simulator's problem and replica and the engine's communication.

The simulator runs the same code for gradients, optimizers and modes. So if the result does not depend on time (bsp),
it is bit-identical in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from syncline.engines.net.control import Pulse
from syncline.engines.worker.replica import Replica
from syncline.engines.worker.table_checkpoints import TableCheckpoints
from syncline.layout import Table, Values
from syncline.sim.problem import Problem
from syncline.sim.worker_model import WorkerModel
from syncline.strategies.mode import Mode


class Trainee:
    """A replica that trains with others; it calls `late(seconds)` after computing an update in this many seconds."""

    def __init__(self, problem: Problem, replica: Replica, late: Callable[[float], None]) -> None:
        self._problem = problem
        self._replica = replica
        self._late = late
        self.iterations = 0
        """The number of iterations done."""
        self.computed = 0.0
        """The seconds spent computing so far."""
        self.waited = 0.0
        """The seconds spent between sending an update and its answer so far."""
        self.most_stale = 0
        self._left = False
        self._offset = 0
        """The iterations of the run that this one continues, if the numbers of this one begin at 0."""
        self._checkpoints: TableCheckpoints | None = None

    def declare(self, first: Values, wishes: Mapping[str, str], checkpoints: TableCheckpoints | None = None) -> None:
        """Declare the tables; all workers start with the leader's parameters, or with those of a checkpoint."""
        (self._replica if checkpoints is None else checkpoints).declare(self._by_table(first), wishes)
        self._mode = self._replica.mode
        self._model = WorkerModel(self._problem, [self._answer()])
        self._checkpoints = checkpoints
        if checkpoints is not None:
            self._offset = checkpoints.offset
            for memory, saved in zip(
                self._model.optimizer_state(), checkpoints.held.get("optimizer", []), strict=False
            ):
                memory |= saved

    def _by_table(self, vector: Values) -> dict[str, Values]:
        return {table.name: vector[table.start : table.stop].reshape(table.shape) for table in self._tables}

    # For checkpoints.

    def tables(self) -> dict[str, Values]:
        return self._by_table(self.params)

    def state(self) -> dict[str, Any]:
        copies = [{name: each.copy() for name, each in memory.items()} for memory in self._model.optimizer_state()]
        return {"optimizer": copies}

    @property
    def _tables(self) -> tuple[Table, ...]:
        return self._problem.layout.tables

    @property
    def iteration(self) -> int:
        """The next iteration."""
        return self._offset + self._replica.iteration

    @property
    def params(self) -> Values:
        """This worker's parameters. A step replaces the array and never modifies it."""
        return self._model.pieces[0]

    def step(self) -> None:
        """Do one iteration: compute an update, send it, wait, and take in the answer."""
        began = perf_counter()
        (update,) = self._model.update(self._mode, self._replica.rank, self.iteration)
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
        if self._checkpoints is not None:
            self._checkpoints.advanced()

    def _hand_in(self, update: Values) -> None:
        """Send an update, last tables first, and wait as the sync model requires."""
        for table in reversed(self._tables):
            self._replica.update(table.name, update[table.start : table.stop].reshape(table.shape))
        self._replica.clock()
        self._replica.sync()

    def _answer(self) -> Values:
        """A copy of the answer: parameters, or a round's mean."""
        return np.concatenate([self._replica.arrays[table.name].ravel() for table in self._tables])

    def leave(self) -> None:
        """Stop training; workers that wait for this one continue."""
        if not self._left:
            self._left = True
            self._replica.leave(last=True)

    def final(self) -> Values:
        """Leave, and return the final model; in mode `gradients`, where only workers hold it, the own replica."""
        self.leave()
        self._replica.read_final()
        return self.params if self._mode is Mode.GRADIENTS else self._answer()

    def pulse(self, loss: float | None = None, accuracy: float | None = None) -> Pulse:
        """This worker's progress."""
        stale = self._replica.staleness
        return Pulse(self.iterations, self.computed, self.waited, stale, loss, accuracy, self._replica.name)
