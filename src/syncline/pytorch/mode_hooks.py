"""What the three modes have in common: when an iteration of the user's loop is exchanged, and with what."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from syncline.engines.worker.replica import Replica
from syncline.errors import NotFinite, UsageError
from syncline.pytorch.shared_buffers import SharedBuffers
from syncline.pytorch.slots import Slot, check_all, is_finite
from syncline.strategies.mode import Mode

STOP, SKIP = "stop", "skip"


class ModeHooks(ABC):
    """One model's hooks. `stepped` is called after every step that was taken, skipped or exchanged."""

    def __init__(self, replica: Replica, slots: list[Slot], optimizer: Optimizer | None, on_nan: str) -> None:
        self.replica = replica
        self.slots = slots
        self.optimizer = optimizer
        self.on_nan = on_nan
        self.paused = 0
        """How many `no_sync()` are open."""
        self.scaled = False
        """A GradScaler is registered: it looks for NaN and infinity, and skips steps by itself."""
        self.steps = 0
        self.buffers: SharedBuffers | None = None
        self.stepped: Callable[[], None] = lambda: None
        self._handles: list[Any] = []
        self._by_name = {slot.name: slot for slot in slots}
        self._due: set[Slot] = set()
        """Parameters that were asked for and are not taken over yet."""
        if optimizer is not None:
            self._handles.append(optimizer.register_step_pre_hook(self._before_step))
            self._handles.append(optimizer.register_step_post_hook(lambda *_: self._after_step()))

    def detach(self) -> None:
        """Take the hooks away: the model is a plain one again."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @abstractmethod
    def before_step(self) -> None:
        """The optimizer is about to step."""

    @abstractmethod
    def after_step(self) -> None:
        """The optimizer has stepped."""

    @abstractmethod
    def skip(self) -> None:
        """A step was skipped here (GradScaler): nobody may wait for it."""

    def skipped(self) -> None:
        """A GradScaler has not stepped."""
        self.skip()
        self._count()

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.replica.mode is Mode.RULE and any(each is not None for each in (*args[1:], kwargs.get("closure"))):
            raise UsageError("optimizer", "mode 'rule' takes no closure; call loss.backward(), then step()")
        self.before_step()

    def _after_step(self) -> None:
        self.after_step()
        self._count()

    def _count(self) -> None:
        self.steps += 1
        self.stepped()

    def wait(self) -> None:
        """Have everything that was asked for."""
        self.replica.sync()
        for slot in self._due:
            self.take_over(slot)
        if self._due and self.buffers is not None:
            self.buffers.take()
        self._due.clear()

    def final(self) -> None:
        """The run is over, and the lane's memory holds the final values."""
        if self.replica.mode is not Mode.GRADIENTS:
            for slot in self.slots:
                slot.fresh()
            if self.buffers is not None:
                self.buffers.take()

    def wait_for(self, name: str) -> None:
        """Have one parameter as it was asked for; once, since autograd may hold on to what a module has read."""
        slot = self._by_name[name]
        if slot in self._due:
            self.replica.sync(name)
            self.take_over(slot)
            self._due.discard(slot)

    def keep(self, handles: list[Any]) -> None:
        """Further hooks, to be taken away with the others."""
        self._handles += handles

    # For the modes.

    def take_over(self, slot: Slot) -> None:
        """What was asked for is there."""
        slot.fresh()

    def on_gradients(self, ready: Callable[[Slot, Tensor], None]) -> None:
        """Have this called for every gradient that backward has accumulated."""
        for slot in self.slots:
            parameter = slot.parameter
            thawed = parameter.requires_grad
            parameter.requires_grad_(True)  # a frozen one takes no hook, and may be thawed later
            self._handles.append(parameter.register_post_accumulate_grad_hook(partial(ready, slot)))  # type: ignore[no-untyped-call]
            parameter.requires_grad_(thawed)

    def ask(self) -> None:
        """This iteration's updates are in; parameters will come back."""
        if self.buffers is not None:
            self.buffers.give()
        self.replica.clock()
        self._due.update(self.slots)

    def check(self) -> None:
        check_all(self.slots)

    def put(self, slot: Slot, gradient: Tensor) -> None:
        """Lay a gradient where it is sent from."""
        with torch.no_grad():
            slot.update.copy_(gradient.to_dense() if gradient.is_sparse else gradient)

    def usable(self, slot: Slot) -> bool:
        """May this update be sent? One that holds NaN or infinity is left out, or stops the run."""
        if is_finite(slot.update):
            return True
        if self.on_nan == STOP:
            raise NotFinite(self.replica.rank, self.steps, slot.name)
        return False

    def drop_gradients(self) -> None:
        """Without gradients no optimizer changes anything."""
        for slot in self.slots:
            slot.parameter.grad = None


def at_the_end_of_backward(call: Callable[[], None]) -> None:
    """Have something happen once the backward pass that runs now is done."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def twice(name: str) -> UsageError:
    return UsageError(
        "no_sync",
        f"model {name!r}: a second backward() before step() would exchange the gradients twice; accumulate inside "
        "`with session.no_sync():`, and register a GradScaler with session.scaler(scaler), since it may skip a step",
    )
