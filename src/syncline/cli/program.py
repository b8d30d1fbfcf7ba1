"""The program that `syncline run` starts as workers: a file or a module, checked before anything starts."""

from __future__ import annotations

import os
import sys
import tokenize
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from zipfile import is_zipfile

from syncline.errors import UsageError


def command_of(words: Sequence[str], module: bool) -> tuple[list[str], list[Path]]:
    """A worker's command, `python FILE ARGS...` or `python -m MODULE ARGS...`, and the files that it runs.

    The files of a module are those of its whole package.

    `--` is allowed before the arguments.
    """
    words = [words[0], *(words[2:] if words[1:2] == ["--"] else words[1:])]
    if module:
        return [sys.executable, "-m", *words], _module_files(words[0])
    _check_file(Path(words[0]))
    return [sys.executable, *words], [Path(words[0])]


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise UsageError("PROGRAM", f"{str(path)!r} is a directory; name a Python file, or a module with -m")
    if not path.exists():
        raise UsageError("PROGRAM", f"there is no file {str(path)!r}; name an existing Python file")
    if not path.is_file():
        raise UsageError(
            "PROGRAM", f"{str(path)!r} is a device or a pipe, which only one worker could read; name a file"
        )
    try:
        if is_zipfile(path):
            return
        with tokenize.open(path) as file, warnings.catch_warnings(action="ignore"):
            compile(file.read(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise UsageError("PROGRAM", f"{str(path)!r} cannot be read: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:  # ValueError: the file is not text
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        why = error.msg if isinstance(error, SyntaxError) else "it is not text"
        raise UsageError("PROGRAM", f"{str(path)!r} is not Python{where}: {why}") from None


def _module_files(name: str) -> list[Path]:
    """Search for the module as `python -m` does, without importing anything."""
    path: Sequence[str] | None = _searched()
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:depth]), path) if all(parts) and path is not None else None
        if spec is None:
            raise UsageError("-m", f"there is no module {name!r} in this folder or among the installed packages")
        path = spec.submodule_search_locations
    if path is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", path)
    if spec is None:
        raise UsageError("-m", f"{name!r} is a package without a __main__ module; name one of its modules")
    return [Path(spec.origin or ""), *package_files(name)]


def package_files(name: str) -> list[Path]:
    """The files of a module, with those of its whole package, without importing anything; [] if there are none."""
    spec = PathFinder.find_spec(name.partition(".")[0], _searched())
    if spec is None:
        return []
    folders = spec.submodule_search_locations or ()
    return [Path(spec.origin or ""), *(file for folder in folders for file in Path(folder).rglob("*.py"))]


def _searched() -> list[str]:
    return [os.getcwd(), *sys.path]
