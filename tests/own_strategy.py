"""A strategy as a user could write it: every k steps each worker averages its parameters with the next one in a ring.

1. After every k-th step a worker sends its parameters to the one before it and waits for those of the one after it.
2. A new view makes a new ring: a worker sends its last parameters again to a new neighbour, which ignores old ones.
3. A worker that leaves sends a goodbye to the one before it and waits for the answer, so its last message has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline import Bucket, Strategy, UsageError
from syncline.effects import Deliver, Depart, Effect, Event, Fail, How, Ready, Received, Send
from syncline.errors import GoneError
from syncline.layout import Values
from syncline.messages import COORDINATOR, Gone, LeaveNotice, Message, NodeId, View, worker_id
from syncline.nodes.phase import Phase
from syncline.nodes.protocol import Trainer
from syncline.strategies import Job


class Theta(Message, frozen=True, tag="ring-theta"):
    """Worker to the one before it: my parameters of a bucket after step `progress`."""

    progress: int
    bucket: Bucket


class Goodbye(Message, frozen=True, tag="ring-goodbye"):
    """Worker to the one before it: I leave; `heard`: the answer."""

    heard: bool = False


def beside(me: NodeId, view: View, step: int) -> NodeId:
    """The next (1) or previous (-1) worker in the ring of a view; oneself, if there is no other."""
    ring = sorted({member.worker for member in view.members} | {me.number})
    return worker_id(ring[(ring.index(me.number) + step) % len(ring)])


@dataclass(frozen=True)
class Ring(Strategy):
    """`every`: steps between two exchanges."""

    messages = (Theta, Goodbye)
    every: int = 1

    def check(self, workers: int) -> None:
        if self.every < 1:
            raise UsageError("every", f"must be at least 1 step, not {self.every}")

    def neighbours(self, me: NodeId, view: View) -> frozenset[NodeId]:
        return frozenset({beside(me, view, 1), beside(me, view, -1)}) - {me}

    def trainer(self, worker: int, incarnation: int, job: Job, view: View) -> RingNode:
        return RingNode(worker, incarnation, self.every, self.buckets(job.layout, view.topology), view)


class RingNode(Trainer):
    """One worker of the ring."""

    def __init__(self, number: int, incarnation: int, every: int, buckets: tuple[Bucket, ...], view: View) -> None:
        self.number, self.incarnation, self.progress, self.closed, self.phase = number, incarnation, 0, 0, Phase.RUNNING
        self._me, self._every, self._view = worker_id(number), every, view
        self._theirs: dict[Bucket, dict[int, Values]] = {bucket: {} for bucket in reversed(buckets)}
        self._sent: dict[Bucket, tuple[int, Values]] = {}  # what was last sent of each bucket, and after which step
        self._answered: dict[Bucket, bool] = {}  # of the buckets of the present step that were handed in

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return tuple(self._theirs)

    def is_given(self, bucket: Bucket) -> bool:
        return bucket in self._answered

    def is_answered(self, bucket: Bucket) -> bool:
        return self._answered.get(bucket, False)

    def handle(self, event: Event, now: float) -> list[Effect]:
        out: list[Effect] = []
        match event:
            case _ if self.phase is Phase.GONE:
                pass
            case Ready(bucket):
                self._step(event, bucket, out)
            case Received(_, Theta(progress=step, bucket=bucket), values) if step >= self.progress:
                self._theirs[bucket][step] = np.array(values)
                self._average(bucket, out)
            case Received(_, View() as view):
                self._adopt(view, out)
            case Received(source, Goodbye(heard=False)):
                out.append(Send(source, Goodbye(self._view.view, heard=True)))
            case Received(source, Goodbye()) if source == beside(self._me, self._view, -1):
                out.append(self._leave())
            case Received(_, Gone()):
                self.phase = Phase.GONE
                out.append(Fail(GoneError(self.number, self.incarnation, self.progress)))
            case Depart():
                self.phase = Phase.LEAVING
                self._say_goodbye(out)
        return out

    def _step(self, ready: Ready, bucket: Bucket, out: list[Effect]) -> None:
        self._answered[bucket] = False
        if ready.payload is not None:
            out.append(Deliver(bucket, ready.payload, None, How.ADD))
        if (self.progress + 1) % self._every or beside(self._me, self._view, 1) == self._me:
            self._finish(bucket, None, out)
        else:
            self._sent[bucket] = (self.progress, np.add(ready.params, 0 if ready.payload is None else ready.payload))
            out.append(self._theta(bucket))
            self._average(bucket, out)

    def _theta(self, bucket: Bucket) -> Send:
        step, theta = self._sent[bucket]
        return Send(beside(self._me, self._view, -1), Theta(self._view.view, step, bucket), theta)

    def _average(self, bucket: Bucket, out: list[Effect]) -> None:
        theirs = self._theirs[bucket]
        if theirs and self._answered.get(bucket) is False:
            self._finish(bucket, (self._sent[bucket][1] + theirs[min(theirs)]) * np.float32(0.5), out)

    def _finish(self, bucket: Bucket, values: Values | None, out: list[Effect]) -> None:
        self._answered[bucket], following = True, None
        if sum(self._answered.values()) == len(self._theirs):
            self.progress = self.closed = following = self.progress + 1
            self._answered.clear()
            for each, theirs in self._theirs.items():
                self._theirs[each] = {step: values for step, values in theirs.items() if step >= following}
        out.append(Deliver(bucket, values, following))

    def _adopt(self, view: View, out: list[Effect]) -> None:
        me, before, self._view = self._me, self._view, view
        if beside(me, view, -1) not in (me, beside(me, before, -1)):
            out.extend(self._theta(bucket) for bucket in self._sent)
        if beside(me, view, 1) == me:
            for bucket in [each for each, answered in self._answered.items() if not answered]:
                self._finish(bucket, None, out)
        if self.phase is Phase.LEAVING:
            self._say_goodbye(out)

    def _say_goodbye(self, out: list[Effect]) -> None:
        before = beside(self._me, self._view, -1)
        out.append(self._leave() if before == self._me else Send(before, Goodbye(self._view.view)))

    def _leave(self) -> Send:
        self.phase = Phase.GONE
        return Send(COORDINATOR, LeaveNotice(self._view.view, self.incarnation))
