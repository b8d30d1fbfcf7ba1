"""Files that are there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def written_whole(path: Path | None) -> Iterator[TextIO | None]:
    """A file to write to, which takes its name only when all went well; None for None."""
    if path is None:
        yield None
        return
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
