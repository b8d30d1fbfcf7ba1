"""Checkpoints of the run for PyTorch programs, which need no call of their own.

1. When a checkpoint is due after a step, nothing is copied yet: the program may still step a scheduler or another
   optimizer. The copy is made when the program asks a sampler of the session for the next example. A program without
   such a sampler comes to that point with the next forward pass, after all its models have stepped.
2. In a run that continues, `distribute` begins with the saved values. A sampler gives no examples of epochs that were
   over, and continues within the one that was not. At this point, everything that the program may have changed on its
   way there is restored: schedulers, learning rates and random states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from syncline.engines.saving.folder import model_file
from syncline.engines.worker.checkpoint_writer import SavedState
from syncline.engines.worker.replica import Clocks, Replica
from syncline.engines.worker.resumed_state import (
    RESUME,
    ResumedState,
    clocks_for_all,
    model_metadata,
    server_arrays,
)
from syncline.errors import UsageError
from syncline.layout import Values
from syncline.pytorch.model_state import (
    exact_values,
    load_tensors,
    model_arrays,
    own_state,
    restore_own_state,
    restore_rates,
    tensors_of,
)
from syncline.pytorch.random_state import random_states, restore_random_states

if TYPE_CHECKING:
    from syncline.engines.worker.session_checkpoints import SessionCheckpoints
    from syncline.pytorch.distribute import Distributed
    from syncline.pytorch.sampler import SharedSampler
    from syncline.pytorch.session import Session

NO_SAMPLER = -1


class TorchCheckpoints:
    """Copies the state of a program's models when a checkpoint is due, and restores it in a run that continues."""

    def __init__(self, session: Session, run: SessionCheckpoints) -> None:
        self._session = session
        self._writer = run.writer
        self._resumed = resumed = run.resumed(torch=True)
        self._models: dict[str, Distributed] = {}
        self._samplers: list[SharedSampler] = []
        self._asked: dict[SharedSampler, None] = {}
        self._pending: int | None = None
        """The number of the checkpoint that is due."""
        self._stepped: set[str] = set()
        """The models that have stepped since it is due."""
        self._positions: list[tuple[int, int]] = []
        """The positions of the samplers after the last step."""
        self._restores = resumed is not None
        """Whether the run has still to come to the point at which the earlier one was saved."""

    # Saving.

    def stepped(self, name: str) -> None:
        """A model has made a step."""
        if self._restores:
            self.restore()  # the program has not come to the saved point, and trains all the same
        if self._writer is None:
            return
        if self._pending is None and name == next(iter(self._models)):
            replicas = [each.replica for each in self._models.values()]
            synchronous = all(each.strategy.synchronous for each in replicas)
            self._pending = self._writer.due(replicas[0].earlier + replicas[0].iteration, synchronous)
            self._stepped.clear()
        self._note_trained()
        if self._pending is not None:
            self._stepped.add(name)
            self._positions = [each.position() for each in self._samplers]
            for number, sampler in enumerate(self._samplers):
                sampler.at_turn = lambda number=number: self._save(number)

    def _note_trained(self) -> None:
        """The samplers that the program was asking when it made this step are those that it trains on."""
        if self._asked:
            latest = next(reversed(self._asked))
            for sampler in self._asked:
                sampler.has_trained |= sampler is latest or not sampler.is_between
            self._asked.clear()

    def forward(self) -> None:
        """A model is about to compute its forward pass."""
        if self._restores:
            if self._resumed_turn() == NO_SAMPLER:
                self.restore()
            return
        if any(sampler.has_trained for sampler in self._samplers):
            return
        if self._pending is not None and self._stepped >= self._models.keys():
            self._save(NO_SAMPLER)

    def _save(self, sampler: int) -> None:
        """Copy everything, and let it be written; `sampler`: the number of the one that is asked for an example."""
        step, self._pending = self._pending, None
        for each in self._samplers:
            each.at_turn = None
        if step is None or self._writer is None:
            return
        if sampler != NO_SAMPLER and self._samplers[sampler].begins:
            self._positions[sampler] = self._samplers[sampler].position()
        for model in self._models.values():
            model.hooks.wait()
        first = next(iter(self._models.values())).replica
        state = SavedState(first.earlier + first.iteration, self._own_state(sampler))
        if self._writer.writes_models:
            for name, model in self._models.items():
                arrays, clocks = model_arrays(model)
                state.models[model_file(name)] = (
                    arrays,
                    model_metadata(model.replica, name, clocks),
                )
                state.servers |= server_arrays(model.replica, name) | exact_values(name, model, arrays)
        self._writer.write(step, state)

    def _own_state(self, sampler: int) -> dict[str, Any]:
        return {
            "models": {name: own_state(each) for name, each in self._models.items()},
            "samplers": [
                {"epoch": epoch, "start": start, "has_trained": each.has_trained}
                for each, (epoch, start) in zip(self._samplers, self._positions, strict=False)
            ],
            "turn": sampler,
            "scaler": None if self._session.own_scaler is None else self._session.own_scaler.state_dict(),
            "random": random_states(),
        }

    # Continuing.

    def begin_with(self, name: str, model: nn.Module) -> Beginning:
        """What a model begins with; in a run that continues, its values are loaded here."""
        if self._resumed is None:
            return Beginning()
        arrays, said = self._resumed.model(name)
        self._check(name, model, arrays)
        load_tensors(model, arrays)
        clocks = {int(worker): int(clock) for worker, clock in said["clocks"]}
        exact = {table: torch.from_numpy(values) for table, values in self._resumed.of_servers(name, "values").items()}
        return Beginning(
            self._resumed,
            name,
            exact,
            clocks_for_all(clocks, self._session.size),
            int(said["iteration"]),
        )

    def _check(self, name: str, model: nn.Module, arrays: Mapping[str, Tensor]) -> None:
        """Raise `UsageError` with the first difference if this is not the model of the checkpoint."""
        mine = {key: tuple(value.shape) for key, value in tensors_of(model).items()}
        theirs = {key: tuple(value.shape) for key, value in arrays.items()}
        for key in {**mine, **theirs}:
            if mine.get(key) != theirs.get(key):
                here, there = mine.get(key, "nothing"), theirs.get(key, "nothing")
                problem = f"{key!r} of model {name!r}: the program has {here}, the checkpoint has {there}"
                raise UsageError(RESUME, f"the checkpoint is of another model: {problem}")

    def began(self, name: str, each: Distributed, beginning: Beginning) -> None:
        """A model is distributed."""
        self._models[name] = each
        if self._writer is not None or self._resumed is not None:
            each.hooks.keep([each.model.register_forward_pre_hook(_Forward(self.forward))])
        if each.replica.leader < 0:  # it joins a run that trains already
            self._resumed, self._restores = None, False
        if self._resumed is not None:
            restore_own_state(each, self._resumed, name, beginning.iteration)
        if self._writer is not None and len(self._models) == 1:
            self._writer.begin(each.replica.earlier + each.replica.iteration)

    def add(self, sampler: SharedSampler) -> None:
        """The program has made a sampler."""
        number = len(self._samplers)
        self._samplers.append(sampler)
        sampler.asked = self._asked
        saved = [] if self._resumed is None else self._resumed.own["samplers"]
        if not self._restores or number >= len(saved):
            return
        at_turn, position = self._resumed_turn() == number, saved[number]
        sampler.has_trained = position["has_trained"]
        if at_turn:
            sampler.resumed = self.restore
        if at_turn or sampler.has_trained:
            sampler.resume(int(position["epoch"]), int(position["start"]), skips=sampler.has_trained)

    def _resumed_turn(self) -> int:
        assert self._resumed is not None
        return int(self._resumed.own["turn"])

    def restore(self) -> None:
        """The program has come to the point at which the earlier run was saved."""
        if not self._restores or self._resumed is None:
            return
        self._restores = False
        own = self._resumed.own
        for name, each in self._models.items():
            saved = own["models"].get(name)
            if saved is not None:
                restore_rates(each.optimizers, saved)
        if own["scaler"] is not None and self._session.own_scaler is not None:
            self._session.own_scaler.load_state_dict(own["scaler"])
        if self._resumed.is_own:
            restore_random_states(own["random"])


