"""Who optimises."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """Who optimises: the workers on the round's mean gradient, each worker for itself, or the servers."""

    GRADIENTS = "gradients"
    CHANGES = "changes"
    RULE = "rule"
