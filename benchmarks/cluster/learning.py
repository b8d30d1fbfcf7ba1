"""Hosts that really learn: how many seconds each system needs until the model has a given accuracy.

1. A step computes a real gradient and then pauses, so that every step takes the same time on every host, however many
   hosts share the cores of this machine.
2. All systems start with the same parameters and train on the same batches. Each may use another optimizer: what is
   best for synchronous steps may diverge where updates arrive late.
3. The first worker keeps copies of its replica in memory, with the time of each. They are evaluated after the run, so
   evaluation takes no training time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
from benchmarks.cluster.engine import Crew, Process, start_syncline
from benchmarks.cluster.experiment import System
from benchmarks.cluster.network import Host, LinkBetween, region_of

from syncline.draw import Draw
from syncline.engines.launch.plan import Plan
from syncline.engines.process import ONE_THREAD
from syncline.errors import RunError, UsageError
from syncline.layout import VALUE_BYTES, Bucket, Values
from syncline.recipes import RECIPES, build
from syncline.sim.problem import Problem
from syncline.spec import parse

STAYS = 2
"""An accuracy counts as reached when so many saved replicas in a row have it."""

START_SECONDS, LIMIT_TIMES = 90.0, 4.0
"""The timeout of a run: a fixed time for its start, plus a multiple of the expected time of its steps."""


@dataclass(frozen=True)
class LearningTask:
    """One run: a recipe, a network, and the system that exchanges the updates."""

    recipe: str
    hosts: int = 4
    rate: float = 1e6
    """The rate of each link in bytes per second."""
    step: float = 0.1
    """The seconds that a worker computes in each step."""
    steps: int = 100
    """The steps of each worker."""
    every: int = 2
    """After how many steps the first worker keeps a copy of its replica."""
    batch: int = 32
    seed: int = 0
    system: System = System.SYNCLINE
    settings: Mapping[str, str] = field(default_factory=dict)
    optimizer: str = ""
    """The optimizer of each worker; empty: the recipe's own."""
    between: LinkBetween | None = None
    """The link between two regions; None: all hosts are in one."""

    @property
    def servers(self) -> int:
        return 0 if self.settings.get("strategy") == "exchange" else self.hosts

    @property
    def model_bytes(self) -> int:
        return RECIPES[self.recipe].values * VALUE_BYTES

    @property
    def load(self) -> float:
        """x: what a worker would send per second if each update went whole to all others, per byte of its link."""
        return self.model_bytes * (self.hosts - 1) / self.step / self.rate

    @property
    def limit(self) -> float:
        """The timeout in seconds: sending the whole model to all others takes longer than any system does."""
        across = 0.0
        if self.between is not None:
            across = self.hosts**2 * self.model_bytes / self.between.rate + 4 * self.hosts * self.between.latency
        return START_SECONDS + LIMIT_TIMES * self.steps * (self.step * (1 + self.load) + across)

    @property
    def region_edges(self) -> str:
        """A topology in which one link crosses from region to region: in each, a star around its first host."""
        centres = [0, next(host for host in range(self.hosts) if region_of(host, self.hosts))]
        pairs = [(centres[region_of(host, self.hosts)], host) for host in range(self.hosts) if host not in centres]
        return " ".join(f"{one}-{other}" for one, other in [tuple(centres), *pairs])

    def problem(self) -> Problem:
        """The model and its data; all workers start with the same parameters."""
        own = parse("rule", self.optimizer) if self.optimizer else None
        return build(self.recipe, draw=Draw(self.seed), workers=self.hosts, batch=self.batch, optimizer=own)

    def check(self) -> None:
        """Raise UsageError, before anything starts, if the engine does not support the settings."""
        if self.system is System.SYNCLINE:
            Plan((), self.hosts, self.servers or None, self.settings).settled()


REGIONS = "regions"
"""Stands for a topology in which one link crosses from region to region."""

EXCHANGE = {"strategy": "exchange"}
TREE = {"strategy": "tree", "consistency": "approximate:8", "copies": "false"}
TOP = {"codec": "topk:0.01", "reply_codec": "topk:0.01"}
HALF = {"codec": "fp16", "reply_codec": "fp16"}

