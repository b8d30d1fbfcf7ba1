"""The base class of all parts. A part is a frozen dataclass, and its text contains all of its settings."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, ClassVar


class Part:
    """The base class of the shipped parts; your own parts need not derive from it.

    `str(part)` is the text that `spec.parse` reads: `ssp:3`, `pssp:s=3,p=0.5`.
    """

    name: ClassVar[str]
    example: ClassVar[str] = ""
    """An example of its text, if the name alone is not enough: `ssp:3`."""
    offered: ClassVar[bool] = True
    """Whether error messages list this part among the choices."""
    infix: ClassVar[str] = ""
    """The sign between the two parts that this part joins, as in `topk:0.01+fp16`; "" if it joins none."""

    def __str__(self) -> str:
        if self.infix:
            return self.infix.join(written(getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]
        return text(self, self.name)


def written(part: object) -> str:
    """The text of a part, shipped or your own; `spec.parse` reads it back."""
    if isinstance(part, Part):
        return str(part)
    name = f"{type(part).__module__}.{type(part).__qualname__}"
    return text(part, name) if is_dataclass(part) else name


def text(part: object, name: str) -> str:
    """A dataclass as `name:value` (only the first field is set) or `name:key=value,...`, without fields at defaults."""
    every = fields(part)  # type: ignore[arg-type]
    said = [field for field in every if getattr(part, field.name) != _default(field)]
    if not said:
        return name
    if said == [every[0]]:
        return f"{name}:{word_of(getattr(part, said[0].name))}"
    return f"{name}:" + ",".join(f"{field.name}={word_of(getattr(part, field.name))}" for field in said)


def word_of(value: object) -> str:
    """The text of a field's value: pairs as `[key=value,...]`, a part in brackets if `spec` would split its text."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, (int, float, str)):
        return str(value)
    if isinstance(value, tuple):
        return "[" + ",".join(f"{key}={word_of(each)}" for key, each in value) + "]"
    word = written(value)
    return f"[{word}]" if set(word) & set(",=+[]") else word


def _default(field: Field[Any]) -> object:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING
