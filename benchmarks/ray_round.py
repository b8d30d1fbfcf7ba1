"""Measure a round of 2 workers and 25 million values on Ray: Syncline there, and a parameter server made of actors.

    python benchmarks/ray_round.py [--values 25000000] [--rounds 12] [--repeats 3] [--report FILE.json]

In a round every worker sends an update and waits for the mean of both. All run on this host, in turns, and the table
shows the medians. There are two parts, each with its own baseline:

- one node: the local engine in shared memory; `syncline run --engine ray` on one Ray node.
- two nodes: the local engine as two hosts (`--hosts 2`), over TCP on loopback with TLS; the same on two Ray nodes with
  one worker each. Both Ray nodes are on this host, so `--lane tcp` keeps them from sharing memory.

The goal: at most 1.1 times the local engine. The third system of each part is the usual pattern with Ray alone: an
actor holds the parameters, workers send it their updates, and what it returns goes through the object store.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import syncline

WARM, GOAL = 4, 1.1

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_worker_niceness": "0",  # as for the local engine; Ray's default is 15
    "OMP_NUM_THREADS": "1",
}


def work(values: int, rounds: int) -> None:
    """A worker of Syncline; worker 0 prints the seconds of its rounds."""
    session = syncline.connect()
    session.tables({"values": np.zeros(values, np.float32)}, sync="bsp", mode="gradients")
    session.buffer("values")[:] = session.rank + 1
    seconds = []
    for _ in range(WARM + rounds):
        began = perf_counter()
        session.update("values")
        session.clock()
        session.sync()
        seconds.append(perf_counter() - began)
    mean = float(session.sync("values")[0])  # type: ignore[index]
    session.close()
    assert mean == 1.5, mean
    if session.rank == 0:
        print("SECONDS", json.dumps(seconds[WARM:]), flush=True)


def with_ray_alone(values: int, rounds: int, address: str) -> list[float]:
    """A parameter server as an actor, and two workers as actors; one on each node if there are two."""
    import ray

    ray.init(address=address, log_to_driver=False, configure_logging=False)

    class Server:
        def __init__(self) -> None:
            self.sum = np.zeros(values, np.float32)

        def mean(self, first: Any, second: Any) -> Any:
            np.add(first, second, out=self.sum)
            self.sum *= np.float32(0.5)
            return self.sum

    class Worker:
        def __init__(self, rank: int) -> None:
            self.update = np.full(values, rank + 1, np.float32)

        def step(self, mean: Any) -> Any:
            assert mean is None or mean[0] == 1.5
            return self.update

    server = ray.remote(Server).options(num_cpus=0).remote()
    kind = ray.remote(Worker).options(num_cpus=1, scheduling_strategy="SPREAD")
    workers = [kind.remote(rank) for rank in range(2)]
    seconds, mean = [], None
    for _ in range(WARM + rounds):
        began = perf_counter()
        mean = server.mean.remote(*(worker.step.remote(mean) for worker in workers))
        ray.wait([mean], fetch_local=False)
        seconds.append(perf_counter() - began)
    ray.shutdown()
    return seconds[WARM:]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def started(*words: object, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, *map(str, words)]
    return subprocess.Popen(command, env={**os.environ, **QUIET, **environment}, stdout=subprocess.PIPE, text=True)


def seconds_of(*processes: subprocess.Popen[str]) -> list[float]:
    """What worker 0 has printed."""
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit("a system has failed")
    line = next(line for output in outputs for line in output.splitlines() if "SECONDS " in line)
    return list(json.loads(line.partition("SECONDS ")[2]))


def systems(program: list[object], one: str, two: str) -> dict[str, dict[str, Callable[[], list[float]]]]:
    """The systems of each part; the first one is the baseline. `one`, `two`: the clusters with so many nodes."""

    def run(*words: object, **environment: str) -> subprocess.Popen[str]:
        return started("-m", "syncline", "run", *words, *program, **environment)

    def on_two_hosts() -> list[float]:
        at, secret = f"127.0.0.1:{free_port()}", secrets.token_hex(16)
        words = ["--hosts", 2, "--at", at, "-n", 1, "--lane", "tcp", "--host-rank"]
        return seconds_of(*(run(*words, rank, SYNCLINE_KEY=secret) for rank in range(2)))

    def on_ray(address: str, *words: object) -> list[float]:
        return seconds_of(run("--engine", "ray", "--address", address, "-n", 2, *words))

    def alone(address: str) -> list[float]:
        return seconds_of(started(*program, "--alone", address))

    return {
        "one node": {
            "local engine": lambda: seconds_of(run("-n", 2)),
            "syncline on Ray": lambda: on_ray(one),
            "Ray alone: actors, object store": lambda: alone(one),
        },
        "two nodes": {
            "local engine, two hosts, TLS": on_two_hosts,
            "syncline on Ray, TLS": lambda: on_ray(two, "--lane", "tcp"),
            "Ray alone: actors, object store": lambda: alone(two),
        },
    }


def measure(values: int, rounds: int, repeats: int, folder: str) -> dict[str, dict[str, float]]:
    """The median seconds of a round, by part and system."""
    from ray.cluster_utils import Cluster

    node = {"node_ip_address": "127.0.0.2", "object_store_memory": 40 * values, "include_dashboard": False}
    program = [__file__, "--values", values, "--rounds", rounds]
    found: dict[str, dict[str, float]] = {}
    for part, cpus in {"one node": [2], "two nodes": [1, 1]}.items():
        made = Cluster()
        try:
            for count in cpus:
                made.add_node(**node, num_cpus=count, temp_dir=f"{folder}/{part[:3]}")
            ran: dict[str, list[float]] = {}
            for _ in range(repeats):
                for name, system in systems([*program, "--work"], made.address, made.address)[part].items():
                    ran.setdefault(name, []).extend(system())
            found[part] = {name: median(seconds) for name, seconds in ran.items()}
        finally:
            made.shutdown()
    return found


def show(found: dict[str, dict[str, float]], values: int) -> None:
    table = Table("part", "system", "ms per round", "ratio", title=f"2 workers, {values:,} values")
    for part, systems in found.items():
        baseline = next(iter(systems.values()))
        for name, seconds in systems.items():
            table.add_row(part, name, f"{seconds * 1e3:.1f}", f"{seconds / baseline:.2f}")
    Console().print(table)
    print(f"goal: syncline on Ray at most {GOAL} times the local engine")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--values", type=int, default=25_000_000)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--alone", metavar="ADDRESS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        print("SECONDS", json.dumps(with_ray_alone(given.values, given.rounds, given.alone)), flush=True)
        return
    if given.work:
        work(given.values, given.rounds)
        return
    os.environ.update(QUIET)
    with tempfile.TemporaryDirectory(prefix="r-") as folder:
        os.environ["RAY_TMPDIR"] = folder
        (Path(folder) / "ray").mkdir()
        found = measure(given.values, given.rounds, given.repeats, folder)
    show(found, given.values)
    if given.report is not None:
        given.report.write_text(json.dumps({"values": given.values, "seconds": found}, indent=2))


if __name__ == "__main__":
    main()
