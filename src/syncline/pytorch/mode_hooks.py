"""The base class of the three modes: the hooks that exchange an iteration of the user's training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from syncline.engines.worker.replica import Replica
from syncline.errors import NotFinite, UsageError
from syncline.layout import Values
from syncline.pytorch.loading import LoadWatch
from syncline.pytorch.shared_buffers import SharedBuffers
from syncline.pytorch.slots import Slot, check_all, is_finite
from syncline.strategies.mode import Mode

STOP, SKIP = "stop", "skip"


class ModeHooks(ABC):
    """The hooks of one model. `stepped` is called after every step, also after a skipped one.

    `optimizers`: those whose steps belong to this model; none if the program changes parameters by itself.
    """

    def __init__(self, replica: Replica, slots: list[Slot], optimizers: Sequence[Optimizer], on_nan: str) -> None:
        self.replica = replica
        self.slots = slots
        self.optimizers = optimizers
        self.on_nan = on_nan
        self.paused = 0
        """The number of active `no_sync()` contexts."""
        self.scaled = False
        """Whether a GradScaler is registered, which checks for NaN and infinity and skips steps by itself."""
        self.steps = 0
        self.buffers: SharedBuffers | None = None
        self.loads = LoadWatch(slots, self.before_load)
        self.stepped: Callable[[], None] = lambda: None
        self._handles: list[Any] = []
        self._by_name = {slot.name: slot for slot in slots}
        self._due: set[Slot] = set()
        """Parameters that were requested and not taken over yet."""
        self._stepping: Optimizer | None = None
        """The optimizer whose step() is being called."""
        for optimizer in optimizers:
            self._handles.append(optimizer.register_step_pre_hook(self._before_step))
            self._handles.append(optimizer.register_step_post_hook(lambda *_: self._after_step()))

    def detach(self) -> None:
        """Remove the hooks; after that the model is not distributed any more."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def move_to(self, replica: Replica, values: dict[str, Values]) -> None:
        """Continue with another replica of the same model, which holds the values that all workers start with."""
        self.replica = replica
        self._due.clear()
        places = replica.places()
        for slot in self.slots:
            slot.move_to(places[slot.name], values[slot.name])
            self.take_over(slot)
        self.begin_iteration()

    def begin_iteration(self) -> None:  # noqa: B027 (a mode that sends nothing before step() has nothing to forget)
        """Forget what was sent in the current iteration."""

    def before_load(self) -> None:
        """Called before the program loads values into the model: no answer may arrive later and overwrite them."""
        self.wait()
        self.loads.members = self.replica.link.members

    @abstractmethod
    def before_step(self) -> None:
        """Called before the optimizer steps."""

    @abstractmethod
    def after_step(self) -> None:
        """Called after the optimizer has stepped."""

    @abstractmethod
    def skip(self) -> None:
        """Complete the iteration after a skipped step (GradScaler), so that no other worker waits for it."""

    def skipped(self) -> None:
        """Called after a GradScaler has skipped a step."""
        self.skip()
        self._count()

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.replica.mode is Mode.RULE and any(each is not None for each in (*args[1:], kwargs.get("closure"))):
            raise UsageError(
                "optimizer", "step() accepts no closure in mode 'rule'; call loss.backward(), then step() without one"
            )
        self._stepping = optimizer
        self.check()
        self.before_step()

    def _after_step(self) -> None:
        self.after_step()
        self._stepping = None
        self._count()

    def _count(self) -> None:
        self.steps += 1
        self.stepped()

    def wait(self) -> None:
        """Wait for all requested parameters and take them over."""
        self.replica.sync()
        for slot in self._due:
            self.take_over(slot)
        if self._due and self.buffers is not None:
            self.buffers.take()
        self._due.clear()

    def final(self) -> None:
        """Take over the final values from the lane's memory after the run has ended."""
        if self.replica.mode is not Mode.GRADIENTS:
            for slot in self.slots:
                slot.fresh()
            if self.buffers is not None:
                self.buffers.take()

    def wait_for(self, name: str) -> None:
        """Wait for one requested parameter and take it over; only once, since autograd may save what a module reads."""
        slot = self._by_name[name]
        if slot in self._due:
            self.replica.sync(name)
            self.take_over(slot)
            self._due.discard(slot)

    def keep(self, handles: list[Any]) -> None:
        """Add hook handles that `detach` removes together with the others."""
        self._handles += handles

    # For the modes.

    def stepped_on(self) -> list[Slot]:
        """The slots whose parameters the current step() optimises."""
        if self._stepping is None or len(self.optimizers) == 1:
            return self.slots
        own = {each for group in self._stepping.param_groups for each in group["params"]}
        return [slot for slot in self.slots if slot.parameter in own]

    def take_over(self, slot: Slot) -> None:
        """Take over the answer for this parameter."""
        slot.fresh()

    def on_gradients(self, ready: Callable[[Slot, Tensor], None]) -> None:
        """Call `ready` for every gradient that backward() has accumulated."""
        for slot in self.slots:
            parameter = slot.parameter
            thawed = parameter.requires_grad
            parameter.requires_grad_(True)  # a frozen parameter accepts no hook, but the program may unfreeze it later
            self._handles.append(parameter.register_post_accumulate_grad_hook(partial(ready, slot)))  # type: ignore[no-untyped-call]
            parameter.requires_grad_(thawed)

    def ask(self) -> None:
        """Complete this iteration's updates and request parameters."""
        if self.buffers is not None:
            self.buffers.give()
        self.replica.clock()
        self._due.update(self.slots)

    def check(self) -> None:
        check_all(self.slots)

    def put(self, slot: Slot, gradient: Tensor) -> None:
        """Copy a gradient to the memory that it is sent from."""
        with torch.no_grad():
            slot.update.copy_(gradient.to_dense() if gradient.is_sparse else gradient)

    def usable(self, slot: Slot) -> bool:
        """Whether this update may be sent. With NaN or infinity it is skipped, or `NotFinite` ends the run."""
        if is_finite(slot.update):
            return True
        if self.on_nan == STOP:
            raise NotFinite(self.replica.rank, self.steps, slot.name)
        return False

    def drop_gradients(self) -> None:
        """Remove the gradients of the current step, so that the optimizer changes nothing."""
        for slot in self.stepped_on():
            slot.parameter.grad = None


def at_the_end_of_backward(call: Callable[[], None]) -> None:
    """Call this function at the end of the current backward pass."""
    torch.autograd.Variable._execution_engine.queue_callback(call)
