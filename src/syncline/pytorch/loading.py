"""`model.load_state_dict(...)` of a distributed model: nothing happens until the next exchange.

1. If the values are then the same as before the load, nothing happens at all: a program may load other values for an
   evaluation, and load its own ones again.
2. Otherwise every worker must have loaded, as under DDP. In mode `gradients` the servers hold no parameters, so the
   workers only check that all have loaded the same. In the other modes all workers continue with the leader's values.
3. The others do not wait for a worker that leaves the run instead. They continue without it, and say so.
4. Without a further exchange, for example before a last evaluation, each worker keeps what it has loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from syncline.pytorch.slots import Slot


class LoadWatch:
    """A hook before load_state_dict() of each module of a model. In a copy of the module the hook does nothing."""

    def __init__(self, slots: list[Slot], before: Callable[[], None]) -> None:
        """`before`: called before values are loaded."""
        self._slots = slots
        self._before = before
        self._former: list[Tensor] | None = None
        """The parameters before the program loaded others; None if it has not since the last exchange."""
        self.members: tuple[int, ...] = ()
        """The live workers when the program loaded values."""
        self.agree: Callable[[], None] = lambda: None
        """Called at the next exchange after other values were loaded; it continues with the same on all workers."""

    def __call__(self, *_: object) -> None:
        if self._former is None:
            self._before()
            self._former = self._values()

    @property
    def pending(self) -> bool:
        """Whether the program has loaded values since the last exchange."""
        return self._former is not None

    def settle(self) -> None:
        """Make sure that all workers continue with the same values, if other values were loaded."""
        differs = self._differs()
        self._former = None
        if differs:
            self.agree()

    def loaded(self) -> list[Tensor] | None:
        """A copy of the loaded parameters; None if none were loaded since the last exchange."""
        return self._values() if self._differs() else None

    def restore(self, values: list[Tensor]) -> None:
        """Write these values, which `loaded` returned, to the parameters."""
        with torch.no_grad():
            for slot, value in zip(self._slots, values, strict=True):
                slot.parameter.copy_(value)

    def digest(self) -> bytes:
        """A digest of the parameters."""
        found = sha256()
        for value in self._values():
            found.update(value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return found.digest()

    def forget(self) -> None:
        """Forget loads, because the session has loaded a whole state."""
        self._former = None

    def _values(self) -> list[Tensor]:
        return [slot.parameter.detach().clone() for slot in self._slots]

    def _differs(self) -> bool:
        return self._former is not None and not all(
            torch.equal(former, slot.parameter) for former, slot in zip(self._former, self._slots, strict=True)
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> LoadWatch:
        return _idle()

    def __reduce__(self) -> tuple[Callable[[], LoadWatch], tuple[()]]:
        return _idle, ()


def _idle() -> LoadWatch:
    return LoadWatch([], lambda: None)
