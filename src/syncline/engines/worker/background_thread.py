"""A thread that reads and writes a worker's wires while its program computes: so an exchange hides behind computing.

1. It starts when it is first needed: when much is under way by TCP. Where memory is shared there is nothing to move.
2. Whoever has the turn (`with background:`) may touch the wires and the node. Whoever waits for it holds the door, so
   that nobody has two turns before the other has one. While the program waits for something it keeps the turn, and
   reads and writes by itself.
3. An error that the background finds is noted by the link; the program is told when it next asks for something.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from threading import Lock, Thread, current_thread, get_ident

from syncline.engines.net.connections import Connections
from syncline.errors import SynclineError

JOIN_SECONDS = 2.0
"""An interrupt may hit the program just as it takes its turn; it must not wait for ever then."""


class BackgroundThread:
    """Turns the wires as long as `busy` says that something is under way."""

    def __init__(self, wires: Connections, busy: Callable[[], bool], failed: Callable[[SynclineError], object]) -> None:
        self._wires = wires
        self._busy = busy
        self._failed = failed
        self._door = Lock()
        self._turn = Lock()
        self._owner = 0
        self._depth = 0
        self._bell = -1
        self._thread: Thread | None = None
        self._closed = False

    def __enter__(self) -> None:
        """Take the turn, unless this thread has it already."""
        me = get_ident()
        if self._owner != me:
            with self._door:
                self._turn.acquire()
            self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._turn.release()

    def wake(self) -> None:
        """Something is under way; see to it until it is not."""
        if self._closed:
            return
        if self._thread is None:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._thread = Thread(target=self._run, name="syncline", daemon=True)
            self._thread.start()
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """End the thread; not from within a turn of the program's."""
        self._closed = True
        if self._thread is not None and self._thread is not current_thread():
            os.eventfd_write(self._bell, 1)
            self._thread.join(JOIN_SECONDS)
            if not self._thread.is_alive():
                os.close(self._bell)
            self._thread = None

    def _run(self) -> None:
        try:
            while not self._closed:
                if self._listen():
                    self._step()
        except SynclineError as error:
            self._failed(error)

    def _listen(self) -> bool:
        """Wait until the bell rings or something can be read or written; is it the latter?"""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        with self:
            if self._busy() and not self._closed:
                poll.register(self._wires.fileno(), select.POLLIN)
        ready = [fd for fd, _ in poll.poll()]
        if self._bell in ready:
            os.eventfd_read(self._bell)
        return ready != [self._bell]

    def _step(self) -> None:
        with self:
            if not self._closed:
                self._wires.turn(0)
