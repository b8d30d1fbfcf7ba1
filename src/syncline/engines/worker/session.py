"""A worker's session: its number, the models that it trains, and collective operations of all workers.

With numpy a session has one model, and these are its calls:

    session = syncline.connect()
    tables = session.tables({"w": w, "b": b})     # all workers start with the leader's values
    for step in range(1000):
        session.update("w", change_of_w)          # sent as soon as its bucket is complete
        session.update("b", change_of_b)
        session.clock()                           # all updates of this iteration are there
        session.sync()                            # wait as long as the sync model requires; updates `tables`
    session.close()

The mode decides what an update is and what the servers send back. `changes` (the default here): you send the change
that your own optimizer made, and receive the parameters. `rule`: you send a gradient, and receive the parameters.
`gradients`: you send a gradient, and receive the mean of all workers' gradients.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from syncline.engines.failure_report import report_of, send_report
from syncline.engines.net.control import MOST_SAMPLERS, EpochBegun, Pulse
from syncline.engines.net.wiring import Wiring
from syncline.engines.process import also_look_in, say
from syncline.engines.saving.folder import MODEL
from syncline.engines.worker.link import WorkerLink
from syncline.engines.worker.replica import Replica
from syncline.engines.worker.saved_tables import (
    all_clocks,
    check_schema,
    check_tables,
    remembered,
    say_if_workers_differ,
    tables_state,
)
from syncline.engines.worker.session_checkpoints import SessionCheckpoints
from syncline.engines.worker.solo_link import SoloLink
from syncline.engines.worker.table_checkpoints import TableCheckpoints
from syncline.errors import RunError, SynclineError, UsageError
from syncline.layout import Values
from syncline.strategies.mode import Mode
from syncline.strategies.sync_change import check_change, merge_numbers, topology_words, words_of

PULSE_SECONDS = 0.5
"""Seconds between two reports of a worker's progress."""


solo_link: type[SoloLink] = SoloLink
"""The link of a run with one worker. `syncline plan` replaces it, to watch a program."""


