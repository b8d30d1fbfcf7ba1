"""A small model for whole runs in the simulator, whose final values depend on the order of all sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from syncline.layout import Bucket, Layout, Values
from syncline.rules import Rule
from syncline.sim import Outcome, Quality, Scenario, World
from syncline.sim.network import Links


class Rough:
    """A model whose updates depend on its parameters, with values whose sums depend on their order."""

    always_finite = True
    layout = Layout.of([("a", (7,)), ("b", (30,)), ("c", (1,)), ("d", (4, 5))])

    def __init__(self, optimizer: Rule) -> None:
        self.optimizer = optimizer
        self._buckets: Sequence[Bucket] = ()

    def start(self, buckets: Sequence[Bucket]) -> list[Values]:
        self._buckets = buckets
        whole = np.sin(np.arange(self.layout.size, dtype=np.float32))
        return [whole[bucket.start : bucket.stop].copy() for bucket in buckets]

    def gradient(self, pieces: Sequence[Values], worker: int, iteration: int) -> list[Values]:
        whole = np.concatenate(pieces)
        gradient = np.sin(whole * np.float32(7 + worker) + np.float32(iteration)) + np.roll(whole, 1) / np.float32(3)
        return [gradient[bucket.start : bucket.stop].copy() for bucket in self._buckets]

    def quality(self, pieces: Sequence[Values]) -> Quality | None:
        return None


def run(scenario: Scenario, optimizer: Rule) -> Outcome:
    return World(scenario, Rough(optimizer)).run()


seconds = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0]) | st.floats(0, 2, allow_subnormal=False)
links = st.none() | st.builds(Links, st.sampled_from([100.0, 1e4, 1e6]), st.sampled_from([0.0, 0.1]))
