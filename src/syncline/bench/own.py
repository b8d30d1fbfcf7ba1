"""Syncline itself, in either lane: in a round a worker pushes its update and waits for the new values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from syncline.bench.bursts import serve
from syncline.bench.case import Case
from syncline.bench.channel import Channel
from syncline.bench.crew import BenchCrew
from syncline.bench.values import check_sum, fill
from syncline.engines.launch.launcher import Launcher
from syncline.engines.launch.plan import Plan
from syncline.engines.net.wiring import Wiring
from syncline.engines.worker.session import NumpySession


class Syncline:
    """The real engine: coordinator, servers, and workers that only exchange updates."""

    def __init__(self, lane: str, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: further settings of the run."""
        self.name = f"syncline-{lane}"
        self._lane = lane
        self._settings = dict(settings or {})
        self._crew = BenchCrew(self.name)
        self._launcher: Launcher | None = None

    def start(self, case: Case) -> None:
        plan = Plan([], case.workers, case.servers, {"mode": case.mode, **self._settings}, Wiring(lane=self._lane))
        self._launcher = Launcher(plan)
        self._launcher.open()
        for worker in range(case.workers):
            wiring = asdict(self._launcher.wiring.of("worker", worker))
            words = {"size": case.size, "workers": case.workers, "mode": case.mode}
            self._crew.add_worker("syncline.bench.own:work", wiring=wiring, **words)
        self._crew.ready()

    def burst(self, rounds: int) -> list[float]:
        return self._crew.burst(rounds)

    def stop(self) -> None:
        self._crew.stop()
        if self._launcher is not None:
            self._launcher.stop()
            self._launcher = None


def work(channel: Channel, *, wiring: dict[str, str], size: int, workers: int, mode: str) -> None:
    """The program of a worker."""
    kind = _MeanWorker if mode == "gradients" else _ChangeWorker
    serve(channel, kind(NumpySession().start(Wiring(**wiring)), size, workers))


class _MeanWorker:
    """Pushes the same update in every round, straight from the session's buffer, and receives the mean of all."""

    def __init__(self, session: NumpySession, size: int, workers: int) -> None:
        self._session = session
        self._workers = np.float32(workers)
        self._values = session.tables({"values": np.zeros(size, np.float32)})["values"]

    def prepare(self) -> None:
        fill(self._session.buffer("values"), self._session.rank)

    def round(self) -> None:
        self._session.update("values")
        self._session.clock()
        self._session.sync()

    def check(self) -> None:
        check_sum(np.rint(self._values * self._workers), int(self._workers))


class _ChangeWorker(_MeanWorker):
    """Receives parameters, to which every round adds the mean of the updates."""

    def prepare(self) -> None:
        super().prepare()
        self._session.sync()
        self._before, self._rounds = self._values.copy(), 0

    def round(self) -> None:
        super().round()
        self._rounds += 1

    def check(self) -> None:
        mean = (self._values - self._before) / np.float32(self._rounds)
        check_sum(np.rint(mean * self._workers), int(self._workers))
