"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile, mkstemp
from typing import TextIO

from syncline.errors import UsageError


def check_outputs(sources: Iterable[Path], outputs: dict[str, Path | None]) -> None:
    """Refuse to write where it would hurt, before anything runs; the keys are the options."""
    taken = {source.resolve(): "an input of this run" for source in sources}
    for option, path in outputs.items():
        if path is not None:
            try:
                _check_output(option, path, taken)
            except (OSError, RuntimeError) as error:
                raise UsageError(option, f"cannot write {str(path)!r}: {error}") from None


def _check_output(option: str, path: Path, taken: dict[Path, str]) -> None:
    if path.is_dir():
        raise UsageError(option, f"{str(path)!r} is a directory; name a file")
    if not path.parent.is_dir():
        raise UsageError(option, f"there is no directory {str(path.parent)!r}")
    target = path.resolve()
    if target in taken:
        raise UsageError(option, f"{str(path)!r} is {taken[target]}; name another file")
    taken[target] = f"what {option} writes"


def check_directory(option: str, path: Path) -> None:
    """Refuse a directory in which no file can be made."""
    if not path.is_dir():
        raise UsageError(option, f"there is no directory {str(path)!r}")
    try:
        TemporaryFile(dir=path).close()
    except OSError as error:
        raise UsageError(option, f"cannot write into {str(path)!r}: {error.strerror}") from None


@contextmanager
def whole_file(path: Path, option: str) -> Iterator[Path]:
    """A place to write to, which takes its name only when all went well. A device or a pipe is written as it is."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        yield target
        return
    try:
        handle, name = mkstemp(prefix=target.name[:100] + ".", suffix=".part", dir=target.parent)
    except OSError as error:
        raise UsageError(option, f"cannot write {str(path)!r}: {error.strerror}") from None
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o666 & ~_umask())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def whole_text(path: Path | None, option: str) -> Iterator[TextIO | None]:
    """The same as an open text file; None for None."""
    if path is None:
        yield None
        return
    with whole_file(path, option) as place, place.open("w") as file:
        yield file
