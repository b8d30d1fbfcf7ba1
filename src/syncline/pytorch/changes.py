"""Mode `changes`: the user's optimizer steps, and `step()` also exchanges the change that it made.

The change is the difference to the parameters that last came back from the servers. So it includes what the program
itself did to a parameter since then, such as clipping weights, editing them by hand, or the step of an optimizer that
Syncline does not know. Each step() of each optimizer of the model is one exchange.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from syncline.engines.worker.replica import Replica
from syncline.errors import UsageError
from syncline.layout import Values
from syncline.pytorch.mode_hooks import SKIP, ModeHooks, at_the_end_of_backward
from syncline.pytorch.optimizers import StandIn
from syncline.pytorch.slots import Slot


class Changes(ModeHooks):
    """Sends what `step()` changed, and replaces the parameters by those of the servers."""

    def __init__(
        self, replica: Replica, slots: list[Slot], optimizers: Sequence[Optimizer], on_nan: str, forward: bool = False
    ) -> None:
        super().__init__(replica, slots, optimizers, on_nan)
        self._forward = forward
        self._bad = False
        self._gated = replica.strategy.adds_own_changes
        self._in_backward = False
        self._bases = {slot: torch.empty_like(slot.update) for slot in slots}
        """What was last read of each parameter. If a server dies, the others restore its part from that."""
        self._keep_bases()
        for slot in slots:
            self.take_over(slot)
        if any(isinstance(each, StandIn) for each in optimizers):
            self.on_gradients(self._check_by_hand)

    def _keep_bases(self) -> None:
        for slot, base in self._bases.items():
            self.replica.keep_base(slot.name, base.numpy().reshape(-1))

    def move_to(self, replica: Replica, values: dict[str, Values]) -> None:
        self.replica = replica
        self._keep_bases()
        super().move_to(replica, values)

    def _check_by_hand(self, slot: Slot, parameter: Tensor) -> None:
        """Raise `UsageError` if the program has changed parameters and goes on without an exchange."""
        if self._in_backward or self.paused or self.loads.pending:
            return
        self._in_backward = True
        at_the_end_of_backward(self._end_of_backward)
        if any(self._differs(each) for each in self.slots):
            self._in_backward = False
            raise UsageError(
                "optimizer",
                f"model {self.replica.name!r} was changed and not exchanged; in mode 'changes' call step() of the "
                "optimizer that distribute() returned after each change",
            )

    def _end_of_backward(self) -> None:
        self._in_backward = False

    def _differs(self, slot: Slot) -> bool:
        """Whether the parameter has changed since the last exchange."""
        return not torch.equal(self._now(slot), self._bases[slot])

    def _now(self, slot: Slot) -> Tensor:
        parameter = slot.parameter.detach()
        return parameter if slot.direct else parameter.to("cpu", torch.float32)

    def take_over(self, slot: Slot) -> None:
        """Take over the answer, and copy it: the next change is the difference to it."""
        super().take_over(slot)
        with torch.no_grad():
            self._bases[slot].copy_(slot.parameter)
        self.replica.taken(slot.name)

    def before_step(self) -> None:
        self.wait()  # for the answers that forward did not need
        self.loads.settle()
        self._bad = self.on_nan == SKIP and not self.scaled and self._bad_gradient()
        if self._bad:
            self.drop_gradients()

    def _bad_gradient(self) -> bool:
        return any(
            slot.parameter.grad is not None and not bool(torch.isfinite(slot.parameter.grad).all())
            for slot in self.stepped_on()
        )

    def after_step(self) -> None:
        if self._bad:
            self.skip()
            return
        stepped = set(self.stepped_on())
        for slot in self.slots:
            parameter = slot.parameter
            optimised = parameter.grad is not None and slot in stepped
            if not optimised and not (self._may_change(slot) and self._differs(slot)):
                continue
            with torch.no_grad():
                torch.sub(self._now(slot), self._bases[slot], out=slot.update)
                if self._gated and slot.direct:
                    parameter.sub_(slot.update)  # without a fetch, the replica adds the change again
            if self.usable(slot):
                self.replica.give(slot.name)
        self._finish()

    def _may_change(self, slot: Slot) -> bool:
        """Whether to look for a change without a step; a frozen parameter costs nothing."""
        return slot.parameter.requires_grad or slot.parameter.grad is not None

    def _finish(self) -> None:
        self.ask()
        if not self._forward:
            self.wait()

    def skip(self) -> None:
        """Send an empty update, so that no other worker waits for this one."""
        self._finish()
