"""What a rule is: two functions, and an explicit memory."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from syncline.errors import UsageError
from syncline.layout import Values
from syncline.parts import Part

LARGEST = float(np.finfo(np.float32).max)

Memory = dict[str, Values]
"""What a rule remembers of one bucket, each array as long as the bucket."""


@runtime_checkable
class Rule(Protocol):
    """Two functions: what to remember at the start, and one application.

    A rule with `reports = "v"` has the mean of that array of its memory sent along with answers, for gates.
    """

    @property
    def of_gradients(self) -> bool:
        """True: updates are gradients, applied whole. False: changes, shared among the live workers on arrival."""
        ...

    @property
    def keeps(self) -> bool:
        """True: `params` are parameters. False: they are the last round's result, nothing once a round was empty."""
        ...

    def start(self, params: Values) -> Memory:
        """The memory before the first update."""
        ...

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        """Change `params` and `memory` in place by one update, value by value; `update` is not written.

        `work`: as many values to work in, whatever they are. It is called block by block, so that all of these lie in a
        core's cache.
        """
        ...


class Gradient(Part):
    """The base of the rules that turn gradients into parameters; `lr` is overridden by one that is pushed."""

    of_gradients = True
    keeps = True
    lr: float

    def __post_init__(self) -> None:
        if not 0 < self.lr <= LARGEST:
            raise UsageError(self.name, f"the learning rate must be above 0 and finite in float32, not {self.lr}")

    def start(self, params: Values) -> Memory:
        return {}


def reported(rule: Rule) -> str:
    """The name of the array of its memory whose mean it wants to be known; nothing: there is none."""
    return str(getattr(rule, "reports", ""))


def optimises(rule: Rule) -> bool:
    """Does it turn gradients into parameters, so that somebody can train by it?"""
    return rule.of_gradients and rule.keeps
