"""Plain TCP on loopback: preallocated buffers, `recv_into` and `sendall`, no protocol, nothing that can go wrong.

A worker sends each server its range of the update and receives that range of the sum. The server has one loop over its
connections for small ranges, and a thread for each connection for large ones, whichever was measured to be faster: for
256 values the loop takes half of what threads take; for 25 million values and 2 workers threads take half of what the
loop takes, since they serve the workers at the same time; at half a million the two are even. Adding and sending back
piece by piece was slower than threads, too.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from threading import Barrier, BrokenBarrierError, Thread

import numpy as np

from syncline.bench.bursts import serve
from syncline.bench.case import Case
from syncline.bench.channel import Channel
from syncline.bench.crew import BenchCrew
from syncline.bench.values import Values, check_sum, fill

_LOOPBACK = "127.0.0.1"
_PATIENCE = 60.0
"""How many seconds a server waits for its workers to connect."""
_THREADS_FROM = 500_000
"""From how many values on a server has a thread for each worker."""


class Sockets:
    """One process per worker, one per server; each server holds an equal range of the values."""

    name = "sockets"

    def __init__(self) -> None:
        self._crew = BenchCrew(self.name)

    def start(self, case: Case) -> None:
        limits = [case.size * server // case.servers for server in range(case.servers + 1)]
        ports = [
            self._crew.add_server("syncline.bench.sockets:hold", workers=case.workers, size=end - start)
            for start, end in pairwise(limits)
        ]
        for worker in range(case.workers):
            self._crew.add_worker(
                "syncline.bench.sockets:work", worker=worker, workers=case.workers, limits=limits, ports=ports
            )
        self._crew.ready()

    def burst(self, rounds: int) -> list[float]:
        return self._crew.burst(rounds)

    def stop(self) -> None:
        self._crew.stop()


# A worker -------------------------------------------------------------------------------------------------------------


def work(channel: Channel, *, worker: int, workers: int, limits: list[int], ports: list[int]) -> None:
    """The program of a worker."""
    serve(channel, _SocketWorker(worker, workers, limits, ports))


class _SocketWorker:
    def __init__(self, worker: int, workers: int, limits: list[int], ports: list[int]) -> None:
        self._workers = workers
        update: Values = np.empty(limits[-1], np.float32)
        self._result: Values = np.empty(limits[-1], np.float32)
        fill(update, worker)
        links = [
            (_connect(port), _bytes(update[start:end]), _bytes(self._result[start:end]))
            for port, (start, end) in zip(ports, pairwise(limits), strict=True)
        ]
        # Each worker starts with another server, so that all servers are busy from the first moment on.
        first = worker % len(links)
        self._links = links[first:] + links[:first]

    def prepare(self) -> None:
        self._result.fill(np.nan)

    def round(self) -> None:
        for link, update, _ in self._links:
            link.sendall(update)
        for link, _, result in self._links:
            _receive(link, result)

    def check(self) -> None:
        check_sum(self._result, self._workers)


# A server -------------------------------------------------------------------------------------------------------------


def hold(channel: Channel, *, workers: int, size: int) -> None:
    """The program of a server: says its port, then serves rounds until its workers hang up."""
    with socket.create_server((_LOOPBACK, 0), backlog=workers) as listener:
        listener.settimeout(_PATIENCE)
        channel.send(listener.getsockname()[1])
        links = [_at_once(listener.accept()[0]) for _ in range(workers)]
    updates: list[Values] = [np.zeros(size, np.float32) for _ in links]
    if size < _THREADS_FROM:
        _one_loop(links, updates)
    else:
        _threads(links, updates)


def _one_loop(links: Sequence[socket.socket], updates: Sequence[Values]) -> None:
    views = [_bytes(update) for update in updates]
    with suppress(ConnectionError):
        while True:
            for link, view in zip(links, views, strict=True):
                _receive(link, view)
            _add(updates)
            for link in links:
                link.sendall(views[0])


def _threads(links: Sequence[socket.socket], updates: Sequence[Values]) -> None:
    views = [_bytes(update) for update in updates]
    received = Barrier(len(links), action=lambda: _add(updates))
    sent = Barrier(len(links))

    def attend(link: socket.socket, view: memoryview) -> None:
        with suppress(ConnectionError, BrokenBarrierError):
            while True:
                _receive(link, view)
                received.wait()
                link.sendall(views[0])
                sent.wait()
        received.abort()
        sent.abort()

    threads = [Thread(target=attend, args=pair) for pair in zip(links, views, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _add(updates: Sequence[Values]) -> None:
    """The sum, where the first update was."""
    for update in updates[1:]:
        np.add(updates[0], update, out=updates[0])


# Both -----------------------------------------------------------------------------------------------------------------


def _connect(port: int) -> socket.socket:
    return _at_once(socket.create_connection((_LOOPBACK, port)))


def _at_once(link: socket.socket) -> socket.socket:
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def _bytes(values: Values) -> memoryview:
    return values.data.cast("B")


def _receive(link: socket.socket, out: memoryview) -> None:
    while out:
        count = link.recv_into(out, 0, socket.MSG_WAITALL)
        if not count:
            raise ConnectionError("the other end has hung up")
        out = out[count:]
