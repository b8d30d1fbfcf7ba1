"""The load of the parameter-sharing paper: 12 MB, three workers a machine, a push per second each, links of 1 Gbit.

A machine has a node and its three workers, so pushes and pulls use no link. The paper does not say how fast its nodes
add up updates. Adding a change to one sum reads two arrays and writes one. We assume 1 GB of updates per second, which
is 3 GB/s of memory traffic. That is plausible for one core of such a machine, but not measured: of the plausible values
we took one with which a star saturates between 8 and 10 machines, as in the paper. A node adds what it gets to its
replica, and to what it owes each other neighbour.
"""

from __future__ import annotations

from typing import Any

from syncline.reproduce.figure import FigureRun, Result

VALUES = 3_000_000
"""12 MB."""
WORKERS = 3
"""Workers of a machine."""
PERIOD = 1.0
PUSHES, QUICK_PUSHES = 60, 20
APPLY = "1GB"


def late(result: Result) -> float:
    """The seconds until all replicas agree, from when the workers would rest if nobody were slowed down.

    The paper counts from the last push. There a saturated node queues updates; ours makes its workers wait.
    """
    report = result.report
    return float(report["virtual_seconds"] + report["seconds_to_agree"] - report["iterations"])


def paper_load(name: str, machines: int, topology: str, pushes: int, **settings: Any) -> FigureRun:
    """The paper's experiment with this many machines."""
    return FigureRun(
        name,
        {
            "seed": 1,
            "iterations": pushes,
            "cluster": {
                "workers": WORKERS * machines,
                "compute": {"mean": 1.0, "sigma": 0.05},
                "colocated": True,
            },
            "network": {"bandwidth": "1Gbit", "latency": "0.1ms", "apply": settings.pop("apply", APPLY)},
            "model": {"parameters": VALUES},
            "strategy": {
                "kind": "tree",
                "topology": topology,
                "period": settings.pop("period", PERIOD),
                "workers_per_node": WORKERS,
                **settings,
            },
        },
    )
