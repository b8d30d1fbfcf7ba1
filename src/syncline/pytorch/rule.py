"""Mode `rule`: gradients leave during backward, the shards optimise, and `step()` waits for the new parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from syncline.engines.worker.replica import Replica
from syncline.errors import UsageError
from syncline.pytorch.mode_hooks import SKIP, ModeHooks, at_the_end_of_backward, twice
from syncline.pytorch.slots import Slot


class RuleOptimizer(Optimizer):
    """Stands where the optimizer would: its `lr` travels with every push, so that schedulers work."""

    def __init__(self, model: nn.Module, lr: float) -> None:
        super().__init__([each for each in model.parameters() if each.requires_grad], {"lr": lr})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The hooks do it all: they wait until the shards have answered."""


class ByRule(ModeHooks):
    """The user's optimizer gets no gradients, so it changes nothing; its learning rate is what counts."""

    def __init__(
        self,
        replica: Replica,
        slots: list[Slot],
        optimizer: Optimizer,
        on_nan: str,
        overlap: bool | str,
        clip: float | None = None,
        delayed: bool = False,
    ) -> None:
        super().__init__(replica, slots, optimizer, on_nan)
        self._forward = overlap == "forward"
        self._late = not overlap or clip is not None or delayed
        """Nothing leaves before `step()`."""
        self._clip = clip
        self._sent: dict[Slot, tuple[int, int]] = {}
        """What was sent, and at which version of which gradient."""
        self._clocked = False
        if not self._late:
            self.on_gradients(self._ready)

    @property
    def _lr(self) -> float:
        """The learning rate, which must be one for all: a bucket holds parameters of several groups."""
        assert self.optimizer is not None
        rates = {float(group["lr"]) for group in self.optimizer.param_groups}
        if len(rates) > 1:
            raise UsageError("optimizer", f"mode 'rule' needs one learning rate for all groups, not {sorted(rates)}")
        return rates.pop()

    def _ready(self, slot: Slot, parameter: Tensor) -> None:
        if self.paused:
            return
        if self._clocked:
            raise twice(self.replica.name)
        if not self._sent:
            self._begin()
            at_the_end_of_backward(self._finish)
        self._send(slot)

    def _begin(self) -> None:
        self.check()
        self.wait()

    def _send(self, slot: Slot) -> None:
        gradient = slot.parameter.grad
        assert gradient is not None
        self.put(slot, gradient)
        self._sent[slot] = (id(gradient), gradient._version)
        if self.usable(slot):
            self.replica.give(slot.name, self._lr)

    def _finish(self) -> None:
        for slot in self.slots:
            if slot not in self._sent and slot.parameter.grad is not None:
                self._send(slot)  # it has a gradient of an earlier backward()
        self._close()

    def _close(self) -> None:
        self.ask()
        self._clocked = True

    def before_step(self) -> None:
        if self._late:
            self._send_all()
        for slot, (which, version) in self._sent.items():
            gradient = slot.parameter.grad
            if gradient is None or id(gradient) != which or gradient._version != version:
                raise UsageError(
                    "clip",
                    f"the gradient of {slot.name!r} was changed after it was sent; in mode 'rule' say at the start "
                    "what changes it: distribute(..., clip=1.0), or scaler=scaler",
                )
        self.drop_gradients()
        if not self._clocked:
            self._close()

    def _send_all(self) -> None:
        self._begin()
        found = [slot for slot in self.slots if slot.parameter.grad is not None]
        if self._clip is not None:
            nn.utils.clip_grad_norm_([slot.parameter for slot in found], self._clip)
        if self.on_nan == SKIP and not all(_finite(slot.parameter.grad) for slot in found):
            return
        for slot in found:
            self._send(slot)

    def after_step(self) -> None:
        self._sent.clear()
        self._clocked = False
        if not self._forward:
            self.wait()

    def skip(self) -> None:
        self.ask()
        self.after_step()


def _finite(gradient: Tensor | None) -> bool:
    return gradient is None or bool(torch.isfinite(gradient).all())
