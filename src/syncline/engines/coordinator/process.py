"""The coordinator process: it knows who takes part in a run, and notices when a process dies.

    python -m syncline.engines.coordinator WORKERS SERVERS SETTINGS

1. It waits for connections, frames and timers, and gives them to the decisions (coordination.py) as inputs.
2. It watches the processes (watch.py). What it finds is an input, too.
3. The death of the launcher ends the run; the coordinator then kills everything that the launcher has started. A
   launcher that stays stopped is killed, by its guard or by the coordinator.
4. If the launcher would start it again, it keeps a journal of the inputs (journal.py). When it has been started again
   it replays them, listens where it listened before, and waits for its peers to come back (lasting.py).
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from shutil import rmtree
from time import monotonic

from syncline.engines.coordinator.absent_peers import AbsentPeers
from syncline.engines.coordinator.coordination import GRACE, Coordination
from syncline.engines.coordinator.first_hosts import share_of
from syncline.engines.coordinator.inputs import Inputs
from syncline.engines.coordinator.journal import CANNOT_REPLAY, Entry, Journal, Listens
from syncline.engines.coordinator.outside import Outside
from syncline.engines.coordinator.watch import NOTICE_SECONDS, Watch
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import PROTOCOL, HostShare, LastWord, Refused, Resume, Resumed
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.frames import Frame
from syncline.engines.net.lasting import LastingConnection
from syncline.engines.net.wiring import RUN, Wiring, listen
from syncline.engines.process import also_look_in, run, say
from syncline.engines.process_state import patience
from syncline.errors import PeerError

TICK = 0.5
"""Seconds between two checks for processes that are stopped and hosts that do not answer."""


class CoordinatorProcess:
    """The connections of the coordinator, its watch, and its decisions."""

    def __init__(
        self,
        workers: int,
        servers: int,
        layers: Mapping[str, Mapping[str, str]],
        wiring: Wiring,
        later: tuple[int, int] = (0, 0),
        share: HostShare | None = None,
        restarts: bool = False,
    ) -> None:
        """The arguments are those of `Coordination`."""
        self._wiring = wiring
        self._journal = Journal(wiring.checkpoints) if wiring.lasting else None
        self._loop = EventLoop(self, made=Connection if self._journal is None else LastingConnection)
        outside = Outside(self._loop)
        self._run = Coordination(workers, servers, layers, wiring, later, share, restarts, outside)
        self._inputs = Inputs(self._run, self._journal)
        self._watch = Watch(self._run, self._inputs, patience(os.environ), self._loop.lose)
        outside.forget = self._watch.forget
        self._absent = AbsentPeers(self._run, monotonic())
        self._said_stopping = False

    def run(self) -> int:
        entries = [] if self._journal is None else self._journal.open()
        if entries:
            try:
                self._start_again(entries)
            except Exception as error:
                traceback.print_exc()
                say(f"the coordinator cannot continue from its journal: {type(error).__name__}: {error}")
                return CANNOT_REPLAY
        else:
            self._start()
        look = monotonic() + TICK
        while not self._run.over:
            self._loop.turn(max(min(look, self._run.next_timer) - monotonic(), 0.0))
            self._inputs.timers()
            if monotonic() >= look:
                look = monotonic() + TICK
                self._watch.look(monotonic())
                self._give_up_absent()
            if self._run.stopping and not self._said_stopping:
                self._said_stopping = True
                self._loop.call_later(NOTICE_SECONDS, lambda: self._watch.launcher_waits(monotonic()))
        self._end()
        return 0

    def _start(self) -> None:
        port = int(os.environ.get("SYNCLINE_PORT", "0"))
        unix, tcp = listen(self._loop, self._wiring, port, RUN)
        if self._journal is not None:
            self._journal.add(Listens(PROTOCOL, unix, tcp))
        self._run.checkpoints.clear()
        print(unix, tcp or "-", flush=True)

    def _end(self) -> None:
        for wire in self._inputs.wires.values():
            if wire.open:
                wire.send(LastWord())
        self._flush_launcher()
        self._loop.close()
        if self._journal is not None:
            self._journal.close()
        if self._run.launchers.lost:
            self._run.launchers.kill_sessions()
            rmtree(self._wiring.checkpoints, ignore_errors=True)

    def _flush_launcher(self) -> None:
        """Wait until all messages to the launcher are sent, if it reads them in time."""
        until = monotonic() + GRACE
        launcher = self._run.launchers.launcher
        while launcher is not None and launcher.waiting and monotonic() < until:
            self._loop.turn(0.1)

    # Starting again.

    def _start_again(self, entries: list[Entry]) -> None:
        """Go on where the coordinator before this one has ended."""
        first = entries[0]
        assert isinstance(first, Listens), f"the journal begins with {first}"
        assert first.protocol == PROTOCOL, f"another version of Syncline has written the journal: {first}"
        self._inputs.replay(iter(entries[1:]))
        for wire, reason in list(self._inputs.broken.items()):
            self._lose(wire, reason)
        for wire in [each for each in self._inputs.wires.values() if not each.key]:
            self._lose(wire, "")
        listen(self._loop, self._wiring, kind=RUN, before=(first.unix, first.tcp))
        self._absent = AbsentPeers(self._run, monotonic())

    def _give_up_absent(self) -> None:
        """End the connections of peers that do not come back to a coordinator that was started again."""
        absent = [each for each in self._inputs.wires.values() if each.away]
        for wire, reason in self._absent.lost(absent, monotonic()) if absent else ():
            self._lose(wire, reason)

    def _lose(self, wire: Connection, reason: str) -> None:
        self._loop.drop(wire)
        self.closed(wire, reason)

    def _come_back(self, wire: Connection, resume: Resume) -> None:
        """The peer of a connection of the coordinator before this one has connected again."""
        line = self._inputs.keys.get(resume.line)
        if line is None and not resume.heard:
            wire.send(Resumed(0))  # its Hello has not arrived; now it follows
            return
        if line is None or not line.away:
            wire.send(Refused("it counts as lost"))
            raise PeerError("it came back after it had been given up")
        wire.send(Resumed(line.heard))
        self._loop.release(wire)
        try:
            line.resume(wire, resume.heard)
        except PeerError:
            wire.close()
            raise
        self._loop.add(line)

    # The event loop calls these (`LoopOwner`).

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        raise PeerError(f"it sent {type(message).__name__} with a payload, which the coordinator does not accept")

    def frame(self, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        if isinstance(message, Resume) and self._journal is not None and not self._inputs.knows(wire):
            self._come_back(wire, message)
        elif not self._watch.heard(wire, message, monotonic()):
            self._inputs.frame(wire, message)

    def broke(self, wire: Connection, error: PeerError) -> None:
        self._loop.lose(wire, str(error))

    def closed(self, wire: Connection, reason: str) -> None:
        self._watch.forget(wire)
        self._inputs.closed(wire, reason)


def made_of(words: Sequence[str], environment: Mapping[str, str]) -> CoordinatorProcess:
    """The coordinator with these arguments, in this environment."""
    workers, servers, layers = words
    wiring = Wiring.read(environment)
    later = tuple(map(int, environment.get("SYNCLINE_LATER", "0 0").split()))
    share = share_of(environment.get("SYNCLINE_SHARE", ""))
    restarts = int(environment.get("SYNCLINE_RESTARTS", "0")) > 0
    counts = int(workers), int(servers)
    return CoordinatorProcess(*counts, json.loads(layers), wiring, (later[0], later[1]), share, restarts)


def main() -> int:
    also_look_in(Wiring.read(os.environ).folder)
    return run(made_of(sys.argv[1:], os.environ).run)
