"""The share of one node in a run on Ray: a launcher with its servers and workers, or with the coordinator.

    python -m syncline.ray.host_process

An actor starts this process, and reads its events (host_messages.py). If the actor dies, the kernel kills this process,
and the launcher's guard ends the rest. SIGTERM lets the host leave the run: its workers finish their step, and its
servers hand over what they hold.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from dataclasses import replace

from syncline.engines.launch.interrupts import InterruptHandler, interruptible
from syncline.engines.launch.launcher import Launcher
from syncline.engines.launch.plan import checked
from syncline.engines.process import end_with_parent, outlive_parent
from syncline.errors import SynclineError, UsageError
from syncline.ray.function_server import FunctionServer
from syncline.ray.host_messages import (
    HostEvent,
    HostOrder,
    HostOver,
    HostReady,
    Returned,
    Said,
    WorkerEnd,
    WorkersDone,
    encoded,
    order_of,
)

INTERRUPTED = 130


class HostProcess:
    """One launcher, from its order to its end."""

    def __init__(self, order: HostOrder) -> None:
        self._order = order
        self._functions = FunctionServer(order.function, order.searched, self._returned) if order.function else None
        command = [] if self._functions is None else self._functions.command
        plan = replace(order.plan, command=command) if command else order.plan
        self._launcher = Launcher(checked(plan, join=order.join or None), self._line)
        self._told = False

    def run(self) -> HostOver:
        """Start everything, wait for the end, and always stop everything."""
        code = 0
        with InterruptHandler(self._launcher.hurry) as interrupts:
            try:
                try:
                    self._start()
                    self._work()
                    code = self._launcher.wait()
                except KeyboardInterrupt as interrupt:
                    self._launcher.interrupt(*interrupt.args)
                    code = INTERRUPTED
                finally:
                    interrupts.over()
            finally:
                self._launcher.stop()
                if self._functions is not None:
                    self._functions.close()
        return self._over(code)

    def _start(self) -> None:
        if self._order.launches:
            self._launcher.start()
        else:
            self._launcher.open()
        leads = self._order.plan.hosts is not None and self._order.plan.hosts.leads and not self._order.join
        wiring = self._launcher.wiring
        emit(HostReady(self._launcher.reachable() if leads else "", wiring.coordinator, wiring.run))

    def _work(self) -> None:
        if not self._order.launches:
            self._launcher.serve(lambda: not self._has_been_told())
            return
        workers = self._launcher.workers
        self._launcher.serve(lambda: any(each.code is None and not each.frozen for each in workers))
        if self._functions is not None:
            self._functions.settle()
        emit(WorkersDone(any(each.code == 0 for each in workers)))

    def _has_been_told(self) -> bool:
        """Whether the word to end has come, or the input has ended."""
        if not self._told and select.select([sys.stdin.buffer], [], [], 0)[0]:
            self._told = True
        return self._told

    def _line(self, name: str, text: str) -> None:
        emit(Said(name, text))

    def _returned(self, worker: int, value: bytes) -> None:
        emit(Returned(worker, value))

    def _over(self, code: int) -> HostOver:
        made, failure = self._launcher, self._launcher.failure
        return HostOver(
            code,
            failure.option if isinstance(failure, UsageError) else "",
            failure.problem if isinstance(failure, UsageError) else "" if failure is None else str(failure),
            tuple(WorkerEnd(each.name, each.code, each.restarts) for each in made.workers),
            tuple(made.figures),
            tuple(made.worker_figures),
            made.incomplete,
        )


_writing = threading.Lock()


def emit(event: HostEvent) -> None:
    """Print an event; the actor reads it."""
    with _writing:
        sys.stdout.buffer.write(encoded(event))
        sys.stdout.buffer.flush()


def main() -> int:
    parent = os.getppid()
    end_with_parent(parent)
    order = order_of(sys.stdin.buffer.readline())
    try:
        with interruptible():
            over = HostProcess(order).run()
    except KeyboardInterrupt:
        over = HostOver(INTERRUPTED)
    except UsageError as error:
        over = HostOver(2, error.option, error.problem)
    except (SynclineError, OSError) as error:
        over = HostOver(1, problem=str(error))
    outlive_parent()
    emit(over)
    return over.code


if __name__ == "__main__":
    sys.exit(main())
