"""A worker's replica of one model: its tables in the lane's memory, its updates and its iterations.

replica.declare(arrays, wishes)      all workers start with the leader's values
replica.update(name, values)         sent as soon as its bucket is complete
replica.clock()                      all updates of this iteration are there
replica.sync()                       wait as long as the sync model requires
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from syncline.effects import Event, Ready
from syncline.engines.net.control import Begin, Declare
from syncline.engines.net.shared_memory import LaneMemory
from syncline.engines.worker.declaration import declaration, in_float32
from syncline.errors import NotFinite, SynclineError, UsageError
from syncline.layout import Bucket, Layout, Table, Values, copy_finite, is_finite
from syncline.nodes.peer_losses import PeerLoss
from syncline.nodes.protocol import Collected, Counts, Trainer
from syncline.strategies.mode import Mode
from syncline.strategies.protocol import Strategy

Clocks = Mapping[int, int]
"""For each worker: how many of its updates some values contain."""


class ReplicaLink(Protocol):
    """A worker's connection to the shards of one model."""

    memory: LaneMemory
    strategy: Strategy

    @property
    def buckets(self) -> tuple[Bucket, ...]: ...

    @property
    def node(self) -> Trainer | None: ...

    @property
    def error(self) -> SynclineError | None: ...

    following: int | None
    """The next iteration, once the current one is complete; until then None."""
    members: tuple[int, ...]

    @property
    def changed(self) -> Mapping[str, str]:
        """The settings that have changed since the run began."""
        ...

    def change(self, models: tuple[str, ...], sync: tuple[str, ...], release: str) -> None: ...

    def begin(self, declare: Declare) -> Begin: ...

    def join(self) -> None: ...

    def take_first(self) -> None: ...

    def seed(self) -> None: ...

    def remind(self, name: str) -> None: ...

    def recall(self, name: str) -> None: ...

    @property
    def residuals(self) -> dict[Bucket, dict[str, Values]]: ...

    def go_on_from(self, iteration: int) -> None: ...

    def keep_base(self, table: Table, base: Values) -> None: ...

    def taken(self, name: str) -> None: ...

    def collect(self) -> Collected | None: ...

    def resume(self, clocks: Mapping[int, int]) -> None: ...

    def sit(self) -> None: ...

    def handle(self, event: Event) -> None: ...

    def ungiven(self) -> list[Bucket]: ...

    def wait(self, done: Callable[[], bool]) -> None: ...

    def finish(self) -> None: ...

    @property
    def sent_bytes(self) -> int: ...

    def leave(self) -> None: ...

    def read_final(self) -> None: ...

    def close(self) -> None: ...


