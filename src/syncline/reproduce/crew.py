"""Run several simulations at a time, each in its own process; an interrupt ends them all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import IO

import msgspec

from syncline.errors import RunError
from syncline.reproduce.figure import Result
from syncline.reproduce.kept import Order
from syncline.reproduce.worker import Done, Failed, FigureStep, Word

Tell = Callable[[str, int, int], None]
"""Called at intervals with the name of a run, the updates done, and the updates in total."""

_COMMAND = (sys.executable, "-m", "syncline.reproduce.worker")


class FigureCrew:
    """Up to `jobs` processes at a time; all end before `run` returns."""

    def __init__(self, jobs: int) -> None:
        self._pool = ThreadPoolExecutor(jobs)
        self._lock = Lock()
        self._over = False
        self._children: set[subprocess.Popen[bytes]] = set()

    def run(self, orders: Mapping[str, Order], tell: Tell) -> Iterator[tuple[str, Result]]:
        """Run these simulations; yield each (name, result) as soon as it is finished."""
        names: dict[Future[Result], str] = {}
        try:
            for name, order in orders.items():
                names[self._pool.submit(self._simulate, name, order, tell)] = name
            left = set(names)
            while left:
                finished, left = wait(left, timeout=1.0, return_when=FIRST_COMPLETED)
                for each in finished:
                    yield names[each], each.result()
        finally:
            self._stop()

    def _simulate(self, name: str, order: Order, tell: Tell) -> Result:
        child = self._start()
        try:
            return _talk(child, name, order, tell)
        finally:
            child.kill()
            child.wait()
            _stream(child.stdout).close()
            with self._lock:
                self._children.discard(child)

    def _start(self) -> subprocess.Popen[bytes]:
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        with self._lock:
            if self._over:
                raise RunError("interrupted")
            child = subprocess.Popen(
                _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=one_thread, start_new_session=True
            )
            self._children.add(child)
        return child

    def _stop(self) -> None:
        with self._lock:
            self._over = True
            for child in self._children:
                child.kill()
        self._pool.shutdown(cancel_futures=True)


def _talk(child: subprocess.Popen[bytes], name: str, order: Order, tell: Tell) -> Result:
    with _stream(child.stdin) as stdin:
        stdin.write(msgspec.json.encode(order))
    for line in _stream(child.stdout):
        word = msgspec.json.decode(line, type=Word)
        match word:
            case FigureStep(done, total):
                tell(name, done, total)
            case Done(result):
                return result
            case Failed(why):
                raise RunError(f"{name}: {why}")
    raise RunError(f"{name}: its process ended with exit code {child.wait()} before the simulation finished")


def _stream(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "the process was started with pipes"
    return pipe
