"""The simulated worker and server processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from syncline.effects import Save
from syncline.layout import Bucket
from syncline.messages import NodeId
from syncline.nodes.driver import Driver
from syncline.nodes.protocol import Keeper, Trainer
from syncline.sim.overlap import PassState
from syncline.sim.worker_model import WorkerModel


@dataclass(slots=True, eq=False)
class Processor:
    """Handles incoming messages one after another; the nodes of one host share one."""

    until: float = 0.0

    def take(self, now: float, seconds: float) -> float:
        """Queue work that takes this many seconds; return when it is done."""
        self.until = max(now, self.until) + seconds
        return self.until


@dataclass(slots=True, eq=False)
class SimulatedWorker:
    """A worker process: its node, its replica, and what it is doing."""

    node: Trainer
    driver: Driver
    model: WorkerModel
    joining: bool = False
    """It joined a run that was already training, and has not begun its first iteration."""
    iteration: int = 0
    alive: bool = True
    """Its process is running or frozen."""
    awaited: bool = True
    """The run waits for this worker to be done."""
    done: bool = False
    leaving: bool = False
    factor: float = 1.0
    """How many times as long its steps take at the moment."""
    slowed: int = 0
    """How often it was slowed down; only the end of the last slow-down has an effect."""
    frozen_until: float = 0.0
    step: int = 0
    """The number of its current computation. A fault increases it, so that an interrupted computation is ignored."""
    step_start: float = 0.0
    step_stop: float = -inf
    block: Sequence[float] = ()
    """The compute times, in seconds, of its iterations from `block_start` to before `block_stop`."""
    block_start: int = 0
    block_stop: int = 0
    passes: PassState = field(default_factory=PassState)
    """How far it has got in its step, if computing overlaps with sending."""
    processor: Processor = field(default_factory=Processor)

    number: int = field(init=False)

    def __post_init__(self) -> None:
        self.number = self.node.number

    @property
    def id(self) -> NodeId:
        return self.driver.me

    def can_hand_over(self, iteration: int) -> bool:
        """True if it has done the step before this iteration, so that a joiner can continue from its replica."""
        return self.alive and not self.joining and self.iteration == iteration


@dataclass(slots=True, eq=False)
class SimulatedServer:
    """A server process: its node, and for how many seconds it was busy handling messages."""

    node: Keeper
    driver: Driver
    busy: float = 0.0
    processor: Processor = field(default_factory=Processor)
    alive: bool = True
    incarnation: int = 0
    saved: dict[Bucket, Save] = field(default_factory=dict)
    """Its last checkpoints."""

    @property
    def id(self) -> NodeId:
        return self.driver.me


class PeerLink(NamedTuple):
    """The link from one worker process to another. A worker that restarts is another process with other links."""

    source: SimulatedWorker
    to: SimulatedWorker