class NumpySession:
    """One worker of a run."""

    def __init__(self) -> None:
        self.rank, self.size, self.incarnation = 0, 1, 0
        self._link: WorkerLink | None = None
        """The first connection to the coordinator; None: a run with one worker."""
        self._wiring = Wiring()
        self._replicas: list[Replica] = []
        self._closed = False
        self._pid = -1
        self._pulsed = 0.0
        self._wishes: Mapping[str, object] = {}
        self.checkpoints = SessionCheckpoints(self, self._wiring)
        """For checkpoints of the run; programs do not use it."""
        self._tables: TableCheckpoints | None = None
        self._loads = 0
        """How many times this session has loaded a state."""

    def start(self, wiring: Wiring) -> Self:
        """Connect to the run; without a coordinator, start a run with one worker."""
        self._wiring = wiring
        self.checkpoints = SessionCheckpoints(self, wiring)
        also_look_in(wiring.folder)
        self._pid = os.getpid()
        self._next_hook, sys.excepthook = _hook_of_the_program(), self._at_exception
        if wiring.coordinator:
            self._connect(wiring)
        atexit.register(self._at_exit)
        return self

    def _connect(self, wiring: Wiring) -> None:
        self._link = WorkerLink(wiring)
        try:
            welcome = self._link.connect()
        except SynclineError:
            self._closed = True  # but the hook stays, to report the error
            self._link.close()
            raise
        self.rank, self.size, self.incarnation = welcome.worker, welcome.workers, welcome.incarnation
        self.checkpoints = SessionCheckpoints(self, wiring, self._link, welcome.save_every)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._cut()

    @property
    def is_open(self) -> bool:
        """Has this session begun in this process (not in the one that it was forked from), and not ended?"""
        return self._pid == os.getpid() and not self._closed

    def _has_left(self, coordinator: str) -> bool:
        """Has this session with this coordinator ended in this process? "": with any coordinator."""
        known = self._wiring.coordinator
        return self._pid == os.getpid() and self._closed and bool(known) and coordinator in ("", known)

    @property
    def members(self) -> tuple[int, ...]:
        """The numbers of the live workers including this one, in ascending order, as of the latest view.

        Before anything is declared: the workers that start the run. A worker that has joined has a number of `size` or
        more; a restarted worker keeps its number.
        """
        known = self._replicas[0].link.members if self._replicas else ()
        return tuple(sorted({*(known or range(self.size)), self.rank}))

    @property
    def is_leader(self) -> bool:
        """Did all workers start with this worker's values? Before anything is declared: is it worker 0?"""
        leader = self._replicas[0].leader if self._replicas and self._replicas[0].settings else 0
        return self.rank == leader

    # Models.

    def replica(self, name: str) -> Replica:
        """Add a model, to be declared; every worker must use the same name for it."""
        self._check_open()
        if self._link is None:
            made = Replica(name, 0, solo_link())
        elif not self._replicas:
            made = Replica(name, self.rank, self._link)
        else:
            made = Replica(name, self.rank, self._link.another())
        self._replicas.append(made)
        return made

    def drop(self, replica: Replica) -> None:
        """Leave one model; its connection stays open if the session needs it for the other models."""
        replica.leave()
        self._replicas.remove(replica)
        if replica.link is not self._link:
            replica.cut()

    def tables(self, arrays: Mapping[str, npt.ArrayLike], **wishes: object) -> dict[str, Values]:
        """Declare the tables, as float32; the arrays returned are the lane's own memory.

        `wishes`: settings, which the command line overrides: `sync="ssp:3"`, `mode="changes"`, `rule="sgd:0.1"`.
        A part may be given as an object too: `sync=Ssp(3)`.
        """
        self._check_open()
        if not self._replicas:
            self.replica(MODEL)
        if "rule" not in wishes:
            wishes = {"mode": Mode.CHANGES.value, **wishes}
        self._wishes = wishes
        self._tables = TableCheckpoints(self.checkpoints, self._replicas[0], self.size)
        return self._tables.declare(arrays, wishes)

    @property
    def _own(self) -> Replica:
        self._check_open()
        if not self._replicas:
            raise UsageError("session", "has no tables; declare tables first: session.tables({name: array})")
        return self._replicas[0]

    @property
    def settings(self) -> dict[str, str]:
        """All current settings of the run, as text."""
        return self._own.settings

    @property
    def iteration(self) -> int:
        """The iteration that the next updates belong to."""
        offset = 0 if self._tables is None else self._tables.offset
        return offset + self._replicas[0].iteration if self._replicas else 0

    def buffer(self, name: str) -> Values:
        """The memory of a table's update. Write it before `update(name)`; call this again in each iteration."""
        return self._own.buffer(name)

    def update(self, name: str, values: npt.ArrayLike | None = None) -> None:
        """Send this iteration's update of a table; without values, send what is in its `buffer`.

        Raises `NotFinite` if it contains NaN or infinity. None of it has been sent, and you may call this again.
        """
        self._own.update(name, values)

    def clock(self) -> None:
        """End this iteration's updates, and begin the next iteration; a table without an update counts as unchanged."""
        self._own.clock()

    def sync(self, name: str | None = None) -> Values | None:
        """Wait until a table, or all tables, are as fresh as the sync model requires; return the table's array."""
        return self._own.sync(name)

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Copies of the tables and of all that is needed to continue, as plain arrays and values."""
        return tables_state(self, self._own)

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        """Continue from a saved state, and return the tables, which replace those that `tables` returned.

        Every worker must call this, after `tables`. All take the leader's values.
        """
        old = self._own
        check_schema(state)
        check_tables(old, state)
        self._loads += 1
        clocks = all_clocks(self, old, state)
        replica = self.replica(f"{old.name}#{self._loads}")
        tables = replica.declare(state["tables"], self._wishes, remembered(old, state, "rule"), clocks)
        replica.go_on_with(remembered(replica, state, "codec"), int(state["iteration"]))
        self.drop(old)
        if self._tables is not None:
            self._tables.follow(replica)
        say_if_workers_differ(self, state)
        return tables

    # Changes during training.

    def change(self, *, sync: object = None, release: object = None, name: str | None = None, **others: object) -> None:
        """Change the sync model or the release of the whole run from now on.

        `sync`: a model or its text ("ssp:3"), or a list of them with one for each server. `release`: "lazy" or "soft".
        `name`: the model to change; if left out, all models that this worker trains. Call this on one worker. No worker
        stops for it, and no update is lost. It returns when all servers have changed.

        Raises `UsageError` if the request is invalid; then nothing has changed, and the run continues.
        `session.settings` has the current settings. `load_state_dict` starts again with the initial ones.
        """
        self._check_open()
        words = words_of(sync, release, others)
        chosen = self._chosen(name)
        if self._link is not None:
            self._link.change(tuple(each.name for each in chosen), *words)
            return
        for each in chosen:
            check_change(*words, each.strategy, workers=1, servers=1)
        for each in chosen:
            each.link.change((each.name,), *words)

    def reshape(self, topology: str, *, name: str | None = None) -> None:
        """Change who talks to whom, in a strategy that has a topology: "chain", "star", "twin", "tree:3".

        It can also be a list of edges ("0-1 1-2"), or a file with one edge per line. `name`: as in `change`. Call this
        on one worker. No worker stops for it, and no update is lost.

        Raises `UsageError` if the topology is not possible; then nothing has changed, and the run continues.
        """
        self._check_open()
        words, chosen = topology_words(topology), self._chosen(name)
        if self._link is not None:
            self._link.reshape(tuple(each.name for each in chosen), words)
            return
        raise UsageError("topology", "a run with one worker has one node; start it with syncline run")

    def merge(self, nodes: Sequence[int]) -> None:
        """With strategy `tree`, let the first of these connected nodes take the place of all, for example [1, 4].

        It takes over the updates and the workers of the others, which then leave the run. Call this on one worker. No
        worker stops for it, and no update is lost.

        Raises `UsageError` if these nodes cannot be merged; then nothing has changed, and the run continues.
        """
        self._check_open()
        numbers = merge_numbers(nodes)
        if self._link is None:
            raise UsageError("merge", "a run with one worker has one node; start it with syncline run")
        self._link.merge(numbers)

    def _chosen(self, name: str | None) -> list[Replica]:
        """The model with this name; without a name, all models."""
        known = {each.name: each for each in (self._own, *self._replicas)}
        if name is None:
            return list(known.values())
        if name not in known:
            raise UsageError("name", f"this run has no model {name!r}; it has {', '.join(known)}")
        return [known[name]]

    # Collective operations.

    def share(self, kind: str, data: bytes = b"", notice: str = "") -> list[bytes]:
        """All-gather: send a value, and return the values of all workers in the same call, in worker order.

        `notice`: a line to print if the others take long.
        """
        self._check_open()
        return [data] if self._link is None else self._link.share(kind, data, notice)

    def barrier(self) -> None:
        """Wait until every worker has called this."""
        self.share("barrier")

    def pulse(self, pulse: Pulse, *, now: bool = False) -> None:
        """Report this worker's progress to the launcher, at most twice a second unless `now`."""
        self._check_open()
        if self._link is not None and (now or monotonic() - self._pulsed >= PULSE_SECONDS):
            self._pulsed = monotonic()
            self._link.tell(pulse)

    # Epochs.

    def _epoch_of(self, sampler: int) -> int:
        """The epoch of this sampler when this worker joined; 0 if it started with the others."""
        epochs = self._replicas[0].epochs if self._replicas else ()
        return epochs[sampler] if sampler < len(epochs) else 0

    def _note_epoch(self, sampler: int, epoch: int) -> None:
        """Let workers that join later begin with this epoch."""
        if self._link is not None and self._link.error is None and not self._closed and sampler < MOST_SAMPLERS:
            self._link.tell(EpochBegun(sampler, epoch))

    # End.

    def leave(self) -> None:
        """Leave the run at once; the other workers continue."""
        if not self._closed:
            self._finish_checkpoint()
            for replica in self._replicas:
                replica.leave()
        self._cut()

    def close(self) -> None:
        """Leave the run, wait until all workers have left, and read the final parameters, which all workers share."""
        if self._closed:
            return
        self._finish_checkpoint()
        for replica in self._replicas:
            replica.leave(last=True)
        for replica in self._replicas:
            replica.read_final()
        self._cut()

    def _finish_checkpoint(self) -> None:
        """Wait until the last checkpoint is written, and say so while this worker is a member."""
        writer = self.checkpoints.writer
        if writer is not None and os.getpid() == self._pid:
            writer.finish()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("session", "is closed; it cannot be used any more")
        if os.getpid() != self._pid:
            problem = "a process that the worker has forked cannot use the worker's session; use it in the worker only"
            raise UsageError("session", problem)

    def _at_exit(self) -> None:
        """The program ended without closing the session: leave, or only disconnect if an exception ended it.

        Do not wait for the others as `close` does: the program may end with an error code, which the launcher must see.
        If the worker cannot leave the run, the exit code is 1. Only `os._exit` can set it here.
        """
        if os.getpid() != self._pid:
            return  # a forked copy of the program, which is not a worker
        if getattr(sys, "last_value", None) is not None:
            self._cut()
            return
        error = next((each.link.error for each in self._replicas if each.link.error is not None), None)
        try:
            self.leave()
        except SynclineError as failed:
            error = failed
        if error is not None:
            say(f"syncline: worker {self.rank} ended without session.close(), and could not leave the run: {error}")
            sys.stdout.flush()
            os._exit(1)

    def _at_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Disconnect when an exception ends the program: while another thread runs, `_at_exit` is not called."""
        if os.getpid() != self._pid:  # a forked copy of the program, which is not a worker
            self._next_hook(kind, error, trace)
            return
        if not hasattr(sys, "ps1"):  # at a prompt the program continues
            self._cut()
        shown, own = self._next_hook is not sys.__excepthook__, not self._is_of_others(error)
        if not shown and not own:
            error.__traceback__ = trace = None
        if not send_report(report_of(error, trace, shown=shown, own=own)) or shown:
            self._next_hook(kind, error, trace)

    def _is_of_others(self, error: BaseException) -> bool:
        """Did the run fail in another process? Then this program's traceback does not help."""
        links = [self._link, *(replica.link for replica in self._replicas)]
        return type(error) is RunError and any(link is not None and error is link.error for link in links)

    def _cut(self) -> None:
        self._closed = True
        if sys.excepthook == self._at_exception:
            sys.excepthook = self._next_hook
        atexit.unregister(self._at_exit)
        for replica in self._replicas:
            replica.cut()
        if self._link is not None:
            self._link.close()


def _hook_of_the_program() -> Callable[[type[BaseException], BaseException, TracebackType | None], object]:
    """The current hook for exceptions, or the one before it, if it is that of a session that is over."""
    owner = getattr(sys.excepthook, "__self__", None)
    return owner._next_hook if isinstance(owner, NumpySession) and owner._closed else sys.excepthook
