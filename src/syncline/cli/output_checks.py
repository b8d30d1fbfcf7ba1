"""Checks of output files before a command starts: no output overwrites an input, another output, or a stranger's file.

A file is ours if it bears the mark that Syncline puts into files of its kind, or if it is empty. Any other file is
overwritten only with --force; an input or another output of the same command, never. Devices and pipes are not files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from syncline.engines.launch.process_log import MARK as LOG_MARK
from syncline.errors import UsageError

_FORMER = rb'"schema": 1,(\s*"figure": "[\w-]+",\s*"paper": |.*"(train_progress|images_a_round|syncline-shm)")'
"""Reports that were written before they had `made_by`: keys that hardly anybody else uses."""

REPORT = re.compile(rb'(?s)\s*\{\s*("made_by": ?"syncline",|' + _FORMER + rb")")
TRACE = re.compile(rb"time,from,to,kind,progress,bytes(,start,stop,version,v)?\n")
CURVE = re.compile(rb"seconds,iterations,loss,accuracy,bytes_pushed,bytes_pulled\n")
PICTURE = re.compile(
    rb"(?s)\x89PNG\r\n.*tEXtSoftware\0made by syncline"
    rb"|<\?xml.*<dc:title>made by syncline</dc:title>"
    rb"|%PDF-.*/Creator \(made by syncline\)"
)
LOG = re.compile(re.escape(LOG_MARK) + rb"\w+\n")

_LOOK = 1 << 16
"""The bytes at the beginning and at the end of a file in which its mark is."""


@dataclass(frozen=True)
class OutputFile:
    """A file that a command writes, the option that names it, and the mark of our files of this kind."""

    option: str
    path: Path
    mark: re.Pattern[bytes]


@dataclass(frozen=True)
class OutputFolder:
    """A folder into which a command writes files whose names match `names`."""

    option: str
    path: Path
    mark: re.Pattern[bytes]
    names: re.Pattern[str]

    def files(self) -> Iterator[OutputFile]:
        """The files there that the command would overwrite."""
        if self.path.is_dir():
            for each in sorted(self.path.iterdir()):
                if self.names.fullmatch(each.name):
                    yield OutputFile(self.option, each, self.mark)


Output = OutputFile | OutputFolder


def check_outputs(inputs: Iterable[Path], outputs: Sequence[Output], *, force: bool) -> None:
    """Refuse outputs that cannot be written or would overwrite what they must not; `inputs`: what the command reads."""
    taken = [(each, "an input of this run") for each in (*inputs, *_imported())]
    for output in outputs:
        try:
            _check(output, taken, [each for each in outputs if each is not output], force)
        except (OSError, RuntimeError) as error:
            raise UsageError(output.option, f"cannot write {str(output.path)!r}: {error}") from None
        taken.append((output.path, f"the output of {output.option}"))


def _check(output: Output, taken: Sequence[tuple[Path, str]], others: Sequence[Output], force: bool) -> None:
    if isinstance(output, OutputFolder):
        for file in output.files():
            _check_file(file, taken, force)
        return
    if output.path.is_dir():
        raise UsageError(output.option, f"{str(output.path)!r} is a directory; name a file")
    if not output.path.parent.is_dir():
        problem = f"there is no directory {str(output.path.parent)!r}; create it, or name another file"
        raise UsageError(output.option, problem)
    for other in others:
        if isinstance(other, OutputFolder) and _lies_in(output.path, other):
            raise UsageError(output.option, f"{str(output.path)!r} is a file of {other.option}; name another file")
    _check_file(output, taken, force)


def _check_file(output: OutputFile, taken: Sequence[tuple[Path, str]], force: bool) -> None:
    path, option = output.path, output.option
    if path.exists() and not path.is_file():
        return
    for other, what in taken:
        if _same(path, other):
            raise UsageError(option, f"{str(path)!r} is {what}; name another file")
    if not force and not _is_ours(path, output.mark):
        problem = (
            f"{str(path)!r} exists, and Syncline has not written it; name another file, or overwrite it with --force"
        )
        raise UsageError(option, problem)


def _imported() -> Iterator[Path]:
    """The files of the modules that this command has imported, among them the user's own parts."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield Path(file)


def _lies_in(path: Path, folder: OutputFolder) -> bool:
    place = path.resolve()
    return place.parent == folder.path.resolve() and folder.names.fullmatch(place.name) is not None


def _same(one: Path, other: Path) -> bool:
    """Whether two paths name one file, also through a symbolic or a hard link."""
    if one.exists():
        return other.exists() and one.samefile(other)
    return not other.exists() and one.resolve() == other.resolve()


def _is_ours(path: Path, mark: re.Pattern[bytes]) -> bool:
    """Whether there is nothing to lose: no file, an empty one, or one with our mark."""
    if not path.exists():
        return True
    with path.open("rb") as file:
        begins = file.read(_LOOK)
        file.seek(max(len(begins), path.stat().st_size - _LOOK))
        return not begins or mark.match(begins + file.read(_LOOK)) is not None


def check_directory(option: str, path: Path) -> None:
    """Refuse a directory that does not exist or is not writable."""
    if not path.is_dir():
        raise UsageError(option, f"there is no directory {str(path)!r}; create it, or name another one")
    try:
        TemporaryFile(dir=path).close()
    except OSError as error:
        raise UsageError(option, f"cannot write into {str(path)!r}: {error.strerror}") from None
