"""One bucket as it travels: how many bytes it is, and the last copy of its parameters."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.codecs import Codec
from syncline.layout import Bucket, Layout, Values
from syncline.nodes.server.update_writer import bucket_codec


@dataclass(slots=True, eq=False)
class Cargo:
    """What the world knows of a bucket; `snapshot` is copied once a version, for all who get it."""

    place: int
    """Where it stands among the pieces of a model; -1: it is a part of one."""
    pushed: int
    """The payload bytes of an update, unless its header says otherwise."""
    pulled: int
    """The payload bytes of the parameters, unless the header says otherwise."""
    version: int = -1
    snapshot: Values | None = None


def cargo_of(bucket: Bucket, codecs: tuple[Codec, Codec], layout: Layout, place: int = -1) -> Cargo:
    """`codecs`: of updates and of replies."""
    pushed, pulled = (bucket_codec(codec, layout, bucket).size(bucket.size) for codec in codecs)
    return Cargo(place, pushed, pulled)
