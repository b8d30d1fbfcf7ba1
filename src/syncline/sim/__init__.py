"""The simulator: runs the protocol's own nodes in one process and in virtual time. Results are reproducible.

To run an experiment, call `simulate(scenario, problem)`; docs/simulator.md has an example.
"""

from syncline.sim.compute import Lognormal, Trace
from syncline.sim.curve import Point
from syncline.sim.dispatch import InTurn, UniformDispatch, Weighted
from syncline.sim.faults import AddServer, Crash, CrashServer, Freeze, Join, Leave, RemoveServer, Restart, Slow, Switch
from syncline.sim.network import Links
from syncline.sim.node_faults import AddNode, BreakLink, CrashNode, LoseNode, MergeNodes, RemoveNode, ReshapeTree
from syncline.sim.outcome import Outcome
from syncline.sim.problem import MadeUp, Problem, Quality
from syncline.sim.scenario import Cluster, Scenario
from syncline.sim.stop import StopAt
from syncline.sim.sweep import sweep
from syncline.sim.world import World, simulate
from syncline.strategies.mode import Mode

__all__ = [
    "AddNode",
    "AddServer",
    "BreakLink",
    "Cluster",
    "Crash",
    "CrashNode",
    "CrashServer",
    "Freeze",
    "InTurn",
    "Join",
    "Leave",
    "Links",
    "Lognormal",
    "LoseNode",
    "MadeUp",
    "MergeNodes",
    "Mode",
    "Outcome",
    "Point",
    "Problem",
    "Quality",
    "RemoveNode",
    "RemoveServer",
    "ReshapeTree",
    "Restart",
    "Scenario",
    "Slow",
    "StopAt",
    "Switch",
    "Trace",
    "UniformDispatch",
    "Weighted",
    "World",
    "simulate",
    "sweep",
]
