"""A run on Ray, from start to end: Ray places, hands out address and key, and watches; the hosts do the rest.

1. One host is an actor with a launcher (host_process.py). The first host has only the coordinator, and runs on the node
   of the program that started the run. Each node that Ray has chosen for workers has one more host.
2. All hosts begin the run together, as with `syncline run --hosts`: with one key, which exists only in memory.
3. If a node or an actor dies, its workers and servers are lost, and the run continues on the others. If restarts are
   left, or the number of workers is a range, others join when Ray has CPUs for them.
4. If Ray is about to take a node away, its workers and servers leave the run.
5. When the workers of all hosts have ended, the first host ends the run.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from syncline.engines.launch.hosts import Hosts
from syncline.engines.launch.plan import Plan
from syncline.engines.net import keys
from syncline.engines.net.addresses import Address
from syncline.engines.net.control import Figures
from syncline.engines.net.wiring import Wiring
from syncline.errors import RunError, SynclineError, UsageError
from syncline.ray.cluster import NodePlacement, NodeShare, draining_nodes, live_nodes, on_own_node, servers_of
from syncline.ray.growth import RayGrowth
from syncline.ray.host_messages import Event, HostOrder, HostOver, Returned, Said, WorkerEnd
from syncline.ray.notes import Notes
from syncline.ray.remote_host import RemoteHost

Line = Callable[[str, str], None]

TURN_SECONDS = 0.5
"""Seconds between two looks at the nodes of the cluster."""

GRACE = 15.0
"""Seconds that the hosts have to end when the run is over."""


@dataclass(frozen=True)
class RayJob:
    """What runs on Ray."""

    plan: Plan
    """The run, as on one host."""
    cpus: float = 1.0
    """The CPUs that Ray keeps for each worker."""
    most: int = 0
    """How many workers the run may grow to; 0: it does not grow."""
    function: bytes = b""
    searched: tuple[str, ...] = ()


class RayRun:
    """One run on the cluster to which this program is connected."""

    def __init__(self, job: RayJob, line: Line) -> None:
        self._job, self._line = job, line
        self._notes = Notes()
        self._began = monotonic()
        self._hosts: list[RemoteHost] = []
        self._pending: dict[Any, RemoteHost] = {}
        self._growth = RayGrowth(job.plan.workers, job.most, job.plan.restarts, job.cpus)
        self._key = keys.fresh_key(datetime.now(UTC)).decode()
        self._reason: SynclineError | None = None
        """Why this program has ended the run."""
        self._looked = 0.0
        self._told = self._hurry = False
        self.name = ""
        """The coordinator's name on its host, for `syncline tell`."""
        self.results: dict[int, bytes] = {}
        self.failure: SynclineError | None = None

    # Start.

    def start(self) -> None:
        """Place the hosts, and start their processes."""
        plan = self._job.plan
        placement = self._growth.first(plan.workers)
        placement.wait(self._note)
        shares = placement.shares(servers_of(plan, placement.nodes))
        first = self._add(RemoteHost("the coordinator's host", on_own_node(), 1, 0))
        hosts = Hosts(len(shares) + 1, 0, str(Address(first.address(), 0)), workers=(0, 0), world=plan.workers)
        hosts = replace(hosts, servers=(0, 0), all_servers=shares[-1].servers[1])
        self._order(first, HostOrder(self._plan(hosts, plan.workers), launches=False))
        self._until(lambda: first.ready is not None or first.ended)
        if first.ready is None:
            raise self._failure_of(first) or RunError("the coordinator did not start")
        self.name = first.ready.name
        for rank, share in enumerate(shares, 1):
            self._start_host(rank, share, replace(hosts, rank=rank, address=first.ready.address), placement)
        self._until(lambda: all(host.ready is not None or host.ended for host in self._hosts) or first.ended)

    def _start_host(self, rank: int, share: NodeShare, hosts: Hosts, placement: NodePlacement) -> None:
        count = share.workers[1] - share.workers[0]
        host = RemoteHost(f"host {rank}", placement.options(share.bundle), self._job.cpus, count, share.node)
        host.bundles = tuple((placement, each) for each in share.bundles)
        plan = self._plan(replace(hosts, workers=share.workers, servers=share.servers), count)
        self._order(self._add(host), HostOrder(plan, function=self._job.function, searched=self._job.searched))

    def _plan(self, hosts: Hosts, workers: int) -> Plan:
        plan = self._job.plan
        wiring = replace(plan.wiring, key=self._key, key_file="", insecure="")
        return replace(plan, hosts=hosts, workers=workers, servers=None, wiring=wiring)

    def _join(self, bundle: tuple[NodePlacement, int], node: str) -> None:
        """Start one more worker, which joins the run."""
        first, plan = self._hosts[0], self._job.plan
        assert first.ready is not None
        host = RemoteHost(f"host {len(self._hosts)}", bundle[0].options(bundle[1]), self._job.cpus, 1, node)
        host.bundles, host.joined = (bundle,), True
        wiring = Wiring(key=self._key, lane=plan.wiring.lane, folder=plan.wiring.folder)
        own = Plan(plan.command, 1, 0, wiring=wiring, log_dir=plan.log_dir, traceback=plan.traceback)
        order = HostOrder(own, first.ready.address, function=self._job.function, searched=self._job.searched)
        self._note(f"{host.name}: one more worker")
        self._order(self._add(host), order)

    def _add(self, host: RemoteHost) -> RemoteHost:
        self._hosts.append(host)
        return host

    def _order(self, host: RemoteHost, order: HostOrder) -> None:
        host.start(order)
        self._pending[host.ask()] = host

    # The run.

    def wait(self) -> None:
        """Wait until the run is over; `failure` says why it failed."""
        first = self._hosts[0]
        self._until(lambda: first.ended)
        until = monotonic() + GRACE
        self._until(lambda: all(host.ended for host in self._hosts) or self._hurry or monotonic() > until)
        self.failure = self._judge()

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._turn()

    def _turn(self) -> None:
        import ray

        found, _ = ray.wait(list(self._pending), num_returns=1, timeout=TURN_SECONDS)
        for reference in found:
            host = self._pending.pop(reference)
            try:
                lines = ray.get(reference)
            except ray.exceptions.RayError as error:
                self._lose(host, why_lost(error))
                continue
            for event in host.heard(lines):
                self._handle(host, event)
            if not host.ended:
                self._pending[host.ask()] = host
        now = monotonic()
        if now > self._looked + TURN_SECONDS:
            self._looked = now
            self._look()
        if not self._told and self._all_done():
            self._told = True
            self._hosts[0].end()

    def _all_done(self) -> bool:
        """Whether all hosts that were started have no worker left."""
        others = self._hosts[1:]
        return bool(others) and not any(host.works for host in others)

    def _handle(self, host: RemoteHost, event: Event) -> None:
        match event:
            case Said("syncline", text):
                line = self._notes.new(host.name, text, monotonic() - self._began)
                if line is not None:
                    self._line("syncline", line)
            case Said(name, text):
                self._line(name, text)
            case Returned(worker, value):
                self.results[worker] = value
            case HostOver():
                self._host_over(host, event)

    def _host_over(self, host: RemoteHost, over: HostOver) -> None:
        """A host has ended; one that has not begun, or was killed, does not end the run by itself."""
        first = self._hosts[0]
        if host is first or first.ended or host.leaving:
            return
        if over.code < 0:
            self._lose(host, "its launcher was killed")
        elif over.code and host.ready is None:
            self._end(self._failure_of(host) or RunError(f"{host.name} did not start"))
        elif over.code and host.joined:
            failure = self._failure_of(host)
            if over.option:
                self._growth.stop()
                self._note(f"{host.name}: {failure}")
            elif failure is not None:
                self._end(failure)

    def _lose(self, host: RemoteHost, why: str) -> None:
        if host.lost:
            return
        host.lost = True
        if host is self._hosts[0]:
            self._reason = self._reason or RunError(f"the coordinator's host is lost: {why}")
        elif not self._hosts[0].ended and not host.leaving:
            what = "1 worker" if host.workers == 1 else f"{host.workers} workers"
            if host.ready is None:
                self._end(RunError(f"{host.name} was lost before the run began: {why}"))
            else:
                self._note(f"{host.name} with {what} is lost: {why}; the others go on without it")
        self._growth.lost(host)

    def _look(self) -> None:
        """Look which nodes Ray takes away, and whether there is room for more workers."""
        draining = draining_nodes()
        for host in self._hosts[1:]:
            if host.node in draining and not host.leaving and not host.ended:
                self._note(f"{host.name}: Ray is about to take its node away; its workers and servers leave the run")
                host.leave()
                self._growth.lost(host)
        if self._hosts and self._hosts[0].ready is not None and not self._hosts[0].ended and self._growth.wants:
            if any(host.done is not None and host.done.succeeded for host in self._hosts):
                self._growth.stop()
            working = sum(host.workers for host in self._hosts[1:] if host.works and not host.leaving)
            alive = {node["NodeID"] for node in live_nodes()} - draining
            for bundle, node in self._growth.room(working, alive):
                self._join(bundle, node)

    # The end.

    def _end(self, reason: SynclineError) -> None:
        """End the run for this reason."""
        self._reason = self._reason or reason
        self._hosts[0].signal(signal.SIGTERM)

    def _judge(self) -> SynclineError | None:
        """Why the run failed; a host on which a program failed says more than the others."""
        first, others = self._hosts[0], self._hosts[1:]
        if self._reason is not None:
            return self._reason
        failure = self._failure_of(first)
        if failure is not None:
            told = [each for each in map(self._failure_of, others) if each is not None]
            wrong = [each for each in told if isinstance(each, UsageError)]
            more = [each for each in told if str(failure) in str(each)]
            return next(iter(wrong), max([failure, *more], key=lambda each: len(str(each))))
        if not any(end.code == 0 for end in self.workers):
            return RunError("no worker ended with exit code 0")
        return None

    def _failure_of(self, host: RemoteHost) -> SynclineError | None:
        over = host.over
        if over is None or not over.problem:
            return None
        return UsageError(over.option, over.problem) if over.option else RunError(over.problem)

    def interrupt(self) -> None:
        """End the run because the user asks for it."""
        if not self._hosts:
            return
        self._reason = RunError("interrupted")
        for host in self._hosts:
            host.signal(signal.SIGINT)
        until = monotonic() + GRACE
        self._until(lambda: all(host.ended for host in self._hosts) or self._hurry or monotonic() > until)

    def hurry(self) -> None:
        """Stop waiting for processes to end."""
        self._hurry = True

    def stop(self) -> None:
        """End every actor, with all processes that it has started, and free what Ray keeps for the run."""
        for host in self._hosts:
            host.kill()
        self._growth.free()

    def _note(self, text: str) -> None:
        self._line("syncline", f"{monotonic() - self._began:.1f} s: {text}")

    # What the report needs.

    @property
    def workers(self) -> Sequence[WorkerEnd]:
        """How the workers ended, by number; those of hosts that are lost are not known."""
        found = [end for host in self._hosts if host.over is not None for end in host.over.workers]
        return sorted(found, key=lambda end: int(end.name[1:]))

    @property
    def figures(self) -> Sequence[Figures]:
        over = self._hosts[0].over if self._hosts else None
        return () if over is None else over.figures

    @property
    def worker_figures(self) -> Sequence[Figures]:
        over = self._hosts[0].over if self._hosts else None
        return () if over is None else over.worker_figures

    @property
    def incomplete(self) -> bool:
        return any(host.over is not None and host.over.incomplete for host in self._hosts)


def why_lost(error: Exception) -> str:
    """In one line, why an actor does not answer; Ray gives its reason in the last line that is not about one actor."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "died" in line or "dead" in line] or lines or [type(error).__name__]
    return told[-1].rstrip(".")