LEARNING_CASES: Mapping[str, tuple[System, Mapping[str, str]]] = {
    "exchange": (System.SYNCLINE, EXCHANGE),
    "exchange-fp16": (System.SYNCLINE, {**EXCHANGE, "codec": "fp16"}),
    "exchange-topk": (System.SYNCLINE, {**EXCHANGE, "codec": TOP["codec"]}),
    "bsp": (System.SYNCLINE, {"sync": "bsp"}),
    "ssp": (System.SYNCLINE, {"sync": "ssp:3"}),
    "bsp-fp16": (System.SYNCLINE, {"sync": "bsp", **HALF}),
    "bsp-topk": (System.SYNCLINE, {"sync": "bsp", **TOP}),
    "ssp-topk": (System.SYNCLINE, {"sync": "ssp:3", **TOP}),
    "tree-star": (System.SYNCLINE, {**TREE, "topology": "star"}),
    "tree-chain": (System.SYNCLINE, {**TREE, "topology": "chain"}),
    "tree-regions": (System.SYNCLINE, {**TREE, "topology": REGIONS}),
    "tree-regions-topk": (System.SYNCLINE, {**TREE, "topology": REGIONS, "codec": TOP["codec"]}),
    "tree-regions-fp16": (System.SYNCLINE, {**TREE, "topology": REGIONS, "codec": "fp16"}),
    "gloo": (System.GLOO, {}),
}
"""The settings of each case; `gloo` is PyTorch's DistributedDataParallel."""


def learning_case(name: str, base: LearningTask) -> LearningTask:
    """The task of this case, with the recipe and the network of `base`."""
    if name not in LEARNING_CASES:
        raise UsageError("--cases", f"{name!r} is unknown; choose from: {', '.join(LEARNING_CASES)}")
    system, settings = LEARNING_CASES[name]
    if settings.get("topology") == REGIONS:
        settings = {**settings, "topology": base.region_edges}
    return replace(base, system=system, settings=settings)


class LearnerNotes(msgspec.Struct, frozen=True):
    """What one worker says about its run."""

    seconds: float
    """From the start of the first step to the end of the last."""
    sent: int
    """Bytes that its host's link sent meanwhile."""
    partitions: int = 0
    """The number of ranges at the end; 0: the strategy has none."""


@dataclass(frozen=True)
class LearningCurve:
    """How good the first worker's replica was, and when."""

    times: tuple[float, ...]
    """Seconds since the first step began."""
    accuracies: tuple[float, ...]

    def reached(self, target: float) -> float | None:
        """When the accuracy was reached and kept; None if it was not."""
        enough = [each >= target for each in self.accuracies]
        for number in range(len(enough) - STAYS + 1):
            if all(enough[number : number + STAYS]):
                return self.times[number]
        return None


@dataclass(frozen=True)
class LearningRun:
    """The result of one run."""

    curve: LearningCurve
    steps_per_second: float
    """Of one worker, averaged over the workers."""
    bytes_per_step: float
    """The bytes that a host's link sends, averaged over the hosts."""
    utilisation: float
    """The fraction of a link's rate that is used, averaged over the hosts."""
    partitions: int


def learn(task: LearningTask, hosts: Sequence[Host]) -> LearningRun:
    """Train once on this network."""
    with TemporaryDirectory(prefix="syncline-cluster-") as name:
        folder = Path(name)
        crew = Crew(hosts, folder)
        try:
            workers = _start(crew, task)
            crew.wait(workers, task.limit)
        finally:
            crew.stop()
        notes = [msgspec.json.decode(notes_of(folder, n).read_bytes(), type=LearnerNotes) for n in range(len(hosts))]
        with np.load(replicas_of(folder)) as saved:
            curve = evaluate(task.problem(), saved["times"], saved["replicas"])
    count = len(notes)
    return LearningRun(
        curve,
        sum(task.steps / each.seconds for each in notes) / count,
        sum(each.sent for each in notes) / count / task.steps,
        sum(each.sent / each.seconds for each in notes) / count / task.rate,
        notes[0].partitions,
    )


def _start(crew: Crew, task: LearningTask) -> list[Process]:
    words = msgspec.json.encode(task).decode()
    if task.system is System.SYNCLINE:
        command = ["-m", "benchmarks.cluster.learner", words, str(crew.folder)]
        return start_syncline(crew, task.settings, task.servers, lambda _: command)
    command = ["-m", "benchmarks.cluster.ddp_learner", words, str(crew.folder)]
    return [
        crew.start(f"worker{number}", host, [*command, str(number)], ONE_THREAD)
        for number, host in enumerate(crew.hosts)
    ]


def evaluate(problem: Problem, times: Values, replicas: Values) -> LearningCurve:
    """The accuracy of each replica on the test data."""
    problem.start([Bucket(0, problem.layout.size)])
    found = []
    for replica in replicas:
        quality = problem.quality([replica])
        if quality is None or quality.accuracy is None:
            raise RunError("this recipe has no accuracy")
        found.append(quality.accuracy)
    return LearningCurve(tuple(float(time) for time in times), tuple(found))


def notes_of(folder: Path, worker: int) -> Path:
    return folder / f"notes{worker}.json"


def replicas_of(folder: Path) -> Path:
    return folder / "replicas.npz"


def why_not(task: LearningTask) -> str:
    """Why this task cannot run; "" if it can."""
    try:
        task.check()
    except UsageError as error:
        return str(error)
    return "" if find_spec("torch") is not None else "torch is not installed"
