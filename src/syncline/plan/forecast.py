"""Predicts the speed of one candidate, with the simulator or, for gloo, with a formula."""

from __future__ import annotations

from dataclasses import dataclass, replace

from syncline.codecs import Codec
from syncline.draw import Draw
from syncline.layout import VALUE_BYTES
from syncline.plan.candidates import Candidate, Form
from syncline.plan.codec_work import FREE, CodecWork
from syncline.plan.machines import Machines
from syncline.plan.memory import memory_of
from syncline.plan.model import PlannedModel
from syncline.plan.ring import ddp_buckets, ring_factor, ring_step
from syncline.plan.scale_model import scaled, server_words
from syncline.sim.compute import Lognormal
from syncline.sim.overlap import Overlap
from syncline.sim.problem import Layers, MadeUp, Problem
from syncline.sim.scenario import Cluster, Scenario
from syncline.sim.tcp_links import tcp_links
from syncline.sim.world import World
from syncline.spec import parse
from syncline.strategies.settings import settle, strategy_of

WARM, STEPS = 3, 4
"""The number of warm-up iterations and of counted iterations; after about three, all iterations are alike."""

MOST_CYCLE = 32
"""At most so many iterations are counted. An exchange repeats after p of them, a tree after a period, and the gate
`cached:s` after s + 1.
"""

LEAST_TURN = 1 << 16
"""The fewest bytes of a connection's turn on the links of a smaller model."""

COMPUTE = "computing"


@dataclass(frozen=True)
class Forecast:
    """The predicted figures of one candidate."""

    candidate: Candidate
    seconds: float
    """Of an iteration."""
    trainers: int
    """The number of machines that train."""
    shares: tuple[tuple[str, float], ...]
    """For how much of the time each resource is in use: computing, the busiest link, the busiest server's processor."""
    round_bytes: float
    """The bytes of values that the busiest link carries per iteration in its busier direction."""
    memory: int
    """The bytes that a machine needs, at most."""
    fits: bool = True
    """Whether a machine has that much memory."""

    @property
    def rate(self) -> float:
        """The steps per second of all workers together."""
        return self.trainers / self.seconds

    @property
    def limit(self) -> str:
        """What is in use for the largest part of the time."""
        return max(self.shares, key=lambda each: each[1])[0]

    @property
    def link_used(self) -> float:
        return max(share for name, share in self.shares if "link" in name)


def forecast(model: PlannedModel, machines: Machines, candidate: Candidate, work: CodecWork = FREE) -> Forecast:
    """Predict a candidate in its steady state; `work`: the processor time of its codec."""
    assert model.step is not None, "the step time must be known"
    if candidate.form is Form.RING:
        found = _ring(model, machines, candidate)
    else:
        found = _Simulation(model, machines, candidate, work).forecast()
    need = memory_of(candidate, model.size, machines.workers)
    return replace(found, memory=need, fits=machines.memory is None or need <= machines.memory)


def _ring(model: PlannedModel, machines: Machines, candidate: Candidate) -> Forecast:
    assert model.step is not None
    workers, rate, latency = machines.workers, machines.payload_rate, machines.latency
    overlap = candidate.overlap is not Overlap.NONE
    seconds = ring_step(model.layout, model.shares, model.step, workers, rate, latency, overlap)
    carried = model.size * ring_factor(workers)
    waits = 2 * (workers - 1) * latency * len(ddp_buckets(model.layout.tables))
    shares = (
        (COMPUTE, model.step / seconds),
        ("every machine's link", carried / rate / seconds),
        ("latency", waits / seconds),
    )
    return Forecast(candidate, seconds, workers, shares, carried, 0)


