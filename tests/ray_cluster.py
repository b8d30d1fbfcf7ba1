"""A Ray cluster of several nodes on this machine, on the loopback address only, for tests.

Run as a program it holds the cluster, and does what it is told by lines on its input, each answered by one line:

    add CPUS     start a node; the answer is Ray's identifier of it
    kill NODE    kill all processes of this node at once
    drain NODE   tell Ray that this node is about to be taken away
    stop         end everything

    python tests/ray_cluster.py FOLDER CPUS

FOLDER is where Ray keeps its files; CPUS those of the first node, which also is the head of the cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import lanes
from engine import MARK, until
from remote import Loopback, Running

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "OMP_NUM_THREADS": "1",
}
"""Ray must not connect to other machines, and notices the death of a node sooner."""

NODE = {
    "node_ip_address": "127.0.0.2",  # Ray takes 127.0.0.1 for the address of the machine in its network
    "object_store_memory": 80_000_000,
    "include_dashboard": False,
    "dashboard_agent_listen_port": None,
}


SECONDS = 400.0
"""The timeout of a run on Ray, which starts dozens of processes; only a run that hangs reaches it."""


def eventually(condition: Callable[[], Any], what: str) -> None:
    """Wait until the condition is true."""
    until(condition, what, SECONDS)


class RayProgram(Running):
    """A program that uses the cluster."""

    patience = SECONDS

    def __init__(self, cluster: RayCluster, stack: ExitStack, *command: object) -> None:
        super().__init__(Loopback(stack), command=[sys.executable, *map(str, command)], **cluster.environment)


class RayCluster:
    """The cluster, as a test sees it."""

    def __init__(self, process: subprocess.Popen[str], environment: dict[str, str], mark: str, log: Path) -> None:
        self._process, self._log = process, log
        self._mark = mark
        self.address, self.head = self._answer()
        self.environment = environment

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the program that holds the Ray cluster has ended: {self._log.read_text()}"
        return json.loads(line)

    def tell(self, *words: object) -> Any:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)
        return self._answer()

    def add(self, cpus: int) -> str:
        return str(self.tell("add", cpus))

    def kill(self, node: str) -> None:
        self.tell("kill", node)

    def drain(self, node: str) -> None:
        self.tell("drain", node)

    def processes(self, *words: str) -> list[int]:
        """The processes of the cluster with all these words in their command lines."""
        return [pid for pid in marked(self._mark) if all(word in command_of(pid) for word in words)]


@contextmanager
def ray_cluster(cpus: int = 2) -> Iterator[RayCluster]:
    """A cluster with one node. At its end, no process and no file is left."""
    folder, mark = Path(tempfile.mkdtemp(prefix="r-")), token_hex(8)
    environment = {**lanes.environment(), **QUIET, "RAY_TMPDIR": str(folder), MARK: mark}
    log = folder / "held.log"
    (folder / "ray").mkdir()
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, __file__, str(folder), str(cpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
        )
    try:
        with process:
            made = RayCluster(process, environment, mark, log)
            yield made
            made.tell("stop")
        until(lambda: not marked(mark), "the end of all processes of the Ray cluster")
    finally:
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def marked(mark: str) -> list[int]:
    """The processes with this mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def hold(folder: str, cpus: int) -> None:
    """Hold a cluster until the input says to stop."""
    from ray.cluster_utils import Cluster

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no answer
    made = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": cpus, "temp_dir": folder})
    nodes = {made.head_node.node_id: made.head_node}
    print(json.dumps([made.address, made.head_node.node_id]), file=answers, flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        answer = ""
        if word == "add":
            node = made.add_node(**NODE, num_cpus=int(rest[0]))
            nodes[node.node_id] = node
            answer = node.node_id
        elif word == "kill":
            made.remove_node(nodes.pop(rest[0]), allow_graceful=False)
        elif word == "drain":
            drain(made.address, rest[0])
        else:
            made.shutdown()
        print(json.dumps(answer), file=answers, flush=True)
        if word == "stop":
            return


def drain(address: str, node: str) -> None:
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2

    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    accepted, why = GcsClient(address=address).drain_node(node, reason, "a test", 2**62 // 10**6)
    assert accepted, why


if __name__ == "__main__":
    hold(sys.argv[1], int(sys.argv[2]))
