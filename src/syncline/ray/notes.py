"""The lines about a run that every host of it prints: each is shown once, with the time of the whole run."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

_TIME = re.compile(r"\d+\.\d s: ")


class Notes:
    """Which lines have been shown; hosts may say the same line more than once."""

    def __init__(self) -> None:
        self._said: dict[str, Counter[str]] = defaultdict(Counter)
        self._shown: Counter[str] = Counter()

    def new(self, host: str, text: str, seconds: float) -> str | None:
        """The line to show when this host says this; None if it was shown when another host said it."""
        found = _TIME.match(text)
        plain = text[found.end() :] if found else text
        said = self._said[host]
        said[plain] += 1
        if said[plain] <= self._shown[plain]:
            return None
        self._shown[plain] = said[plain]
        return f"{seconds:.1f} s: {plain}" if found else plain
