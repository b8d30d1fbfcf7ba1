"""What a rule may ask for besides the update: its attribute `needs`, and the argument `seen` that `apply` then gets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from syncline.errors import UsageError
from syncline.layout import Values
from syncline.parts import written


class Need(StrEnum):
    """Something that a rule asks for; `COSTS` says what each costs."""

    WORKER = "worker"
    """The number of the worker that sent the update."""
    READ = "read"
    """The parameters that this worker computed the update from."""
    BUCKET_NORMS = "bucket-norms"
    """Norms over the whole bucket."""
    TABLE_NORMS = "table-norms"
    """Norms over the whole table; every table is then one bucket."""


COSTS: Mapping[Need, str] = {
    Need.WORKER: "nothing",
    Need.READ: "memory on the servers: a copy of the parameters for each worker",
    Need.BUCKET_NORMS: "time: two or three more passes over the bucket for each update",
    Need.TABLE_NORMS: "time: as bucket-norms; and every table is one bucket, so no table may be split over servers",
}

OF_ONE_WORKER = frozenset({Need.WORKER, Need.READ})
"""What only an update of a single worker has. The updates of a round that are applied together have it not."""


@dataclass(frozen=True, slots=True)
class Norms:
    """Euclidean norms over the whole bucket or table, before the update is applied."""

    update: float
    params: float
    gap: float | None
    """|params - read|; None unless the rule needs `read`."""


@dataclass(frozen=True, slots=True)
class UpdateOrigin:
    """What a rule asked for, for one block of one update; None where it did not ask."""

    worker: int | None = None
    read: Values | None = None
    """The same block of the parameters that the worker had; read-only."""
    norms: Norms | None = None


def needs_of(rule: object) -> frozenset[Need]:
    """What the rule asks for; `UsageError` if that does not exist."""
    asked: object = getattr(rule, "needs", ())
    if isinstance(asked, str) or not isinstance(asked, Collection):
        raise UsageError("rule", f"{written(rule)}: needs must be a tuple of names, such as ('read',), not {asked!r}")
    unknown = [each for each in asked if each not in list(Need)]
    if unknown:
        problem = f"a rule cannot need {unknown[0]!r}; it can need {', '.join(Need)}"
        raise UsageError("rule", f"{written(rule)}: {problem}")
    return frozenset(Need(each) for each in asked)


def read_by_worker(seen: UpdateOrigin | None) -> Values:
    """What the worker read, for a rule that needs it."""
    assert seen is not None
    assert seen.read is not None, "a rule that needs what the worker read was applied without it"
    return seen.read
