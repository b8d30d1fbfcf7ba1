"""A thread that reads and writes a worker's connections while its program computes, so that the two overlap.

1. The thread starts when it is first needed: when much data is in flight over TCP. With shared memory it is not needed.
2. A thread that holds the lock (`with background:`) may use the connections and the node. The lock is fair: a thread
   that waits for it gets it before the other thread gets it twice. While the program waits for an answer, it holds the
   lock and reads and writes itself.
3. If the thread fails, the link records the error, and the next call of the program raises it.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from threading import Lock, Thread, current_thread, get_ident

from syncline.engines.net.connections import Connections
from syncline.errors import SynclineError

JOIN_SECONDS = 2.0
"""Seconds to wait for the thread to end. It never ends if an interrupt hit the program while it took the lock."""


class BackgroundThread:
    """Serves the connections as long as `busy` says that data is in flight."""

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
        self._serving = False
        """Does the thread watch the connections already, or is it about to?"""

    def __enter__(self) -> None:
        """Take the lock, unless this thread holds it already."""
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
        """Data is in flight: serve the connections until it is not."""
        if self._closed or self._serving:
            return
        if self._thread is None:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._thread = Thread(target=self._run, name="syncline", daemon=True)
            self._thread.start()
        self._serving = True
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """End the thread. The caller must not hold the lock."""
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
        """Wait until the thread is woken or a connection is ready; return True if a connection is ready."""
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        with self:
            self._serving = self._busy() and not self._closed
            if self._serving:
                poll.register(self._wires.fileno(), select.POLLIN)
        ready = [fd for fd, _ in poll.poll()]
        if self._bell in ready:
            os.eventfd_read(self._bell)
        return ready != [self._bell]

    def _step(self) -> None:
        with self:
            if not self._closed:
                self._wires.turn(0)
