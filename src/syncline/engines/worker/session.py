"""A worker's part in a run: who it is, the models that it trains, and what all workers do together.

At the level of numpy a session has one model, and these are its calls:

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
from time import monotonic
from types import TracebackType
from typing import Self

import numpy.typing as npt

from syncline.engines.net.control import MOST_SAMPLERS, EpochBegun, Pulse
from syncline.engines.net.wiring import Wiring
from syncline.engines.process import also_look_in
from syncline.engines.worker.link import WorkerLink
from syncline.engines.worker.replica import Replica
from syncline.engines.worker.solo_link import SoloLink
from syncline.errors import RunError, UsageError
from syncline.layout import Values
from syncline.strategies.mode import Mode
from syncline.strategies.sync_change import check_change, words_of

MODEL = "model"
"""The name of a model that was given none."""

PULSE_SECONDS = 0.5
"""Nobody looks more often than that at how far a worker is."""


class NumpySession:
    """One worker of a run."""

    def __init__(self) -> None:
        self.rank, self.size, self.incarnation = 0, 1, 0
        self._link: WorkerLink | None = None
        """The first connection to the coordinator; None: a run of one."""
        self._wiring = Wiring()
        self._replicas: list[Replica] = []
        self._closed = False
        self._pulsed = 0.0

    def start(self, wiring: Wiring) -> Self:
        """Connect to the run; without a coordinator this is a run of one."""
        self._wiring = wiring
        also_look_in(wiring.folder)
        if wiring.coordinator:
            self._link = WorkerLink(wiring)
            welcome = self._link.connect()
            self.rank, self.size, self.incarnation = welcome.worker, welcome.workers, welcome.incarnation
        self._pid = os.getpid()
        self._next_hook, sys.excepthook = sys.excepthook, self._at_exception
        atexit.register(self._at_exit)
        return self

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
    def members(self) -> tuple[int, ...]:
        """The numbers of the live workers, this one's own among them, as far as this worker knows; in rising order.

        Before anything is declared: those that the run starts with. A worker that has joined has a number of `size` or
        more; one that was started again has the number that it had.
        """
        known = self._replicas[0].link.members if self._replicas else ()
        return tuple(sorted({*(known or range(self.size)), self.rank}))

    @property
    def is_leader(self) -> bool:
        """Is this the worker whose values all started with? Before anything is declared: the first one."""
        leader = self._replicas[0].leader if self._replicas and self._replicas[0].settings else 0
        return self.rank == leader

    # Models.

    def replica(self, name: str) -> Replica:
        """A further model of the run, to be declared; on every worker under the same name."""
        self._check_open()
        if self._link is None:
            made = Replica(name, 0, SoloLink())
        elif not self._replicas:
            made = Replica(name, self.rank, self._link)
        else:
            made = Replica(name, self.rank, self._link.another())
        self._replicas.append(made)
        return made

    def drop(self, replica: Replica) -> None:
        """Leave one model; its connection to the coordinator may still serve all of them."""
        replica.leave()
        self._replicas.remove(replica)
        if replica.link is not self._link:
            replica.cut()

    def tables(self, arrays: Mapping[str, npt.ArrayLike], **wishes: str | int) -> dict[str, Values]:
        """Declare what is trained, in float32; the arrays that come back are the lane's own memory.

        `wishes`: settings as on the command line, which beats them: `sync="ssp:3"`, `mode="changes"`, `rule="sgd:0.1"`.
        """
        self._check_open()
        if not self._replicas:
            self.replica(MODEL)
        if "rule" not in wishes:
            wishes = {"mode": Mode.CHANGES.value, **wishes}
        return self._replicas[0].declare(arrays, wishes)

    @property
    def _own(self) -> Replica:
        self._check_open()
        if not self._replicas:
            raise UsageError("session", "has no tables; declare tables first: session.tables({name: array})")
        return self._replicas[0]

    @property
    def settings(self) -> dict[str, str]:
        """Every setting of the run, in words."""
        return self._own.settings

    @property
    def iteration(self) -> int:
        """The iteration that the next updates belong to."""
        return self._replicas[0].iteration if self._replicas else 0

    def buffer(self, name: str) -> Values:
        """The memory of a table's update, to be written in place before `update(name)`; ask anew each iteration."""
        return self._own.buffer(name)

    def update(self, name: str, values: npt.ArrayLike | None = None) -> None:
        """Hand in this iteration's update of a table; without values, what is in its `buffer`.

        `NotFinite`: it holds NaN or infinity. Nothing of it has left, and the table may be given another one.
        """
        self._own.update(name, values)

    def clock(self) -> None:
        """This iteration's updates are in; tables without one count as not changed. The next iteration begins."""
        self._own.clock()

    def sync(self, name: str | None = None) -> Values | None:
        """Wait until a table, or everything, is as fresh as the sync model asks for; the table's array."""
        return self._own.sync(name)

    # Changes while it runs.

    def change(self, *, sync: object = None, release: object = None, name: str | None = None, **others: object) -> None:
        """Have the whole run go on under another sync model, or another release, from now on.

        `sync`: a model or its text ("ssp:3"), or a list of them with one for each server. `release`: "lazy" or "soft".
        `name`: of which model, if there are several; left out: of all that this worker trains. One worker calls this;
        nobody stops for it, and nothing is lost. It returns when all servers have changed.

        `UsageError`: it makes no sense; nothing has changed, and the run goes on. `session.settings` has what is in
        force, and `load_state_dict` begins anew with what the run began with.
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

    def _chosen(self, name: str | None) -> list[Replica]:
        """The model of this name; without one, all."""
        known = {each.name: each for each in (self._own, *self._replicas)}
        if name is None:
            return list(known.values())
        if name not in known:
            raise UsageError("name", f"there is no model {name!r}; there are {', '.join(known)}")
        return [known[name]]

    # All together.

    def share(self, kind: str, data: bytes = b"") -> list[bytes]:
        """Say something, and hear what every worker has said in the same call, in worker order."""
        self._check_open()
        return [data] if self._link is None else self._link.share(kind, data)

    def barrier(self) -> None:
        """Wait until every worker is here."""
        self.share("barrier")

    def pulse(self, pulse: Pulse, *, now: bool = False) -> None:
        """Have the launcher show how far this worker is; at most twice a second, unless it must be known `now`."""
        self._check_open()
        if self._link is not None and (now or monotonic() - self._pulsed >= PULSE_SECONDS):
            self._pulsed = monotonic()
            self._link.tell(pulse)

    # The place in the data.

    def epoch_of(self, sampler: int) -> int:
        """In which epoch of this sampler the others were when this worker joined; 0 if it started with them."""
        epochs = self._replicas[0].epochs if self._replicas else ()
        return epochs[sampler] if sampler < len(epochs) else 0

    def note_epoch(self, sampler: int, epoch: int) -> None:
        """Have those who join begin with this epoch."""
        if self._link is not None and self._link.error is None and not self._closed and sampler < MOST_SAMPLERS:
            self._link.tell(EpochBegun(sampler, epoch))

    # The end.

    def leave(self) -> None:
        """Leave the run at once; the others go on without this worker."""
        if not self._closed:
            for replica in self._replicas:
                replica.leave()
        self._cut()

    def close(self) -> None:
        """Leave the run, wait until all have, and take the final parameters, which are the same for everyone."""
        if self._closed:
            return
        for replica in self._replicas:
            replica.leave()
        for replica in self._replicas:
            replica.read_final()
        self._cut()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("session", "is closed; nothing can be done with it any more")

    def _at_exit(self) -> None:
        """The program has ended without a word: well, or by an exception, and then nobody waits for the others."""
        if os.getpid() != self._pid:
            return  # a copy of the program (fork), which has no part in the run
        if getattr(sys, "last_value", None) is None:
            self.close()
        else:
            self._cut()

    def _at_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """An exception ends the program; not at once, where a thread goes on, so nobody may wait for `_at_exit`."""
        if os.getpid() == self._pid and not hasattr(sys, "ps1"):  # at a prompt it ends nothing
            self._cut()
        if self._next_hook is sys.__excepthook__ and self._is_of_others(error):
            error.__traceback__ = trace = None
        self._next_hook(kind, error, trace)

    def _is_of_others(self, error: BaseException) -> bool:
        """Was the run ended elsewhere? Then it does not matter where this program stood."""
        return type(error) is RunError and any(error is replica.link.error for replica in self._replicas)

    def _cut(self) -> None:
        self._closed = True
        if sys.excepthook == self._at_exception:
            sys.excepthook = self._next_hook
        atexit.unregister(self._at_exit)
        for replica in self._replicas:
            replica.cut()
        if self._link is not None:
            self._link.close()
