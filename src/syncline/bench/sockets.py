"""Plain TCP on loopback: preallocated buffers, `recv_into` and `sendall`, no protocol and no error handling.

A worker sends each server its range of the update and receives that range of the sum. The server uses the variant that
was measured to be faster: one loop over its connections for small ranges, one thread per connection for large ranges.

- 256 values: the loop takes half the time of the threads.
- 500,000 values: both take the same time.
- 25 million values and 2 workers: the threads take half the time of the loop, since they serve both workers at once.

Adding and sending back piece by piece was also slower than the threads.
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
"""A server with at least this many values uses one thread per worker."""


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
        # Each worker starts with a different server, so that all servers are busy from the start.
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
    """The program of a server: report the port, then serve rounds until the workers disconnect."""
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
    """Add all updates into the first."""
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
            raise ConnectionError("the peer closed the connection")
        out = out[count:]
