"""One bucket as it travels: how many bytes it is, and the last copy of its parameters."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.layout import Values


@dataclass(slots=True, eq=False)
class Cargo:
    """What the world knows of a bucket; `snapshot` is copied once a version, for all who get it."""

    place: int
    """Where it stands among the pieces of a model."""
    pushed: int
    """The payload bytes of an update."""
    pulled: int
    """The payload bytes of the parameters."""
    version: int = -1
    snapshot: Values | None = None
