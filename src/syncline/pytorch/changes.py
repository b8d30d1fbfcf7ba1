"""Mode `changes`: the user's optimizer steps, and `step()` also exchanges the change that it made.

The change is the difference to the parameters that last came back from the servers. So it includes what the program
itself did to a parameter since then, such as clipping weights or editing them by hand.
"""

from __future__ import annotations

import torch
from torch.optim import Optimizer

from syncline.engines.worker.replica import Replica
from syncline.pytorch.mode_hooks import SKIP, ModeHooks
from syncline.pytorch.slots import Slot


class Changes(ModeHooks):
    """Sends what `step()` changed, and replaces the parameters by those of the servers."""

    def __init__(
        self, replica: Replica, slots: list[Slot], optimizer: Optimizer, on_nan: str, forward: bool = False
    ) -> None:
        super().__init__(replica, slots, optimizer, on_nan)
        self._forward = forward
        self._bad = False
        self._gated = replica.strategy.adds_own_changes
        for slot in slots:
            self.take_over(slot)

    def take_over(self, slot: Slot) -> None:
        """Take over the answer, and copy it to the update's memory: the next change is the difference to it."""
        super().take_over(slot)
        with torch.no_grad():
            slot.update.copy_(slot.parameter)

    def before_step(self) -> None:
        self.check()
        self.wait()  # for the answers that forward did not need
        self._bad = self.on_nan == SKIP and not self.scaled and self._bad_gradient()
        if self._bad:
            self.drop_gradients()

    def _bad_gradient(self) -> bool:
        return any(
            slot.parameter.grad is not None and not bool(torch.isfinite(slot.parameter.grad).all())
            for slot in self.slots
        )

    def after_step(self) -> None:
        if self._bad:
            self.skip()
            return
        for slot in self.slots:
            parameter = slot.parameter
            if parameter.grad is None:
                continue
            with torch.no_grad():
                now = parameter if slot.direct else parameter.to("cpu", torch.float32)
                torch.sub(now, slot.update, out=slot.update)
                if self._gated and slot.direct:
                    parameter.sub_(slot.update)  # without a fetch, the replica adds the change again
            if self.usable(slot):
                self.replica.give(slot.name)
        self._finish()

    def _finish(self) -> None:
        self.ask()
        if not self._forward:
            self.wait()

    def skip(self) -> None:
        """Send an empty update, so that no other worker waits for this one."""
        self._finish()