class Replica:
    """The tables of one model."""

    def __init__(self, name: str, rank: int, link: ReplicaLink) -> None:
        self.name = name
        self.rank = rank
        self.iteration = 0
        """The iteration that the next updates belong to."""
        self.earlier = 0
        """The iterations of the earlier run that this one continues."""
        self.arrays: dict[str, Values] = {}
        """The values that the servers send back, by table."""
        self._settings: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self.leader = -1
        """The worker whose values all started with; -1: this worker joined later."""
        self.epochs: tuple[int, ...] = ()
        """If this worker joined later: the epoch of each sampler at that time."""
        self.advanced: Callable[[], None] = lambda: None
        """Called whenever an iteration is complete."""
        self.link = link
        self._tables: dict[str, Table] = {}
        self._given: set[str] = set()
        self._lr: float | None = None
        self._clocked = False
        self._closed = False

    @property
    def settings(self) -> dict[str, str]:
        """All current settings, as of the last change that this worker knows."""
        return {**self._settings, **self.link.changed}

    @property
    def mode(self) -> Mode:
        return self.link.strategy.mode

    @property
    def strategy(self) -> Strategy:
        return self.link.strategy

    @property
    def staleness(self) -> int:
        """How many iterations this worker is ahead of the slowest, as of the last answer."""
        return max(0, self.iteration - self._node.closed)

    @property
    def losses(self) -> Sequence[PeerLoss]:
        """The workers that died, and what this replica has of their updates."""
        return self._node.losses

    def counts(self) -> Counts:
        """The counters of this worker's node."""
        return self._node.counts()

    @property
    def _node(self) -> Trainer:
        assert self.link.node is not None, "the tables are declared"
        return self.link.node

    # Start.

    def declare(
        self,
        arrays: Mapping[str, npt.ArrayLike],
        wishes: Mapping[str, object],
        memory: Mapping[str, Values] | Callable[[], Mapping[str, Values]] | None = None,
        clocks: Mapping[int, Clocks] | None = None,
        first: int = 0,
    ) -> dict[str, Values]:
        """Declare the tables, and take the leader's values; the arrays returned are the lane's own memory.

        `memory`: the state of the servers' rule to continue with, as `recall` returned it, or a function that returns
        it when the settings are known. `clocks`: for each worker, which updates the values contain that it loads, as
        `collect` returned it. `first`: the first iteration, if the run goes on from a checkpoint.
        """
        self._check_open()
        if self._tables:
            raise UsageError("tables", "are already declared; declare all tables in one call")
        values = in_float32(arrays)
        layout = Layout.of((name, each.shape) for name, each in values.items())
        begin = self.link.begin(replace(declaration(layout, wishes, self.name), first=first))
        self._settings, self.origins, self.leader = dict(begin.settings), dict(begin.origins), begin.leader
        self.epochs = begin.epochs
        self._tables = {table.name: table for table in layout.tables}
        self._over = {table.name: self._buckets_of(table) for table in layout.tables}
        self._in = {bucket: self._tables_in(bucket) for bucket in self.link.buckets}
        self.arrays = {name: self._view(self.link.memory.params, name) for name in self._tables}
        self.link.resume((clocks or {}).get(self.leader, {}))
        self._first_values(values, memory if callable(memory) else lambda: memory or {})
        return dict(self.arrays)

    def _first_values(self, values: Mapping[str, Values], memory: Callable[[], Mapping[str, Values]]) -> None:
        """Take the leader's values; a joiner takes the parameters of the iteration before its first."""
        link = self.link
        if self.leader < 0:
            link.join()
        else:
            if self.leader == self.rank:
                for name, vector in memory().items():
                    link.memory.updates[:] = self._checked(name, vector)
                    link.remind(name)
                for name, each in values.items():
                    self._view(link.memory.updates, name)[...] = each
                link.seed()
            link.take_first()
            link.sit()
            link.wait(lambda: link.following is not None)
        self._next()

    def _checked(self, name: str, vector: Values) -> Values:
        known = self._remembered()
        if name not in known or vector.shape != self.link.memory.updates.shape:
            raise UsageError("memory", f"{name!r} of {vector.size:,} values is not part of this rule's state")
        return vector

    def _remembered(self) -> list[str]:
        return [*self.strategy.remembers, *self.strategy.reply_memory]

    def recall(self) -> dict[str, Values]:
        """Read the state of the servers' rule between iterations, one flat array per name."""
        return self._recall(self.strategy.remembers)

    def recall_replies(self) -> dict[str, Values]:
        """Read what the servers' replies depend on between iterations, if a codec encodes them."""
        return self._recall(self.strategy.reply_memory)

    def _recall(self, names: Sequence[str]) -> dict[str, Values]:
        self._check_declared()
        if self._clocked:
            self.sync()
        found = {}
        before = self.link.memory.updates.copy() if names else None
        for name in names:
            self.link.recall(name)
            found[name] = self.link.memory.updates.copy()
        if before is not None:
            self.link.memory.updates[:] = before
        return found

    def recall_parameters(self) -> Values:
        """Read the servers' parameters between iterations, as one flat array; this worker's stay what they are."""
        self._check_declared()
        if self._clocked:
            self.sync()
        own = self.link.memory.params.copy()
        self.link.recall("")
        found = self.link.memory.params.copy()
        self.link.memory.params[:] = own
        return found

    def view_of(self, vector: Values) -> dict[str, Values]:
        """A flat array of the model's size, by table."""
        return {name: self._view(vector, name) for name in self._tables}

    def gate_state(self) -> dict[str, Any]:
        """What this worker's gate knows and holds back."""
        return self._node.gate_state()

    def restore_gate(self, state: Mapping[str, Any]) -> None:
        """Continue with what `gate_state` returned in an earlier run."""
        self._node.restore_gate(state)

    def residuals(self) -> dict[str, Values]:
        """The residuals of this worker's codec, one flat array per name."""
        self._check_declared()
        found: dict[str, Values] = {}
        for bucket, memory in self.link.residuals.items():
            for name, values in memory.items():
                whole = found.setdefault(name, np.zeros_like(self.link.memory.updates))
                whole[bucket.start : bucket.stop] = values
        return found

    def go_on_with(self, residuals: Mapping[str, Values], earlier: int) -> None:
        """Continue with what `residuals` returned after `earlier` iterations."""
        self.earlier = 0 if self.iteration else earlier  # the numbers go on, or begin anew
        self.link.go_on_from(self.earlier)
        for bucket, memory in self.link.residuals.items():
            for name, values in memory.items():
                if name in residuals:
                    values[:] = residuals[name][bucket.start : bucket.stop]

    def collect(self) -> tuple[dict[str, Values], Clocks]:
        """For a checkpoint without servers, between iterations: get all updates that the other workers have made.

        Returns what has arrived and is not part of the tables yet, by table, and how many updates of each worker the
        two contain together. With servers both are empty.
        """
        self._check_declared()
        if self._clocked:
            self.sync()
        found = self.link.collect()
        if found is None:
            return {}, {}
        waiting = found.waiting
        return {} if waiting is None else {name: self._view(waiting, name) for name in self._tables}, found.clocks

    def _buckets_of(self, table: Table) -> tuple[Bucket, ...]:
        return tuple(each for each in self.link.buckets if each.start < table.stop and table.start < each.stop)

    def _tables_in(self, bucket: Bucket) -> frozenset[str]:
        return frozenset(name for name, over in self._over.items() if bucket in over)

    def _view(self, vector: Values, name: str) -> Values:
        table = self._tables[name]
        return vector[table.start : table.stop].reshape(table.shape)

    # Iterations.

    def places(self) -> dict[str, Values]:
        """The memory of each table's update. Write it before `give(name)`, and never while the update is in flight."""
        return {name: self._view(self.link.memory.updates, name) for name in self._tables}

    def keep_base(self, name: str, base: Values) -> None:
        """Say where the program keeps what it has read of a table, because it changes the table's array itself."""
        self.link.keep_base(self._tables[name], base)

    def taken(self, name: str) -> None:
        """Say that the program has copied the new values of a table there."""
        self.link.taken(name)

    def buffer(self, name: str) -> Values:
        """The memory of a table's update. Write it before `update(name)`; call this again in each iteration."""
        self._turn_to("buffer", name)
        return self._view(self.link.memory.updates, name)

    def update(self, name: str, values: npt.ArrayLike | None = None) -> None:
        """Send this iteration's update of a table; without values, send what is in its `buffer`.

        Raises `NotFinite` if it contains NaN or infinity. None of it has been sent, and you may call this again.
        """
        self._turn_to("update", name)
        if not self._write(name, values):
            raise NotFinite(self.rank, self.iteration, name)
        self.give(name)

    def give(self, name: str, lr: float | None = None) -> None:
        """Send the update in this table's memory, which must be finite, with the learning rate `lr`."""
        self._lr = lr
        self._given.add(name)
        for bucket in self._over[name]:
            if self._in[bucket] <= self._given:
                self._push(bucket, True)

    def _turn_to(self, call: str, name: str) -> None:
        """Make sure that the memory of a table's update may be written."""
        self._check_table(call, name)
        if self._clocked:
            self.sync()
        elif name in self._given:
            raise UsageError(call, f"table {name!r} already has its update of this iteration; call clock() first")

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("session", "is closed; it cannot be used any more")

    def _check_declared(self) -> None:
        self._check_open()
        if not self._tables:
            raise UsageError("session", "has no tables; declare tables first: session.tables({name: array})")

    def _check_table(self, call: str, name: str) -> None:
        self._check_declared()
        if name not in self._tables:
            raise UsageError(call, f"there is no table {name!r}; the tables are {', '.join(self._tables)}")

    def _write(self, name: str, values: npt.ArrayLike | None) -> bool:
        """Write an update to its memory, unless it is there; return False if it contains NaN or infinity.

        In mode `gradients` nobody looks for NaN: servers keep no values, and all workers see it.
        """
        place = self._view(self.link.memory.updates, name)
        checks = self.mode is not Mode.GRADIENTS
        if checks and isinstance(values, np.ndarray) and _is_plain(values, place):
            return copy_finite(values.reshape(-1), place.reshape(-1))
        if values is not None:
            place[...] = values
        return not checks or is_finite(place.reshape(-1))

    def _push(self, bucket: Bucket, full: bool) -> None:
        memory = self.link.memory
        update = memory.update(bucket) if full else None
        params = None if self.mode is Mode.GRADIENTS else memory.param(bucket)
        self.link.handle(Ready(bucket, update, self._lr, params))

    def clock(self) -> None:
        """End this iteration's updates, and begin the next iteration; a table without an update counts as unchanged."""
        self._check_declared()
        if self._clocked:
            self.sync()
        for bucket in self.link.ungiven() if len(self._given) < len(self._tables) else ():
            missing = self._in[bucket] - self._given
            full = missing != self._in[bucket]
            if full:
                self._clear(bucket, missing)
            self._push(bucket, full)
        self._clocked = True

    def _clear(self, bucket: Bucket, missing: frozenset[str]) -> None:
        for name in missing:
            table = self._tables[name]
            self.link.memory.updates[max(table.start, bucket.start) : min(table.stop, bucket.stop)] = 0

    def sync(self, name: str | None = None) -> Values | None:
        """Wait until a table, or all tables, are as fresh as the sync model requires; return the table's array."""
        if name is None:
            self._check_declared()
        else:
            self._check_table("sync", name)
        link = self.link
        if self._clocked:
            if name is None:
                link.wait(lambda: link.following is not None)
            else:
                wanted, answered = self._over[name], self._node.is_answered
                link.wait(lambda: link.following is not None or all(map(answered, wanted)))
            if link.following is not None:
                self._next()
        return None if name is None else self.arrays[name]

    def _next(self) -> None:
        link = self.link
        assert link.following is not None
        self.iteration, link.following = link.following, None
        self._given.clear()
        self._clocked = False
        self.advanced()

    # End.

    def leave(self, last: bool = False) -> None:
        """Leave at once; the other workers continue. `last`: all updates are made, so take those of the others first.

        Without servers, only workers hold the model.
        """
        if not self._closed and self._tables and self.link.error is None:
            if last and self.strategy.free_running:
                self.link.finish()
            elif self._clocked:
                self.sync()
            self.link.leave()

    def read_final(self) -> None:
        """After `leave`: wait until all workers have left, and read the final parameters, which all workers share."""
        if not self._closed and self._tables and self.link.error is None and self.strategy.keeps:
            self.link.read_final()

    def cut(self) -> None:
        """Close the link; no further call is possible."""
        self._closed = True
        self.link.close()


def _is_plain(values: npt.NDArray[Any], place: Values) -> bool:
    """Whether these are the values of `place`, one after the other in memory."""
    return values.dtype == place.dtype and values.shape == place.shape and values.flags.c_contiguous
