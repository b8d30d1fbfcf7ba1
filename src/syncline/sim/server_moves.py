"""Servers that join and leave a simulated run: checks of the script, and how a made-up bucket is cut."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syncline.errors import UsageError
from syncline.layout import Bucket, Values, Within, within
from syncline.messages import Topology
from syncline.sim.faults import AddServer, CrashServer, RemoveServer, Switch
from syncline.spec import write
from syncline.strategies.protocol import Job

if TYPE_CHECKING:
    from syncline.sim.scenario import Scenario


def placements(scenario: Scenario) -> Iterator[tuple[str, frozenset[int]]]:
    """The servers after each fault that adds or removes one, in order of time. Refuses faults that cannot work."""
    strategy: Any = scenario.strategy  # if servers can join and leave, it has one sync model per server
    moves = strategy.moves_servers
    models: dict[int, tuple[Any, Any]] = {}
    if moves:
        models = {server: (strategy.sync[server], strategy.release) for server in range(strategy.servers)}
    following = len(models)
    in_time = sorted(enumerate(scenario.faults), key=lambda each: each[1].at)
    for option, fault in ((f"faults[{number}]", fault) for number, fault in in_time):
        if isinstance(fault, AddServer | RemoveServer) and not moves:
            raise UsageError(option, f"servers cannot be added or removed with strategy {strategy.name()!r}")
        match fault:
            case Switch(sync=model, server=server, release=release):
                if server is not None and server not in models:
                    raise UsageError(f"{option}.server", f"there is no server {server}; {_listed(models)}")
                for each in models if server is None else (server,):
                    models[each] = (model, release or models[each][1])
            case AddServer():
                _check_alike(option, models)
                models[following] = next(iter(models.values()))
                following += 1
                yield option, frozenset(models)
            case RemoveServer(server=server):
                if server not in models:
                    raise UsageError(f"{option}.server", f"there is no server {server}; {_listed(models)}")
                if len(models) == 1:
                    raise UsageError(f"{option}.server", f"{server} is the last server; at least one must remain")
                del models[server]
                yield option, frozenset(models)
            case CrashServer(server=server, duration=duration):
                if server not in models:
                    raise UsageError(f"{option}.server", f"there is no server {server}; {_listed(models)}")
                if duration is None and len(models) == 1:
                    problem = f"{server} is the last server; add duration, after which it starts again"
                    raise UsageError(f"{option}.server", problem)
                if duration is None:
                    del models[server]
                    yield option, frozenset(models)


def _check_alike(option: str, models: Mapping[int, Any]) -> None:
    if any(each != next(iter(models.values())) for each in models.values()):
        those = ", ".join(f"{server}: {write(model)} {release}" for server, (model, release) in models.items())
        problem = f"a new server gets the sync model of the others, but they have different ones ({those})"
        raise UsageError(option, f"{problem}; give all servers the same one")


def _listed(servers: Collection[int]) -> str:
    if set(servers) == set(range(len(servers))):
        return numbers_to(len(servers))
    numbers = ", ".join(map(str, sorted(servers)))
    return f"there is only {numbers}" if len(servers) == 1 else f"there are {numbers}"


def numbers_to(count: int) -> str:
    return "there is only 0" if count == 1 else f"0 to {count - 1}"


def check_placements(scenario: Scenario, job: Job, topology: Topology) -> None:
    """Before the run, refuse a script that leaves a server without a part of the model."""
    strategy: Any = scenario.strategy
    for option, servers in placements(scenario):
        try:
            topology = strategy.replacing(job.layout, topology, servers)
        except UsageError as error:
            hint = "; placement elastic works with any number of servers up to the number of values"
            raise UsageError(option, error.problem + hint * (error.option == "servers")) from None


def ruler(buckets: Sequence[Bucket], pieces: Sequence[Values]) -> Within:
    """How to find a piece in a bucket that has fewer real values than parameters; they are spread evenly over it."""
    if all(bucket.size == piece.size for bucket, piece in zip(buckets, pieces, strict=True)):
        return within
    places = [
        bucket.start + bucket.size * number // piece.size
        for bucket, piece in zip(buckets, pieces, strict=True)
        for number in range(piece.size)
    ]

    def where(whole: Bucket, piece: Bucket) -> slice:
        first = bisect_left(places, whole.start)
        return slice(bisect_left(places, piece.start) - first, bisect_left(places, piece.stop) - first)

    return where
