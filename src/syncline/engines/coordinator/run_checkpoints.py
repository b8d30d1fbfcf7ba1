"""The checkpoints of the run, as the coordinator sees them: it knows when one is whole, and then writes its manifest.

1. A worker tells the coordinator after it has written its part of a checkpoint. When all live members have, the
   coordinator writes the manifest and removes old checkpoints. So no crash leaves half a checkpoint that looks whole.
2. A worker that dies is not waited for. Its part is missing then; the run can go on from the checkpoint all the same.
3. One of the workers must have written the models. If none has, for example because the one that should have has died,
   the checkpoint is never whole, and the next one replaces it.
4. If checkpoints are due by time, a worker says when the time has come, and the coordinator tells all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from syncline.engines.coordinator.outside import Record
from syncline.engines.coordinator.participant import Participant
from syncline.engines.net.control import CheckpointWhole, CheckpointWritten, SaveNow
from syncline.engines.net.frames import Frame
from syncline.engines.net.wiring import Wiring
from syncline.engines.process_state import host
from syncline.engines.saving.folder import (
    Manifest,
    SavedWorker,
    may_write,
    prune,
    read_manifest,
    remove_incomplete,
    step_folder,
    write_manifest,
)
from syncline.errors import PeerError

Models = Callable[[], Mapping[str, Mapping[str, str]]]
"""Returns the current settings of each model."""

MOST_PENDING = 16
"""The most checkpoints that only some workers have written."""

AT_START = ("bucket", "window")
"""Settings that are chosen anew for every run, unless the user gives them."""


class RunCheckpoints:
    """Which workers have written their part of which checkpoint."""

    def __init__(
        self,
        wiring: Wiring,
        counts: tuple[int, int],
        models: Models,
        members: Callable[[], Collection[int]],
        notice: Callable[[str], None],
        to_workers: Callable[[Frame], None],
        outside: Record,
    ) -> None:
        """`counts`: workers and servers at the start. `members`: the live workers. `notice`: prints a line.

        `to_workers`: sends a message to all workers. `outside`: records what is read and written.
        """
        self._outside = outside
        self._to_workers = to_workers
        self._folder = Path(wiring.save_to) if wiring.save_to else None
        self.every = wiring.save_every
        self._program = wiring.program
        self._counts = counts
        self._models = models
        self._members = members
        self._notice = notice
        self._written: dict[int, dict[int, CheckpointWritten]] = {}
        self._hosts: dict[int, str] = {}
        self._last = -1
        """The step of the last whole checkpoint."""
        self._refused: set[int] = set()
        """The steps that some worker could not write."""
        self._compared: set[str] = set()
        """The models whose settings were compared with those of the checkpoint."""
        self._source = Path(wiring.resume) if wiring.resume else None

    def clear(self) -> None:
        """Remove what an earlier run has begun to write; called once, when the run starts."""
        if self._folder is not None:
            remove_incomplete(self._folder)

    def written(self, peer: Participant, message: CheckpointWritten) -> None:
        """A worker has written its part, or could not."""
        number, step = peer.id.number, message.step
        wrong = [name for name in message.files if not may_write(number, name)]
        if wrong:
            raise PeerError(f"it says that it has written {wrong[0]!r}, which is no file of its checkpoint")
        if self._folder is None or step <= self._last:
            return
        self._hosts[number] = peer.hello.host
        self._written.setdefault(step, {})[number] = message
        while len(self._written) > MOST_PENDING:
            del self._written[min(self._written)]
        if message.problem and step not in self._refused:
            self._refused.add(step)
            self._notice(f"worker {number} could not write its checkpoint of step {step}: {message.problem}")
        self.complete()

    def complete(self) -> None:
        """Complete every checkpoint that all live members have written."""
        members = set(self._members())
        for step in sorted(self._written):
            if members <= self._written[step].keys():
                self._complete(step, self._written.pop(step))
        for step in [each for each in self._written if each < self._last]:
            del self._written[step]

    def _complete(self, step: int, parts: dict[int, CheckpointWritten]) -> None:
        assert self._folder is not None
        if step in self._refused:
            return
        if not any(part.has_models for part in parts.values()):
            self._notice(f"the checkpoint of step {step} is not complete: no worker has written the models")
            return
        saved = {
            str(number): SavedWorker(self._hosts[number], part.iteration, dict(part.files))
            for number, part in sorted(parts.items())
            if part.files
        }
        workers, servers = self._counts
        models = {name: dict(words) for name, words in self._models().items()}
        manifest = Manifest(
            step=step,
            host=host(),
            program=self._program,
            workers=workers,
            servers=servers,
            models=models,
            saved=saved,
        )
        place = step_folder(self._folder, step)
        problem = self._outside.recorded(lambda: _problem_of(lambda: write_manifest(place, manifest)))
        if not problem:
            self._last = step
            self._to_workers(CheckpointWhole(step))
            folder = self._folder
            problem = self._outside.recorded(lambda: _problem_of(lambda: prune(folder, step)))
        if problem:
            self._notice(f"cannot complete the checkpoint of step {step} in {self._folder}: {problem}")

    def due(self, step: int) -> None:
        """A worker says that a checkpoint is due by time."""
        if self._folder is not None and step > self._last:
            self._to_workers(SaveNow(step))

    def compare(self, model: str, settings: Mapping[str, str]) -> None:
        """A model has begun: say from which step it goes on, and which settings have changed since."""
        if self._source is None or model in self._compared:
            return
        source, first = self._source, not self._compared
        self._compared.add(model)
        for line in self._outside.recorded(lambda: self._compared_with(source, model, settings, first)):
            self._notice(line)

    def _compared_with(self, source: Path, model: str, settings: Mapping[str, str], first: bool) -> list[str]:
        """The lines for the user about a model and the checkpoint that it goes on from."""
        manifest = read_manifest(source)
        lines = [f"resumes from step {manifest.step}: {source}{self._other_counts(manifest)}"] if first else []
        before = manifest.models.get(model, {})
        for key in sorted(before.keys() & settings.keys()):
            if before[key] != settings[key] and key not in AT_START:
                lines.append(f"{key} is {settings[key]}; the checkpoint was written with {before[key]}")
        return lines

    def _other_counts(self, manifest: Manifest) -> str:
        now, before = self._counts, (manifest.workers, manifest.servers)
        kinds = ("workers", "servers")
        changed = [
            f"{new} {kind}, it had {old}" for new, old, kind in zip(now, before, kinds, strict=True) if new != old
        ]
        return f" (now {'; now '.join(changed)})" if changed else ""


def _problem_of(action: Callable[[], None]) -> str:
    """Why this failed, or "". A coordinator that dies meanwhile does it again, which changes nothing."""
    try:
        action()
    except OSError as error:
        return str(error.strerror)
    return ""
