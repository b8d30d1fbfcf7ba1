"""Rules: how an update changes the parameters.

A rule works elementwise and in place. Its state, such as a momentum buffer, is a separate value (`Memory`).
`alpha`, the learning rate, is the first argument of a rule; a learning rate that comes with a push overrides it.
tau = max(1, staleness). A rule that asks for more than the update has `needs` (needs.py).
"""

from syncline.parts import Part
from syncline.rules.adam import Adam
from syncline.rules.compensating import DcAsgd, GapAware
from syncline.rules.needs import COSTS, OF_ONE_WORKER, Need, Norms, UpdateOrigin, needs_of
from syncline.rules.plain import Add, Mean, Momentum, Sgd
from syncline.rules.protocol import Memory, Rule, optimises, reported
from syncline.rules.stale import Exponential, Fasgd, Sasgd

__all__ = [
    "COSTS",
    "OF_ONE_WORKER",
    "RULES",
    "Adam",
    "Add",
    "DcAsgd",
    "Exponential",
    "Fasgd",
    "GapAware",
    "Mean",
    "Memory",
    "Momentum",
    "Need",
    "Norms",
    "Rule",
    "Sasgd",
    "Sgd",
    "UpdateOrigin",
    "needs_of",
    "optimises",
    "reported",
]

RULES: tuple[type[Part], ...] = (Mean, Add, Sgd, Momentum, Adam, Sasgd, Exponential, Fasgd, DcAsgd, GapAware)
