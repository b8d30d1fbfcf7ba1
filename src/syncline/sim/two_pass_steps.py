"""Steps in two passes: a worker sends updates during the backward pass, and its forward pass may wait for buckets.

1. Forward takes a third of a step's seconds, backward two thirds. Each table has its share of both (overlap.py).
2. The worker hands over a bucket's update when backward has finished the bucket's first table.
3. With `forward`, the next step begins when backward is done. Forward stops before a table whose bucket is not
   answered, and continues when it is. If an update was dropped, the step may turn out to belong to a later iteration;
   it still takes the seconds of the next one.
4. The gradient is computed from the parameters that the forward pass has read. Forward ends only after all of them have
   arrived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.effects import Ready
from syncline.sim.clocked import NEVER, Clocked
from syncline.sim.overlap import BACKWARD_PART, FORWARD_PART, Overlap, PassState, Stage, departures, shares_of, starts
from syncline.sim.processes import SimulatedWorker

if TYPE_CHECKING:
    from syncline.sim.world import World

NOTHING, FORWARD, BACKWARD = Stage  # looking up an enum member is slow


class Passes(Clocked):
    """Workers compute by the clock and hand over each bucket's update as soon as it is ready."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        found = starts(world.problem.layout, shares_of(world.problem), world.buckets)
        self._starts = [*found, 1.0]
        self._buckets = world.buckets
        self._departures = departures(found, world.buckets)
        self.early = world.scenario.overlap is Overlap.FORWARD
        """A step may begin before all buckets of the previous step are answered."""

    def begin(self, worker: SimulatedWorker) -> None:
        step = worker.passes
        step.whole = True
        if step.stage is NOTHING and step.seconds is None:
            step.fresh = len(self._buckets)
            step.seconds = self._seconds(worker, worker.iteration)
            self._forward(worker, step)

    def fresh(self, worker: SimulatedWorker, place: int) -> None:
        """An answer for the bucket at this place, or for a piece of it, has arrived; forward may wait for it."""
        if worker.joining:
            return
        step, node = worker.passes, worker.node
        if node.progress != worker.iteration or node.is_answered(self._buckets[place]):
            step.answered[place] = True
        while step.fresh < len(step.answered) and step.answered[step.fresh]:
            step.fresh += 1
        if step.stage is NOTHING and step.fresh and self._may_begin(worker, step):
            self._forward(worker, step)

    def postpone(self, worker: SimulatedWorker, seconds: float) -> None:
        worker.passes.turned += seconds
        super().postpone(worker, seconds)

    def _may_begin(self, worker: SimulatedWorker, step: PassState) -> bool:
        """True if the next step has begun or can begin."""
        if step.seconds is None:
            following = worker.iteration + 1
            if worker.leaving or following >= self.last:
                return False
            step.seconds = self._seconds(worker, following)
        return True

    def _forward(self, worker: SimulatedWorker, step: PassState) -> None:
        """Continue forward as far as parameters have arrived; do nothing if the next ones are missing."""
        assert step.seconds is not None
        target = self._starts[step.fresh]
        if target <= step.done and step.fresh < len(self._buckets):
            return
        if step.stage is NOTHING:
            step.stage = FORWARD
            worker.step_start = self._agenda.now
        seconds = (target - step.done) * FORWARD_PART * step.seconds
        step.target = target
        self._end_at(worker, self._agenda.now + seconds)

    def _computed(self, worker: SimulatedWorker, number: int) -> None:
        if worker.step != number or self._world.ended is not None:
            return
        worker.step_stop = NEVER
        step = worker.passes
        if step.stage is BACKWARD:
            self._give(worker, step)
            return
        step.done = step.target
        if step.fresh < len(self._buckets):
            self._stop_or_go_on(worker, step)
        elif step.target < 1.0:
            self._forward(worker, step)
        elif step.whole:
            self._turn(worker, step)

    def _stop_or_go_on(self, worker: SimulatedWorker, step: PassState) -> None:
        if self._starts[step.fresh] > step.done:
            self._forward(worker, step)
        else:
            step.stage = NOTHING
            self._world.meter.computed(worker.number, worker.step_start, self._agenda.now)

    def _turn(self, worker: SimulatedWorker, step: PassState) -> None:
        """Begin the backward pass."""
        step.stage, step.whole = BACKWARD, False
        step.updates = worker.model.update(self._world.mode, worker.number, worker.iteration)
        step.answered, step.fresh = [False] * len(self._buckets), 0
        step.turned, step.given = self._agenda.now, 0
        self._end_at(worker, self._departs(step))

    def _departs(self, step: PassState) -> float:
        """The time of the next departure."""
        assert step.seconds is not None
        return step.turned + self._departures[step.given].share * BACKWARD_PART * step.seconds

    def _give(self, worker: SimulatedWorker, step: PassState) -> None:
        """Hand over the updates that are ready now."""
        world, now = self._world, self._agenda.now
        departure, updates = self._departures[step.given], step.updates
        step.given += 1
        if step.given < len(self._departures):
            self._end_at(worker, self._departs(step))
        else:
            world.meter.computed(worker.number, worker.step_start, now)
            step.stage, step.seconds, step.done = NOTHING, None, 0.0
        for place, bucket in departure.buckets:
            worker.driver.tell(Ready(bucket, updates[place]), now)

    def _end_at(self, worker: SimulatedWorker, time: float) -> None:
        worker.step += 1
        worker.step_stop = time
        self._agenda.at(time, worker.number, self._ended, worker, worker.step)
