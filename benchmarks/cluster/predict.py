"""What the simulator says of an experiment, before or without running it: the same description, in virtual time.

A link carries TCP in frames of 1,500 bytes, so a little less than its rate is left for values, and connections share it
a window at a time. A message takes a processor its time, of which each host has its part of this machine's; what is
done with the values in it is left out. gloo is no protocol of ours: of its ring only the bytes count, one bucket after
another.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from benchmarks.cluster.experiment import Experiment, Overlap, System, ddp_buckets

from syncline.draw import Draw
from syncline.engines.coordinator.bucket_size import between_hosts
from syncline.engines.launch.plan import COMMAND_LINE
from syncline.layout import VALUE_BYTES
from syncline.recipes import build_layers
from syncline.sim import Cluster, Outcome, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.sim.network import Links
from syncline.sim.overlap import BACKWARD_PART, FORWARD_PART
from syncline.strategies.settings import settle, strategy_of

GOODPUT = 1448 / 1514
"""Of a frame, its headers included, what TCP with time stamps leaves for values."""

WINDOW = 1 << 18
"""Bytes that a connection has on its way, as a rule, before others have their turn on a link."""

HANDLING = 100e-6
"""Seconds that a message takes a processor, at both ends together, whatever its size: about what the benchmark's own
figures say (cores busy, times the seconds of a step, divided by its messages) where messages are many and small.
"""

WARM, STEPS = 4, 6
"""Iterations before those that count, and these: after three or four a run goes on as it is."""


@dataclass(frozen=True)
class Prediction:
    """What is expected of one case."""

    iterations_per_second: float
    """Of all workers together."""
    speedup: float
    """The same as a multiple of one worker that computes alone."""
    bytes_per_iteration: float
    """Values sent by a host's link, on average over the hosts."""


def cores() -> int:
    """Of this machine, that this process may use."""
    return len(os.sched_getaffinity(0))


def scenario_of(experiment: Experiment, iterations: int) -> Scenario:
    """The experiment as the simulator knows it."""
    hosts = experiment.hosts
    lane = between_hosts(experiment.layers.layout.size // hosts, [experiment.settings])
    settled = settle({COMMAND_LINE: experiment.settings, "the lane": lane}, hosts, hosts)
    words = {key: word for key, (word, _) in settled.items()}
    links = Links(experiment.rate * GOODPUT, turn=WINDOW)
    handling = HANDLING * max(1.0, hosts / cores())
    cluster = Cluster(hosts, Lognormal(experiment.seconds), links, colocated=True, handling=handling)
    return Scenario(cluster, strategy_of(words, hosts), iterations, overlap=experiment.overlap)


def predict(experiment: Experiment) -> Prediction:
    """The pace that it settles to."""
    step, sent = _ring(experiment) if experiment.system is System.GLOO else _simulated(experiment)
    pace = experiment.hosts / step
    return Prediction(pace, pace * experiment.seconds, sent)


def _simulated(experiment: Experiment) -> tuple[float, float]:
    """Seconds of a step, and the values, in bytes, that a link sends in it."""
    short, long = (_run(experiment, iterations) for iterations in (WARM, WARM + STEPS))
    moved = (long.trace.bytes_pushed + long.trace.bytes_pulled) / long.scenario.iterations / experiment.hosts
    others = (experiment.hosts - 1) / experiment.hosts  # of every bucket, one worker is beside its server
    return (long.virtual_seconds - short.virtual_seconds) / STEPS, moved * others


def _run(experiment: Experiment, iterations: int) -> Outcome:
    return World(scenario_of(experiment, iterations), build_layers(experiment.model, Draw(0))).run()


def _ring(experiment: Experiment) -> tuple[float, float]:
    """The same for gloo: a bucket goes round when it is there and the one before it is done."""
    tables = experiment.layers.layout.tables
    size = {table.name: table.size * VALUE_BYTES for table in tables}
    backward = {name: seconds for name, _, seconds in experiment.pauses}
    computed, free = 0.0, 0.0
    if experiment.overlap is Overlap.NONE:
        free = experiment.seconds * BACKWARD_PART
    for names in ddp_buckets(tables):
        computed += sum(backward[name] for name in names)
        seconds = sum(size[name] for name in names) * experiment.ring / (experiment.rate * GOODPUT)
        free = max(free, computed) + seconds
    return experiment.seconds * FORWARD_PART + free, experiment.least_bytes
