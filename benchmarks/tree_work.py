"""Measure the work on the values of a change over one link of a tree, and of a plain push, in one process.

    python benchmarks/tree_work.py [--values 1000000 ...] [--rounds 9]

It gives the processor time of each step, in milliseconds, so other programs disturb it less than `tree_link.py`, which
measures whole runs. It leaves out the messages and the time until another process runs.

- owe: the first node writes its worker's update where the second node can read it. In a run it does so when the worker
  hands in the update, before the change is due.
- send: the first node makes the message, with the place of the values in shared memory.
- add: the second node adds the values to its mirror, in double precision.
- push: the worker checks its update for NaN and infinity, and a server adds it.
"""

from __future__ import annotations

import argparse
from functools import partial
from statistics import median
from time import thread_time

import numpy as np

from syncline.codecs import Dense
from syncline.engines.net.shared_memory import LaneMemory
from syncline.engines.server.server_memory import ServerMemory
from syncline.layout import Bucket
from syncline.nodes.tree.link_end import LinkEnd
from syncline.nodes.tree.messages import SideHeard, SideSum
from syncline.nodes.tree.summand import add_to
from syncline.strategies.tree.strategy import TreeStrategy

BUCKET = 1 << 20
"""The values of a bucket in shared memory."""


def measured(values: int, rounds: int) -> dict[str, float]:
    """The median seconds of each step."""
    places = LaneMemory(-(-sum(TreeStrategy.placed.values()) * values // 8))
    ours, theirs = (ServerMemory(places, TreeStrategy.placed, values) for _ in range(2))
    names = [Bucket(start, min(start + BUCKET, values)) for start in range(0, values, BUCKET)]
    links = {name: LinkEnd(name, 1, (1, 0, 0), partial(ours.room, SideSum, name)) for name in names}
    for name, link in links.items():
        link.open_at_start(frozenset(), name.size)
    mirrors = {name: np.zeros(name.size) for name in names}
    update, params = np.ones(values, np.float32), np.zeros(values, np.float32)
    found: dict[str, list[float]] = {"owe": [], "send": [], "add": [], "push": []}
    for number in range(rounds + 1):
        times = [thread_time()]
        for name, link in links.items():
            link.owe(update[name.start : name.stop])
        times.append(thread_time())
        for link in links.values():
            link.write(0, ((0, number),), Dense(), lambda: np.random.default_rng(0))
            assert link.unheard is not None
            message, payload = link.unheard
            assert payload is not None
            assert ours.lay(message, payload)
        times.append(thread_time())
        for name in names:
            theirs.laid(4 * name.size)
            taken = theirs.take(SideSum(0, 1, 0, 0, name, number + 1, ()))
            assert taken is not None
            add_to([mirrors[name]], taken.view(np.float32))
        times.append(thread_time())
        assert np.isfinite(update).all()
        for name in names:
            part = params[name.start : name.stop]
            part += update[name.start : name.stop]
        times.append(thread_time())
        for name, link in links.items():
            link.heard(SideHeard(0, 1, 0, 0, name, number + 1))
            ours.lifted()
        for step, begun, ended in zip(found, times, times[1:], strict=False):
            found[step].append(ended - begun)
    assert all((mirror == rounds + 1).all() for mirror in mirrors.values())
    return {step: median(seconds[1:]) for step, seconds in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, nargs="+", default=[1_000_000, 5_000_000, 25_000_000])
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    for values in chosen.values:
        found = measured(values, chosen.rounds)
        steps = ", ".join(f"{step} {1000 * seconds:.2f} ms" for step, seconds in found.items())
        link = found["send"] + found["add"]
        print(f"{values:,} values: {steps}; (send + add) / push {link / found['push']:.2f}")


if __name__ == "__main__":
    main()