class Beginning:
    """What a model begins with: nothing, or what a checkpoint has."""

    def __init__(
        self,
        resumed: ResumedState | None = None,
        name: str = "",
        exact: Mapping[str, Tensor] | None = None,
        clocks: Mapping[int, Clocks] | None = None,
        iteration: int = 0,
    ) -> None:
        """`exact`: the servers' values of tables whose tensors in the model are not exact."""
        self._resumed = resumed
        self.name = name
        self.exact = {table: each.numpy() for table, each in (exact or {}).items()}
        self.clocks = dict(clocks or {})
        self.iteration = iteration

    def declare(self, replica: Replica, tables: dict[str, Values], wishes: Mapping[str, object]) -> dict[str, Values]:
        """Declare the model's tables with these values."""
        resumed = self._resumed
        if resumed is None:
            return replica.declare(tables, wishes)
        memory = lambda: resumed.memory(replica, self.name)  # noqa: E731
        values = {name: self.exact.get(name, each) for name, each in tables.items()}
        return replica.declare(values, wishes, memory, self.clocks, self.iteration)


class _Forward:
    """A hook before forward(). In a copy of the module it does nothing."""

    def __init__(self, call: Callable[[], None] | None = None) -> None:
        self._call = call

    def __call__(self, module: nn.Module, *_: object) -> None:
        if self._call is not None and module.training:
            self._call()

    def __reduce__(self) -> tuple[Callable[..., _Forward], tuple[()]]:
        return _Forward, ()
