"""What `--checkpoint`, `--checkpoint-every` and `--resume` ask for, checked before anything starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from syncline.engines.saving.folder import (
    Manifest,
    check_files,
    is_whole,
    newest_whole,
    read_manifest,
    steps_in,
)
from syncline.engines.saving.schedule import DEFAULT, Schedule
from syncline.engines.saving.state_files import DamagedFile
from syncline.errors import UsageError

CHECKPOINT, EVERY, RESUME = "--checkpoint", "--checkpoint-every", "--resume"


@dataclass(frozen=True)
class SavingRequest:
    """Where a run writes checkpoints, how often, and the whole checkpoint that it goes on from; "": none."""

    folder: str = ""
    every: str = ""
    resume: str = ""
    program: str = ""
    """What the checkpoints of another program must not be mixed up with."""
    of: Manifest | None = None
    """What `resume` consists of."""


def checked_request(
    folder: Path | None,
    every: str | None,
    resume: Path | None,
    program: str,
    *,
    joins: bool = False,
    follows: bool = False,
) -> SavingRequest:
    """The request, or a `UsageError` that names the option. It writes nothing.

    `follows`: the run begins on several hosts, and another one has the coordinator, which removes old checkpoints.
    """
    if folder is None and every is not None:
        raise UsageError(EVERY, f"says how often {CHECKPOINT} writes; add {CHECKPOINT} DIR")
    if folder is None and resume is None:
        return SavingRequest()
    option = CHECKPOINT if folder is not None else RESUME
    if find_spec("safetensors") is None:
        raise UsageError(option, "needs the package safetensors; install it with: pip install 'syncline[checkpoints]'")
    if every is not None and joins:
        raise UsageError(EVERY, "is a setting of the run that you join; leave it out with --join")
    text = DEFAULT if every is None else every
    Schedule.parse(text)
    source, manifest = (None, None) if resume is None else _source(resume, program)
    if folder is not None:
        _check_target(folder, source, joins or follows)
    return SavingRequest(
        "" if folder is None else str(folder.resolve()),
        "" if folder is None or joins else text,
        "" if source is None else str(source.resolve()),
        program,
        manifest,
    )


def _source(resume: Path, program: str) -> tuple[Path, Manifest]:
    """The newest whole checkpoint in this folder, or the folder itself if it is one."""
    found = resume if is_whole(resume) else newest_whole(resume)
    if found is None:
        if not resume.is_dir():
            raise UsageError(RESUME, f"there is no folder {str(resume)!r}")
        begun = " (one was begun and is not complete)" if steps_in(resume) else ""
        raise UsageError(RESUME, f"{str(resume)!r} has no complete checkpoint{begun}; name the folder of --checkpoint")
    try:
        manifest = read_manifest(found)
        check_files(found, manifest)
    except DamagedFile as damage:
        raise UsageError(RESUME, f"damaged checkpoint: {damage}{_way_out(found)}") from None
    if manifest.program != program:
        problem = f"{str(found)!r} is a checkpoint of {manifest.program}, and this command runs {program}"
        raise UsageError(RESUME, f"{problem}; name the folder of a run of {program}")
    return found, manifest


def _way_out(damaged: Path) -> str:
    """Which other checkpoint of the same run can be used."""
    others = [path for _, path in sorted(steps_in(damaged.parent).items()) if is_whole(path) and path != damaged]
    return f"; to go on from the one before, use --resume {others[-1]}" if others else ""


def _check_target(folder: Path, source: Path | None, joins: bool) -> None:
    """Refuse a folder that cannot be written, or that has checkpoints which this run does not continue."""
    nearest = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise UsageError(
            CHECKPOINT, f"{str(folder)!r} cannot be a folder: {str(nearest)!r} is a file; name another one"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(CHECKPOINT, f"cannot write into {str(nearest)!r}; name another folder")
    last = None if joins else newest_whole(folder)
    if last is None:
        return
    if source is None or source.resolve().parent != folder.resolve():
        problem = f"{str(folder)!r} has checkpoints of another run"
        raise UsageError(CHECKPOINT, f"{problem}; continue it with --resume {folder}, or name another folder")
    if last.resolve() != source.resolve():
        problem = f"{str(folder)!r} has later checkpoints than {source.name}, which would be lost"
        raise UsageError(CHECKPOINT, f"{problem}; name another folder")
