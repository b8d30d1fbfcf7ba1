"""What the buckets of a tree node share: settings, the view, and the consistency that workers are promised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from syncline.codecs import Codec, Dense
from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import Layout
from syncline.messages import Attachment, Member, TreeMap, TreeMember, View
from syncline.nodes.protocol import Room, no_room
from syncline.units import MOST

EVENTUAL, SSP, APPROXIMATE, BSP = "eventual", "ssp", "approximate", "bsp"

Kind = Literal["eventual", "ssp", "approximate", "bsp"]


@dataclass(frozen=True, slots=True)
class Consistency:
    """When a node answers a worker.

    - `eventual`: at once
    - `ssp:S`: when no live worker is more than S iterations behind
    - `approximate:S`: when no replica with live workers lacks S or more of the updates that this one contains
    - `bsp`: when the replica contains exactly the rounds up to this one, of all
    """

    kind: Kind = "eventual"
    s: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.s}" if self.kind in (SSP, APPROXIMATE) else self.kind

    @classmethod
    def of(cls, text: str) -> Consistency:
        kind, colon, rest = text.strip().partition(":")
        option = "consistency"
        if kind not in (EVENTUAL, SSP, APPROXIMATE, BSP):
            raise UsageError(option, f"{text!r} is not one of eventual, ssp:S, approximate:S, bsp")
        if kind in (EVENTUAL, BSP):
            if colon:
                raise UsageError(option, f"{kind} has no number; write {kind!r}")
            return cls(kind)  # type: ignore[arg-type]
        if not rest.isdecimal() or not 1 <= int(rest) <= MOST:
            raise UsageError(option, f"{text!r}: S must be a whole number of at least 1, e.g. {kind}:3")
        return cls(kind, int(rest))  # type: ignore[arg-type]


@dataclass(frozen=True)
class TreeSettings:
    """The settings of all nodes of a run."""

    layout: Layout | None
    draw: Draw
    consistency: Consistency = field(default_factory=Consistency)
    period: float = 0.1
    """Seconds between two changes of a bucket over a link."""
    durable: bool = False
    """Whether only what checkpoint and copy contain is shown, sent on and acknowledged."""
    codec: Codec = Dense()
    patience: float | None = None
    """Seconds after which an unacknowledged message is sent again; None: never, because no messages are lost."""
    shared: bool = False
    """Whether a node can read the last checkpoint of one that is lost."""
    checkpoint: float | None = None
    """Seconds between two checkpoints, if the run is not durable; None: only when a node takes over updates."""
    divides: bool = True
    """Whether an update is divided by the number of live workers."""
    room: Room = no_room
    """Where the payloads of messages to other nodes can be written, so that they need not be copied."""


class TreeTerms:
    """The settings and the current view, as one node sees them."""

    __slots__ = ("attached", "holders", "incarnations", "me", "members", "place", "settings", "share", "tree", "view")

    def __init__(self, me: int, settings: TreeSettings, view: View) -> None:
        self.me = me
        self.settings = settings
        self.adopt(view)

    def adopt(self, view: View) -> None:
        tree = view.topology
        assert isinstance(tree, TreeMap), "a tree node needs a tree"
        self.view = view.view
        self.tree = tree
        self.members: dict[int, Member] = {each.worker: each for each in view.members}
        self.share = max(1, sum(each.first is not None for each in view.members))
        self.attached: dict[int, Attachment] = {each.worker: each for each in tree.workers}
        self.incarnations = {each.number: each.incarnation for each in (*tree.leaving, *tree.nodes)}
        self.holders = {origin: each.number for each in tree.nodes for origin in each.origins}
        """Which node holds the updates of each origin."""
        self.place: TreeMember | None = next((each for each in tree.nodes if each.number == self.me), None)
        """This node in the tree; None: it is leaving, or not a part of it."""

    def workers_of(self, node: int) -> list[Member]:
        """The live workers that a node serves."""
        attached = self.attached
        return [
            member for worker, member in self.members.items() if worker in attached and attached[worker].node == node
        ]
