"""The base class of strategies. A strategy defines a run's nodes, its topology and its settings.

The simulator, the engines and the PyTorch adapter use only this class and know no strategy by name. To write your own
strategy, derive a frozen dataclass from it. The fields are the settings. Implement `trainer` and, if the strategy has
servers, `servers` and `keeper`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, get_type_hints

from syncline.draw import Draw
from syncline.effects import Reshape, Save
from syncline.errors import PeerError, UsageError
from syncline.layout import BUCKET_VALUES, VALUE_BYTES, Bucket, Layout, Payload, Values, Weigh, Within, buckets, within
from syncline.messages import Holders, Mesh, Message, NodeId, Push, Topology, TreeMap, View, server_id, worker_id
from syncline.nodes.membership import Membership
from syncline.nodes.meter import Meter, StepMeter
from syncline.nodes.protocol import Keeper, Room, ServerWatch, Trainer, ViewMaker, no_room
from syncline.parts import text, word_of
from syncline.spec import value_of
from syncline.strategies.mode import Mode
from syncline.strategies.node_changes import NodeChange


@dataclass(frozen=True)
class Job:
    """One model that is trained: what its nodes need to know, in every engine."""

    layout: Layout
    draw: Draw
    finite: bool = False
    """Whether workers refuse to send NaN and infinity."""
    within: Within = within
    """Gives the place of a piece in the arrays of its bucket."""
    first: Mapping[Bucket, Values] | None = None
    """The parameters that all workers have at the start without a message."""
    weigh: Weigh | None = None
    """Gives the bytes that a bucket's update and its parameters take on the wire; None: use the sizes of the codecs."""
    remote: bool = False
    """Whether messages come from other processes: they may be lost, and their payloads are checked before use."""
    own_workers: int = 0
    """Workers with a lower number are the run's own, which check their updates themselves."""
    hop_seconds: float | None = None
    """The delay of a small message between two servers; None: it was not measured."""
    update_seconds: float = 0.0
    """What an update of the whole model costs a server: the time on its link, and to add it."""
    servers_fail: bool = False
    """Whether servers may crash or be lost, although messages come from the same process: in a simulation."""
    room: Room = no_room
    """Where nodes of servers can write payloads of messages to other servers, so that they need not be copied."""
    workers: tuple[int, ...] = ()
    """The numbers of the workers that start the run; empty: from 0 on."""


