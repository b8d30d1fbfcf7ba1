"""The simulator: the protocol's own nodes in virtual time, in one process, with the same result every time.

`simulate(scenario, problem)` is all that an experiment needs; docs/simulator.md shows one.
"""

from syncline.sim.compute import Lognormal, Trace
from syncline.sim.curve import Point
from syncline.sim.dispatch import InTurn, Uniform, Weighted
from syncline.sim.network import Links
from syncline.sim.outcome import Outcome
from syncline.sim.problem import MadeUp, Problem, Quality
from syncline.sim.scenario import Cluster, Scenario
from syncline.sim.world import World, simulate
from syncline.strategy import Mode, ServerStrategy

__all__ = [
    "Cluster",
    "InTurn",
    "Links",
    "Lognormal",
    "MadeUp",
    "Mode",
    "Outcome",
    "Point",
    "Problem",
    "Quality",
    "Scenario",
    "ServerStrategy",
    "Trace",
    "Uniform",
    "Weighted",
    "World",
    "simulate",
]
