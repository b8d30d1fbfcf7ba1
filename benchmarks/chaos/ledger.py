"""What was sent, what was answered, and what the parameters show at the end.

Every update of every process has an element of its own, to which it adds VALUE. It arrives divided by the number of
live workers, or by the number of updates of that round: 2 or 3. Only a rule on the servers that applies updates on
arrival does not divide. So at the end an element has one of a few values if its update counted once, 0 if it did not
count, and something else if it counted twice: twice a half or a third is neither.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ELEMENTS = 60_000
"""More than all updates of a run."""

CHUNK = 250
"""How many elements a process takes at a time."""

VALUE = 12.0
DIVIDED = (VALUE / 3, VALUE / 2)
WHOLE = (VALUE,)
TOLERANCE = 1e-3


class Account:
    """What one process has sent and what was answered, in files that outlive it."""

    def __init__(self, folder: Path, name: str) -> None:
        """`name`: the number of the worker and of its process, such as 0-4711."""
        self.name = name
        self._folder = folder
        self._counts = folder / f"counts-{name}"
        self._chunks = folder / f"chunks-{name}"

    # The process itself.

    def open(self) -> None:
        self._numbers = np.memmap(self._counts, np.int64, "w+", shape=(2,))
        self._owned: list[int] = []

    def element(self) -> int | None:
        """The element of the next update; None if there are no elements left."""
        place, offset = divmod(int(self._numbers[0]), CHUNK)
        if place == len(self._owned):
            chunk = self._take_chunk()
            if chunk is None:
                return None
            self._owned.append(chunk)
            self._chunks.write_text(" ".join(map(str, self._owned)))
        return self._owned[place] * CHUNK + offset

    def _take_chunk(self) -> int | None:
        for chunk in range(len(list(self._folder.glob("taken-*"))), ELEMENTS // CHUNK):
            with suppress(FileExistsError):  # another process was faster
                os.close(os.open(self._folder / f"taken-{chunk}", os.O_CREAT | os.O_EXCL))
                return chunk
        return None

    def sends(self) -> None:
        self._numbers[0] += 1

    def is_answered(self) -> None:
        self._numbers[1] = self._numbers[0]

    # The judge.

    @property
    def counts(self) -> tuple[int, int]:
        """How many updates were sent, and how many of them were answered."""
        try:
            sent, answered = np.fromfile(self._counts, np.int64)
        except (OSError, ValueError):
            return 0, 0  # it has not begun
        return int(sent), int(answered)

    def elements(self) -> list[int]:
        """The elements of all updates that were sent."""
        sent, _ = self.counts
        chunks = list(map(int, self._chunks.read_text().split())) if self._chunks.exists() else []
        return [chunk * CHUNK + offset for chunk in chunks for offset in range(CHUNK)][:sent]


def accounts(folder: Path) -> list[Account]:
    return [Account(folder, path.name.removeprefix("counts-")) for path in sorted(folder.glob("counts-*"))]


@dataclass(frozen=True)
class Finding:
    """What the ledger says about one run."""

    answered: int = 0
    unanswered: int = 0
    """Updates that were sent, and whose worker died before the answer."""
    counted: int = 0
    """How many of these count all the same."""
    lost: int = 0
    """Answered updates that do not count, and of which nobody has promised that they do."""
    problems: tuple[str, ...] = ()


def judge(folder: Path, shares: Sequence[float], promised: bool, partial: int) -> Finding:
    """Compare the accounts of all processes with the parameters at the end.

    `shares`: what an element may show. `promised`: an answered update counts. `partial`: how many of the last updates
    of a dead worker may have reached only some of the others.
    """
    finals = {path.stem.removeprefix("final-"): np.load(path) for path in sorted(folder.glob("final-*.npy"))}
    if not finals:
        return Finding(problems=("no worker has written its final parameters",))
    problems, (name, final) = [], next(iter(finals.items()))
    totals, claimed, agreed = np.zeros(4, int), np.zeros(ELEMENTS, bool), np.ones(ELEMENTS, bool)
    for each in accounts(folder):
        elements, (_, answered) = each.elements(), each.counts
        claimed[elements] = True
        whole = len(elements) if each.name in finals else max(len(elements) - partial, 0)
        agreed[elements[whole:]] = False
        for number, element in enumerate(elements):
            value = float(final[element])
            counts = abs(value) > TOLERANCE
            if counts and not any(abs(value - share) < TOLERANCE for share in shares):
                problems.append(f"update {number} of process {each.name} shows {value:g}")
            if number >= answered:
                totals += (0, 1, counts, 0)
            else:
                totals += (1, 0, 0, not counts)
                if not counts and promised and number < whole:
                    problems.append(f"update {number} of process {each.name} was answered and is lost")
    for other, values in finals.items():
        gap = float(np.abs(values - final)[agreed].max())
        if gap > TOLERANCE:
            problems.append(f"processes {name} and {other} end with parameters that differ by {gap:g}")
    if (np.abs(final[~claimed]) > TOLERANCE).any():
        problems.append("an element has a value that nobody has sent")
    return Finding(*map(int, totals), tuple(problems[:20]))
