"""Codecs: how an update is written on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from syncline.layout import VALUE_BYTES, Payload, Values
from syncline.parts import Part


@runtime_checkable
class Codec(Protocol):
    """A part that writes values as a payload; an update that is kept for later stays encoded."""

    def size(self, values: int) -> int:
        """The bytes of a payload for so many values."""
        ...

    def encode(self, update: Values) -> Payload:
        """The payload; it may be the update itself, which its owner then leaves alone until it is answered."""
        ...

    def decode(self, payload: Payload, out: Values) -> Values:
        """The decoded values, to be read only: written to `out`, or the payload itself if that already is them."""
        ...

    def add_into(self, payload: Payload, out: Values) -> None:
        """Add the decoded payload to `out`, in place."""
        ...


@runtime_checkable
class Cutting(Protocol):
    """A codec whose payloads can be cut, which a bucket needs that moves to another server in pieces."""

    def cut(self, payload: Payload, where: slice) -> Payload:
        """The payload of these values alone: decoded, it is that piece of the payload decoded."""
        ...


@dataclass(frozen=True)
class Dense(Part):
    """float32 as it is, without a copy."""

    name = "dense"
    plain = True

    def size(self, values: int) -> int:
        return values * VALUE_BYTES

    def encode(self, update: Values) -> Payload:
        return update

    def decode(self, payload: Payload, out: Values) -> Values:
        return payload

    def add_into(self, payload: Payload, out: Values) -> None:
        out += payload

    def cut(self, payload: Payload, where: slice) -> Payload:
        return payload[where]


CODECS: tuple[type[Part], ...] = (Dense,)
