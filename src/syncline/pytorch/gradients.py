"""Mode `gradients`: when backward() returns, every gradient is the mean over all workers, as under DDP."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from syncline.engines.worker.replica import Replica
from syncline.pytorch.mode_hooks import SKIP, STOP, ModeHooks, at_the_end_of_backward, twice
from syncline.pytorch.slots import Slot, is_finite


class Gradients(ModeHooks):
    """Sends a gradient as soon as backward() has produced it, and takes over the means at the end of backward()."""

    def __init__(
        self, replica: Replica, slots: list[Slot], optimizer: Optimizer | None, on_nan: str, overlap: bool
    ) -> None:
        super().__init__(replica, slots, optimizer, on_nan)
        self._overlap = overlap
        self._sent: set[Slot] = set()
        self._exchanged = False
        self.on_gradients(self._ready)

    def _ready(self, slot: Slot, parameter: Tensor) -> None:
        if self.paused:
            return
        if not self._sent:
            if self._exchanged:
                raise twice(self.replica.name)
            self.check()
            at_the_end_of_backward(self._finish)
        self._sent.add(slot)
        if self._overlap:
            self._send(slot)

    def _send(self, slot: Slot) -> None:
        assert slot.parameter.grad is not None
        self.put(slot, slot.parameter.grad)
        if self.on_nan == STOP and not self.scaled:
            self.usable(slot)
        self.replica.give(slot.name)

    def _finish(self) -> None:
        """Complete the exchange when backward() has produced all gradients; a table without one counts as zero."""
        late = [slot for slot in self.slots if slot.parameter.grad is not None]
        for slot in late if not self._overlap else [slot for slot in late if slot not in self._sent]:
            self._sent.add(slot)  # its gradient may be from an earlier backward()
            self._send(slot)
        if self.buffers is not None:
            self.buffers.give()
        self.replica.clock()
        self.replica.sync()
        for slot in self.slots:
            self._take(slot)
        if self.buffers is not None:
            self.buffers.take()
        if self.on_nan == SKIP and not self.scaled and not all(is_finite(slot.value) for slot in self.slots):
            self.drop_gradients()
        self._sent.clear()
        self._exchanged = self.optimizer is not None

    def _take(self, slot: Slot) -> None:
        """Make the mean the gradient. If no worker has a gradient, it stays None, so that no optimizer changes it."""
        parameter = slot.parameter
        if slot not in self._sent and not bool(slot.value.any()):
            return
        if parameter.dtype is torch.float32 and parameter.device.type == "cpu":
            parameter.grad = slot.value
        elif parameter.grad is not None and not parameter.grad.is_sparse:
            parameter.grad.copy_(slot.value)
        else:
            parameter.grad = slot.value.to(parameter.device, parameter.dtype)

    def before_step(self) -> None:
        pass

    def after_step(self) -> None:
        self._exchanged = False

    def skip(self) -> None:
        self._exchanged = False
