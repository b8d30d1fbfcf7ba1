"""The progress of a training run, as its workers report it."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.engines.net.control import Pulse


@dataclass(frozen=True)
class WorkerProgress:
    """The progress of one worker."""

    pulse: Pulse
    at: float
    """When the worker reported it."""
    rate: float
    """Iterations per second, recently."""

    @property
    def waited_share(self) -> float:
        spent = self.pulse.computed + self.pulse.waited
        return self.pulse.waited / spent if spent else 0.0

    @property
    def step_seconds(self) -> float:
        """The mean duration of an iteration, waiting included."""
        return (self.pulse.computed + self.pulse.waited) / max(1, self.pulse.iteration)

    @property
    def compute_seconds(self) -> float:
        """The mean compute time of an iteration."""
        return self.pulse.computed / max(1, self.pulse.iteration)


class ProgressBoard:
    """The latest progress of every worker. It is reset when the workers begin to train another model."""

    def __init__(self) -> None:
        self.model = ""
        self.places: dict[int, WorkerProgress] = {}
        self.quality: tuple[float, float] | None = None
        """Loss and accuracy of the last measurement."""

    def heard(self, pulse: Pulse, now: float) -> None:
        if pulse.model != self.model:
            self.model, self.places, self.quality = pulse.model, {}, None
        if pulse.loss is not None and pulse.accuracy is not None:
            self.quality = pulse.loss, pulse.accuracy
        before = self.places.get(pulse.worker)
        if (
            before is None or pulse.computed >= before.pulse.computed
        ):  # less: this pulse only reports the model's quality
            self.places[pulse.worker] = WorkerProgress(pulse, now, _rate(pulse, now, before))

    def slowest(self) -> tuple[int, str] | None:
        """The worker with the longest iterations, and the reason; None if it is not known yet.

        If the sync model keeps workers in step, all iterations take equally long. Then it is the worker that computes
        longest.
        """
        longest = max((place.step_seconds for place in self.places.values()), default=0.0)
        last = [(each, worker) for worker, each in self.places.items() if each.step_seconds >= 0.9 * longest]
        if len(self.places) < 2 or not longest:
            return None
        place, worker = max(last, key=lambda pair: (pair[0].compute_seconds, pair[1]))
        return worker, "waits for others" if place.waited_share > 0.5 else "computes longest"


def _rate(pulse: Pulse, now: float, before: WorkerProgress | None) -> float:
    """Iterations per second since the last report; for the first report, since the start."""
    if before is None:
        spent = pulse.computed + pulse.waited
        return pulse.iteration / spent if spent else 0.0
    if now - before.at < 0.1:
        return before.rate
    return (pulse.iteration - before.pulse.iteration) / (now - before.at)