class _Simulation:
    """Simulates a candidate twice, for different numbers of iterations; the differences are of the steady state."""

    def __init__(self, model: PlannedModel, machines: Machines, candidate: Candidate, work: CodecWork) -> None:
        assert model.step is not None
        self._model, self._machines, self._candidate, self._work = model, machines, candidate, work
        self._scale = scaled(candidate, machines, model.size)
        self._step = model.step + self._encoding()

    def _encoding(self) -> float:
        """The seconds in which a worker encodes its updates and decodes what it gets, in a step."""
        values, candidate = self._model.layout.size, self._candidate
        if candidate.form is Form.EXCHANGE:
            values = values * (self._machines.workers - 1) // candidate.parts
        return values * (self._work.encode + self._work.decode)

    def forecast(self) -> Forecast:
        candidate = self._candidate
        cycle = min(candidate.cycle, MOST_CYCLE)
        warm = WARM + (cycle if candidate.form in (Form.EXCHANGE, Form.TREE) else 0)
        steps = cycle if cycle > 1 else STEPS
        (short, began), (long, ended) = self._run(warm), self._run(warm + steps)
        whole = ended - began
        (before, _), (after, node) = _busiest(short), _busiest(long)
        used = min(1.0, (after - before) / whole)  # an overloaded link still sends after the last iteration
        busy = max((server.busy for server in long.servers), default=0.0)
        busy -= max((server.busy for server in short.servers), default=0.0)
        seconds = whole / steps
        shares = [(COMPUTE, self._step / seconds), (self._link_name(node), used)]
        if long.servers:
            shares.append(("a server's processor", busy / whole))
        trainers = self._machines.workers - candidate.servers
        carried = used * seconds * self._machines.payload_rate
        return Forecast(candidate, seconds, trainers, tuple(shares), carried, 0)

    def _link_name(self, role: str) -> str:
        if self._candidate.form is Form.SPLIT:
            return f"every {role}'s link"
        return "every machine's link"

    def _run(self, iterations: int) -> tuple[World, float]:
        """A finished world, and its virtual seconds."""
        world = World(self._scenario(iterations), self._problem())
        return world, world.run().virtual_seconds

    def _problem(self) -> Problem:
        if self._candidate.form is Form.EXCHANGE:
            least = min(self._model.layout.size, self._candidate.parts)
            return MadeUp(max(least, int(self._model.layout.size * self._scale.model)), Draw(0))
        return Layers(self._model.layout, self._model.shares, Draw(0))

    def _scenario(self, iterations: int) -> Scenario:
        scale, machines, candidate = self._scale, self._machines, self._candidate
        words, coarser = dict(candidate.words), 1.0
        if scale.servers and candidate.form is not Form.TREE:
            fitted, coarser = server_words(words, self._model.layout.size, machines.latency, scale)
            words = {**fitted, **words}
        servers = scale.servers or None
        settled = settle({"plan": words}, servers, scale.workers)
        strategy = strategy_of({key: word for key, (word, _) in settled.items()}, servers)
        return Scenario(self._cluster(coarser), strategy, iterations, overlap=candidate.overlap)

    def _cluster(self, coarser: float) -> Cluster:
        scale, machines = self._scale, self._machines
        links = tcp_links(machines.bandwidth * scale.links * scale.model, machines.latency)
        assert links.turn is not None
        links = replace(links, turn=max(LEAST_TURN, int(links.turn * scale.model * coarser)))
        return Cluster(
            scale.workers,
            Lognormal(self._step),
            links,
            _apply_rate(machines, self._candidate, self._work) if scale.servers else None,
            self._candidate.form in (Form.COLOCATED, Form.TREE),
            machines.handling * scale.handling * coarser,
        )


def _apply_rate(machines: Machines, candidate: Candidate, work: CodecWork) -> float:
    """The encoded bytes per second that a server decodes and adds up, and for which it encodes an answer."""
    values = 1 << 18
    codec: Codec = parse("codec", candidate.codec)
    size = codec.size(values)
    return size / (values * (VALUE_BYTES / machines.apply + work.encode + work.decode))


def _busiest(world: World) -> tuple[float, str]:
    """The seconds for which the busiest link was in use in one direction, and whose link it is."""
    assert world.network is not None
    seconds, node = world.network.busiest()
    return seconds, "worker" if node is None else node.role
