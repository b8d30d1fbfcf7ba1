"""Placements: which server holds which ranges of the model vector. A placement is a pure function of the tables.

    uniform      splits every table over all servers
    roundrobin   gives the tables to the servers in turn
    balanced     gives each table, largest first, to the server that holds the fewest values so far
    elastic      splits the model vector into equal ranges, ignoring tables; moves little when servers join or leave
    own          your own function, which says which tables each server holds

A placement of your own is a class with the method `place`. With a second method `replace` it decides what moves when
servers join or leave; without it, `place` places everything again.
"""

from syncline.parts import Part
from syncline.placement.checking import checked, replaced
from syncline.placement.elastic import Elastic
from syncline.placement.own import Assign, Own, placement_of
from syncline.placement.plain import Balanced, RoundRobin, Uniform
from syncline.placement.protocol import Placement, Ranges, Replacing

__all__ = [
    "PLACEMENTS",
    "Assign",
    "Balanced",
    "Elastic",
    "Own",
    "Placement",
    "Ranges",
    "Replacing",
    "RoundRobin",
    "Uniform",
    "checked",
    "placement_of",
    "replaced",
]

PLACEMENTS: tuple[type[Part], ...] = (Elastic, Uniform, RoundRobin, Balanced)
