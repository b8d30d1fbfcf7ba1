"""The ways to run a model that a plan compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil

from syncline.nodes.range_count import best_parts, load
from syncline.nodes.topologies import Edge, edges_of, neighbours_of
from syncline.plan.machines import Machines
from syncline.plan.model import PlannedModel
from syncline.sim.overlap import Overlap

SSP = "ssp:3"
CACHED = {"sync": "ssp:5", "gate": "cached:5"}
TOP = "topk:0.01"
HALF = "fp16"
LEAST_PERIOD = 0.01
"""The shortest period of a tree, in seconds."""


class Form(StrEnum):
    """Who talks to whom, and on which machines."""

    EXCHANGE = "exchange"
    SPLIT = "split"
    """Some machines are servers, and the others train."""
    COLOCATED = "co-located"
    """Every machine trains and holds a part of the model."""
    TREE = "tree"
    """Every machine trains and is a node of a tree, which holds the whole model."""
    RING = "ring"


@dataclass(frozen=True)
class Candidate:
    """One way to run the model."""

    form: Form
    words: Mapping[str, str] = field(default_factory=dict)
    """The settings that differ from the defaults, as on the command line."""
    servers: int = 0
    """Of a split: the number of machines that are servers."""
    overlap: Overlap = Overlap.NONE
    parts: int = 1
    """Of an exchange: the number of ranges. Of a tree: the iterations in a period."""
    hops: int = 0
    """Of a tree: the links between the two nodes that are farthest from each other."""

    @property
    def label(self) -> str:
        """A few words for a table."""
        if self.form is Form.RING:
            return "bsp with gloo's ring (DDP)"
        if self.form is Form.EXCHANGE:
            codec = f", {self.words['codec']}" if "codec" in self.words else ""
            tau = f", tau = {self.words['tau']}" if "tau" in self.words else ""
            return f"exchange, p = {self.parts}{tau}{codec}{' (all-to-all)' * (self.parts == 1)}"
        if self.form is Form.TREE:
            return f"tree, {self.words['topology']}, {self.words['consistency']}, period {self.words['period']} s"
        where = "co-located servers"
        if self.form is Form.SPLIT:
            where = f"{self.servers} server{'s' * (self.servers > 1)}"
        return ", ".join([where, *self._settings()])

    def _settings(self) -> list[str]:
        codecs = [self.words["codec"]] if "codec" in self.words else []
        gate = [self.words["gate"]] if "gate" in self.words else []
        mode = ["mode changes"] if self.words.get("mode") == "changes" else []
        return [self.words.get("sync", "bsp"), *mode, *gate, *codecs]

    @property
    def codec(self) -> str:
        return self.words.get("codec", "dense")

    @property
    def lossless(self) -> bool:
        """Is every value of every update sent as it is, and after every step?"""
        return self.codec == "dense" and "gate" not in self.words

    @property
    def joinable(self) -> bool:
        """Can machines join this run one after another? In mode `gradients` they cannot."""
        gradients = self.words.get("sync", "bsp") == "bsp" and "mode" not in self.words
        return self.form in (Form.EXCHANGE, Form.TREE) or (self.form is not Form.RING and not gradients)

    @property
    def cycle(self) -> int:
        """After how many iterations the pattern of messages repeats."""
        _, _, age = self.words.get("gate", "").partition(":")
        return int(age) + 1 if age else self.parts

    @property
    def staleness(self) -> int:
        """By how many iterations a worker may be ahead of the updates of another that it has."""
        if self.form is Form.EXCHANGE:
            return self.parts - 1 + int(self.words.get("tau", 0))
        if self.form is Form.TREE:  # an update waits for up to a period at every node, and then travels
            return self.hops * (self.parts + 1)
        _, _, bound = self.words.get("consistency", self.words.get("sync", "bsp")).partition(":")
        _, _, age = self.words.get("gate", "").partition(":")
        return int(bound or 0) + int(age or 0)


def partitions(machines: Machines, model_bytes: int, step: float, values: int) -> tuple[float, int]:
    """The load of the links without ranges, and p, the least number of ranges with which they keep up.

    Equation 3 of the Ako paper; the bandwidth is what TCP leaves of the link for values.
    """
    found = load(1 / step, model_bytes, machines.workers, machines.payload_rate)
    return found, best_parts(found, values)


def exchange(parts: int, **words: str) -> Candidate:
    """An exchange with this many ranges; `words`: its other settings."""
    return Candidate(Form.EXCHANGE, {"strategy": "exchange", "partitions": str(parts), **words}, parts=parts)


def tree(topology: str, machines: Machines, model: PlannedModel) -> Candidate:
    """A tree of this shape. Its period leaves the links half of their time.

    With a shorter one, links are always full. Then clocks wait behind updates, and how long they do decides the speed.
    Predictions of such trees were up to 23 % too fast (docs/cluster.md).
    """
    assert model.step is not None
    edges = edges_of(topology, machines.workers)
    most = max(map(len, neighbours_of(edges).values()), default=0)
    period = f"{max(model.step, 2 * most * model.size / machines.payload_rate, LEAST_PERIOD):.2g}"
    words = {"strategy": "tree", "topology": topology, "consistency": SSP, "period": period}
    return Candidate(Form.TREE, words, parts=ceil(float(period) / model.step), hops=_diameter(edges))


def _diameter(edges: Sequence[Edge]) -> int:
    """The links between the two nodes that are farthest from each other."""
    around = neighbours_of(edges)

    def farthest(start: int) -> tuple[int, int]:
        far, last, line = {start: 0}, start, [start]
        for last in line:
            fresh = [each for each in around.get(last, ()) if each not in far]
            far.update(dict.fromkeys(fresh, far[last] + 1))
            line += fresh
        return far[last], last

    return farthest(farthest(0)[1])[0]


def split(servers: int, model: PlannedModel, overlap: Overlap | None, sync: str = "") -> Candidate:
    """A run with this many servers on machines of their own."""
    words = {"sync": sync} if sync else {}
    return Candidate(Form.SPLIT, words, servers, overlap_of(model, words, overlap))


def colocated(model: PlannedModel, overlap: Overlap | None, **words: str) -> Candidate:
    """A run with a server on every machine that trains."""
    return Candidate(Form.COLOCATED, words, 0, overlap_of(model, words, overlap))


def overlap_of(model: PlannedModel, words: Mapping[str, str], wanted: Overlap | None) -> Overlap:
    """What overlaps: what the user says; otherwise what a PyTorch program or a recipe does with these settings.

    In mode `gradients`, the default under bsp, a bucket is sent during backward; in mode `changes`, in `step()`.
    """
    if wanted is not None:
        return wanted
    changes = words.get("mode") == "changes" or words.get("sync", "bsp") != "bsp"
    return Overlap.NONE if changes or model.recipe else Overlap.BACKWARD


def servers_worth_trying(model: PlannedModel, overlap: Overlap | None) -> list[Candidate]:
    """Sync models, a gate and codecs, with co-located servers."""
    changes = {"mode": "changes"}
    return [
        colocated(model, overlap),
        colocated(model, overlap, **changes),
        colocated(model, overlap, sync=SSP),
        colocated(model, overlap, **CACHED),
        colocated(model, overlap, **changes, codec=HALF, reply_codec=HALF),
        colocated(model, overlap, **changes, codec=TOP, reply_codec=TOP),
    ]
