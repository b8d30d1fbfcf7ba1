"""Results that are kept: what has once been simulated is not simulated again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from syncline import __version__
from syncline.reproduce.figure import Result


class Order(msgspec.Struct, frozen=True):
    """What a simulation is asked for: nothing else decides its result."""

    experiment: dict[str, Any]
    points: int
    version: str = __version__

    @property
    def key(self) -> str:
        """A name that no other order has."""
        words = json.dumps([self.version, self.experiment, self.points], sort_keys=True)
        return sha256(words.encode()).hexdigest()[:24]


class KeptRuns:
    """A folder of results, a file each, which is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, order: Order) -> Result | None:
        """What this order has come to before; a file that cannot be read counts as none."""
        try:
            return msgspec.json.decode(self._file(order).read_bytes(), type=Result)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, order: Order, result: Result) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        whole = self._file(order)
        part = whole.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(result))
        part.replace(whole)

    def _file(self, order: Order) -> Path:
        return self._folder / f"{order.key}.json"


def order_of(experiment: Mapping[str, Any], points: int, data: Path | None) -> Order:
    """The order of a run; `data`: the folder of the recipes that read files."""
    found = {key: dict(value) if isinstance(value, Mapping) else value for key, value in experiment.items()}
    if data is not None:
        found["model"]["data"] = str(data.resolve())
    return Order(found, points)
