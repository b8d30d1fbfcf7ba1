"""Servers that die in a simulated run with a strategy that restores what they held from the workers' copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncline.effects import Restarted, ServerLost
from syncline.errors import UsageError
from syncline.layout import Bucket
from syncline.nodes.protocol import Counts
from syncline.sim.faults import CrashServer
from syncline.sim.read_values import ReadValues
from syncline.units import MOST_SECONDS

if TYPE_CHECKING:
    from syncline.sim.scenario import Scenario
    from syncline.sim.world import World


def check_crash(scenario: Scenario, option: str, fault: CrashServer) -> None:
    """Refuse a crash of a server that this run could not survive, whatever the servers are at that time."""
    if not scenario.strategy.restores_servers:
        problem = f"strategy {scenario.strategy.name()!r} does not restore what a dead server held"
        raise UsageError(option, f"{problem}; with strategy 'tree' use crash_node or lose_node")
    if scenario.dispatch is not None:
        raise UsageError(option, "[dispatch] has no clock, so servers cannot crash; remove one of them")
    for key, value in (("detect", fault.detect), ("duration", fault.duration)):
        if value is not None and not (0 < value <= MOST_SECONDS or (key == "detect" and value == 0)):
            raise UsageError(f"{option}.{key}", f"must be above 0 seconds and at most {MOST_SECONDS:,.0f}, not {value}")


class ServerCrashes:
    """Lets servers die, and remembers what the workers have read."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._reads: dict[tuple[int, int], ReadValues] = {}
        self.unnoticed = 0
        """How many servers have died and are neither declared lost nor started again; the run does not end before."""
        self._unseen: set[int] = set()
        """These servers."""

    def begin(self, worker: int, incarnation: int) -> None:
        """A worker starts."""
        self._reads[worker, incarnation] = self._world.first_reads()

    def reads(self, worker: int) -> ReadValues:
        """What the current process of this worker has read."""
        return self._reads[worker, self._world.workers[worker].node.incarnation]

    def copy(self, worker: int, bucket: Bucket) -> Any:
        return self.reads(worker).of(bucket)

    def apply(self, fault: CrashServer) -> None:
        world, number = self._world, fault.server
        if not world.servers[number].alive:
            return
        world.end_server(number)
        self.unnoticed += 1
        self._unseen.add(number)
        now = world.agenda.now
        if fault.duration is not None:
            world.agenda.at(now + fault.duration, -1, self._restart, number, None)
        if fault.duration is None or (world.strategy.has_backups and fault.detect < fault.duration):
            world.agenda.at(now + fault.detect, -1, self._declare, number, fault)

    def _declare(self, number: int, fault: CrashServer) -> None:
        """The coordinator and the workers notice that a server is dead; with backups, even if it starts again."""
        if fault.duration is not None and self._world.view_maker.servers == {number}:
            return  # nobody is left who could take over
        self._spread(number)
        self._world.to_coordinator(None, ServerLost(number))

    def _restart(self, number: int, _: None) -> None:
        world, before = self._world, self._world.servers[number]
        if number in self._unseen:
            self._spread(number)
        world.start_server(number, before.incarnation + 1)
        world.to_server(world.servers[number], before.node.in_force())
        world.to_coordinator(None, Restarted(number, before.incarnation + 1))

    def _spread(self, number: int) -> None:
        self.unnoticed -= 1
        self._unseen.discard(number)
        for worker in list(self._world.workers):
            self._world.to_worker(worker, ServerLost(number))


def crash_lines(counts: list[Counts]) -> list[str]:
    """What is restored and what is lost, for the notes under a report."""
    restored, lost = sum(each.restored for each in counts), sum(each.lost for each in counts)
    taken = sum(each.taken_over for each in counts)
    found = [f"{taken} buckets of dead servers were taken over by their backups"] if taken else []
    if not restored:
        return found
    found += [f"{restored} buckets were restored from the workers' copies; what a rule remembers of them began anew"]
    if lost:
        found.append(f"up to {lost} updates of buckets are lost: they were answered without parameters")
    return found
