"""Rules: how an update changes the parameters. Value by value and in place; a rule's memory is an explicit value.

`alpha`, the learning rate, is a rule's first argument and is overridden by one that is pushed. tau = max(1, staleness).
"""

from syncline.parts import Part
from syncline.rules.adam import Adam
from syncline.rules.plain import Add, Mean, Momentum, Sgd
from syncline.rules.protocol import LARGEST, Memory, Rule, optimises, reported
from syncline.rules.stale import Exponential, Fasgd, Sasgd

__all__ = [
    "LARGEST",
    "RULES",
    "Adam",
    "Add",
    "Exponential",
    "Fasgd",
    "Mean",
    "Memory",
    "Momentum",
    "Rule",
    "Sasgd",
    "Sgd",
    "optimises",
    "reported",
]

RULES: tuple[type[Part], ...] = (Mean, Add, Sgd, Momentum, Adam, Sasgd, Exponential, Fasgd)
