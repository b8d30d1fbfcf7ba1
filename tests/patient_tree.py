"""Strategy `tree`, with nodes that practically never send a message again: a run that needs repeats does not end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from syncline.strategies.tree.strategy import TreeStrategy


@dataclass(frozen=True)
class PatientTree(TreeStrategy):
    kind: ClassVar[str] = ""
    patience: ClassVar[float] = 1e6
