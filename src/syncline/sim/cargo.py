"""One bucket as it travels: how many bytes it is, and the last copy of its parameters."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.codecs import Codec
from syncline.layout import VALUE_BYTES, Bucket, Values


@dataclass(slots=True, eq=False)
class Cargo:
    """What the world knows of a bucket; `snapshot` is copied once a version, for all who get it."""

    place: int
    """Where it stands among the pieces of a model; -1: it is a part of one."""
    pushed: int
    """The payload bytes of an update."""
    pulled: int
    """The payload bytes of the parameters."""
    version: int = -1
    snapshot: Values | None = None


def cargo_of(bucket: Bucket, codec: Codec, place: int = -1) -> Cargo:
    return Cargo(place, codec.size(bucket.size), bucket.size * VALUE_BYTES)
