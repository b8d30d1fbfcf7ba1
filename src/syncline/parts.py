"""What all parts share: a part is a frozen dataclass, and its text says all that it is."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, ClassVar


class Part:
    """The base of the shipped parts; a user's own part may leave it out.

    `str(part)` is the text that `spec.parse` reads: `ssp:3`, `pssp:s=3,p=0.5`.
    """

    name: ClassVar[str]
    example: ClassVar[str] = ""
    """How it is written, where the name alone is not enough."""

    def __str__(self) -> str:
        return text(self, self.name)


def text(part: object, name: str) -> str:
    """A dataclass as `name:value` (one field) or `name:key=value,...`; fields at their defaults are left out."""
    every = fields(part)  # type: ignore[arg-type]
    said = [field for field in every if getattr(part, field.name) != _default(field)]
    if not said:
        return name
    if said == [every[0]]:
        return f"{name}:{getattr(part, said[0].name)}"
    return f"{name}:" + ",".join(f"{field.name}={getattr(part, field.name)}" for field in said)


def _default(field: Field[Any]) -> object:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING
