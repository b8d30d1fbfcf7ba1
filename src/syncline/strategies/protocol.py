"""What a strategy is: which nodes a run has, who talks to whom, and which settings there are.

Simulator, engines and the PyTorch adapter know this class, and no strategy by name. A strategy of your own derives from
it: a frozen dataclass whose fields are its settings, with `trainer` and, if it has servers, `servers` and `keeper`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, get_type_hints

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import BUCKET_VALUES, VALUE_BYTES, Bucket, Layout, Payload, Values, Weigh, Within, buckets, within
from syncline.messages import Edges, Holders, Mesh, Message, NodeId, Topology, View, server_id, worker_id
from syncline.nodes.membership import Membership
from syncline.nodes.meter import Meter, StepMeter
from syncline.nodes.protocol import Keeper, Trainer, ViewMaker
from syncline.parts import text, word_of
from syncline.spec import value_of
from syncline.strategies.mode import Mode


@dataclass(frozen=True)
class Job:
    """One model that is trained, as its nodes need to know it in every engine."""

    layout: Layout
    draw: Draw
    finite: bool = False
    """Workers refuse to send NaN and infinity."""
    within: Within = within
    """Where a piece of a bucket lies in its arrays."""
    first: Mapping[Bucket, Values] | None = None
    """What all workers hold at the start without a message."""
    weigh: Weigh | None = None
    """How many bytes a bucket's update and its parameters take on the wire; None: as the codecs say."""
    remote: bool = False
    """Messages come from other processes: they may be lost, and payloads are checked before they are believed."""


