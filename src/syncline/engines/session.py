"""Training at the level of numpy: a worker declares tables, hands in updates, and takes what comes back.

    session = syncline.connect()
    tables = session.tables({"w": w, "b": b})     # all start with the leader's values
    for step in range(1000):
        session.update("w", change_of_w)          # leaves as soon as its bucket is whole
        session.update("b", change_of_b)
        session.clock()                           # this iteration's updates are in
        session.sync()                            # wait as the sync model says; `tables` hold what came back
    session.close()

What an update is, and what comes back, is a matter of the mode: `changes` (the default here): the change that your own
optimizer made, and the parameters; `rule`: a gradient, and the parameters; `gradients`: a gradient, and the mean of all
workers' gradients.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping
from types import TracebackType

import numpy as np
import numpy.typing as npt

from syncline.effects import Fetch, Ready
from syncline.engines.control import Declare, declared
from syncline.engines.link import Link
from syncline.engines.wiring import Wiring
from syncline.errors import UsageError
from syncline.layout import Bucket, Layout, Table, Values
from syncline.strategy import Mode


class Session:
    """One worker of a run."""

    def __init__(self, wiring: Wiring) -> None:
        self._link = Link(wiring)
        self._tables: dict[str, Table] = {}
        self._arrays: dict[str, Values] = {}
        self._given: set[str] = set()
        self._pushed: set[Bucket] = set()
        self._clocked = False
        self._closed = False
        self.iteration = 0
        """The iteration that the next updates belong to."""

    def start(self) -> Session:
        """Connect to the run."""
        welcome = self._link.connect()
        self.rank, self.size = welcome.worker, welcome.workers
        self.incarnation = welcome.incarnation
        self._pid = os.getpid()
        atexit.register(self._at_exit)
        return self

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._cut()

    # Tables.

    def tables(self, arrays: Mapping[str, npt.ArrayLike], **wishes: str) -> dict[str, Values]:
        """Declare what is trained, in float32; the arrays that come back are the lane's own memory.

        `wishes`: settings as on the command line, which beats them: `sync="ssp:3"`, `mode="changes"`, `rule="sgd:0.1"`.
        """
        if self._tables:
            raise UsageError("tables", "are declared already; one declaration holds them all")
        values = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
        if not sum(each.size for each in values.values()):
            raise UsageError("tables", "hold no values; give at least one array")
        layout = Layout.of((name, each.shape) for name, each in values.items())
        if "rule" not in wishes:
            wishes = {"mode": Mode.CHANGES.value, **wishes}
        begin = self._link.begin(Declare(declared(layout), wishes))
        self.settings = dict(begin.settings)
        self.is_leader = begin.leader == self.rank
        self._tables = {table.name: table for table in layout.tables}
        self._over = {table.name: self._buckets_of(table) for table in layout.tables}
        self._in = {bucket: self._tables_in(bucket) for bucket in self._link.buckets}
        self._arrays = {name: self._view(self._link.memory.params, name) for name in self._tables}
        self._first_values(values, begin.leader)
        return dict(self._arrays)

    def _first_values(self, values: Mapping[str, Values], leader: int) -> None:
        """All take the leader's values; a joiner takes those of the iteration before its first."""
        link = self._link
        if leader < 0:
            link.join()
        else:
            if leader == self.rank:
                for name, each in values.items():
                    self._view(link.memory.updates, name)[...] = each
                link.seed()
            link.handle(Fetch(-1))
        link.wait(lambda: link.following is not None)
        if leader >= 0:
            link.sit()
        self._next()

    def _buckets_of(self, table: Table) -> tuple[Bucket, ...]:
        return tuple(each for each in self._link.buckets if each.start < table.stop and table.start < each.stop)

    def _tables_in(self, bucket: Bucket) -> frozenset[str]:
        return frozenset(name for name, over in self._over.items() if bucket in over)

    def _view(self, vector: Values, name: str) -> Values:
        table = self._tables[name]
        return vector[table.start : table.stop].reshape(table.shape)

    # Iterations.

    def buffer(self, name: str) -> Values:
        """The memory of a table's update, to be written in place before `update(name)`."""
        self._ready_for(name)
        return self._view(self._link.memory.updates, name)

    def update(self, name: str, values: npt.ArrayLike | None = None) -> None:
        """Hand in this iteration's update of a table; without values, what is in its `buffer`."""
        if name in self._given and not self._clocked:
            raise UsageError("update", f"table {name!r} has its update of this iteration; call clock() first")
        self._ready_for(name)
        if values is not None:
            self._view(self._link.memory.updates, name)[...] = values
        self._given.add(name)
        for bucket in self._over[name]:
            if bucket not in self._pushed and self._in[bucket] <= self._given:
                self._push(bucket, True)

    def _ready_for(self, name: str) -> None:
        if name not in self._tables:
            raise UsageError("update", f"there is no table {name!r}; there are {', '.join(self._tables)}")
        if self._clocked:
            self.sync()

    def _push(self, bucket: Bucket, full: bool) -> None:
        self._pushed.add(bucket)
        update = self._link.memory.update(bucket) if full else None
        if update is not None and self._link.keeps_own(bucket):
            np.add(self._link.memory.param(bucket), update, self._link.memory.param(bucket))
        self._link.handle(Ready(bucket, update))

    def clock(self) -> None:
        """This iteration's updates are in; tables without one count as not changed. The next iteration begins."""
        if self._clocked:
            self.sync()
        for bucket in self._link.buckets:
            if bucket not in self._pushed:
                missing = self._in[bucket] - self._given
                full = missing != self._in[bucket]
                if full:
                    self._clear(bucket, missing)
                self._push(bucket, full)
        self._clocked = True

    def _clear(self, bucket: Bucket, missing: frozenset[str]) -> None:
        for name in missing:
            table = self._tables[name]
            self._link.memory.updates[max(table.start, bucket.start) : min(table.stop, bucket.stop)] = 0

    def sync(self, name: str | None = None) -> Values | None:
        """Wait until a table, or everything, is as fresh as the sync model asks for; the table's array."""
        link = self._link
        if self._clocked:
            if name is None:
                link.wait(lambda: link.following is not None)
            else:
                wanted = set(self._over[name])
                link.wait(lambda: wanted <= link.fresh)
            if link.following is not None:
                self._next()
        return None if name is None else self._arrays[name]

    def _next(self) -> None:
        link = self._link
        assert link.following is not None
        self.iteration, link.following = link.following, None
        link.fresh.clear()
        self._given.clear()
        self._pushed.clear()
        self._clocked = False

    # The end.

    def leave(self) -> None:
        """Leave the run at once; the others go on without this worker."""
        if not self._closed and self._tables and self._link.error is None:
            if self._clocked:
                self.sync()
            self._link.leave()
        self._cut()

    def close(self) -> None:
        """Leave the run, wait until all have, and take the final parameters, which are the same for everyone."""
        if self._closed:
            return
        if self._tables and self._link.error is None:
            if self._clocked:
                self.sync()
            self._link.leave()
            if self.settings["mode"] != Mode.GRADIENTS.value:
                self._link.read_final()
        self._cut()

    def _at_exit(self) -> None:
        """The program has ended without a word: well, or by an exception, and then nobody waits for the others."""
        if os.getpid() != self._pid:
            return  # a copy of the program (fork), which has no part in the run
        if getattr(sys, "last_value", None) is None:
            self.close()
        else:
            self._cut()

    def _cut(self) -> None:
        self._closed = True
        atexit.unregister(self._at_exit)
        self._link.close()


def connect(environment: Mapping[str, str] = os.environ) -> Session:
    """Take part in the run that started this program (`syncline run`)."""
    wiring = Wiring.read(environment)
    if not wiring.coordinator:
        raise UsageError("connect", "nothing says where the run is; start this program with: syncline run -n 2 FILE")
    return Session(wiring).start()
