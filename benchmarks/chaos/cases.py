"""A random run and what happens to it, from a number: the same number is always the same case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.chaos.ledger import DIVIDED, WHOLE

WORKERS = 3
"""How many workers a run has. At most one of them is missing at a time, so that an update is divided by 2 or 3."""

PATIENCE = 2.0
"""Seconds for which a process may be stopped before it counts as dead."""

SHORT_STOP, LONG_STOP = (0.05, 0.8), (2 * PATIENCE, 3 * PATIENCE)
PAUSES = (0.1, 1.5)
"""Seconds between two faults."""

COORDINATOR = 0.2
"""The share of the faults that strike the coordinator."""

AT_CLOSE = ("bsp", "drop")
"""Sync models that apply a whole round at once."""


@dataclass(frozen=True)
class Fault:
    """Something that happens to a process."""

    after: float
    """Seconds after the fault before it."""
    what: str
    """kill; stop, and let it go on later; or change, of the sync model."""
    who: str
    """worker0, server1 ..., coordinator; for a change the new sync model."""
    seconds: float = 0.0
    """How long it is stopped."""

    def __str__(self) -> str:
        return f"{self.what} {self.who}" + (f" for {self.seconds:.1f} s" if self.seconds else "")


@dataclass(frozen=True)
class Case:
    """A run, what its parameters may show, and its faults."""

    number: int
    command: tuple[str, ...]
    faults: tuple[Fault, ...]
    rule: bool = False
    """Whether the servers subtract what they get."""
    shares: Sequence[float] = DIVIDED
    promised: bool = True
    partial: int = 0
    """See ledger.py."""

    def __str__(self) -> str:
        return f"case {self.number}: syncline run {' '.join(self.command)}"


def random_case(number: int, faults: int) -> Case:
    draw = Random(number)
    lane = ("-n", str(WORKERS), "--restarts", "1000", "--lane", draw.choice(("shm", "tcp")))
    kind = draw.choice((_of_servers, _of_servers, _of_peers, _of_tree))
    return kind(number, draw, lane, faults)


def _of_servers(number: int, draw: Random, lane: tuple[str, ...], count: int) -> Case:
    sync = draw.choice(("bsp", "ssp:2", "asp", "drop:2", "pssp:s=2,p=0.5", "dsps:1,4"))
    rule, servers = draw.random() < 0.4, draw.choice((1, 2, 3))
    at_close = sync.partition(":")[0] in AT_CLOSE
    mode = ("--rule", "sgd:1") if rule else ("--mode", "changes")
    codec = draw.choice(((), (), ("--codec", "fp16"), ("--codec", "topk:0.5")))
    bucket = ("--bucket", draw.choice(("16KiB", "64KiB", "1MiB")))
    models = () if rule or sync.startswith("drop") else ("bsp", "ssp:2", "asp")  # a rule divides only at the close
    return Case(
        number,
        (*lane, "--servers", str(servers), "--sync", sync, *mode, *codec, *bucket),
        _faults(draw, count, servers, models),
        rule,
        WHOLE if rule and not at_close else DIVIDED,
        promised=not sync.startswith("drop"),
    )


def _of_peers(number: int, draw: Random, lane: tuple[str, ...], count: int) -> Case:
    partitions, tau = draw.choice((1, 2, 4)), draw.choice((0, 2))
    strategy = f"exchange:partitions={partitions},tau={tau}"
    partial = 2 * partitions + tau  # what it owed, and what it may have been ahead
    return Case(number, (*lane, "--strategy", strategy), _faults(draw, count, 0, ()), partial=partial)


def _of_tree(number: int, draw: Random, lane: tuple[str, ...], count: int) -> Case:
    topology, consistency = draw.choice(("chain", "star")), draw.choice(("eventual", "ssp:3", "approximate:20", "bsp"))
    servers = draw.choice((2, 3))
    strategy = f"tree:topology={topology},consistency={consistency},period=0.02,durable=true"
    return Case(
        number,
        (*lane, "--servers", str(servers), "--strategy", strategy),
        _faults(draw, count, servers, ()),
    )


def _faults(draw: Random, count: int, servers: int, models: tuple[str, ...]) -> tuple[Fault, ...]:
    return tuple(_fault(draw, servers, models) for _ in range(count))


def _fault(draw: Random, servers: int, models: tuple[str, ...]) -> Fault:
    """`models`: the sync models to which the run may change."""
    after, kind = draw.uniform(*PAUSES), draw.random()
    if models and kind < 0.1:
        return Fault(after, "change", draw.choice(models))
    on_server = servers and draw.random() < 0.5
    who = f"server{draw.randrange(servers)}" if on_server else f"worker{draw.randrange(WORKERS)}"
    if draw.random() < COORDINATOR:
        who = "coordinator"
    if kind < 0.65:
        return Fault(after, "kill", who)
    return Fault(after, "stop", who, draw.uniform(*(SHORT_STOP if draw.random() < 0.6 else LONG_STOP)))
