"""Small runs worked out by hand: the simulator and the reference must both come to these figures.

In the timelines `3 w0:2` is worker 0 pushing iteration 2 at time 3, and `V=1` says that a round has closed. All start
at time 0, messages take no time, and at one moment the lower worker comes first.
"""

from __future__ import annotations

from typing import Any

import pytest

from reference import Figures, Model, simulate
from syncline.draw import Draw
from syncline.sim import Cluster, MadeUp, Scenario, World
from syncline.sim.compute import Trace
from syncline.strategies.server.strategy import ServerStrategy, settle_mode
from syncline.sync import Asp, Bsp, Drop, Dsps, Pssp, Release, Ssp

PARTS: dict[str, Any] = {"bsp": Bsp, "asp": Asp, "ssp": Ssp, "dsps": Dsps, "drop": Drop, "pssp": Pssp}

UNEVEN = ((1.0, 1.0, 1.0), (2.0, 1.0, 3.0))
THREE_TO_ONE = ((1.0,) * 4, (3.0,) * 4)
LATE_START = ((1.0,) * 5, (4.0, 1.0, 1.0, 1.0, 1.0))
STRAGGLER = ((1.0,) * 5, (2.0,) * 5, (7.0, 9.0, 9.0, 1.0, 1.0))

# finish time, delayed pulls, waiting, dropped, updates, train progress
CASES = {
    # 1 w0:0 parks. 2 w1:0 V=1, w0 waited 1. 3 w0:1 parks, w1:1 V=2, w0 waited 0. 4 w0:2 parks. 6 w1:2 V=3, w0 waited 2.
    "bsp": (UNEVEN, [("bsp",)], "lazy", Figures(6.0, 3, 3.0, 0, 6, 3)),
    # Under bsp a pull is parked under V = i, whichever the release.
    "bsp, soft": (UNEVEN, [("bsp",)], "soft", Figures(6.0, 3, 3.0, 0, 6, 3)),
    # w0 pushes at 1, 2, 3 and w1 at 2, 3, 6; nobody waits.
    "asp": (UNEVEN, [("asp",)], "lazy", Figures(6.0, 0, 0.0, 0, 6, 3)),
    # 1 w0:0. 2 w0:1, 1 < 0+1 fails: parks under 1. 3 w1:0 V=1. 6 w1:1 V=2, w0 waited 4. 7 w0:2, 2 < 2+1. 8 w0:3 parks
    # under 3. 9 w1:2 V=3. 12 w1:3 V=4, w0 waited 4.
    "ssp:1, lazy": (THREE_TO_ONE, [("ssp", 1)], "lazy", Figures(12.0, 2, 8.0, 0, 8, 4)),
    # 1 w0:0. 2 w0:1 parks under V=0. 3 w1:0 V=1, w0 waited 1. 4 w0:2, 2 < 1+1 fails: parks under 1. 6 w1:1 V=2, w0
    # waited 2. 7 w0:3 parks under 2. 9 w1:2 V=3, w0 waited 2. 12 w1:3 V=4.
    "ssp:1, soft": (THREE_TO_ONE, [("ssp", 1)], "soft", Figures(12.0, 3, 5.0, 0, 8, 4)),
    # 1 w0:0. 2 w0:1. 3 w0:2, 2 < 0+2 fails: parks under 2. 4 w1:0 V=1. 5 w1:1 V=2. 6 w1:2 V=3, w0 waited 3. 7 both:3
    # V=4. 8 both:4 V=5.
    "ssp:2, lazy": (LATE_START, [("ssp", 2)], "lazy", Figures(8.0, 1, 3.0, 0, 10, 5)),
    # 3 w0:2 parks under V=0. 4 w1:0 V=1, w0 waited 1. 5 w0:3, 3 < 1+2 fails: parks under 1; w1:1 V=2, w0 waited 0.
    # 6 w0:4, 4 < 2+2 fails: parks under 2; w1:2 V=3, w0 waited 0. 7 w1:3 V=4. 8 w1:4 V=5.
    "ssp:2, soft": (LATE_START, [("ssp", 2)], "soft", Figures(8.0, 3, 1.0, 0, 10, 5)),
    # w0 parks at 1, 3, 5, 7 and waits 1 each time for w1 at 2, 4, 6, 8: V=4 at 8. 7 w2:0 is late, V=3: goes on with 3
    # (1 s). 8 w2:3, after w1:3 V=4, is late: goes on with 4. 9 w0:4 parks; w2:4 is the second: V=5, w0 waited 0.
    # 10 w1:4 is late, V=5: done.
    "drop:2 of 3": (STRAGGLER, [("drop", 2)], "lazy", Figures(10.0, 5, 4.0, 3, 10, 5)),
    # r >= 0 always: as asp. w0 is done at 4, w1 at 12.
    "pssp, p=0": (THREE_TO_ONE, [("pssp", 1, 0)], "lazy", Figures(12.0, 0, 0.0, 0, 8, 4)),
    # r >= 1 never: as ssp:1.
    "pssp, p=1, lazy": (THREE_TO_ONE, [("pssp", 1, 1)], "lazy", Figures(12.0, 2, 8.0, 0, 8, 4)),
    "pssp, p=1, soft": (THREE_TO_ONE, [("pssp", 1, 1)], "soft", Figures(12.0, 3, 5.0, 0, 8, 4)),
    # 1 w0:0, 0 < 0+1. 2 w0:1 parks under 1 (w0's steps: 1). 3 w1:0 V=1, s=ceil(1/1)=1. 6 w1:1 (w1's steps: 3) V=2,
    # s=ceil(3/1)=3, w0 waited 4. 7 w0:2, 8 w0:3, 9 w0:4 with 4 < 2+3; w1:2 V=3. 10 w0:5, 5 < 3+3. w1 at 12, 15, 18.
    "dsps:1,3": (((1.0,) * 6, (3.0,) * 6), [("dsps", 1, 3)], "lazy", Figures(18.0, 1, 4.0, 0, 12, 6)),
    # As bsp, but each pull is delayed at both servers while the worker waits once.
    "bsp and bsp": (UNEVEN, [("bsp",), ("bsp",)], "lazy", Figures(6.0, 6, 3.0, 0, 12, 3)),
    # Both pulls must be answered: the pace is that of bsp, the delays are those of one server.
    "bsp and asp": (UNEVEN, [("bsp",), ("asp",)], "lazy", Figures(6.0, 3, 3.0, 0, 12, 3)),
    # Server 0 closes with w0 at 1, 3, 5; server 1 with w1 at 2, 4, 6, for which w0 waits 1 each time. w1 is late three
    # times at server 0, each time by one round: goes on as usual. 5.5 w2:0 is late at both, V=3 and V=2: goes on with 2
    # (4 s). 9.5 w2:2 is late at both, V=3 and V=3: done.
    "drop:1 and drop:2 of 3": (
        ((1.0,) * 3, (2.0,) * 3, (5.5, 99.0, 4.0)),
        [("drop", 1), ("drop", 2)],
        "lazy",
        Figures(9.5, 3, 3.0, 7, 9, 3),
    ),
}


def simulator(rows: tuple[tuple[float, ...], ...], models: list[Model], release: str) -> Figures:
    sync = tuple(PARTS[name](*values) for name, *values in models)
    mode, rule = settle_mode(None, None, sync)
    strategy = ServerStrategy(sync, Release(release), mode, rule)
    outcome = World(Scenario(Cluster(len(rows), Trace(rows)), strategy, len(rows[0])), MadeUp(1_000, Draw(0))).run()
    return Figures(
        outcome.virtual_seconds,
        outcome.delayed_pulls,
        outcome.waiting_seconds,
        outcome.dropped_updates,
        outcome.updates,
        outcome.train_progress,
    )


@pytest.mark.parametrize("run", [simulate, simulator], ids=["reference", "simulator"])
@pytest.mark.parametrize("case", CASES)
def test_by_hand(case: str, run: Any) -> None:
    rows, models, release, expected = CASES[case]
    assert run(rows, models, release) == expected
