"""Placements: which server holds which ranges of the model vector. Pure functions of the tables.

    uniform      splits every table over all servers
    roundrobin   deals the tables in turn
    balanced     gives each table, largest first, to the server with the least
    elastic      cuts the model vector into equal ranges, whatever the tables; servers may come and go with few moves
    own          a function of yours: which tables each server holds

A placement of your own is a class with `place`; with `replace` as well, it says itself what moves when servers come or
go, and without, everything is placed anew.
"""

from syncline.parts import Part
from syncline.placement.checking import checked, replaced
from syncline.placement.elastic import Elastic
from syncline.placement.own import Own, placement_of
from syncline.placement.plain import Balanced, RoundRobin, Uniform
from syncline.placement.protocol import Placement, Ranges, Replacing

__all__ = [
    "PLACEMENTS",
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
