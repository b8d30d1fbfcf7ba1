"""The simulator: the protocol's own nodes in virtual time, in one process, with the same result every time."""

from syncline.sim.outcome import Outcome
from syncline.sim.problem import MadeUp, Problem, Quality
from syncline.sim.scenario import Cluster, Scenario
from syncline.sim.world import World

__all__ = ["Cluster", "MadeUp", "Outcome", "Problem", "Quality", "Scenario", "World"]
