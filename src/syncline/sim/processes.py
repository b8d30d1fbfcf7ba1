"""Worker and server processes as the world sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from syncline.messages import NodeId
from syncline.nodes.driver import Driver
from syncline.nodes.protocol import Keeper, Trainer
from syncline.sim.overlap import PassState
from syncline.sim.worker_model import WorkerModel


@dataclass(slots=True, eq=False)
class Processor:
    """Works through what comes in, one message after another; nodes of one host have one."""

    until: float = 0.0

    def take(self, now: float, seconds: float) -> float:
        """Something that takes so long has come in: when it is done."""
        self.until = max(now, self.until) + seconds
        return self.until


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    """A worker process: its node, what it holds of the model, and what it is doing."""

    node: Trainer
    driver: Driver
    model: WorkerModel
    joining: bool = False
    """It has not begun its first iteration, and did not start with the run."""
    iteration: int = 0
    alive: bool = True
    """Its process runs, or is frozen."""
    awaited: bool = True
    """The run goes on at least until this worker is done."""
    done: bool = False
    leaving: bool = False
    factor: float = 1.0
    """How many times slower its steps are at present."""
    slowed: int = 0
    """Counts the times it was slowed down: only the last one's end counts."""
    frozen_until: float = 0.0
    step: int = 0
    """Numbers its computations: one that was begun before an accident is void."""
    step_start: float = 0.0
    step_stop: float = -inf
    block: Sequence[float] = ()
    """The seconds of its iterations from `block_start` to before `block_stop`, as far as there are any."""
    block_start: int = 0
    block_stop: int = 0
    passes: PassState = field(default_factory=PassState)
    """Where it is in its step, if computing overlaps with sending."""
    processor: Processor = field(default_factory=Processor)

    number: int = field(init=False)

    def __post_init__(self) -> None:
        self.number = self.node.number

    @property
    def id(self) -> NodeId:
        return self.driver.me

    def can_hand_over(self, iteration: int) -> bool:
        """Has it done the step before this iteration, so that a joiner can go on from its replica?"""
        return self.alive and not self.joining and self.iteration == iteration


@dataclass(slots=True, eq=False)
class SimulatedServer:
    """A server process: its node, and how many seconds it was busy with messages."""

    node: Keeper
    driver: Driver
    busy: float = 0.0
    processor: Processor = field(default_factory=Processor)

    @property
    def id(self) -> NodeId:
        return self.driver.me
