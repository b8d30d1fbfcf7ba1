"""A cache of results, so that no simulation runs twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from syncline import __version__
from syncline.reproduce.figure import FigureRun, Result


class Order(msgspec.Struct, frozen=True):
    """The complete input of a simulation; the result depends on nothing else."""

    experiment: dict[str, Any]
    points: int
    version: str = __version__
    pairs: bool = False

    @property
    def key(self) -> str:
        """A unique name of this order: a hash of its content."""
        more = [True] if self.pairs else []
        words = json.dumps([self.version, self.experiment, self.points, *more], sort_keys=True)
        return sha256(words.encode()).hexdigest()[:24]


class KeptRuns:
    """A folder with one file per result; files are written atomically.

    If one cannot be written, `lose` is called with the folder, and no further result is kept.
    """

    def __init__(self, folder: Path, lose: Callable[[Path, OSError], None]) -> None:
        self._folder, self._lose = folder, lose
        self._full = False

    def get(self, order: Order) -> Result | None:
        """The stored result of this order; None if there is none, or if its file cannot be read."""
        try:
            return msgspec.json.decode(self._file(order).read_bytes(), type=Result)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, order: Order, result: Result) -> None:
        if self._full:
            return
        whole = self._file(order)
        part = whole.with_suffix(".part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(msgspec.json.encode(result))
            part.replace(whole)
        except OSError as error:
            self._full = True
            self._lose(self._folder, error)
        finally:
            part.unlink(missing_ok=True)

    def _file(self, order: Order) -> Path:
        return self._folder / f"{order.key}.json"


def order_of(run: FigureRun, data: Path | None) -> Order:
    """The order of a run; `data` is the folder of the files that some recipes read."""
    experiment = run.experiment
    found = {key: dict(value) if isinstance(value, Mapping) else value for key, value in experiment.items()}
    if data is not None:
        found["model"]["data"] = str(data.resolve())
    return Order(found, run.points, pairs=run.pairs)
