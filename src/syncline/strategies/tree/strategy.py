"""The tree strategy (parameter sharing): every node serves some workers, and neighbours exchange changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from syncline.codecs import Codec, Dense
from syncline.effects import Reshape, Save
from syncline.errors import UsageError
from syncline.layout import VALUE_BYTES, Bucket, Layout, Payload, Values
from syncline.messages import Message, TreeMap, View
from syncline.nodes.protocol import Keeper, ViewMaker
from syncline.nodes.server.meter import PullMeter
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.nodes.topologies import AUTO, SHAPES, Edge, best_fan_out, edges_of, fan, listed, read_edges
from syncline.nodes.tree.coordinator import TreeCoordinator, first_tree
from syncline.nodes.tree.messages import (
    MESSAGES,
    CopyBack,
    CopySum,
    OriginStates,
    RoundSum,
    SideSum,
    TakeOver,
    payload_type,
)
from syncline.nodes.tree.node import TreeNode
from syncline.nodes.tree.plans import TreePlan, merged
from syncline.nodes.tree.round_bucket import RoundBucket
from syncline.nodes.tree.tree_bucket import Checkpoint
from syncline.nodes.tree.tree_terms import Consistency, TreeSettings
from syncline.nodes.tree.watch import TreeWatch
from syncline.nodes.tree.worker import TreeWorker
from syncline.nodes.update_writer import bucket_codec
from syncline.parts import word_of
from syncline.spec import value_of
from syncline.strategies.node_changes import NewNode, NewTopology, NodeChange, NodeLeaves
from syncline.strategies.protocol import Job, Strategy
from syncline.strategies.tree.checks import REFUSED, check, check_folder
from syncline.units import seconds

CHECKPOINT_SECONDS = 10.0
"""Seconds between two checkpoints of a node, in real processes without `durable`."""


@dataclass(frozen=True)
class TreeStrategy(Strategy):
    """`topology`: who talks to whom; `period`: seconds between two changes over a link."""

    kind: ClassVar[str] = "tree"
    messages: ClassVar[tuple[type[Message], ...]] = MESSAGES
    survives_servers: ClassVar[bool] = True
    takes_servers: ClassVar[bool] = True
    saved_state: ClassVar[Any] = OriginStates
    settles: ClassVar[bool] = True
    timed: ClassVar[str] = "nodes send to each other once per period"
    applied: ClassVar[frozenset[type[Message]]] = frozenset({SideSum, RoundSum})
    placed: ClassVar[Mapping[type[Message], int]] = {
        SideSum: VALUE_BYTES,
        RoundSum: VALUE_BYTES,
        CopySum: 2 * VALUE_BYTES,
    }
    rounding: ClassVar[float] = 1e-5
    patience: ClassVar[float] = 5.0
    """Seconds after which a node of a real process sends an unacknowledged message again: a connection may have ended.
    Without such a loss nothing waits for that."""
    defaults: ClassVar[Mapping[str, str]] = {
        "topology": "chain",
        "period": "0.01",
        "workers_per_node": "1",
        "consistency": "eventual",
        "durable": "false",
        "copies": "true",
        "codec": "dense",
    }
    takes_joiners: ClassVar[bool] = True
    refuses: ClassVar[Mapping[str, str]] = REFUSED

    shape: str = "chain"
    """The setting `topology`: chain, star, twin, tree:D, a list of edges (0-1 1-2), or a file with an edge per line."""
    period: float = 0.01
    workers_per_node: int = 1
    consistency: Consistency = Consistency()
    durable: bool = False
    """Whether a node shows, sends on and acknowledges only what its checkpoint contains."""
    copies: bool = True
    """Whether a neighbour keeps a copy of what a node holds, in case that the node is lost for good."""
    folder: str = ""
    """A directory that all hosts share: nodes write their checkpoints there, so nobody needs to keep copies."""
    codec: Codec = Dense()
    """For the changes between nodes."""
    nodes: int = 0
    """The number of nodes; 0: as many as the workers need."""
    workers: int = 0
    """The number of workers at the start; 0: not known yet."""

    def __str__(self) -> str:
        said = [f"{key}={word}" for key, word in self.words().items() if word != self.defaults[key]]
        return ":".join(filter(None, (self.kind, ",".join(said))))

    @property
    def announces(self) -> bool:
        return True

    @property
    def servers(self) -> int:
        return self.nodes

    @property
    def peers(self) -> bool:
        return False

    @property
    def shared_folder(self) -> str:
        return self.folder

    @property
    def keeps(self) -> bool:
        return True

    @property
    def adds_own_changes(self) -> bool:
        return False

    def check(self, workers: int) -> None:
        check(self, workers)

    def costs(self, workers: int) -> tuple[str, ...]:
        return (
            "each node keeps its workers' updates and two sums per neighbour in double precision: "
            "4 x the model, and 6 x the model for each neighbour"
            + (", and up to 6 x the model for copies" if self.copies and not self.folder else ""),
        )

    # Settings.

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        return tuple(cls.defaults)

    @classmethod
    def setting_types(cls) -> dict[str, Any]:
        numbers = {"period": float | str, "workers_per_node": int, "durable": bool, "copies": bool | str}
        return {key: numbers.get(key, str) for key in cls.defaults}

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Self:
        said = {"shape" if key == "topology" else key: word for key, word in words.items() if key in cls.defaults}
        known = {field.name: field for field in fields(cls)}
        found: dict[str, Any] = {}
        for key, word in said.items():
            match key:
                case "shape":
                    found[key] = _read_shape(word)
                case "period":
                    found[key] = _read_period(word)
                case "consistency":
                    found[key] = Consistency.of(word)
                case "copies":
                    found.update(_read_copies(word))
                case _:
                    found[key] = value_of(word, known[key], key)
        return cls(**found)

    def words(self) -> dict[str, str]:
        return {
            "topology": self.shape,
            "period": f"{self.period:g}",
            "workers_per_node": str(self.workers_per_node),
            "consistency": str(self.consistency),
            "durable": str(self.durable).lower(),
            "copies": self.shared_folder or str(self.copies).lower(),
            "codec": word_of(self.codec),
        }

    def with_servers(self, count: int | None) -> Self:
        return self if count is None else replace(self, nodes=count)

    def check_real(self) -> None:
        if self.shape == AUTO:
            problem = "auto works only in the simulator so far: real runs do not measure the delay of a message"
            raise UsageError("topology", f"{problem}; name a topology, for example tree:2")
        if self.folder:
            check_folder(self.folder)

    def fitted(self, workers: int) -> Self:
        nodes = self.nodes or ceil(workers / max(1, self.workers_per_node))
        return replace(self, nodes=nodes, workers=workers)

    def changed(self, settings: Mapping[str, object], workers: int) -> Self:
        problem = "strategy 'tree' can change only its topology during a run"
        raise UsageError(next(iter(settings), "topology"), f"{problem}; use session.reshape or --topology")

    # Nodes.

    def topology(self, job: Job, servers: Sequence[int]) -> TreeMap:
        if not servers:
            raise UsageError("strategy", "'tree' needs servers, and this run has none; add --servers")
        if list(servers) != list(range(len(servers))):
            raise UsageError("servers", f"a node has left before the run began; the nodes are {listed(servers)}")
        workers = job.workers or range(self.workers)
        return first_tree(self._edges(job, len(servers)), len(servers), workers, self._has_copies(job))

    def _edges(self, job: Job, nodes: int) -> tuple[Edge, ...]:
        if self.shape != AUTO:
            return edges_of(self.shape, nodes)
        if job.hop_seconds is None:
            problem = "auto needs the delay of a message and the cost of an update, which were not measured"
            raise UsageError("topology", f"{problem}; name a topology, e.g. tree:2")
        return fan(nodes, best_fan_out(nodes, job.hop_seconds, job.update_seconds))

    def _has_copies(self, job: Job) -> bool:
        """Whether nodes keep copies for each other; a simulation does without if no node fails."""
        return (job.remote or job.servers_fail) and self.copies and not self.folder

    def held_by(self, server: int, view: View, buckets: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
        return buckets

    def coordinator(self, job: Job, view: View) -> TreeCoordinator:
        return TreeCoordinator(view, self._has_copies(job), self.shape, bool(self.folder))

    def trainer(self, worker: int, incarnation: int, job: Job, view: View) -> TreeWorker:
        parts = WorkerParts(
            job.layout,
            job.draw,
            finite=job.finite,
            within=job.within,
            of_changes=True,
            first=job.first,
            weigh=job.weigh,
        )
        return TreeWorker(worker, incarnation, parts, view, self.buckets(job.layout, view.topology))

    def keeper(self, server: int, job: Job, view: View, pieces: Mapping[Bucket, Values]) -> TreeNode:
        return TreeNode(server, pieces, self._node_settings(job, pieces), view, fresh=True)

    def restored(
        self, server: int, job: Job, view: View, pieces: Mapping[Bucket, Values], saved: Mapping[Bucket, Save]
    ) -> TreeNode:
        found = {name: Checkpoint(save.state, save.payload) for name, save in saved.items() if save.payload is not None}
        return TreeNode(server, pieces, self._node_settings(job, pieces), view, fresh=False, checkpoint=found)

    def _node_settings(self, job: Job, pieces: Mapping[Bucket, Values]) -> TreeSettings:
        made_up = any(bucket.size != values.size for bucket, values in pieces.items())
        return TreeSettings(
            None if made_up else job.layout,
            job.draw,
            self.consistency,
            self.period,
            self.durable,
            self.codec,
            patience=self.patience if job.remote else None,
            shared=bool(self.folder),
            room=job.room,
            checkpoint=CHECKPOINT_SECONDS if (job.remote or job.servers_fail) and not self.durable else None,
        )

    def payload_type(self, message: Message, size: int) -> str:
        return payload_type(message, size)

    def reshaped(self, topology: str, view: View) -> TreePlan:
        tree = view.topology
        assert isinstance(tree, TreeMap), "the tree strategy has a tree"
        nodes = sorted(each.number for each in tree.nodes)
        if topology in SHAPES or topology.startswith("tree:"):
            edges = tuple((nodes[one], nodes[other]) for one, other in edges_of(topology, len(nodes)))
        else:
            edges = read_edges(topology)
        named = {node for edge in edges for node in edge}
        return TreePlan(edges, frozenset(named or nodes), shape=topology)

    def reshaping(self, coordinator: ViewMaker, change: NodeChange) -> Reshape:
        assert isinstance(coordinator, TreeCoordinator), "the tree strategy has made the coordinator's node"
        edges, nodes, new = coordinator.edges, coordinator.servers, coordinator.next_number
        if isinstance(change, NodeLeaves):
            return Reshape(coordinator.without(change.node))
        if isinstance(change, NewTopology):
            plan = self.reshaped(change.topology, coordinator.view)
            coordinator.check(plan)
            return Reshape(plan)
        if isinstance(change, NewNode):
            plan = coordinator.with_leaf(new, change.beside)
        else:
            new = change.into if change.into is not None else new
            plan = merged(edges, nodes, change.nodes, new)
        if new not in nodes:
            coordinator.ready(new)
        return Reshape(plan)

    def watch(self, coordinator: ViewMaker, keepers: Callable[[], Sequence[Keeper]]) -> TreeWatch:
        assert isinstance(coordinator, TreeCoordinator), "the tree strategy has made the coordinator's node"
        return TreeWatch(coordinator, keepers, self.period)

    def meter(self, spans: bool = False) -> PullMeter:
        return PullMeter(spans)

    def model(self, keepers: Sequence[Keeper]) -> Mapping[Bucket, Values]:
        """The oracle: the first parameters plus all updates of all workers; with rounds, the newest replica."""
        nodes = [each for each in keepers if isinstance(each, TreeNode)]
        found = {}
        for name, bucket in nodes[0].buckets.items():
            replicas = [each for each in (node.buckets[name] for node in nodes) if isinstance(each, RoundBucket)]
            if replicas:
                found[name] = max(replicas, key=lambda each: each.closed).shown()
                continue
            total = bucket.first.astype(np.float64)
            held = [node.buckets[name].held for node in nodes]
            given = {origin: updates for each in held for origin, updates in each.gifts.items()}
            for updates in {**given, **{key: one for each in held for key, one in each.by_origin.items()}}.values():
                total += updates.values
            found[name] = total.astype(np.float32)
        return found

    # For the simulator.

    def plain(self) -> Self:
        return replace(self, codec=Dense())

    def message_bytes(self, layout: Layout, message: Message, payload: Payload | None) -> int:
        if isinstance(message, SideSum) and payload is not None and not message.size:
            return bucket_codec(self.codec, layout, message.bucket).size(message.bucket.size)
        if isinstance(message, TakeOver | CopySum | CopyBack) and payload is not None:
            return 2 * VALUE_BYTES * message.bucket.size
        if isinstance(message, RoundSum) and payload is not None:
            return (2 if message.kind == "replica" else 1) * VALUE_BYTES * message.bucket.size
        return super().message_bytes(layout, message, payload)


def _read_shape(text: str) -> str:
    """The text of a topology; the edges in a file are read now, so that other hosts do not need the file."""
    if text in SHAPES or text.startswith("tree:") or text == AUTO:
        return text
    path = Path(text)
    try:
        source = path.read_text() if path.is_file() else text
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("topology", f"cannot read {text}: {error}") from None
    return " ".join(f"{one}-{other}" for one, other in read_edges(source))


def _read_copies(text: str) -> dict[str, Any]:
    """The setting `copies`: true, false, or a directory."""
    if text.lower() in ("true", "false"):
        return {"copies": text.lower() == "true"}
    if not Path(text).is_absolute():
        problem = "is neither true nor false, nor the absolute path of a directory that all hosts share"
        raise UsageError("copies", f"{text!r} {problem}, e.g. /shared/copies")
    return {"copies": True, "folder": text}


def _read_period(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return seconds(text, "period")
