"""The server strategy: its parts, its settings as text, and its nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from syncline import units
from syncline.codecs import Codec, Dense
from syncline.effects import Save
from syncline.errors import UsageError
from syncline.gates import Always, Gate
from syncline.layout import BUCKET_VALUES, VALUE_BYTES, Bucket, Layout, Payload, Values, buckets
from syncline.messages import BucketCopy, Handover, Holders, Message, NodeId, Push, View
from syncline.nodes.protocol import Keeper
from syncline.nodes.server.backed_coordinator import BackedCoordinator
from syncline.nodes.server.backed_shard import BackedShard
from syncline.nodes.server.coordinator import Coordinator
from syncline.nodes.server.log_messages import LOG_MESSAGES, LogEntry, LogStart, payload_type
from syncline.nodes.server.meter import PullMeter
from syncline.nodes.server.reply_codec import REPLY
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.server.worker import Worker
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.nodes.update_writer import bucket_codec, is_plain
from syncline.placement import Assign, Elastic, Placement, checked, replaced
from syncline.rules import COSTS, Mean, Need, Rule, needs_of
from syncline.spec import write
from syncline.strategies.mode import Mode
from syncline.strategies.protocol import Job, Strategy
from syncline.strategies.server.checks import check, check_model, check_tables
from syncline.strategies.server.modes import is_bsp, settle_mode
from syncline.strategies.server.values import (
    NEVER,
    UNLIMITED,
    check_backups,
    check_numbers,
    models_of,
    read_backups,
    read_bucket,
    read_patience,
    read_window,
    value_of,
)
from syncline.sync import Bsp, Release, SyncModel

MOST_SERVERS = 10_000


_TYPES: Mapping[str, Any] = {"sync": str | list[str], "backups": str | int}
"""The types of settings in experiment files, where they are not text."""

MEMORIES = ("residual", "velocity")
"""The arrays that the shipped codecs keep, for a codec that chooses others by table."""


@dataclass(frozen=True, init=False)
class ServerStrategy(Strategy):
    """The parts of a run of the server strategy; `sync` has one model per server."""

    kind: ClassVar[str] = "server"
    takes_joiners: ClassVar[bool] = True
    moves_servers: ClassVar[bool] = True
    survives_servers: ClassVar[bool] = True
    restores_servers: ClassVar[bool] = True
    continues: ClassVar[bool] = True
    messages: ClassVar[tuple[type[Message], ...]] = LOG_MESSAGES
    applied: ClassVar[frozenset[type[Message]]] = frozenset({LogStart, LogEntry})
    defaults: ClassVar[Mapping[str, str]] = {
        "sync": "bsp",
        "release": "lazy",
        "gate": "always",
        "codec": "dense",
        "reply_codec": "dense",
        "placement": "elastic",
        "bucket": "1MiB",
        "window": UNLIMITED,
        "patience": "30s",
        "backups": "0",
    }

    sync: tuple[SyncModel, ...] = (Bsp(),)
    release: Release = Release.LAZY
    mode: Mode = Mode.GRADIENTS
    rule: Rule = Mean()
    gate: Gate = Always()
    codec: Codec = Dense()
    placement: Placement = Elastic()
    bucket_values: int = BUCKET_VALUES
    reply_codec: Codec = Dense()
    patience: float | None = None
    """Seconds after which a worker sends an unanswered push again, if messages can be lost; None: never."""
    window: int | None = None
    """How many values a worker may push ahead of the answers of each server; None: as many as it has."""
    backups: int = 0
    """How many other servers follow everything that happens to a server, and take over if it dies: 0 or 1."""

    def __init__(
        self,
        sync: SyncModel | str | Sequence[SyncModel | str] = sync,
        release: Release | str = release,
        mode: Mode | str | None = None,
        rule: Rule | str | None = None,
        gate: Gate | str = gate,
        codec: Codec | str = codec,
        placement: Placement | Assign | str = placement,
        bucket_values: int = bucket_values,
        reply_codec: Codec | str = reply_codec,
        patience: float | None = patience,
        window: int | None = window,
        backups: int = backups,
    ) -> None:
        """Every part is an object or its text. A mode or a rule of None is chosen to fit the other settings."""
        models = models_of(sync)
        said = {"release": release, "gate": gate, "codec": codec, "placement": placement, "reply_codec": reply_codec}
        found = {key: value_of(key, value) for key, value in said.items()}
        named_mode = None if mode is None else value_of("mode", mode)
        named_rule = None if rule is None else value_of("rule", rule)
        found["mode"], found["rule"] = settle_mode(named_mode, named_rule, models)
        check_numbers(bucket_values, patience, window)
        check_backups(backups)
        found |= {"sync": models, "bucket_values": bucket_values, "patience": patience, "window": window}
        found["backups"] = backups
        for key, value in found.items():
            object.__setattr__(self, key, value)

    def __str__(self) -> str:
        usual = ServerStrategy().words()
        said = [f"{key}={word}" for key, word in self.words().items() if word != usual[key]]
        return ":".join(filter(None, (self.kind, ",".join(said))))

    @property
    def title(self) -> str:
        models = sorted({write(model) for model in self.sync})
        return f"{' and '.join(models)}, {self.release} release"

    @property
    def servers(self) -> int:
        return len(self.sync)

    @property
    def keeps(self) -> bool:
        return self.rule.keeps

    @property
    def adds_own_changes(self) -> bool:
        return self.mode is Mode.CHANGES and type(self.gate) is not Always

    @property
    def synchronous(self) -> bool:
        return all(is_bsp(model) for model in self.sync)

    @property
    def learning_rate(self) -> float:
        return float(getattr(self.rule, "lr", 1.0))

    @property
    def moved_arrays(self) -> int:
        return super().moved_arrays + 2 * (self.reply is not None and self.mode is Mode.GRADIENTS)

    @property
    def memory_types(self) -> Mapping[str, str]:
        return {name: array.dtype.str for name, array in self.rule.start(np.zeros(0, np.float32)).items()}

    @property
    def reply(self) -> Codec | None:
        """The codec for replies, which are then sent as changes; None: the parameters are sent complete."""
        return None if is_plain(self.reply_codec) else self.reply_codec

    @property
    def reply_memory(self) -> tuple[str, ...]:
        if self.reply is None:
            return ()
        if self.keeps:
            return (REPLY,)
        names = MEMORIES if hasattr(self.reply, "choose") else tuple(self.reply.memory(0))
        return tuple(f"{REPLY} {name}" for name in names)

    @property
    def replicas_differ(self) -> bool:
        return self.keeps and (type(self.gate) is not Always or self.reply is not None)

    def check(self, workers: int) -> None:
        check(self, workers)

    def survives(self, servers: int, restarts: bool) -> bool:
        """Where a worker adds its own changes to what it has read, it has no copy of that; then only a backup helps."""
        if self.adds_own_changes:
            return self.backups > 0 and servers > 1
        return servers > 1 or restarts

    @property
    def announces(self) -> bool:
        return self.has_backups

    @property
    def has_backups(self) -> bool:
        return self.backups > 0

    @property
    def pushes(self) -> tuple[type[Message], ...]:
        return ()

    def costs(self, workers: int) -> tuple[str, ...]:
        rule, arrays = write(self.rule), len(self.memory_types)
        found = [f"rule {rule} keeps its state on the servers: {arrays} x the model"] if arrays else []
        if self.backups:
            found.append(f"backups: the servers hold everything twice: {1 + arrays} x the model more")
        for need in sorted(needs_of(self.rule)):
            all_copies = f", {workers} x the model" if need is Need.READ else ""
            found.append(f"rule {rule} needs {need.value}, which costs {COSTS[need]}{all_copies}")
        return tuple(found)

    # Settings.

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        return (*cls.defaults, "mode", "rule")

    @classmethod
    def superseded(cls, words: Mapping[str, str]) -> frozenset[str]:
        """A new `rule` overrides an earlier `mode`, and a new mode other than `rule` overrides an earlier rule."""
        dropped = {"mode"} if "rule" in words else set()
        if words.get("mode", Mode.RULE.value) != Mode.RULE.value:
            dropped.add("rule")
        return frozenset(dropped)

    @classmethod
    def setting_types(cls) -> dict[str, Any]:
        return {key: _TYPES.get(key, str) for key in cls.settings()}

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Self:
        """The strategy with these settings; `sync` has one model for all servers, or one each, separated by spaces."""
        said: dict[str, Any] = {key: word for key, word in words.items() if key in cls.settings()}
        if "bucket" in said:
            said["bucket_values"] = read_bucket(said.pop("bucket"))
        if "window" in said:
            said["window"] = read_window(said["window"])
        if "patience" in said:
            said["patience"] = read_patience(said["patience"])
        if "backups" in said:
            said["backups"] = read_backups(said["backups"])
        return cls(**said)

    def words(self) -> dict[str, str]:
        return {
            "sync": " ".join(map(write, self.sync[:1] if len(set(self.sync)) == 1 else self.sync)),
            "release": self.release.value,
            "gate": write(self.gate),
            "codec": write(self.codec),
            "reply_codec": write(self.reply_codec),
            "placement": write(self.placement),
            "bucket": f"{self.bucket_values * VALUE_BYTES}B",
            "window": UNLIMITED if self.window is None else f"{self.window * VALUE_BYTES}B",
            "patience": NEVER if self.patience is None else f"{self.patience:g}s",
            "backups": str(self.backups),
            "mode": self.mode.value,
            "rule": write(self.rule),
        }

    def with_servers(self, count: int | None) -> Self:
        if count is None or count == len(self.sync):
            return self
        units.whole(count, "servers", 1, MOST_SERVERS)
        if len(self.sync) != 1:
            raise UsageError(
                "sync", f"has {len(self.sync)} models for {count} servers; give one for all, or one for each"
            )
        return replace(self, sync=self.sync * count)

    def changed(self, settings: Mapping[str, object], workers: int) -> Self:
        """Only `sync` and `release` can change; `sync` has one model for all servers, or one for each."""
        found: dict[str, Any] = {}
        for key, value in settings.items():
            if key not in ("sync", "release"):
                raise UsageError(key, "cannot change during a run; only sync and release can")
            found[key] = models_of(value) if key == "sync" else value_of(key, value)
        if "sync" in found:
            found["sync"] = replace(self, sync=found["sync"]).with_servers(self.servers).sync
            for model in found["sync"]:
                check_model(model, self.mode, workers, self.rule)
        return replace(self, **found)

    # Nodes.

    def topology(self, job: Job, servers: Sequence[int]) -> Holders:
        ranges = dict(zip(servers, checked(self.placement, job.layout, len(servers)), strict=True))
        found = tuple(self.cut(job.layout, ranges.get(number, ())) for number in range(max(servers) + 1))
        check_tables(self, job.layout, found)
        return found

    def servers_of(self, view: View) -> frozenset[int]:
        """A backup has a part too, even if it holds nothing itself: it may have to take over, so all stay connected."""
        backups = {each.backup for each in view.backups} | {each.backup for each in view.stand_ins}
        return super().servers_of(view) | backups

    def cut(self, layout: Layout, ranges: Iterable[Bucket]) -> tuple[Bucket, ...]:
        """The ranges of one shard, cut into buckets; cut at every table if the gate decides per table.

        If the rule needs norms over whole tables, every table is one bucket.
        """
        if Need.TABLE_NORMS in needs_of(self.rule):
            return buckets(layout, ranges, max(table.size for table in layout.tables), by_table=True)
        return buckets(layout, ranges, self.bucket_values, bool(getattr(self.gate, "per_table", False)))

    def replacing(self, layout: Layout, held: Holders, servers: Collection[int]) -> Holders:
        """The next placement on these servers, given the current one."""
        found = replaced(self.placement, layout, held, servers)
        check_tables(self, layout, found)
        return found

    def coordinator(self, job: Job, view: View) -> Coordinator:
        kind = BackedCoordinator if self.backups else Coordinator
        return kind(view, lambda held, servers: self.replacing(job.layout, held, servers))

    def trainer(self, worker: int, incarnation: int, job: Job, view: View) -> Worker:
        return Worker(worker, incarnation, self.parts(job), view)

    def keeper(self, server: int, job: Job, view: View, pieces: Mapping[Bucket, Values]) -> Keeper:
        shard = Shard(server, pieces, self.terms(server, job), view)
        if job.first is not None:
            shard.all_hold(view.members)
        return self._backed(shard, job, view)

    def restored(
        self, server: int, job: Job, view: View, pieces: Mapping[Bucket, Values], saved: Mapping[Bucket, Save]
    ) -> Keeper:
        """A server that starts again has nothing; its backup or the workers have what it held."""
        return self._backed(Shard(server, {}, self.terms(server, job), view), job, view)

    def _backed(self, shard: Shard, job: Job, view: View) -> Keeper:
        """The node of a server with this shard."""
        if not self.backups:
            return shard
        return BackedShard(shard, view, lambda server: self.terms(server, job), job.first)

    def terms(self, server: int, job: Job) -> ShardTerms:
        """The state that all buckets of this shard share."""
        model = self.sync[server if server < len(self.sync) else 0]  # an added server uses the first model
        return ShardTerms(
            model,
            self.rule,
            self.codec,
            job.draw,
            self.release,
            layout=job.layout,
            reply=self.reply,
            reply_memory=self.reply_memory,
            gate=self.gate,
            within=job.within,
            checks=job.remote,
            own_workers=job.own_workers,
            recovers=job.servers_fail or job.remote,
            backed=self.backups > 0,
        )

    def parts(self, job: Job) -> WorkerParts:
        """The parts and options that all workers share."""
        return WorkerParts(
            job.layout,
            job.draw,
            self.codec,
            self.gate,
            finite=job.finite,
            reply=self.reply,
            of_means=self.mode is Mode.GRADIENTS,
            of_changes=self.mode is Mode.CHANGES,
            within=job.within,
            first=job.first,
            weigh=job.weigh,
            patience=self.patience if job.remote else None,
            window=self.window,
            recovers=job.servers_fail or job.remote,
            checks=job.remote,
        )

    def meter(self, spans: bool = False) -> PullMeter:
        return PullMeter(spans)

    def plain(self) -> Self:
        return replace(self, codec=Dense(), reply_codec=Dense())

    def wire_bytes(self, layout: Layout, bucket: Bucket) -> tuple[int, int]:
        pushed, pulled = (bucket_codec(codec, layout, bucket) for codec in (self.codec, self.reply_codec))
        return pushed.size(bucket.size), pulled.size(bucket.size)

    def payload_type(self, message: Message, size: int) -> str:
        return payload_type(message, size)

    @staticmethod
    def passed_on(message: Message) -> tuple[NodeId, Push] | None:
        if type(message) is not LogEntry or type(message.event) is not Push or message.source is None:
            return None
        return message.source, message.event

    def message_bytes(self, layout: Layout, message: Message, payload: Payload | None) -> int:
        if type(message) is LogEntry:
            message = message.event
        if type(message) is BucketCopy:
            return 0 if payload is None else message.bucket.size * VALUE_BYTES
        if type(message) is not Handover:
            return super().message_bytes(layout, message, payload)
        kept = sum(not each.empty for each in message.kept) + len(message.last)
        arrays = 1 + len(message.memory) + len(message.residual) + len({each.array for each in message.reads})
        update = self.wire_bytes(layout, message.bucket)[0]
        return message.bucket.size * VALUE_BYTES * arrays + update * kept
