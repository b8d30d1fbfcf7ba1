"""The complete description of one experiment, for a measurement or a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from benchmarks.cluster.models import Model, model

from syncline.errors import UsageError
from syncline.layout import VALUE_BYTES
from syncline.plan.ring import ddp_buckets as ddp_buckets
from syncline.sim.overlap import BACKWARD_PART, FORWARD_PART, Overlap

WARM, EXCHANGE_WARM = 2, 12
"""The number of warm-up steps of a run with servers or gloo, and of a run without servers."""


class System(StrEnum):
    """The system that exchanges the updates."""

    SYNCLINE = "syncline"
    GLOO = "gloo"


@dataclass(frozen=True)
class Experiment:
    """One model on some hosts, each with one link, one worker and one server (gloo, exchange: only a worker)."""

    model: str
    hosts: int = 4
    rate: float = 125e6
    """The rate of each link in each direction, in bytes per second."""
    latency: float = 0.0
    """Seconds that a frame takes from one host to another, in addition to the time on the links."""
    pause: float = 0.0
    """The computing time of a step in seconds; 0: the time in models.py."""
    system: System = System.SYNCLINE
    strategy: str = "server"
    """Syncline's strategy. With `exchange`, workers send each other parts of their updates. With `tree`, each host
    has a node."""
    topology: str = ""
    """With `tree`: who talks to whom."""
    partitions: str = "auto"
    """With `exchange`: the number of ranges into which the model is cut."""
    sync: str = "bsp"
    gate: str = "always"
    """When updates are sent and parameters fetched."""
    placement: str = ""
    """Which server holds what; empty: the engine chooses."""
    codec: str = "dense"
    """The codec of updates."""
    reply_codec: str = "dense"
    """The codec of the servers' replies."""
    overlap: Overlap = Overlap.BACKWARD
    bucket: str = ""
    """The size of a bucket; empty: the engine chooses."""
    window: str = ""
    """How much a worker may push ahead of each server's answers; empty: the engine chooses."""

    @property
    def layers(self) -> Model:
        return model(self.model)

    @property
    def seconds(self) -> float:
        """The computing time of a step."""
        return self.pause or self.layers.seconds

    @property
    def pauses(self) -> tuple[tuple[str, float, float], ...]:
        """(name, seconds of the forward pass, seconds of the backward pass) of each table, first to last."""
        tables, shares = self.layers.layout.tables, self.layers.shares
        forward, backward = self.seconds * FORWARD_PART, self.seconds * BACKWARD_PART
        return tuple((t.name, forward * share, backward * share) for t, share in zip(tables, shares, strict=True))

    @property
    def exchanges(self) -> bool:
        """Do workers send each other their updates, without servers?"""
        return self.strategy == "exchange"

    @property
    def is_tree(self) -> bool:
        """Does each host have a node of a tree?"""
        return self.strategy == "tree"

    @property
    def same_bits(self) -> bool:
        """Do all workers end with the same bits? Otherwise with sums of the same updates in different orders."""
        return self.strategy == "server"

    @property
    def servers(self) -> int:
        """The number of servers: one on each host, if the strategy has servers."""
        return 0 if self.exchanges else self.hosts

    @property
    def first_update(self) -> float:
        """The seconds from the start of the backward pass until the first update may be sent."""
        seconds = [backward for _, _, backward in self.pauses]
        return sum(seconds) if self.overlap is Overlap.NONE else seconds[-1]

    @property
    def lockstep(self) -> bool:
        """Does every step exchange all updates, so that no worker begins the next step before?"""
        return self.sync == "bsp" and self.gate == "always" and self.strategy == "server"

    @property
    def period(self) -> int:
        """The pattern of steps repeats after this many: with `cached:S`, one step in S + 1 uses the network."""
        name, _, bound = self.gate.partition(":")
        return int(bound) + 1 if name == "cached" else 1

    @property
    def warm(self) -> int:
        """The number of warm-up steps; with `auto`, the workers choose the number of ranges in the first ones."""
        return EXCHANGE_WARM if self.exchanges else WARM

    @property
    def settings(self) -> dict[str, str]:
        """The settings for Syncline."""
        if self.exchanges:
            return {"strategy": self.strategy, "partitions": self.partitions, "codec": self.codec}
        if self.is_tree:
            tree = {"topology": self.topology, "consistency": self.sync, "codec": self.codec, "copies": "false"}
            return {"strategy": self.strategy, **tree}
        keys = ("sync", "gate", "placement", "codec", "reply_codec", "bucket", "window")
        words = {key: str(getattr(self, key)) for key in keys}
        return {key: word for key, word in words.items() if word}

    @property
    def ring(self) -> float:
        """The bytes that a link must carry in each direction per byte of the model: the other hosts' part, twice."""
        return 2 * (self.hosts - 1) / self.hosts

    @property
    def least_bytes(self) -> float:
        """The bytes that a host's link must carry in each direction in an iteration of dense bsp."""
        return self.layers.layout.size * VALUE_BYTES * self.ring

    @property
    def least_step(self) -> float:
        """The seconds of a step of dense bsp without overlap, if nothing but computing and the links takes time."""
        return self.seconds + self.least_bytes / self.rate + 2 * self.latency

    def slower(self, factor: float) -> Experiment:
        """The same experiment with all times longer and links slower by `factor`, so that ratios stay the same."""
        return replace(self, pause=self.seconds * factor, rate=self.rate / factor, latency=self.latency * factor)


SMALL = "128KiB"
"""A 1 Gbit link transfers this bucket in about a millisecond."""

TOP = "topk:0.01"
"""The largest 1 % by magnitude."""

TREE = {"strategy": "tree", "sync": "ssp:5"}
"""Trees are compared with servers under the same sync model. Like servers, nodes keep no copies for each other."""

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
    "exchange": {"strategy": "exchange"},
    "all-to-all": {"strategy": "exchange", "partitions": "1"},
    "tree-star": {**TREE, "topology": "star"},
    "tree-chain": {**TREE, "topology": "chain"},
    "tree-2": {**TREE, "topology": "tree:2"},
    "gloo-after": {"system": System.GLOO, "overlap": Overlap.NONE},
    "gloo": {"system": System.GLOO},
}
"""The settings of each case that differ from the defaults of `Experiment`: bsp, elastic, dense, backward overlap."""


def case(name: str, base: Experiment) -> Experiment:
    """The experiment of this case, with the model, hosts and links of `base`."""
    if name not in CASES:
        raise UsageError("--cases", f"{name!r} is unknown; choose from: {', '.join(CASES)}")
    return replace(base, **CASES[name])  # type: ignore[arg-type]
