"""The interface of a rule: two functions and an explicit state (`Memory`)."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from syncline.errors import UsageError
from syncline.layout import LARGEST, Values
from syncline.parts import Part

Memory = dict[str, Values]
"""The state of a rule for one bucket; each array is as long as the bucket."""


@runtime_checkable
class Rule(Protocol):
    """A rule has two functions: `start` makes its state, `apply` applies one update.

    With `reports = "v"` the servers send the mean of that array of the rule's state with their answers, for gates. With
    `needs = ("read",)` the servers call `apply` with one more argument, `seen`: what the rule asked for (needs.py).
    """

    @property
    def of_gradients(self) -> bool:
        """True: updates are gradients. False: updates are changes.

        On arrival the server applies a gradient as it is, and divides a change by the number of live workers.
        """
        ...

    @property
    def keeps(self) -> bool:
        """True: `params` are parameters. False: they are the result of the last round, or nothing if it was empty."""
        ...

    def start(self, params: Values) -> Memory:
        """The state before the first update."""
        ...

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        """Apply one update to `params` and `memory`, elementwise and in place; do not write to `update`.

        `work` is scratch space of the same length, with arbitrary content. The server calls this block by block, so
        that all arrays fit in a core's cache.
        """
        ...


class Gradient(Part):
    """The base class of the rules that turn gradients into parameters; a pushed learning rate overrides `lr`."""

    of_gradients = True
    keeps = True
    lr: float

    def __post_init__(self) -> None:
        if not 0 < self.lr <= LARGEST:
            raise UsageError(self.name, f"the learning rate must be above 0 and finite in float32, not {self.lr}")

    def start(self, params: Values) -> Memory:
        return {}


def reported(rule: Rule) -> str:
    """The name of the array of the rule's state whose mean the servers report; "" if they report none."""
    return str(getattr(rule, "reports", ""))


def optimises(rule: Rule) -> bool:
    """Return True if the rule turns gradients into parameters, as an optimizer does."""
    return rule.of_gradients and rule.keeps
