"""torchrun on several hosts: the address travels by its store, and the key is the user's."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import lanes
import syncline
from engine import QUIET
from firewall import NEW, drop, skip_without_nft
from netns import Host, ip, two_hosts
from remote import SECRET, Running

pytest.importorskip("torch")

ELASTIC = """
import sys, time
from pathlib import Path
import numpy as np
import syncline

# Says how often torchrun has started this worker's group, and trains until the file `go` is there.
directory = Path(sys.argv[1])
session = syncline.connect()
tables = session.tables({"w": np.zeros(3000)}, sync=sys.argv[2])
steps = 0
while True:
    session.update("w", np.full(3000, 1.0))
    session.clock()
    session.sync()
    steps += 1
    if steps == 5:
        print(f"training {session.rank} of {session.size}\\n", end="")  # one write: workers share the pipe
    if (directory / f"fail{session.rank}").exists():
        (directory / f"fail{session.rank}").unlink()
        sys.exit(7)
    if session.any((directory / "go").exists()):
        break
    time.sleep(0.01)
session.close()
print(f"ended with {tables['w'][0]}\\n", end="")
"""


OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it, torchrun 2.13 does not tell a node that starts again where its store is: the node fails in a minute."""


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with two_hosts() as pair:
        yield pair


def torchrun(hosts: tuple[Host, Host], number: int, *words: object, nodes: str = "2", **environment: str) -> Running:
    """torchrun on one of the hosts; torch's own store is on the first."""
    options = {
        "--nnodes": nodes,
        "--rdzv-backend": "c10d",
        "--rdzv-id": "test",
        "--rdzv-endpoint": f"{hosts[0].address}:29400",
        "--rdzv-conf": f"is_host={'true' if number == 0 else 'false'}",
        "--local-addr": hosts[number].address,
        "--monitor-interval": "0.1",
    }
    command = [sys.executable, "-m", "torch.distributed.run", *(word for pair in options.items() for word in pair)]
    return Running(hosts[number], command=[*command, *map(str, words)], **QUIET, **environment)


def kill_all(host: Host) -> None:
    for pid in ip("netns", "pids", host.name).split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def story(*runs: Running) -> str:
    return "\n---\n".join(run.text for run in runs)


def test_two_nodes(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    words = ("--nproc-per-node", 1, lanes.__file__, tmp_path, 10)
    runs = [torchrun(hosts, number, *words, SYNCLINE_KEY=SECRET) for number in (1, 0)]
    assert [run.end() for run in runs] == [0, 0], story(*runs)
    found = [np.load(tmp_path / f"worker{worker}.npy") for worker in range(2)]
    assert np.array_equal(*found)
    assert np.abs(found[0]).max() > 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["server", "exchange"])
def test_one_port_of_each_node_is_enough(hosts: tuple[Host, Host], tmp_path: Path, strategy: str) -> None:
    """On the second node nothing else gets in. On the first one torchrun's stores have ports of their own."""
    skip_without_nft()
    drop(hosts[1], f"{NEW} tcp dport != 7070")
    program = tmp_path / "program.py"
    settings = 'sync="bsp"' if strategy == "server" else 'strategy="exchange:partitions=2"'
    program.write_text(ELASTIC.replace("sync=sys.argv[2]", settings))
    words = ("--nproc-per-node", 1, program, tmp_path)
    runs = [torchrun(hosts, number, *words, SYNCLINE_KEY=SECRET, SYNCLINE_PORT="7070") for number in (0, 1)]
    for run in runs:
        run.line_with("training")
    for host in hosts:
        assert ":1B9E 00000000:0000 0A" in host.run("cat", "/proc/net/tcp").stdout, "a process listens at port 7070"
    (tmp_path / "go").touch()
    assert [run.end() for run in runs] == [0, 0], story(*runs)


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_a_port_that_is_none(port: str) -> None:
    environment = {
        "TORCHELASTIC_RUN_ID": "test", "RANK": "1", "WORLD_SIZE": "2", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
        "SYNCLINE_KEY": SECRET, "SYNCLINE_PORT": port,
    }  # fmt: skip
    with pytest.raises(syncline.UsageError) as caught:
        syncline.connect(environment)
    assert caught.value.option == "SYNCLINE_PORT"


@pytest.mark.slow
def test_two_nodes_of_different_size(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """Every node has a server, and the ranks are torchrun's."""
    program = tmp_path / "program.py"
    program.write_text(ELASTIC)
    words = [("--nproc-per-node", each, program, tmp_path, "bsp") for each in (2, 1)]
    runs = [torchrun(hosts, number, *words[number], SYNCLINE_KEY=SECRET) for number in (0, 1)]
    (tmp_path / "go").touch()
    assert [run.end() for run in runs] == [0, 0], story(*runs)
    assert len(set(re.findall(r"ended with (\S+)", story(*runs)))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_a_worker_fails_and_torchrun_starts_all_again(hosts: tuple[Host, Host], tmp_path: Path, which: int) -> None:
    """The count of restarts then differs between the nodes. The workers find the new run, not the old one."""
    program = tmp_path / "program.py"
    program.write_text(ELASTIC)
    words = ("--nproc-per-node", 1, "--max-restarts", 2, program, tmp_path, "ssp:3")
    runs = [torchrun(hosts, number, *words, SYNCLINE_KEY=SECRET) for number in (0, 1)]
    for run in runs:
        run.line_with("training")
    (tmp_path / f"fail{which}").touch()
    for run in runs:
        run.line_with("training", times=2)
    (tmp_path / "go").touch()
    assert [run.end() for run in runs] == [0, 0], story(*runs)
    assert len(re.findall("ended with", story(*runs))) >= 2, "torchrun may notice late that a node has come"


@pytest.mark.slow
def test_a_node_is_killed_and_starts_again(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """The other node trains on alone, until torchrun starts both again."""
    program = tmp_path / "program.py"
    program.write_text(ELASTIC)
    words = ("--nproc-per-node", 1, "--max-restarts", 3, program, tmp_path, "ssp:3")
    environment = {"SYNCLINE_KEY": SECRET, **OWN_STORE}
    first, second = (torchrun(hosts, number, *words, nodes="1:2", **environment) for number in (0, 1))
    for run in (first, second):
        run.line_with(" of 2")
    kill_all(hosts[1])
    second.end()
    again = torchrun(hosts, 1, *words, nodes="1:2", **environment)
    again.line_with(" of 2")
    first.line_with(" of 2", times=2)
    (tmp_path / "go").touch()
    assert [first.end(), again.end()] == [0, 0], story(first, again)


def test_without_a_key_it_is_refused() -> None:
    environment = {
        "TORCHELASTIC_RUN_ID": "test", "RANK": "1", "WORLD_SIZE": "2", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
    }  # fmt: skip
    with pytest.raises(syncline.UsageError) as caught:
        syncline.connect(environment)
    assert caught.value.option == "torchrun"
    for word in ("SYNCLINE_KEY ", "SYNCLINE_KEY_FILE", "--nnodes"):
        assert word in f"{caught.value.problem} "
