"""A worker's part of the run's checkpoints: when one is due, and writing it while the program trains on.

1. The program's thread copies the state, and a thread of its own writes it. The next checkpoint waits until this one is
   written.
2. The coordinator is told from the program's thread: after a later step, or before the worker leaves.
3. With a time, the first worker says when it has come, and the coordinator tells all. Workers that wait for each other
   must save the same iteration: it is named well before any of them comes to it, and a worker that learns of it too
   late saves nothing. They agree on nothing by waiting, since a worker that is about to join could not answer.
4. On a host that does not share the coordinator's folder, the workers remove their own old parts.
5. A checkpoint that cannot be written does not end the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from syncline.engines.net.control import CheckpointDue, CheckpointWritten
from syncline.engines.saving.folder import KEPT, SERVERS, is_whole, remove, step_folder, steps_in
from syncline.engines.saving.schedule import Schedule
from syncline.engines.saving.state_files import Unsaveable, mark_of, packed, write_arrays, write_json
from syncline.errors import SynclineError

if TYPE_CHECKING:
    from syncline.engines.worker.session_checkpoints import SessionCheckpoints

LEAST_AHEAD, AHEAD_SECONDS = 20, 1.0
"""How long before its iteration a checkpoint is announced to workers that wait for each other: iterations, and seconds.
Both must have passed."""


@dataclass
class SavedState:
    """What a worker writes: copies, which nobody else changes."""

    iteration: int
    own: dict[str, Any]
    """Nested plain values and arrays that only this worker has."""
    models: dict[str, tuple[dict[str, Any], dict[str, str]]] = field(default_factory=dict)
    """By file name: the arrays of a model, and what the file says about itself."""
    servers: dict[str, Any] = field(default_factory=dict)
    """What the servers remember besides the parameters."""


class CheckpointWriter:
    """Writes this worker's part of each checkpoint of the run."""

    def __init__(self, run: SessionCheckpoints, folder: str, every: str) -> None:
        """`folder`: empty if this worker has none; then it only takes part in agreements."""
        self._run = run
        self._folder = Path(folder) if folder else None
        self._schedule = Schedule.parse(every)
        self._seen = 0
        self._done = 0
        self._began = monotonic()
        """When the last checkpoint was due by time."""
        self._counted = 0
        """The iteration at that time."""
        self._announced = -1
        """The number of the last checkpoint that this worker has announced."""
        self._thread: Thread | None = None
        self._written: CheckpointWritten | None = None

    def begin(self, iteration: int) -> None:
        """The run goes on after this many iterations."""
        self._seen = self._done = self._counted = iteration
        self._began = monotonic()

    @property
    def writes_models(self) -> bool:
        """Whether this worker writes the models: the live worker with the lowest number does."""
        return self._run.rank == self._run.members[0]

    def due(self, iteration: int, synchronous: bool) -> int | None:
        """The number of the checkpoint that is due after so many iterations; None if none is.

        `synchronous`: whether all workers wait for each other in every iteration.
        """
        self._tell_if_written()
        before, self._seen = self._seen, iteration
        if self._schedule.seconds is not None:
            return self._asked(self._schedule.seconds, before, iteration, synchronous)
        return self._schedule.crossed(before, iteration)

    def _asked(self, seconds: float, before: int, iteration: int, synchronous: bool) -> int | None:
        """The checkpoint that the coordinator has asked for, if this is the iteration for it."""
        passed = monotonic() - self._began
        if self.writes_models and passed >= seconds and self._announced <= max(self._done, before):
            pace = (iteration - self._counted) / passed
            self._announced = iteration + (max(LEAST_AHEAD, ceil(pace * AHEAD_SECONDS)) if synchronous else 0)
            self._began, self._counted = monotonic(), iteration
            self._run.tell(CheckpointDue(self._announced))
        asked = self._run.save_step
        if not self._done < asked <= iteration:
            return None
        self._done = asked
        if synchronous and asked <= before:
            self._run.tell(CheckpointWritten(asked, iteration, problem="the worker was told too late"))
            return None
        return asked

    def write(self, step: int, state: SavedState) -> None:
        """Write this state in the background."""
        self.finish()
        if self._folder is None:
            self._run.tell(CheckpointWritten(step, state.iteration))
            return
        self._thread = Thread(target=self._write, args=(step_folder(self._folder, step), step, state), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until the last checkpoint is written, and tell the coordinator."""
        if self._thread is not None:
            self._thread.join()
            self._tell_if_written()

    def _tell_if_written(self) -> None:
        if self._thread is not None and not self._thread.is_alive():
            self._thread.join()
            self._thread, written, self._written = None, self._written, None
            if written is not None:
                self._run.tell(written)

    def _prune(self, top: Path) -> None:
        """Remove old parts on a host that the coordinator does not see."""
        whole = self._run.whole_steps
        if len(whole) == KEPT:
            for step, path in steps_in(top).items():
                if step < whole[0] and not is_whole(path):
                    remove(path)

    def _write(self, folder: Path, step: int, state: SavedState) -> None:
        iteration, has_models = state.iteration, bool(state.models)
        try:
            self._prune(folder.parent)
            files = _write_state(folder, self._run.rank, state)
        except (OSError, Unsaveable) as error:
            problem = f"{folder}: {getattr(error, 'strerror', None) or error}"
        except SynclineError as error:
            problem = str(error)
        except Exception as error:  # of the library that writes the file
            problem = f"{folder}: {type(error).__name__}: {error}"
        else:
            self._written = CheckpointWritten(step, iteration, has_models, files)
            return
        self._written = CheckpointWritten(step, iteration, problem=problem[:1000])


def _write_state(folder: Path, rank: int, state: SavedState) -> dict[str, tuple[int, int]]:
    """Write the files; returns the size and the checksum of each."""
    folder.mkdir(parents=True, exist_ok=True)
    own = f"worker-{rank}"
    arrays: dict[str, Any] = {}
    text = packed(state.own, arrays)
    parts: dict[str, tuple[Mapping[str, Any], dict[str, str]]] = {f"{own}.safetensors": (arrays, {}), **state.models}
    if state.models:
        parts[SERVERS] = (state.servers, {})
    parts = {name: part for name, part in parts.items() if part[0]}  # a file without arrays cannot be read
    for name, (values, metadata) in parts.items():
        write_arrays(folder / name, values, metadata)
    write_json(folder / f"{own}.json", text)
    return {name: mark_of(folder / name) for name in (*parts, f"{own}.json")}
