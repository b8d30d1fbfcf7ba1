"""One bucket as it travels: how many bytes it is, and the last copy of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
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


class Cargos(dict[Bucket, Cargo]):
    """By bucket; those that a move has cut are added when they are first asked for."""

    def __init__(self, buckets: Sequence[Bucket], codec: Codec) -> None:
        super().__init__()
        self._codec = codec
        for place, bucket in enumerate(buckets):
            self[bucket] = self._of(place, bucket)

    def __missing__(self, bucket: Bucket) -> Cargo:
        found = self[bucket] = self._of(-1, bucket)
        return found

    def _of(self, place: int, bucket: Bucket) -> Cargo:
        return Cargo(place, self._codec.size(bucket.size), bucket.size * VALUE_BYTES)
