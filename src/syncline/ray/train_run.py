"""Coordinator and servers of one run of Ray Train: an actor for the coordinator, and one for each node with workers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic

from syncline.engines.launch.hosts import Hosts, run_secret
from syncline.engines.launch.plan import Plan
from syncline.engines.net import keys, tokens
from syncline.engines.net.addresses import Address
from syncline.engines.net.wiring import Wiring
from syncline.engines.process import say
from syncline.errors import RunError, UsageError
from syncline.ray.cluster import NodeShare, on_node, on_own_node, servers_of, spread
from syncline.ray.host_messages import HostOrder, HostOver, Said
from syncline.ray.notes import Notes
from syncline.ray.remote_host import RemoteHost

START_SECONDS = 120.0
"""How long a host may take to start."""

END_SECONDS = 10.0
"""How long the hosts may take to end when the workers are done."""


class TrainRun:
    """The processes beside the workers; a thread passes on what they say."""

    def __init__(self, plan: Plan, nodes: Sequence[str]) -> None:
        """`nodes`: the node of each worker, by its rank; workers of one node follow each other."""
        self._plan, self._nodes = plan, nodes
        self._wiring = replace(plan.wiring, key=keys.fresh_key(datetime.now(UTC)).decode())
        self._hosts: list[RemoteHost] = []
        self._notes = Notes()
        self._began = monotonic()
        self._changed = threading.Condition()

    def start(self) -> list[dict[str, str]]:
        """Start all processes; return the wiring of each worker, as environment variables."""
        shares, plan = self._shares(), self._plan
        first = self._add(RemoteHost("the coordinator's host", on_own_node(), 1, 0))
        hosts = Hosts(len(shares) + 1, 0, str(Address(first.address(), 0)), workers=(0, 0), world=plan.workers)
        hosts = replace(hosts, servers=(0, 0), all_servers=shares[-1].servers[1])
        self._order(first, hosts)
        self._wait_until_ready(first)
        assert first.ready is not None
        for rank, share in enumerate(shares, 1):
            host = self._add(RemoteHost(f"host {rank}", on_node(share.node), 1, 0, share.node))
            place = replace(hosts, rank=rank, address=first.ready.address)
            self._order(host, replace(place, workers=share.workers, servers=share.servers))
        for host in self._hosts:
            self._wait_until_ready(host)
        known = replace(self._wiring, run=first.ready.run, coordinator=first.ready.address)
        secret = replace(known, token=run_secret(known, known.run))
        return [secret.of("worker", rank).environment() for rank in range(plan.workers)]

    def words_to_join(self) -> dict[str, str]:
        """The wiring of a worker that joins."""
        ready = self._hosts[0].ready
        assert ready is not None
        wiring = Wiring(coordinator=ready.address, key=self._wiring.key, lane=self._wiring.lane)
        return replace(wiring, token=tokens.new_token()).environment()

    @property
    def is_going_on(self) -> bool:
        return bool(self._hosts) and not self._hosts[0].ended

    def _shares(self) -> list[NodeShare]:
        bundles: dict[str, tuple[int, ...]] = {}
        for rank, node in enumerate(self._nodes):
            bundles[node] = (*bundles.get(node, ()), rank)
        return spread(bundles, servers_of(self._plan, len(bundles)))

    def _add(self, host: RemoteHost) -> RemoteHost:
        self._hosts.append(host)
        return host

    def _order(self, host: RemoteHost, hosts: Hosts) -> None:
        plan = replace(self._plan, hosts=hosts, servers=None, wiring=self._wiring)
        host.start(HostOrder(plan, launches=False))
        threading.Thread(target=self._follow, args=(host,), daemon=True).start()

    def _follow(self, host: RemoteHost) -> None:
        """Pass on what this host says, until it has ended."""
        import ray

        while not host.ended:
            try:
                events = host.heard(ray.get(host.ask()))
            except ray.exceptions.RayError:
                host.lost = True
                events = []
            for event in events:
                if isinstance(event, Said):
                    self._say(host, event.name, event.text)
                elif isinstance(event, HostOver) and event.problem and event.code > 0:
                    self._say(host, "syncline", event.problem)
            with self._changed:
                self._changed.notify_all()

    def _say(self, host: RemoteHost, name: str, text: str) -> None:
        if name != "syncline":
            say(f"[{name}] {text}")
            return
        line = self._notes.new(host.name, text, monotonic() - self._began)
        if line is not None:
            say(f"syncline: {line}")

    def _wait_until_ready(self, host: RemoteHost) -> None:
        with self._changed:
            self._changed.wait_for(lambda: host.ready is not None or host.ended, START_SECONDS)
        if host.ready is None:
            over = host.over
            if over is not None and over.option:
                raise UsageError(over.option, over.problem)
            raise RunError(f"{host.name} did not start{'' if over is None else ': ' + over.problem}")

    def end(self) -> None:
        """Let all processes end, and end those that do not."""
        for host in self._hosts:
            host.end()
        with self._changed:
            self._changed.wait_for(lambda: all(host.ended for host in self._hosts), END_SECONDS)
        for host in self._hosts:
            host.kill()
