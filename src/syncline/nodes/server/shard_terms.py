"""What the buckets of one shard have in common: the parts in force, and who lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import numpy as np

from syncline.codecs import Codec
from syncline.draw import Draw
from syncline.gates import REAPPLY, Always, Gate
from syncline.layout import Layout, Values, Within, within
from syncline.messages import Member, View
from syncline.nodes.server.kept_updates import Who
from syncline.rules import Rule, reported
from syncline.sync import Adaptive, Release, SyncModel, applies_at_close

WHOLE = np.array(1, np.float32)
"""Not divided."""

BLOCK = 1 << 15
"""Values that are worked on at a time: what a rule reads and writes of them stays in a core's cache."""


@dataclass(slots=True)
class ShardTerms:
    """Shared by reference, changed by the shard alone."""

    model: SyncModel
    rule: Rule
    codec: Codec
    draw: Draw
    release: Release = Release.LAZY
    view: int = 0
    members: dict[int, Member] = field(default_factory=dict)
    """The live members whose first iteration is named, by worker number."""
    present: frozenset[Who] = frozenset()
    """The same members, as (worker, incarnation)."""
    last_first: int = 0
    """The first iteration in which all of them take part."""
    share: Values = field(default_factory=lambda: WHOLE)
    """By how much an update is divided on arrival: a change by the number of those members, a gradient not at all."""
    within: Within = within
    """Where a piece of a bucket lies in its arrays."""
    layout: Layout | None = None
    """Of the model, for codecs that choose by table."""
    reply: Codec | None = None
    """How parameters are written, as changes; None: whole."""
    limit: float = inf
    """No round later than this one closes, for the sake of a joiner whose first iteration is not yet named."""

    adaptive: Adaptive | None = None
    """The model, if it adapts its bound."""

    work: Values = field(default_factory=lambda: np.empty(BLOCK, np.float32))
    """What the rule works in: a block at a time, so one is enough."""

    keeps: bool = True
    """The rule's: what it writes are parameters."""

    plain: bool = False
    """The codec's payloads are the values themselves, so that a piece of one is the payload of a piece."""

    gate: Gate = Always()
    """The workers' own: what it needs of a shard."""

    reports: str = ""
    """Of which array of the rule's memory the mean goes along with answers; nothing: none."""

    gated: bool = False
    """There is a gate, so that what it skips is counted."""

    reapplies: bool = False
    """The gate has the last update applied again where it skips one."""

    at_close: bool = False
    """The model keeps a round's updates and applies them together."""

    checks: bool = False
    """Updates come from other processes: what a codec has written is checked before it is read."""

    def __post_init__(self) -> None:
        self.keeps = self.rule.keeps
        self.gated = type(self.gate) is not Always
        self.reports = reported(self.rule) if self.gated else ""
        self.reapplies = getattr(self.gate, "on_skip", "") == REAPPLY
        self.plain = bool(getattr(self.codec, "plain", False))
        self.change(self.model, self.release)

    def adopt(self, view: View) -> None:
        """Put another membership in force."""
        self.view = view.view
        self.members = {member.worker: member for member in view.members if member.first is not None}
        self.present = frozenset((member.worker, member.incarnation) for member in self.members.values())
        self.last_first = max((member.first or 0 for member in self.members.values()), default=0)
        self.share = WHOLE if self.rule.of_gradients else np.array(len(self.members), np.float32)

    def change(self, model: SyncModel, release: Release | None) -> None:
        """Put another model in force, and another release unless it is None."""
        self.model = model
        self.release = release or self.release
        self.adaptive = model if isinstance(model, Adaptive) else None
        self.at_close = applies_at_close(model)
