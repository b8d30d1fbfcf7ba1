"""gloo's `all_reduce`, which PyTorch's data parallelism uses on CPUs: TCP, here on loopback."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from syncline.bench.bursts import serve
from syncline.bench.case import Case
from syncline.bench.channel import Channel
from syncline.bench.crew import BenchCrew
from syncline.bench.values import Values, check_sum, fill

_PATIENCE = timedelta(seconds=60)
"""How long a worker waits for the others before it gives up."""


def installed() -> bool:
    """Return True if torch is installed, without importing it."""
    return find_spec("torch") is not None


class Gloo:
    """One process per worker; they find each other through a file."""

    name = "gloo"

    def __init__(self) -> None:
        self._crew = BenchCrew(self.name)
        self._folder: TemporaryDirectory[str] | None = None

    def start(self, case: Case) -> None:
        self._folder = TemporaryDirectory(prefix="syncline-bench-")
        place = Path(self._folder.name, "meeting").as_uri()
        for worker in range(case.workers):
            self._crew.add_worker(
                "syncline.bench.gloo:work", worker=worker, workers=case.workers, size=case.size, place=place
            )
        self._crew.ready()

    def burst(self, rounds: int) -> list[float]:
        return self._crew.burst(rounds)

    def stop(self) -> None:
        self._crew.stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def work(channel: Channel, *, worker: int, workers: int, size: int, place: str) -> None:
    """The program of a worker."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = _loopback()
    distributed.init_process_group("gloo", init_method=place, rank=worker, world_size=workers, timeout=_PATIENCE)
    serve(channel, _Reducer(worker, workers, size))


class _Reducer:
    """Reduces in place, as data parallelism does. The timed rounds use zeros, since repeated sums would overflow."""

    def __init__(self, worker: int, workers: int, size: int) -> None:
        import torch
        from torch import distributed

        self._worker = worker
        self._workers = workers
        self._values: Values = np.zeros(size, np.float32)
        self._tensor = torch.from_numpy(self._values)
        self._all_reduce = distributed.all_reduce

    def prepare(self) -> None:
        self._values.fill(0)

    def round(self) -> None:
        self._all_reduce(self._tensor)

    def check(self) -> None:
        """Run one more round, on known values."""
        fill(self._values, self._worker)
        self.round()
        check_sum(self._values, self._workers)


def _loopback() -> str:
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name in ("lo", "lo0")), names[0])
