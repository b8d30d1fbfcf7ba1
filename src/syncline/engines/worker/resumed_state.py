"""The checkpoint from which a run goes on, as a worker reads it.

1. A worker takes what it wrote itself. A worker that has no part in the checkpoint, because the run had fewer workers,
   takes the optimizer state of the first one. It begins without residuals and random states, which are a worker's own.
2. All workers take the models and what the servers remember from the same files.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from syncline.engines.saving.folder import SERVERS, Manifest, model_file, read_manifest
from syncline.engines.saving.state_files import DamagedFile, read_arrays, read_json, unpacked
from syncline.engines.worker.replica import Clocks, Replica
from syncline.errors import UsageError
from syncline.layout import Values

RESUME = "--resume"


class ResumedState:
    """One worker's view of a checkpoint. `torch`: arrays are read as tensors."""

    def __init__(self, folder: str, rank: int, *, torch: bool) -> None:
        self._folder = Path(folder)
        self._rank = rank
        self._torch = torch

    @cached_property
    def manifest(self) -> Manifest:
        return read_manifest(self._folder)

    @cached_property
    def is_own(self) -> bool:
        """Whether this worker has written a part of the checkpoint."""
        return str(self._rank) in self.manifest.saved and (self._folder / f"worker-{self._rank}.json").is_file()

    @cached_property
    def own(self) -> dict[str, Any]:
        """What this worker has written, or the first one that has."""
        saved = sorted(map(int, self.manifest.saved))
        number = self._rank if self.is_own else next((each for each in saved if self._is_here(each)), None)
        if number is None:
            raise UsageError(RESUME, f"{str(self._folder)!r} has no part of any worker on this host")
        try:
            arrays, _ = read_arrays(self._folder / f"worker-{number}.safetensors", self._torch)
            found = unpacked(read_json(self._folder / f"worker-{number}.json"), arrays)
        except DamagedFile as damage:
            raise UsageError(RESUME, f"damaged checkpoint: {damage}") from None
        assert isinstance(found, dict), "that is what workers write"
        return found

    def _is_here(self, worker: int) -> bool:
        return (self._folder / f"worker-{worker}.json").is_file()

    def model(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arrays of a model by their plain names, and what the file says about itself."""
        path = self._folder / model_file(name)
        if not path.is_file():
            known = ", ".join(repr(each) for each in self.manifest.models)
            raise UsageError(RESUME, f"{str(self._folder)!r} has no model {name!r}; its models are {known}")
        try:
            arrays, metadata = read_arrays(path, self._torch)
            return arrays, json.loads(metadata.get("syncline", "{}"))
        except (DamagedFile, ValueError) as damage:
            raise UsageError(RESUME, f"damaged checkpoint: {damage}") from None

    @cached_property
    def _servers(self) -> dict[str, Any]:
        try:
            return read_arrays(self._folder / SERVERS, torch=False)[0]
        except DamagedFile as damage:
            raise UsageError(RESUME, f"damaged checkpoint: {damage}") from None

    def of_servers(self, model: str, part: str) -> dict[str, Values]:
        """The arrays of a model that the servers remember; `part`: "rule", "reply" or "values"."""
        begin = f"{model}/{part}/"
        return {name.removeprefix(begin): each for name, each in self._servers.items() if name.startswith(begin)}

    def memory(self, replica: Replica, model: str) -> dict[str, Values]:
        """What the servers remember, for the leader to send; what a setting has changed since is left out.

        Call it when the settings of this run are known.
        """
        before, now = self.manifest.models.get(model, {}), replica.settings
        found: dict[str, Values] = {}
        for part, key in (("rule", "rule"), ("reply", "reply_codec")):
            if before.get(key) == now.get(key) and before.get("mode") == now.get("mode"):
                found |= self.of_servers(model, part)
        return found

    def is_same(self, replica: Replica, model: str, key: str) -> bool:
        """Whether this setting is what it was."""
        return self.manifest.models.get(model, {}).get(key) == replica.settings.get(key)


def clocks_for_all(clocks: Clocks, workers: int) -> dict[int, Clocks]:
    """The clocks of the saved values, which are the same whichever worker is the leader."""
    return dict.fromkeys(range(workers), clocks)


def server_arrays(replica: Replica, model: str) -> dict[str, Values]:
    """What the servers remember, by the names in the file."""
    rule = {f"{model}/rule/{name}": values for name, values in replica.recall().items()}
    return rule | {f"{model}/reply/{name}": values for name, values in replica.recall_replies().items()}


def model_metadata(replica: Replica, model: str, clocks: Clocks) -> dict[str, str]:
    """What a model's file says about itself."""
    said = {"model": model, "iteration": replica.earlier + replica.iteration, "clocks": sorted(clocks.items())}
    return {"syncline": json.dumps(said)}
