"""The mode of a run: where the optimizer runs."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """Where the optimizer runs."""

    GRADIENTS = "gradients"
    """On every worker, with the mean gradient of the round."""
    CHANGES = "changes"
    """On every worker by itself; the worker sends what the optimizer changed."""
    RULE = "rule"
    """On the servers; workers send gradients."""
