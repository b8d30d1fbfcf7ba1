"""A folder with the checkpoints of one run.

    DIR/step-00000500/checkpoint.json            what it consists of; written last, so its presence makes it whole
                      model.safetensors          parameters and buffers under their own names; one file for each model
                      servers.safetensors        what the servers' rules remember
                      worker-0.safetensors       what only worker 0 has: optimizer state, residuals, buffers
                      worker-0.json              and the rest: positions of samplers, random states, counters

1. The last KEPT whole checkpoints are kept. Older ones, and those that were never completed, are removed when a new one
   is complete.
2. Only files that Syncline has written are removed, and a folder only if nothing else is in it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from urllib.parse import quote

import msgspec

from syncline.engines.saving.state_files import DamagedFile, mark_of, read_json, write_json
from syncline.errors import UsageError

SCHEMA = 1
KEPT = 3
MANIFEST = "checkpoint.json"
SERVERS = "servers.safetensors"
LOCK = ".lock"
MODEL = "model"
"""The name of a model that has no other."""

_STEP = re.compile(r"step-(\d{8,19})")
_OWN = re.compile(r"\.?(checkpoint\.json|(model(-[^/]*)?|servers|worker-\d+)\.safetensors|worker-\d+\.json)(\.new)?")


class SavedWorker(msgspec.Struct, frozen=True):
    """One worker's part of a checkpoint."""

    host: str
    iteration: int
    """How many iterations the worker had finished."""
    files: dict[str, tuple[int, int]]
    """For each of its files: the size in bytes, and the CRC-32."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint consists of."""

    made_by: str = "syncline"
    kind: str = "checkpoint"
    schema: int = SCHEMA
    step: int
    host: str
    """The host that has completed it; all files that were written there must be there."""
    program: str
    """The program that the run has trained."""
    workers: int
    """How many workers the run was started with."""
    servers: int
    models: dict[str, dict[str, str]]
    """The settings of each model."""
    saved: dict[str, SavedWorker]
    """By worker number."""


def step_folder(top: Path, step: int) -> Path:
    return top / f"step-{step:08}"


def model_file(name: str) -> str:
    """The name of a model's file."""
    return "model.safetensors" if name == MODEL else f"model-{quote(name, safe='')}.safetensors"


def steps_in(top: Path) -> dict[int, Path]:
    """The folders of all checkpoints, whole or not, by step."""
    found = ((_STEP.fullmatch(each.name), each) for each in (top.iterdir() if top.is_dir() else ()))
    return {int(match[1]): path for match, path in sorted(found, key=lambda each: each[1]) if match and path.is_dir()}


def is_whole(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def newest_whole(top: Path) -> Path | None:
    whole = [path for _, path in sorted(steps_in(top).items()) if is_whole(path)]
    return whole[-1] if whole else None


def read_manifest(folder: Path) -> Manifest:
    """The manifest; `DamagedFile` if it cannot be read, `UsageError` if it is of another kind."""
    found = read_json(folder / MANIFEST)
    if not isinstance(found, dict) or (found.get("made_by"), found.get("kind")) != ("syncline", "checkpoint"):
        raise DamagedFile(f"{folder / MANIFEST}: Syncline has not written it")
    if found.get("schema") != SCHEMA:
        problem = f"{str(folder)!r} has schema {found.get('schema')!r}; this version of Syncline reads schema {SCHEMA}"
        raise UsageError("--resume", problem)
    try:
        return msgspec.convert(found, Manifest)
    except msgspec.ValidationError as error:
        raise DamagedFile(f"{folder / MANIFEST}: {error}") from None


def check_files(folder: Path, manifest: Manifest) -> None:
    """Raise `DamagedFile` if a file is missing or has changed; those of other hosts may be missing."""
    for worker in manifest.saved.values():
        for name, (size, mark) in worker.files.items():
            path = folder / name
            if not path.is_file():
                if worker.host == manifest.host:
                    raise DamagedFile(f"{path}: the file is missing")
                continue
            if path.stat().st_size != size or mark_of(path) != (size, mark):
                raise DamagedFile(f"{path}: its content is not what was written")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Make the checkpoint whole."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / MANIFEST, msgspec.to_builtins(manifest))


def claim(top: Path) -> int:
    """Keep other runs from writing to this folder, as long as the file that is returned is open."""
    try:
        top.mkdir(parents=True, exist_ok=True)
        place = os.open(top / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError("--checkpoint", f"cannot write into {str(top)!r}: {error.strerror}") from None
    try:
        flock(place, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(place)
        problem = f"another run writes to {str(top)!r} now; wait for its end, or name another folder"
        raise UsageError("--checkpoint", problem) from None
    return place


def prune(top: Path, newest: int) -> None:
    """Remove checkpoints that are older than the last whole ones, and those before `newest` that are not whole."""
    found = steps_in(top)
    whole = sorted(step for step, path in found.items() if is_whole(path) and step <= newest)
    kept = set(whole[-KEPT:])
    for step, path in found.items():
        if step < newest and step not in kept:
            remove(path)


def remove_incomplete(top: Path) -> None:
    """Remove what an earlier run has begun to write and not completed."""
    for path in steps_in(top).values():
        if not is_whole(path):
            remove(path)


def may_write(worker: int, name: str) -> bool:
    """Whether this can be the name of a file that a worker writes."""
    own = (f"worker-{worker}.json", f"worker-{worker}.safetensors")
    return name in own or (not name.startswith((".", "worker-", MANIFEST)) and _OWN.fullmatch(name) is not None)


def remove(folder: Path) -> None:
    """Remove our files from a checkpoint, the manifest first, and the folder if it is empty then."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in folder.iterdir():
        if _OWN.fullmatch(path.name):
            path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
