"""Output files that are written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile, mkstemp
from typing import TextIO

from syncline.errors import UsageError


def check_outputs(sources: Iterable[Path], outputs: dict[str, Path | None]) -> None:
    """Before the run, refuse outputs that cannot be written or would overwrite an input. The keys are the options."""
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
        raise UsageError(option, f"there is no directory {str(path.parent)!r}; create it, or name another file")
    target = path.resolve()
    if target in taken:
        raise UsageError(option, f"{str(path)!r} is {taken[target]}; name another file")
    taken[target] = f"the output of {option}"


def check_directory(option: str, path: Path) -> None:
    """Refuse a directory that does not exist or is not writable."""
    if not path.is_dir():
        raise UsageError(option, f"there is no directory {str(path)!r}; create it, or name another one")
    try:
        TemporaryFile(dir=path).close()
    except OSError as error:
        raise UsageError(option, f"cannot write into {str(path)!r}: {error.strerror}") from None


@contextmanager
def whole_file(path: Path, option: str) -> Iterator[Path]:
    """A temporary file that is renamed to `path` on success. A device or a pipe is written directly."""
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
    """Like `whole_file`, but yields an open text file; None if `path` is None."""
    if path is None:
        yield None
        return
    with whole_file(path, option) as place, place.open("w") as file:
        yield file
