"""The description of one experiment: everything that a run, on this network or in a simulator, has to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from benchmarks.cluster.models import Model, model

from syncline.errors import UsageError
from syncline.layout import VALUE_BYTES, Table
from syncline.sim.overlap import BACKWARD_PART, FORWARD_PART, Overlap


class System(StrEnum):
    """Who moves the updates."""

    SYNCLINE = "syncline"
    GLOO = "gloo"


@dataclass(frozen=True)
class Experiment:
    """One model on a number of hosts, each with one worker and one server (gloo: a worker), and one link."""

    model: str
    hosts: int = 4
    rate: float = 125e6
    """Bytes per second, of each link in each direction."""
    pause: float = 0.0
    """Seconds that a step's computation takes; 0: what models.py says."""
    system: System = System.SYNCLINE
    sync: str = "bsp"
    gate: str = "always"
    """What is worth sending."""
    placement: str = "elastic"
    codec: str = "dense"
    """Of updates."""
    reply_codec: str = "dense"
    """Of what comes back."""
    overlap: Overlap = Overlap.BACKWARD
    bucket: str = ""
    """The unit of transmission; empty: the engine's own choice."""

    @property
    def layers(self) -> Model:
        return model(self.model)

    @property
    def seconds(self) -> float:
        """Of a step's computation."""
        return self.pause or self.layers.seconds

    @property
    def pauses(self) -> tuple[tuple[str, float, float], ...]:
        """Of each table, first to last: its name, and its seconds of the forward and of the backward pass."""
        tables, shares = self.layers.layout.tables, self.layers.shares
        forward, backward = self.seconds * FORWARD_PART, self.seconds * BACKWARD_PART
        return tuple((t.name, forward * share, backward * share) for t, share in zip(tables, shares, strict=True))

    @property
    def period(self) -> int:
        """After so many steps they are alike again: with `cached:S`, one in S + 1 uses the network."""
        name, _, bound = self.gate.partition(":")
        return int(bound) + 1 if name == "cached" else 1

    @property
    def settings(self) -> dict[str, str]:
        """What Syncline is told."""
        words = {
            key: str(getattr(self, key)) for key in ("sync", "gate", "placement", "codec", "reply_codec", "bucket")
        }
        return {key: word for key, word in words.items() if word}

    @property
    def ring(self) -> float:
        """What a link must carry, each way, of every byte that all are to share: what others hold, there and back."""
        return 2 * (self.hosts - 1) / self.hosts

    @property
    def least_bytes(self) -> float:
        """What a host's link must carry, each way, for a dense bsp iteration."""
        return self.layers.layout.size * VALUE_BYTES * self.ring

    def slower(self, factor: float) -> Experiment:
        """The same with a `factor` times longer step and slower link: what is waited for keeps its proportions."""
        return replace(self, pause=self.seconds * factor, rate=self.rate / factor)


SMALL = "128KiB"
"""A bucket that a 1 Gbit link carries in about a millisecond."""

TOP = "topk:0.01"
"""The largest 1 % by magnitude."""

CASES: Mapping[str, Mapping[str, object]] = {
    "bsp-after": {"overlap": Overlap.NONE},
    "bsp": {},
    "bsp-forward": {"overlap": Overlap.FORWARD},
    "bsp-small": {"bucket": SMALL},
    "uniform": {"placement": "uniform"},
    "roundrobin": {"placement": "roundrobin"},
    "balanced": {"placement": "balanced"},
    "ssp": {"sync": "ssp:5"},
    "cached": {"sync": "ssp:5", "gate": "cached:5"},
    "topk": {"codec": TOP},
    "topk-both": {"codec": TOP, "reply_codec": TOP},
    "all": {"sync": "ssp:5", "gate": "cached:5", "codec": TOP, "reply_codec": TOP, "overlap": Overlap.FORWARD},
    "gloo-after": {"system": System.GLOO, "overlap": Overlap.NONE},
    "gloo": {"system": System.GLOO},
}
"""What is varied; the rest is as in `Experiment`: bsp, elastic, dense, overlap with the backward pass."""


def case(name: str, base: Experiment) -> Experiment:
    """The experiment of this name, on the model, hosts and links of `base`."""
    if name not in CASES:
        raise UsageError("--cases", f"{name!r} is none of {', '.join(CASES)}")
    return replace(base, **CASES[name])  # type: ignore[arg-type]


FIRST_BUCKET, NEXT_BUCKETS = 1 << 20, 25 << 20
"""Bytes of the buckets of PyTorch's DistributedDataParallel, at which one is closed."""


def ddp_buckets(tables: Sequence[Table]) -> list[list[str]]:
    """The names of the tables that are reduced together, in the order of the backward pass: last layers first."""
    limit, ends, held = FIRST_BUCKET, [0], 0
    order = list(reversed(tables))
    for number, table in enumerate(order, start=1):
        held += table.size * VALUE_BYTES
        if held >= limit or number == len(order):
            ends.append(number)
            limit, held = NEXT_BUCKETS, 0
    return [[table.name for table in order[start:stop]] for start, stop in pairwise(ends)]
