"""Predicts data parallelism with gloo (what a CPU user of PyTorch's DDP gets) by a formula.

The simulator does not implement gloo. Its ring sends 2 (n - 1) / n times each bucket over each link, in 2 (n - 1) turns
that each take one latency. Buckets are reduced one after another, each from the moment at which the backward pass has
computed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from syncline.layout import VALUE_BYTES, Layout, Table
from syncline.sim.overlap import BACKWARD_PART, FORWARD_PART

FIRST_BUCKET, NEXT_BUCKETS = 1 << 20, 25 << 20
"""The bucket sizes of PyTorch's DistributedDataParallel in bytes: of the first bucket, and of the others."""


def ddp_buckets(tables: Sequence[Table]) -> list[list[str]]:
    """The names of the tables in each bucket, in the order of the backward pass: last layers first."""
    limit, ends, held = FIRST_BUCKET, [0], 0
    order = list(reversed(tables))
    for number, table in enumerate(order, start=1):
        held += table.size * VALUE_BYTES
        if held >= limit or number == len(order):
            ends.append(number)
            limit, held = NEXT_BUCKETS, 0
    return [[table.name for table in order[start:stop]] for start, stop in pairwise(ends)]


def ring_factor(workers: int) -> float:
    """The bytes that a link carries in each direction per byte of the model."""
    return 2 * (workers - 1) / workers


def ring_step(
    layout: Layout,
    shares: Sequence[float],
    step: float,
    workers: int,
    bandwidth: float,
    latency: float,
    overlap: bool = True,
) -> float:
    """The seconds of an iteration.

    `shares`: each table's share of a pass. `step`: the seconds of computing. `bandwidth`: bytes of values per second.
    `overlap`: whether a bucket is reduced while the backward pass computes the next one.
    """
    size = {table.name: table.size * VALUE_BYTES for table in layout.tables}
    backward = {table.name: step * BACKWARD_PART * share for table, share in zip(layout.tables, shares, strict=True)}
    computed, free = 0.0, 0.0 if overlap else step * BACKWARD_PART
    turns = 2 * (workers - 1) * latency
    for names in ddp_buckets(layout.tables):
        computed += sum(backward[name] for name in names)
        seconds = sum(size[name] for name in names) * ring_factor(workers) / bandwidth
        free = max(free, computed) + seconds + turns
    return step * FORWARD_PART + free
