"""Files that are there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from syncline.errors import UsageError


def check_outputs(source: Path, outputs: dict[str, Path | None]) -> None:
    """Refuse to write where it would hurt, before anything runs; the keys are the options."""
    taken = {source.resolve(): "the experiment file"}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir():
            raise UsageError(option, f"{str(path)!r} is a directory; name a file")
        if not path.parent.is_dir():
            raise UsageError(option, f"there is no directory {str(path.parent)!r}")
        if path.resolve() in taken:
            raise UsageError(option, f"{str(path)!r} is {taken[path.resolve()]} already; name another file")
        taken[path.resolve()] = option


@contextmanager
def whole_file(path: Path, option: str) -> Iterator[Path]:
    """A place to write to, which takes its name only when all went well. A device or a pipe is written as it is."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        yield target
        return
    part = target.with_name(target.name + ".part")
    try:
        part.touch()
    except OSError as error:
        raise UsageError(option, f"cannot write {str(path)!r}: {error.strerror}") from None
    try:
        yield part
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def whole_text(path: Path | None, option: str) -> Iterator[TextIO | None]:
    """The same as an open text file; None for None."""
    if path is None:
        yield None
        return
    with whole_file(path, option) as place, place.open("w") as file:
        yield file