class Strategy:
    """The base class of all strategies."""

    kind: ClassVar[str] = ""
    """The name of the strategy in settings; empty: the dotted path of its class."""
    messages: ClassVar[tuple[type[Message], ...]] = ()
    """The strategy's own messages, in addition to those that every process understands."""
    defaults: ClassVar[Mapping[str, str]] = {}
    """The default settings, as text."""
    takes_joiners: ClassVar[bool] = False
    """Whether workers can join a run that is already training."""
    least_workers: ClassVar[int] = 1
    """With how many workers a run must start, unless others can join it."""
    free_running: ClassVar[bool] = False
    """Whether workers send each other updates at their own pace. Their nodes are told `Idle` when a link is free, and
    `Finish` after the last step, which needs no answer. What is still owed then is exchanged after the run."""
    timed: ClassVar[str] = ""
    """Why a run always needs a clock, so that it cannot be simulated with a dispatch; empty: it does not."""
    refuses: ClassVar[Mapping[str, str]] = {}
    """Settings of other strategies that make no sense here, each with the reason and what to do instead."""
    applied: ClassVar[frozenset[type[Message]]] = frozenset()
    """The messages, besides pushes, that cost a server time to apply."""
    placed: ClassVar[Mapping[type[Message], int]] = {}
    """Messages between servers, each with a `bucket`, and the bytes of their payload per value. Servers on one host
    send them through shared memory. A node must not change the payload after it has sent it, and a node that receives
    one must copy it if it needs it after the event."""
    rounding: ClassVar[float] = 0.0
    """How much the final replicas may differ, relative to the largest value of the model."""
    survives_servers: ClassVar[bool] = False
    """Whether a run goes on without a server that has died. The coordinator's node is told `Restarted` or `ServerLost`,
    and workers send again what that server has not answered."""
    continues: ClassVar[bool] = False
    """Whether a run that goes on from a checkpoint also continues the numbers of its iterations."""
    saved_state: ClassVar[Any] = None
    """The type of the state in the checkpoints that the nodes of servers write (`Save`); None: they write none."""
    restores_servers: ClassVar[bool] = False
    """Whether what a dead server held is restored from what the workers have read. Then the nodes of workers and the
    coordinator are told that it is dead, and a server that starts again begins without anything (`restored`)."""
    settles: ClassVar[bool] = False
    """Whether servers still exchange updates after the last worker has left. The run ends when all are at rest."""
    moves_servers: ClassVar[bool] = False
    """Whether servers can be added or removed in a run. If so, it has `sync` (one model per server) and `release`."""

    takes_servers: ClassVar[bool] = False
    """Whether servers can join that hold the whole model. Such a server gets the initial parameters from another one;
    its node is `restored` without checkpoints, and waits for the view that names it. Nodes must not change the arrays
    that they get as their first parameters."""

    def __str__(self) -> str:
        return text(self, self.name())

    @classmethod
    def name(cls) -> str:
        return cls.kind or f"{cls.__module__}.{cls.__qualname__}"

    # Properties.

    @property
    def title(self) -> str:
        """The title of a plot of the run."""
        return str(self)

    @property
    def mode(self) -> Mode:
        return Mode.CHANGES

    @property
    def servers(self) -> int:
        """The number of servers."""
        return 0

    @property
    def peers(self) -> bool:
        """Whether workers talk to each other."""
        return self.servers == 0

    @property
    def keeps(self) -> bool:
        """Whether servers hold the parameters; otherwise only the workers hold them."""
        return self.servers > 0

    @property
    def adds_own_changes(self) -> bool:
        """Whether an answer can come without parameters, so that a worker adds its own change to its parameters."""
        return self.servers == 0

    @property
    def announces(self) -> bool:
        """Whether the nodes of servers are told the first view when the run begins."""
        return False

    @property
    def has_backups(self) -> bool:
        """Whether another server takes over what a dead one held. The coordinator is then told of a death at once."""
        return False

    @property
    def pushes(self) -> tuple[type[Message], ...]:
        """The messages, besides pushes, that count as pushed bytes in a simulation."""
        return self.messages

    @property
    def synchronous(self) -> bool:
        """Whether every worker waits for every other worker in every iteration."""
        return False

    @property
    def learning_rate(self) -> float:
        """The learning rate of the servers' rule; 1.0 if the rule has none."""
        return 1.0

    @property
    def moved_arrays(self) -> int:
        """The number of bucket-sized arrays in a handover, without the kept updates."""
        return 1 + len(self.memory_types)

    @property
    def memory_types(self) -> Mapping[str, str]:
        """The names and types of the arrays in the memory that the servers' rule keeps for each bucket."""
        return {}

    @property
    def remembers(self) -> tuple[str, ...]:
        """The names of these arrays."""
        return tuple(self.memory_types)

    @property
    def reply_memory(self) -> tuple[str, ...]:
        """The names of the arrays that the servers' replies depend on, if a codec encodes them."""
        return ()

    @property
    def replicas_differ(self) -> bool:
        """Whether workers may have other parameters than the servers although they wait for every answer."""
        return False

    @property
    def shared_folder(self) -> str:
        """The directory on all hosts in which servers write their checkpoints; empty: one of their own host.

        If a server is lost, the nodes of others read what it has written there (`Load`).
        """
        return ""

    @property
    def bucket_values(self) -> int:
        """The largest number of values in a bucket."""
        return BUCKET_VALUES

    def check(self, workers: int) -> None:
        """Raise `UsageError` if the settings cannot work with this many workers. Called before anything runs."""

    def survives(self, servers: int, restarts: bool) -> bool:
        """Whether a run goes on if one of so many servers dies; `restarts`: its launcher can start it again."""
        return self.survives_servers

    def check_real(self) -> None:
        """Raise `UsageError` for settings that only the simulator has. Called before any process starts."""

    def costs(self, workers: int) -> tuple[str, ...]:
        """What the parts need besides the parameters, one line each, for `--dry-run`."""
        return ()

    # Settings.

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """The names of the strategy's settings."""
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]

    @classmethod
    def superseded(cls, words: Mapping[str, str]) -> frozenset[str]:  # noqa: ARG003
        """The settings from origins of lower priority that these settings override, although they do not name them."""
        return frozenset()

    @classmethod
    def setting_types(cls) -> dict[str, Any]:
        """The type of each setting in an experiment file."""
        hints = get_type_hints(cls)
        return {key: hints[key] if hints.get(key) in (int, float, bool) else str for key in cls.settings()}

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Self:
        """The strategy with these settings; the others keep their defaults."""
        known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
        return cls(**{key: value_of(word, known[key], key) for key, word in words.items() if key in known})

    def words(self) -> dict[str, str]:
        """The settings as text: `of(words())` returns an equal strategy."""
        return {field.name: word_of(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]

    def with_servers(self, count: int | None) -> Self:
        """The same strategy with this many servers, if it uses servers; None: leave the number as it is."""
        return self

    def fitted(self, workers: int) -> Self:
        """The same strategy for this many workers at the start, if it depends on them."""
        return self

    def changed(self, settings: Mapping[str, object], workers: int) -> Self:
        """The strategy after these settings (parts or text) change during a run; `UsageError` if they cannot change."""
        raise UsageError(
            next(iter(settings), "settings"), f"strategy {self.name()!r} has no settings that can change during a run"
        )

    # Nodes.

    def topology(self, job: Job, servers: Sequence[int]) -> Topology:
        """The topology at the start of a run with these server numbers."""
        return Mesh()

    def buckets(self, layout: Layout, topology: Topology) -> tuple[Bucket, ...]:
        """The buckets of the whole model, in order."""
        if isinstance(topology, tuple):
            return tuple(sorted(bucket for held in topology for bucket in held))
        return buckets(layout, [Bucket(0, layout.size)], self.bucket_values)

    def held_by(self, server: int, view: View, buckets: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
        """The buckets that a server holds; `buckets`: those of the whole model."""
        return view.holders[server] if server < len(view.holders) else ()

    def servers_of(self, view: View) -> frozenset[int]:
        """The servers that have a part in a view."""
        topology = view.topology
        if isinstance(topology, TreeMap):
            return frozenset(each.number for each in (*topology.nodes, *topology.leaving))
        return frozenset(number for number, held in enumerate(view.holders) if held)

    def holders_for(self, me: NodeId, view: View, buckets: tuple[Bucket, ...]) -> Holders:
        """Which server holds which buckets, as this node sees it; `buckets`: those of the whole model."""
        topology = view.topology
        if isinstance(topology, TreeMap):
            one = me.number if me.role == "server" else topology.node_of(me.number)
            return (*((),) * one, buckets)
        return view.holders

    def model(self, keepers: Sequence[Keeper]) -> Mapping[Bucket, Values]:
        """The parameters of the whole model, from the nodes of all servers."""
        return {name: params for keeper in keepers for name, params in keeper.params().items()}

    def neighbours(self, me: NodeId, view: View) -> frozenset[NodeId]:
        """The nodes that this node talks to in a view, without the coordinator."""
        return neighbours_in(view, me)

    def replacing(self, layout: Layout, held: Holders, servers: Collection[int]) -> Holders:
        """The next placement on these servers, given the current one."""
        raise UsageError("server", f"strategy {self.name()!r} cannot add or remove servers during a run")

    def coordinator(self, job: Job, view: View) -> ViewMaker:
        """The coordinator's node, which makes views."""
        return Membership(view)

    def trainer(self, worker: int, incarnation: int, job: Job, view: View) -> Trainer:
        """The node of a worker."""
        raise NotImplementedError(f"strategy {self.name()!r} does not implement trainer(), the node of a worker")

    def keeper(self, server: int, job: Job, view: View, pieces: Mapping[Bucket, Values]) -> Keeper:
        """The node of a server; `pieces`: its first parameters, which the node updates in place."""
        raise NotImplementedError(f"strategy {self.name()!r} does not implement keeper(), the node of a server")

    def restored(
        self, server: int, job: Job, view: View, pieces: Mapping[Bucket, Values], saved: Mapping[Bucket, Save]
    ) -> Keeper:
        """The node of a server that starts again: from its last checkpoints. It waits for its next view."""
        raise NotImplementedError(f"strategy {self.name()!r} does not implement restored(), a server that starts again")

    def payload_type(self, message: Message, size: int) -> str:
        """The type of the values in a payload of `size` bytes from server to server; `PeerError` if it is not valid."""
        raise PeerError(f"it sent {type(message).__name__} with a payload")

    @staticmethod
    def passed_on(message: Message) -> tuple[NodeId, Push] | None:  # noqa: ARG004  most strategies have none
        """The push, and its worker, whose update is the payload of this message between servers; None: it is another.

        A node must not answer the worker before the receiver has handled the message. So the receiver may read the
        update in the worker's memory.
        """
        return None

    def reshaped(self, topology: str, view: View) -> object:
        """The plan for the event `Reshape` that changes who talks to whom; `UsageError` if that is not possible."""
        raise UsageError("topology", f"strategy {self.name()!r} has no topology that can change during a run")

    def reshaping(self, coordinator: ViewMaker, change: NodeChange) -> Reshape:
        """The event that carries out a change of the servers; `UsageError` if that is not possible."""
        raise UsageError("topology", f"strategy {self.name()!r} has no topology that can change during a run")

    def watch(self, coordinator: ViewMaker, keepers: Callable[[], Sequence[Keeper]]) -> ServerWatch | None:
        """What a simulation measures of its servers beyond what it measures of all runs.

        `keepers`: the nodes of all live servers.
        """
        return None

    def meter(self, spans: bool = False) -> Meter:
        """The meter that computes the figures of a run."""
        return StepMeter(spans)

    # For the simulator.

    def plain(self) -> Self:
        """The same strategy without codecs, for made-up updates, of which only the sizes matter."""
        return self

    def wire_bytes(self, layout: Layout, bucket: Bucket) -> tuple[int, int]:
        """The largest number of bytes on the wire of a bucket's update and of its parameters."""
        return bucket.size * VALUE_BYTES, bucket.size * VALUE_BYTES

    def message_bytes(self, layout: Layout, message: Message, payload: Payload | None) -> int:
        """The number of bytes that a message's payload takes on the wire."""
        bucket = getattr(message, "bucket", None)
        if payload is None or bucket is None:
            return 0 if payload is None else payload.nbytes
        return getattr(message, "size", 0) or self.wire_bytes(layout, bucket)[0]


def neighbours_in(view: View, me: NodeId) -> frozenset[NodeId]:
    """The nodes that a node talks to, by the view's topology."""
    topology = view.topology
    workers = (worker_id(member.worker) for member in view.members)
    if isinstance(topology, Mesh):
        return frozenset(each for each in workers if each != me)
    if isinstance(topology, TreeMap):
        return frozenset(_neighbours_in_tree(topology, me))
    if me.role == "server":
        return frozenset(workers)
    return frozenset(server_id(number) for number, held in enumerate(topology) if held)


def _neighbours_in_tree(tree: TreeMap, me: NodeId) -> Iterator[NodeId]:
    if me.role == "worker":
        yield server_id(tree.node_of(me.number))
        return
    yield from (worker_id(each.worker) for each in tree.workers if each.node == me.number)
    for link in tree.links:
        if me.number in (link.one, link.other):
            yield server_id(link.one + link.other - me.number)
