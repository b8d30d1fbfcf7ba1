"""Mode `rule`: workers send gradients during backward(), servers optimise, `step()` waits for the new parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from syncline.engines.worker.replica import Replica
from syncline.errors import UsageError
from syncline.pytorch.mode_hooks import SKIP, ModeHooks, at_the_end_of_backward
from syncline.pytorch.slots import Slot


class ByRule(ModeHooks):
    """Sends gradients to the servers. The user's optimizer gets none and changes nothing; only its `lr` is used."""

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
        super().__init__(replica, slots, [optimizer], on_nan)
        self._forward = overlap == "forward"
        self._late = not overlap or clip is not None or delayed
        """Whether gradients are sent only in `step()`."""
        self._clip = clip
        self._sent: dict[Slot, tuple[int, int]] = {}
        """The id and version of each gradient that was sent, to notice later changes."""
        self._clocked = False
        if not self._late:
            self.on_gradients(self._ready)

    @property
    def _lr(self) -> float:
        """The learning rate. All groups must have the same, because a bucket can hold parameters of several groups."""
        rates = {float(group["lr"]) for group in self.optimizers[0].param_groups}
        if len(rates) > 1:
            raise UsageError(
                "optimizer", f"mode 'rule' needs the same learning rate in all parameter groups, not {sorted(rates)}"
            )
        return rates.pop()

    def _ready(self, slot: Slot, parameter: Tensor) -> None:
        if self.paused or self.loads.pending:
            return
        if self._clocked:
            raise UsageError(
                "overlap",
                f"model {self.replica.name!r}: the gradients of the first backward() were sent to the servers before "
                "the second one; use distribute(..., overlap=False), which sends the accumulated gradients in step()",
            )
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
                self._send(slot)  # its gradient is from an earlier backward()
        self._close()

    def _close(self) -> None:
        self.ask()
        self._clocked = True

    def before_load(self) -> None:
        if self._sent or self._clocked:
            raise UsageError("model", "values cannot be loaded between backward() and step() in mode 'rule'")
        super().before_load()

    def begin_iteration(self) -> None:
        self._sent.clear()
        self._clocked = False

    def before_step(self) -> None:
        if self._late or self.loads.pending:
            self._send_all()
        for slot, (which, version) in self._sent.items():
            gradient = slot.parameter.grad
            if gradient is None or id(gradient) != which or gradient._version != version:
                raise UsageError(
                    "clip",
                    f"the gradient of {slot.name!r} was changed after it was sent; in mode 'rule' use "
                    "distribute(..., clip=1.0) to clip gradients, and distribute(..., scaler=scaler) for a GradScaler",
                )
        self.drop_gradients()
        if not self._clocked:
            self._close()

    def _send_all(self) -> None:
        self._begin()
        self.loads.settle()
        found = [slot for slot in self.slots if slot.parameter.grad is not None]
        if self._clip is not None:
            nn.utils.clip_grad_norm_([slot.parameter for slot in found], self._clip)
        if self.on_nan == SKIP and not all(_finite(slot.parameter.grad) for slot in found):
            return
        for slot in found:
            self._send(slot)

    def after_step(self) -> None:
        self.begin_iteration()
        if not self._forward:
            self.wait()

    def skip(self) -> None:
        self.ask()
        self.after_step()


def _finite(gradient: Tensor | None) -> bool:
    return gradient is None or bool(torch.isfinite(gradient).all())
