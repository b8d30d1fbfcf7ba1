"""Slots: for each parameter, the memory of its update and of its value in the lane.

1. The layout contains every parameter once, including frozen ones, because the program may unfreeze them later.
2. A float32 parameter on the CPU can use the lane's memory as its storage. Any other parameter has a float32 copy there
   and is staged: copied to the lane's memory and back.
3. If the program replaces a parameter after distribute(), an error names it before any of its values are exchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from syncline import layout
from syncline.errors import UsageError
from syncline.layout import Values

_COMPILED = "_orig_mod."


@dataclass(eq=False, slots=True)
class Slot:
    """One parameter, with its update and its value in the lane's memory."""

    name: str
    owner: nn.Module
    attribute: str
    parameter: nn.Parameter
    update: Tensor
    """The update that is sent."""
    value: Tensor
    """The value that comes back."""
    direct: bool = False
    """Whether `value` is the parameter's own storage."""
    kind: tuple[torch.dtype, torch.device] = field(init=False)

    def __post_init__(self) -> None:
        self.kind = self.parameter.dtype, self.parameter.device

    def check(self) -> None:
        """Raise `UsageError` if the program has replaced the parameter or its storage since distribute()."""
        if self.owner._parameters.get(self.attribute) is not self.parameter:
            raise UsageError(
                "model",
                f"parameter {self.name!r} was replaced by another one after distribute(); "
                "load values with load_state_dict(...), without assign=True",
            )
        moved = self.direct and self.parameter.data_ptr() != self.value.data_ptr()
        if moved or (self.parameter.dtype, self.parameter.device) != self.kind:
            raise UsageError(
                "model",
                f"the storage of parameter {self.name!r} was replaced after distribute(); "
                "move or convert the model (to(), half(), ...) before distribute()",
            )

    def move_in(self) -> None:
        """Make the lane's memory the storage of the parameter."""
        self.parameter.data = self.value
        self.direct = True

    def move_to(self, update: Values, value: Values) -> None:
        """Use other memory from now on; `value` holds the parameter's value."""
        self.update, self.value = _tensor(update), _tensor(value)
        if self.direct:
            self.move_in()

    def fresh(self) -> None:
        """Copy the value that came back into the parameter, unless they share storage."""
        if not self.direct:
            with torch.no_grad():
                self.parameter.copy_(self.value)


def named(model: nn.Module) -> list[tuple[str, nn.Module, str, nn.Parameter]]:
    """(plain name, owning module, attribute name, parameter) for each parameter; tied parameters appear once."""
    found = []
    seen: set[nn.Parameter] = set()
    for path, module in model.named_modules():
        for attribute, parameter in module._parameters.items():
            if parameter is None or parameter in seen:
                continue
            seen.add(parameter)
            full = f"{path}.{attribute}" if path else attribute
            found.append((plain(full), module, attribute, parameter))
    return found


def plain(name: str) -> str:
    """The name without the prefix that torch.compile adds."""
    return name.replace(_COMPILED, "")


def first_values(model: nn.Module) -> dict[str, Values]:
    """Every parameter as float32 on the CPU; raises `UsageError` if a parameter cannot be trained."""
    arrays: dict[str, Values] = {}
    for name, _, _, parameter in named(model):
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UsageError("model", f"parameter {name!r} has no shape yet; run the model once before distribute()")
        if not parameter.is_floating_point():
            raise UsageError("model", f"parameter {name!r} is {parameter.dtype}; use a floating-point type")
        arrays[name] = parameter.detach().to("cpu", torch.float32).numpy()
    return arrays


def slots_of(model: nn.Module, updates: dict[str, Values], values: dict[str, Values]) -> list[Slot]:
    """A slot for each parameter; the arrays are the tables' memory in the lane."""
    return [
        Slot(name, owner, attribute, parameter, _tensor(updates[name]), _tensor(values[name]))
        for name, owner, attribute, parameter in named(model)
    ]


def can_move_in(slot: Slot, stage: bool) -> bool:
    parameter = slot.parameter
    return not stage and parameter.dtype is torch.float32 and parameter.device.type == "cpu"


def check_all(slots: Iterable[Slot]) -> None:
    for slot in slots:
        slot.check()


def is_finite(values: Tensor) -> bool:
    """Whether this tensor in the lane's memory contains neither NaN nor infinity."""
    return layout.is_finite(values.reshape(-1).numpy())


def _tensor(array: Values) -> Tensor:
    return torch.from_numpy(array)
