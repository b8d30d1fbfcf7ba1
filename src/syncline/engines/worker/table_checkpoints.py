"""Checkpoints of the run for programs that train tables; they need no call of their own.

The state is copied between two iterations: as soon as all answers of one have come, before the program goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from syncline.engines.saving.folder import model_file
from syncline.engines.worker.checkpoint_writer import CheckpointWriter, SavedState
from syncline.engines.worker.declaration import in_float32
from syncline.engines.worker.replica import Replica
from syncline.engines.worker.resumed_state import (
    RESUME,
    ResumedState,
    clocks_for_all,
    model_metadata,
    server_arrays,
)
from syncline.errors import UsageError
from syncline.layout import Values
from syncline.strategies.mode import Mode

if TYPE_CHECKING:
    from syncline.engines.worker.session_checkpoints import SessionCheckpoints


class ModelHolder(Protocol):
    """A program that holds the model itself, besides the tables."""

    def tables(self) -> dict[str, Values]:
        """Copies of the parameters, by table."""
        ...

    def state(self) -> dict[str, Any]:
        """What the program's optimizer remembers, as nested plain values and arrays."""
        ...


class TableCheckpoints:
    """The checkpoints of one replica whose tables are the model."""

    def __init__(
        self,
        run: SessionCheckpoints,
        replica: Replica,
        workers: int,
        holder: ModelHolder | None = None,
    ) -> None:
        """`workers`: how many start the run.

        `holder`: a program that holds the model itself; it calls `advanced` after each iteration.
        """
        self._holder = holder
        self.held: dict[str, Any] = {}
        """What the holder's state was in the run that this one continues."""
        self._workers = workers
        self._replica = replica
        self._name = replica.name
        self._writer = run.writer
        self._resumed = run.resumed(torch=False)
        self.offset = 0
        """The iterations of the earlier run, if the numbers of this one begin at 0."""

    def declare(self, arrays: Mapping[str, npt.ArrayLike], wishes: Mapping[str, object]) -> dict[str, Values]:
        """Declare the tables; in a run that continues, with the saved values."""
        replica, resumed = self._replica, self._resumed
        if resumed is None:
            tables = replica.declare(arrays, wishes)
        else:
            saved, said = resumed.model(self._name)
            _check(arrays, saved)
            clocks = clocks_for_all({int(worker): int(clock) for worker, clock in said["clocks"]}, self._workers)
            iteration = int(said["iteration"])
            saved = {name: saved[name] for name in arrays}  # in the order of the program
            tables = replica.declare(saved, wishes, lambda: resumed.memory(replica, self._name), clocks, iteration)
            if replica.leader >= 0:
                self.offset = 0 if replica.iteration else iteration
                self._restore(resumed, iteration)
        if self._writer is not None:
            self._begin(self._writer)
        return tables

    def _begin(self, writer: CheckpointWriter) -> None:
        writer.begin(self._iteration)
        if self._holder is not None:
            return
        if self._replica.mode is Mode.GRADIENTS:
            problem = "in mode 'gradients' tables hold means, and the program holds the parameters, which it must save"
            raise UsageError("--checkpoint", f"{problem} itself; use mode 'changes' or a rule")
        self._replica.advanced = self.advanced

    def follow(self, replica: Replica) -> None:
        """The program has loaded a state, and goes on with another replica of the same tables."""
        self._replica, self.offset = replica, 0
        if self._writer is not None:
            replica.advanced = self.advanced

    @property
    def _iteration(self) -> int:
        return self._replica.earlier + self._replica.iteration

    def _restore(self, resumed: ResumedState, iteration: int) -> None:
        """Restore what only this worker has."""
        replica, saved = self._replica, resumed.own if resumed.is_own else {}
        same = bool(saved) and resumed.is_same(replica, self._name, "codec")
        self.held = saved.get("held", {})
        replica.go_on_with(saved["codec"] if same else {}, iteration)
        if saved and resumed.is_same(replica, self._name, "gate") and saved["gate"]:
            replica.restore_gate(saved["gate"])
            if "values" in saved and resumed.is_same(replica, self._name, "reply_codec"):
                replica.link.memory.params[:] = saved["values"]

    def advanced(self) -> None:
        """An iteration is complete."""
        if self._writer is None:
            return
        step = self._writer.due(self._iteration, self._replica.strategy.synchronous)
        if step is not None:
            self._writer.write(step, self._state(self._writer.writes_models))

    def _state(self, with_models: bool) -> SavedState:
        replica = self._replica
        own: dict[str, Any] = {"codec": replica.residuals(), "gate": replica.gate_state()}
        if replica.strategy.replicas_differ:
            own["values"] = replica.link.memory.params.copy()
        if self._holder is not None:
            own["held"] = self._holder.state()
        state = SavedState(self._iteration, own)
        if with_models:
            arrived, clocks = replica.collect()
            tables = replica.arrays
            if replica.strategy.replicas_differ:
                tables = replica.view_of(replica.recall_parameters())
            if self._holder is not None and replica.mode is Mode.GRADIENTS:
                tables = self._holder.tables()
            arrays = {name: each + arrived[name] if arrived else each.copy() for name, each in tables.items()}
            name = model_file(self._name)
            state.models[name] = (arrays, model_metadata(replica, self._name, clocks))
            state.servers |= server_arrays(replica, self._name)
        return state


def _check(arrays: Mapping[str, npt.ArrayLike], saved: Mapping[str, Values]) -> None:
    """Raise `UsageError` with the first difference if these are not the tables of the checkpoint."""
    mine = {name: each.shape for name, each in in_float32(arrays).items()}
    theirs = {name: np.asarray(each).shape for name, each in saved.items()}
    for name in {**mine, **theirs}:
        if mine.get(name) != theirs.get(name):
            here, there = mine.get(name, "nothing"), theirs.get(name, "nothing")
            problem = f"table {name!r}: the program has {here}, the checkpoint has {there}"
            raise UsageError(RESUME, f"the checkpoint is of another model: {problem}")
