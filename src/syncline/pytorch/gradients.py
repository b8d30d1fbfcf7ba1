"""Mode `gradients`: when backward() returns, every gradient is the mean over all workers, as under DDP.

Every backward() is one exchange. It sends the gradients as they have accumulated so far. The part from earlier
exchanges is the same on all workers, so their mean is the sum of the means: two backward() before a step() add up, and
each optimizer of a model may step when it likes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from syncline.engines.worker.replica import Replica
from syncline.pytorch.mode_hooks import SKIP, STOP, ModeHooks, at_the_end_of_backward
from syncline.pytorch.slots import Slot, is_finite


class Gradients(ModeHooks):
    """Sends a gradient as soon as backward() has produced it, and takes over the means at the end of backward()."""

    def __init__(
        self, replica: Replica, slots: list[Slot], optimizers: Sequence[Optimizer], on_nan: str, overlap: bool
    ) -> None:
        super().__init__(replica, slots, optimizers, on_nan)
        self._overlap = overlap
        self._sent: set[Slot] = set()
        self.on_gradients(self._ready)

    def begin_iteration(self) -> None:
        self._sent.clear()

    def _ready(self, slot: Slot, parameter: Tensor) -> None:
        if self.paused:
            return
        if not self._sent:
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
        self.loads.settle()
        if not self.optimizers:
            self._count()

    def _take(self, slot: Slot) -> None:
        """Make the mean the gradient. If no worker has a gradient, it stays None, so that no optimizer changes it.

        The mean is copied, as under DDP: the program may keep the gradient, and the next exchange overwrites the lane.
        """
        parameter, gradient = slot.parameter, slot.parameter.grad
        if slot not in self._sent and not bool(slot.value.any()):
            return
        if gradient is None or gradient.is_sparse or gradient.requires_grad:
            parameter.grad = slot.value.to(parameter.device, parameter.dtype, copy=True)
        else:
            with torch.no_grad():
                gradient.copy_(slot.value)

    def before_step(self) -> None:
        """Do nothing: the gradients are the means already."""

    def after_step(self) -> None:
        """Do nothing: the other workers make the same step."""

    def skip(self) -> None:
        """Do nothing: the scaler of every worker sees the same gradients, so all skip the step."""
