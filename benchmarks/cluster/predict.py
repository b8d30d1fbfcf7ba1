"""Predict the result of an experiment with the simulator.

1. Links carry TCP in frames of 1,500 bytes, so a little less than the rate is left for values. Connections share a link
   one window at a time.
2. A message takes processor time; the hosts share the cores of this machine. The work on the values in a message takes
   no time.
3. The simulator does not implement gloo. Its ring is predicted from the bytes and the latency of its 2 (n - 1) turns,
   one bucket after another.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from benchmarks.cluster.experiment import EXCHANGE_WARM, Experiment, Overlap, System

from syncline.draw import Draw
from syncline.engines.coordinator.network_defaults import between_hosts
from syncline.engines.launch.plan import COMMAND_LINE
from syncline.layout import VALUE_BYTES
from syncline.plan.ring import ring_step
from syncline.recipes import build_layers
from syncline.sim import Cluster, Outcome, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.sim.tcp_links import GOODPUT as GOODPUT
from syncline.sim.tcp_links import HANDLING, tcp_links
from syncline.strategies.settings import settle, strategy_of

WARM, STEPS = 4, 6
"""The number of warm-up iterations and of counted iterations; after three or four, all iterations are alike."""

EXCHANGE_STEPS = 24
"""The number of counted iterations without servers, where one iteration differs from the next."""

TREE_STEPS = 30
"""The same for trees: at first workers do not wait, because the sync model lets them run ahead."""


@dataclass(frozen=True)
class Prediction:
    """The predicted results of one case."""

    iterations_per_second: float
    """The iterations of all workers together."""
    speedup: float
    """The same, relative to one worker without communication."""
    bytes_per_iteration: float
    """The bytes of values that a host's link sends, averaged over the hosts."""
    partitions: int = 0
    """The number of ranges into which workers cut the model; 0: the strategy has none."""


def cores() -> int:
    """The number of cores of this machine that this process may use."""
    return len(os.sched_getaffinity(0))


def scenario_of(experiment: Experiment, iterations: int) -> Scenario:
    """The experiment as a scenario for the simulator."""
    hosts = experiment.hosts
    lane = between_hosts(experiment.layers.layout.size // hosts, [experiment.settings], 2 * experiment.latency)
    settled = settle({COMMAND_LINE: experiment.settings, "the lane": lane}, experiment.servers or None, hosts)
    words = {key: word for key, (word, _) in settled.items()}
    links = tcp_links(experiment.rate, experiment.latency)
    handling = HANDLING * max(1.0, hosts / cores())
    beside = not experiment.exchanges
    cluster = Cluster(hosts, Lognormal(experiment.seconds), links, colocated=beside, handling=handling)
    overlap = Overlap.NONE if experiment.exchanges else experiment.overlap
    return Scenario(cluster, strategy_of(words, experiment.servers or None), iterations, overlap=overlap)


def load_of(experiment: Experiment) -> float:
    """x: what a worker would send per second if each update went whole to all others, per byte that its link carries.

    The exchange strategy with `auto` should cut the model into p = ceil(x) ranges; then a link is x / p full.
    """
    size = experiment.layers.layout.size * VALUE_BYTES
    return size * (experiment.hosts - 1) / experiment.seconds / (experiment.rate * GOODPUT)


def predict(experiment: Experiment) -> Prediction:
    """The predicted results of an experiment in its steady state."""
    partitions = 0
    if experiment.system is System.GLOO:
        step, sent = _ring(experiment)
    elif experiment.is_tree:
        step, sent = _tree(experiment)
    elif experiment.exchanges:
        step, sent, partitions = _exchanged(experiment)
    else:
        step, sent = _simulated(experiment)
    pace = experiment.hosts / step
    return Prediction(pace, pace * experiment.seconds, sent, partitions)


def _simulated(experiment: Experiment) -> tuple[float, float]:
    """The seconds of a step, and the bytes of values that a link sends in it."""
    short, long = (_run(experiment, iterations) for iterations in (WARM, WARM + STEPS))
    moved = (long.bytes_pushed + long.bytes_pulled) / long.scenario.iterations / experiment.hosts
    others = (experiment.hosts - 1) / experiment.hosts  # one worker is on the same host as the server of a bucket
    return (long.virtual_seconds - short.virtual_seconds) / STEPS, moved * others


def _tree(experiment: Experiment) -> tuple[float, float]:
    """The same for a tree, in which a host sends changes over all edges of its node."""
    worlds = [_world(experiment, iterations) for iterations in (WARM, WARM + TREE_STEPS)]
    short, long = (world.run() for world in worlds)
    few, many = (0 if world.watch is None else sum(world.watch.bytes.values()) for world in worlds)
    seconds = (long.virtual_seconds - short.virtual_seconds) / TREE_STEPS
    return seconds, (many - few) / TREE_STEPS / experiment.hosts


def _exchanged(experiment: Experiment) -> tuple[float, float, int]:
    """The same without servers, and the number of ranges; the steps before that number was chosen do not count."""
    worlds = [_world(experiment, iterations) for iterations in (EXCHANGE_WARM, EXCHANGE_WARM + EXCHANGE_STEPS)]
    short, long = (world.run() for world in worlds)
    sent = (long.bytes_pushed - short.bytes_pushed) / EXCHANGE_STEPS / experiment.hosts
    seconds = (long.virtual_seconds - short.virtual_seconds) / EXCHANGE_STEPS
    return seconds, sent, getattr(worlds[1].workers[0].node, "parts", 0)


def _run(experiment: Experiment, iterations: int) -> Outcome:
    return _world(experiment, iterations).run()


def _world(experiment: Experiment, iterations: int) -> World:
    return World(scenario_of(experiment, iterations), build_layers(experiment.model, Draw(0)))


def _ring(experiment: Experiment) -> tuple[float, float]:
    """The same for gloo: a bucket is reduced once it is computed and the bucket before it is done."""
    layers, rate, overlap = experiment.layers, experiment.rate * GOODPUT, experiment.overlap is not Overlap.NONE
    network = (experiment.hosts, rate, experiment.latency)
    return ring_step(layers.layout, layers.shares, experiment.seconds, *network, overlap), experiment.least_bytes