class Strategy:
    """The base of all strategies."""

    kind: ClassVar[str] = ""
    """What it is called in settings; empty: the dotted path of its class."""
    messages: ClassVar[tuple[type[Message], ...]] = ()
    """Messages of its own, beside those that every process understands."""
    defaults: ClassVar[Mapping[str, str]] = {}
    """What its settings are if nobody says, as text."""
    takes_joiners: ClassVar[bool] = False
    """Can workers join a run that is under way?"""
    moves_servers: ClassVar[bool] = False
    """Can servers come and go while it runs? Then it has `sync`, one model per server, and `release`."""

    def __str__(self) -> str:
        return text(self, self.name())

    @classmethod
    def name(cls) -> str:
        return cls.kind or f"{cls.__module__}.{cls.__qualname__}"

    # What it is.

    @property
    def title(self) -> str:
        """What a picture of its run is headed with."""
        return str(self)

    @property
    def mode(self) -> Mode:
        return Mode.CHANGES

    @property
    def servers(self) -> int:
        """How many processes beside the workers hold parameters."""
        return 0

    @property
    def peers(self) -> bool:
        """Do workers talk to each other?"""
        return self.servers == 0

    @property
    def keeps(self) -> bool:
        """Do servers hold the parameters? Else they live in the workers."""
        return self.servers > 0

    @property
    def adds_own_changes(self) -> bool:
        """Can an update be answered without parameters, so that a worker's own change is added to what it holds?"""
        return self.servers == 0

    @property
    def synchronous(self) -> bool:
        """Does every worker wait for every other worker in every iteration?"""
        return False

    @property
    def learning_rate(self) -> float:
        """That of the servers' rule, if it has one."""
        return 1.0

    @property
    def moved_arrays(self) -> int:
        """How many arrays of its own size a bucket has when it moves, beside the updates that wait in it."""
        return 1 + len(self.memory_types)

    @property
    def memory_types(self) -> Mapping[str, str]:
        """The arrays that the servers' rule keeps of a bucket from one update to the next: their names and types."""
        return {}

    @property
    def remembers(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.memory_types)

    @property
    def bucket_values(self) -> int:
        """How many values a bucket has at most."""
        return BUCKET_VALUES

    def check(self, workers: int) -> None:
        """`UsageError` for what cannot work with so many workers, before anything runs."""

    # Settings.

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """The settings that it has."""
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]

    @classmethod
    def superseded(cls, words: Mapping[str, str]) -> frozenset[str]:  # noqa: ARG003
        """The settings of weaker origin that these settings contradict, without naming them."""
        return frozenset()

    @classmethod
    def setting_types(cls) -> dict[str, Any]:
        """The type of each setting in an experiment file."""
        hints = get_type_hints(cls)
        return {key: hints[key] if hints.get(key) in (int, float, bool) else str for key in cls.settings()}

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Self:
        """The strategy that these settings describe; what is not there is as usual."""
        known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
        return cls(**{key: value_of(word, known[key], key) for key, word in words.items() if key in known})

    def words(self) -> dict[str, str]:
        """Its settings as text: `of(words())` is the same strategy."""
        return {field.name: word_of(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]

    def with_servers(self, count: int | None) -> Self:
        """The same with so many servers, if it has servers at all; None: as many as it has by itself."""
        return self

    def changed(self, settings: Mapping[str, object], workers: int) -> Self:
        """The same with these settings, parts or text, changed while it runs; `UsageError` if that cannot be."""
        raise UsageError(next(iter(settings), "settings"), f"strategy {self.name()!r} cannot change while it runs")

    # Nodes.

    def topology(self, job: Job, servers: Sequence[int]) -> Topology:
        """Who holds what, or who talks to whom, at the start; `servers`: the numbers of those that are there."""
        return Mesh()

    def buckets(self, layout: Layout, topology: Topology) -> tuple[Bucket, ...]:
        """The whole model in buckets, in order."""
        if isinstance(topology, tuple):
            return tuple(sorted(bucket for held in topology for bucket in held))
        return buckets(layout, [Bucket(0, layout.size)], self.bucket_values)

    def neighbours(self, me: NodeId, view: View) -> frozenset[NodeId]:
        """Whom this node talks to in a view, beside the coordinator."""
        return neighbours_in(view, me)

    def replacing(self, layout: Layout, held: Holders, servers: Collection[int]) -> Holders:
        """Which buckets each of these servers is to hold, given who holds which now."""
        raise UsageError("server", f"the servers of strategy {self.name()!r} neither come nor go")

    def coordinator(self, job: Job, view: View) -> ViewMaker:
        """The node that makes views."""
        return Membership(view)

    def trainer(self, worker: int, incarnation: int, job: Job, view: View) -> Trainer:
        """The node of a worker."""
        raise NotImplementedError(f"strategy {self.name()!r} has no node for workers")

    def keeper(self, server: int, job: Job, view: View, pieces: Mapping[Bucket, Values]) -> Keeper:
        """The node of a server; `pieces`: its first parameters, written in place."""
        raise NotImplementedError(f"strategy {self.name()!r} has no node for servers")

    def meter(self, spans: bool = False) -> Meter:
        """What its runs are judged by."""
        return StepMeter(spans)

    # What the simulator asks.

    def plain(self) -> Self:
        """The same without codecs, for made-up updates, of which only the sizes count."""
        return self

    def wire_bytes(self, layout: Layout, bucket: Bucket) -> tuple[int, int]:
        """The bytes of a bucket's update and of its parameters on the wire, at most."""
        return bucket.size * VALUE_BYTES, bucket.size * VALUE_BYTES

    def message_bytes(self, layout: Layout, message: Message, payload: Payload | None) -> int:
        """The bytes of a message's payload on the wire."""
        bucket = getattr(message, "bucket", None)
        if payload is None or bucket is None:
            return 0 if payload is None else payload.nbytes
        return getattr(message, "size", 0) or self.wire_bytes(layout, bucket)[0]


def neighbours_in(view: View, me: NodeId) -> frozenset[NodeId]:
    """Those whom a node talks to, as the topology says."""
    topology = view.topology
    workers = (worker_id(member.worker) for member in view.members)
    if isinstance(topology, Mesh):
        return frozenset(each for each in workers if each != me)
    if isinstance(topology, Edges):
        return frozenset(each for pair in topology.pairs if me in pair for each in pair if each != me)
    if me.role == "server":
        return frozenset(workers)
    return frozenset(server_id(number) for number, held in enumerate(topology) if held)
