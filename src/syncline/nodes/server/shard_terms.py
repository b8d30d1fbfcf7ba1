"""The state that all buckets of one shard share: the parts in force and the live members."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

import numpy as np

from syncline.codecs import Codec
from syncline.draw import Draw
from syncline.gates import REAPPLY, Always, Gate
from syncline.layout import Layout, Values, Within, within
from syncline.messages import Member, View
from syncline.nodes.server.kept_updates import Who
from syncline.rules import Need, Rule, needs_of, reported
from syncline.sync import Adaptive, Again, Release, SyncModel, applies_at_close, asks_again

WHOLE = np.array(1, np.float32)
"""The divisor of updates that are not divided."""

BLOCK = 1 << 15
"""The number of values in a block. The arrays that a rule reads and writes for one block fit in a core's cache."""


@dataclass(slots=True)
class ShardTerms:
    """Shared by reference with the buckets; only the shard changes it."""

    model: SyncModel
    rule: Rule
    codec: Codec
    draw: Draw
    release: Release = Release.LAZY
    view: int = 0
    members: dict[int, Member] = field(default_factory=dict)
    """The live members that have a first iteration, by worker number."""
    present: frozenset[Who] = frozenset()
    """The same members, as (worker, incarnation)."""
    start: int = 0
    """The first iteration of the run; above 0 if it goes on from a checkpoint. The version begins with it, too."""
    last_first: int = 0
    """The first iteration in which all of these members take part."""
    share: Values = field(default_factory=lambda: WHOLE)
    """The divisor of an update applied on arrival: the number of these members for a change, 1 for a gradient."""
    within: Within = within
    """Gives the place of a piece in the arrays of its bucket."""
    layout: Layout | None = None
    """The layout of the model, for codecs that choose by table."""
    reply: Codec | None = None
    """The codec for replies, which are then sent as changes; None: the parameters are sent complete."""
    reply_memory: tuple[str, ...] = ()
    """The names of the arrays that replies depend on, in checkpoints."""
    staleness: dict[int, int] = field(default_factory=dict)
    """How many applied updates had each staleness, counted per bucket."""
    limit: float = inf
    """No round after this one closes, while a joiner has no first iteration."""

    adaptive: Adaptive | None = None
    """The model, if it adapts its bound; otherwise None."""

    work: Values = field(default_factory=lambda: np.empty(BLOCK, np.float32))
    """Scratch memory for the rule. All blocks share it, because the rule is applied to one block at a time."""

    keeps: bool = True
    """Whether the rule's output is parameters (not the mean of a round)."""

    plain: bool = False
    """Whether the codec's payloads are the plain values, so that a slice of a payload is the payload of that piece."""

    gate: Gate = Always()
    """The workers' gate, because some gates need the shard's help."""

    reports: str = ""
    """The array in the rule's memory whose mean is sent with every answer; empty: none."""

    needs: frozenset[Need] = frozenset()
    """What the rule asks for besides the update."""

    copies: bool = False
    """Whether to keep a copy of the parameters that each worker has read, because the rule needs it."""

    gated: bool = False
    """Whether there is a gate, so that skipped updates and fetches are counted."""

    reapplies: bool = False
    """Whether a worker's last update is applied again where the gate skips one."""

    at_close: bool = False
    """Whether the model keeps the updates of a round and applies them together when it closes."""

    timers: int = 0
    """How many timers the buckets have set, so that each has a number of its own."""

    again: Again = None
    """When the model is asked again about a parked pull: at every push, also after so many seconds, or never."""

    checks: bool = False
    """Whether to check updates, because they come from other processes."""

    simple: bool = False
    """Whether updates are applied without checks, by a rule that needs nothing but them."""

    recovers: bool = False
    """Whether servers can be lost, so that answers say which updates they contain."""

    backed: bool = False
    """Whether servers have backups, so that a bucket may be handed over more than once."""

    own_workers: int = 0
    """Workers with a lower number are the run's own: they check for NaN and infinity themselves, before they send."""

    def __post_init__(self) -> None:
        self.keeps = self.rule.keeps
        self.needs = needs_of(self.rule)
        self.copies = Need.READ in self.needs
        self.simple = not self.needs and not (self.checks and self.keeps)
        self.gated = type(self.gate) is not Always
        self.reports = reported(self.rule) if self.gated else ""
        self.reapplies = getattr(self.gate, "on_skip", "") == REAPPLY
        self.plain = bool(getattr(self.codec, "plain", False))
        self.change(self.model, self.release)

    def adopt(self, view: View) -> None:
        """Take over the members of a new view."""
        self.view = view.view
        self.members = {member.worker: member for member in view.members if member.first is not None}
        self.present = frozenset((member.worker, member.incarnation) for member in self.members.values())
        self.last_first = max((member.first or 0 for member in self.members.values()), default=0)
        self.share = WHOLE if self.rule.of_gradients else np.array(len(self.members), np.float32)

    def guards(self, workers: Iterable[int]) -> bool:
        """Whether updates of these workers are checked for NaN and infinity, which would spoil the parameters.

        The mean of a round (not `keeps`) may contain them, as under DDP.
        """
        return self.checks and self.keeps and any(worker >= self.own_workers for worker in workers)

    def change(self, model: SyncModel, release: Release | None) -> None:
        """Change the sync model, and the release unless it is None."""
        self.model = model
        self.release = release or self.release
        self.adaptive = model if isinstance(model, Adaptive) else None
        self.at_close = applies_at_close(model)
        self.again = asks_again(model)
