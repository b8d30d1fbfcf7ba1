"""The lower bound set by memory bandwidth: one process adds the workers' arrays and copies the sum to each.

In mode `changes` it adds the sum to an array of parameters, and copies those.
"""

from __future__ import annotations

import numpy as np

from syncline.bench.bursts import serve
from syncline.bench.case import Case
from syncline.bench.channel import Channel
from syncline.bench.crew import BenchCrew
from syncline.bench.values import Values, check_sum, fill


class Floor:
    """No communication: whole arrays, in place, in one process."""

    name = "floor"

    def __init__(self) -> None:
        self._crew = BenchCrew(self.name)

    def start(self, case: Case) -> None:
        self._crew.add_worker("syncline.bench.floor:work", workers=case.workers, size=case.size, mode=case.mode)
        self._crew.ready()

    def burst(self, rounds: int) -> list[float]:
        return self._crew.burst(rounds)

    def stop(self) -> None:
        self._crew.stop()


def work(channel: Channel, *, workers: int, size: int, mode: str = "gradients") -> None:
    """The program of the process."""
    serve(channel, _Adder(workers, size) if mode == "gradients" else _ChangeAdder(workers, size))


class _Adder:
    def __init__(self, workers: int, size: int) -> None:
        self._updates: list[Values] = [np.empty(size, np.float32) for _ in range(workers)]
        self._results: list[Values] = [np.empty(size, np.float32) for _ in range(workers)]
        self._sum: Values = np.zeros(size, np.float32)
        for worker, update in enumerate(self._updates):
            fill(update, worker)

    def prepare(self) -> None:
        for result in self._results:
            result.fill(np.nan)

    def round(self) -> None:
        self._add()
        self._copy(self._sum)

    def _add(self) -> None:
        if len(self._updates) == 1:
            np.copyto(self._sum, self._updates[0])
        else:
            np.add(self._updates[0], self._updates[1], out=self._sum)
        for update in self._updates[2:]:
            np.add(self._sum, update, out=self._sum)

    def _copy(self, values: Values) -> None:
        for result in self._results:
            np.copyto(result, values)

    def check(self) -> None:
        for result in self._results:
            check_sum(result, len(self._updates))


class _ChangeAdder(_Adder):
    def __init__(self, workers: int, size: int) -> None:
        super().__init__(workers, size)
        self._params: Values = np.zeros(size, np.float32)

    def prepare(self) -> None:
        super().prepare()
        self._params.fill(0)
        self._rounds = 0

    def round(self) -> None:
        self._add()
        np.add(self._params, self._sum, out=self._params)
        self._copy(self._params)
        self._rounds += 1

    def check(self) -> None:
        for result in self._results:
            check_sum(np.rint(result / np.float32(self._rounds)), len(self._updates))
