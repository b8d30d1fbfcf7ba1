"""What all parts share: a part is a frozen dataclass, and its text says all that it is."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, ClassVar


class Part:
    """The base of the shipped parts; a user's own part may leave it out.

    `str(part)` is the text that `spec.parse` reads: `ssp:3`, `pssp:s=3,p=0.5`.
    """

    name: ClassVar[str]
    example: ClassVar[str] = ""
    """How it is written, where the name alone is not enough."""
    offered: ClassVar[bool] = True
    """Is it among those that a message offers?"""
    infix: ClassVar[str] = ""
    """What stands between its two parts, where it is written as they are: `topk:0.01+fp16`."""

    def __str__(self) -> str:
        if self.infix:
            return self.infix.join(written(getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]
        return text(self, self.name)


def written(part: object) -> str:
    """The text of a part, shipped or of your own: `spec.parse` reads it back."""
    if isinstance(part, Part):
        return str(part)
    name = f"{type(part).__module__}.{type(part).__qualname__}"
    return text(part, name) if is_dataclass(part) else name


def text(part: object, name: str) -> str:
    """A dataclass as `name:value` (one field) or `name:key=value,...`; fields at their defaults are left out."""
    every = fields(part)  # type: ignore[arg-type]
    said = [field for field in every if getattr(part, field.name) != _default(field)]
    if not said:
        return name
    if said == [every[0]]:
        return f"{name}:{word_of(getattr(part, said[0].name))}"
    return f"{name}:" + ",".join(f"{field.name}={word_of(getattr(part, field.name))}" for field in said)


def word_of(value: object) -> str:
    """A field's value: parts in brackets where their own text would be torn apart, pairs as `[key=value,...]`."""
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
