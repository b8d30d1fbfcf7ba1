"""Parameters and their tables: where the update and the value of each lie in the lane's memory.

1. The layout has every parameter once, also a frozen one: it may be thawed later.
2. A float32 parameter on the CPU can lie in the lane's memory itself. Any other has its float32 master there, and is
   staged: copied in and out.
3. A parameter that was replaced behind our back is found and named before anything of it is exchanged.
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
    """One parameter, and its two places in the lane's memory."""

    name: str
    owner: nn.Module
    attribute: str
    parameter: nn.Parameter
    update: Tensor
    """What is sent."""
    value: Tensor
    """What comes back."""
    direct: bool = False
    """The parameter's own storage is `value`."""
    kind: tuple[torch.dtype, torch.device] = field(init=False)

    def __post_init__(self) -> None:
        self.kind = self.parameter.dtype, self.parameter.device

    def check(self) -> None:
        """Is this still the parameter that was distributed?"""
        if self.owner._parameters.get(self.attribute) is not self.parameter:
            raise UsageError(
                "model",
                f"parameter {self.name!r} was replaced by another one after distribute(); "
                "load into it with session.load_state_dict(...)",
            )
        moved = self.direct and self.parameter.data_ptr() != self.value.data_ptr()
        if moved or (self.parameter.dtype, self.parameter.device) != self.kind:
            raise UsageError(
                "model",
                f"the storage of parameter {self.name!r} was replaced after distribute(); "
                "move or convert the model (to(), half(), ...) before it",
            )

    def move_in(self) -> None:
        """Have the parameter itself lie in the lane's memory from now on."""
        self.parameter.data = self.value
        self.direct = True

    def fresh(self) -> None:
        """Take over what came back."""
        if not self.direct:
            with torch.no_grad():
                self.parameter.copy_(self.value)


def named(model: nn.Module) -> list[tuple[str, nn.Module, str, nn.Parameter]]:
    """(plain name, the module that holds it, the name there, parameter) of each parameter, tied ones once."""
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
    """The name without what torch.compile puts before it."""
    return name.replace(_COMPILED, "")


def first_values(model: nn.Module) -> dict[str, Values]:
    """Every parameter in float32 on the CPU, or `UsageError` if there is one that cannot be trained here."""
    arrays: dict[str, Values] = {}
    for name, _, _, parameter in named(model):
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UsageError("model", f"parameter {name!r} has no shape yet; run the model once before distribute()")
        if not parameter.is_floating_point():
            raise UsageError("model", f"parameter {name!r} is {parameter.dtype}; only real numbers can be trained")
        arrays[name] = parameter.detach().to("cpu", torch.float32).numpy()
    return arrays


def slots_of(model: nn.Module, updates: dict[str, Values], values: dict[str, Values]) -> list[Slot]:
    """A slot for each parameter; the arrays are the lane's memory of each table."""
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
    """Does this piece of the lane's memory hold neither NaN nor infinity?"""
    return layout.is_finite(values.reshape(-1).numpy())


def _tensor(array: Values) -> Tensor:
    return torch.from_numpy(array)
