"""One port for all processes of a host: `--port P`."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import commands
import lanes
from firewall import NEW, behind_a_router, drop, skip_without_nft
from netns import Host, two_hosts
from remote import SECRET, Loopback, Running, free_port, loopback
from several_hosts import STRATEGIES, begin, both_train, waiting

PROGRAM = lanes.__file__

PORT = 7070


@pytest.fixture
def here() -> Iterator[Loopback]:
    with loopback() as host:
        yield host


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with two_hosts() as pair:
        yield pair


def end_alike(runs: Sequence[Running], directory: Path, workers: int, atol: float = 0.0) -> None:
    """All runs succeed, and all workers end with the same parameters."""
    assert [run.end() for run in runs] == [0] * len(runs), "".join(run.text for run in runs)
    first, *others = (np.load(directory / f"worker{worker}.npy") for worker in range(workers))
    assert np.abs(first).max() > 1
    for other in others:
        assert np.allclose(first, other, rtol=0, atol=atol)


@pytest.mark.slow
def test_two_launchers_with_a_port_each(here: Loopback, tmp_path: Path) -> None:
    """All connections go through the two ports: also between processes of one host."""
    ports = free_port(), free_port()
    place = ("--hosts", 2, "--at", f"127.0.0.1:{ports[0]}", "--lane", "tcp", "-n", 1)
    runs = [Running(here, *place, "--host-rank", rank, "--port", ports[rank], PROGRAM, tmp_path, 5) for rank in (1, 0)]
    end_alike(runs, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["server", "exchange", "tree"])
def test_only_one_port_passes(hosts: tuple[Host, Host], tmp_path: Path, strategy: str) -> None:
    """Firewalls on both hosts let in connections to this port only."""
    skip_without_nft()
    for host in hosts:
        drop(host, f"{NEW} tcp dport != {PORT}")
    words = ("-n", 2, "--port", PORT, *STRATEGIES[strategy], PROGRAM, tmp_path, 20)
    runs = begin(hosts, f"{hosts[0].address}:{PORT}", *words, SYNCLINE_KEY=SECRET)
    end_alike(runs, tmp_path, 4, 0.0 if strategy == "server" else 1e-4)


@pytest.mark.slow
def test_without_the_option_the_same_firewall_stops_the_run(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """So the test above shows something."""
    skip_without_nft()
    for host in hosts:
        drop(host, f"{NEW} tcp dport != {PORT}")
    words = ("-n", 1, *STRATEGIES["server"], PROGRAM, tmp_path, 20)
    runs = begin(hosts, f"{hosts[0].address}:{PORT}", *words, SYNCLINE_KEY=SECRET)
    assert [run.end() for run in runs] == [1, 1], "".join(run.text for run in runs)
    assert "cannot reach server" in runs[0].text + runs[1].text


@pytest.mark.slow
def test_a_process_on_each_host_listens(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """Nothing but the launcher listens on TCP, on either host."""
    words = ("-n", 2, "--servers", 2, "--port", PORT, waiting(tmp_path), tmp_path)
    runs = begin(hosts, f"{hosts[0].address}:{PORT}", *words, SYNCLINE_KEY=SECRET)
    both_train(runs)
    for host in hosts:
        table = host.run("cat", "/proc/net/tcp").stdout.splitlines()[1:]
        listening = [line.split()[1] for line in table if line.split()[3] == "0A"]
        assert [int(each.partition(":")[2], 16) for each in listening] == [PORT]
    (tmp_path / "go").touch()
    assert [run.end() for run in runs] == [0, 0], "".join(run.text for run in runs)


@pytest.mark.parametrize("strategy", ["server", pytest.param("tree", marks=pytest.mark.slow)])
def test_a_worker_behind_a_nat_joins_and_trains(tmp_path: Path, strategy: str) -> None:
    """It only connects to others, and they need no way to it."""
    options = {"server": ["--sync", "ssp:3"], "tree": ["--strategy", "tree:topology=chain", "--servers", 2]}[strategy]
    program = waiting(tmp_path)
    with behind_a_router() as (outside, inside):
        drop(outside, f"{NEW} tcp dport != {PORT}")
        place = f"{outside.address}:{PORT}"
        run = Running(
            outside, "-n", 2, "--listen", place, "--port", PORT, *options, program, tmp_path, SYNCLINE_KEY=SECRET
        )
        run.line_with("more workers can join")
        run.line_with("[w1] training 1")
        joined = Running(inside, "--join", place, "-n", 1, program, tmp_path, SYNCLINE_KEY=SECRET)
        joined.line_with("[w2] training 2")
        (tmp_path / "go").touch()
        assert (run.end(), joined.end()) == (0, 0), run.text + joined.text


@pytest.mark.slow
def test_a_host_behind_a_nat_begins_a_run_with_another(tmp_path: Path) -> None:
    """It starts workers and no servers."""
    with behind_a_router() as (outside, inside):
        drop(outside, f"{NEW} tcp dport != {PORT}")
        words = ("-n", 2, "--server-hosts", 1, "--port", PORT, PROGRAM, tmp_path, 20)
        runs = begin((outside, inside), f"{outside.address}:{PORT}", *words, SYNCLINE_KEY=SECRET)
        end_alike(runs, tmp_path, 4)


@pytest.mark.slow
def test_a_peer_behind_a_nat_is_refused(tmp_path: Path) -> None:
    """With strategy exchange others would have to connect to it; the run goes on without it."""
    program = waiting(tmp_path)
    with behind_a_router() as (outside, inside):
        place = f"{outside.address}:{PORT}"
        words = ("-n", 2, "--listen", place, "--port", PORT, "--strategy", "exchange:partitions=2")
        run = Running(outside, *words, program, tmp_path, SYNCLINE_KEY=SECRET)
        run.line_with("[w1] training 1")
        joined = Running(inside, "--join", place, "-n", 1, program, tmp_path, SYNCLINE_KEY=SECRET)
        assert joined.end() == 1, joined.text
        assert "a NAT lies between, so other workers cannot connect to it" in joined.text
        (tmp_path / "go").touch()
        assert run.end() == 0, run.text


@pytest.mark.slow
def test_a_peer_joins_by_its_own_port(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """Two workers join a run with strategy exchange, one after the other; the second connects to the first."""
    skip_without_nft()
    for host in hosts:
        drop(host, f"{NEW} tcp dport != {PORT} tcp dport != {PORT + 1}")
    program, place = waiting(tmp_path), f"{hosts[0].address}:{PORT}"
    words = ("-n", 1, "--listen", place, "--port", PORT, "--strategy", "exchange:partitions=2", program, tmp_path)
    runs = [Running(hosts[0], *words, SYNCLINE_KEY=SECRET)]
    runs[0].line_with("training 0")
    for number, host in ((1, hosts[1]), (2, hosts[0])):
        join = ("--join", place, "-n", 1, "--port", PORT + (number == 2), program, tmp_path)
        runs.append(Running(host, *join, SYNCLINE_KEY=SECRET))
        runs[-1].line_with(f"training {number}")
    (tmp_path / "go").touch()
    assert [run.end() for run in runs] == [0, 0, 0], "".join(run.text for run in runs)


@pytest.mark.slow
def test_strangers_do_not_block_the_port(here: Loopback, tmp_path: Path) -> None:
    """Many connections that say nothing, or nonsense, and others that join meanwhile."""
    port, program = free_port(), waiting(tmp_path)
    place = f"127.0.0.1:{port}"
    run = Running(here, "-n", 1, "--sync", "asp", "--listen", place, "--port", port, program, tmp_path)
    run.line_with("training 0")
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
    for number, each in enumerate(strangers[::3]):
        each.sendall(
            [b"\xff", b"\xff\xff\xff\xff\x40abc", b"\xff\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"][number % 4]
        )
    joined = Running(here, "--join", place, "-n", 1, "--lane", "tcp", program, tmp_path)
    joined.line_with("training 1")
    (tmp_path / "go").touch()
    assert (run.end(), joined.end()) == (0, 0), run.text + joined.text
    for each in strangers:
        each.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--port", "0", "--listen", "127.0.0.1:0"], "--port: must be at least 1 and at most 65,535, not 0"),
        (["--port", "-1", "--listen", "127.0.0.1:0"], "--port: must be at least 1"),
        (["--port", "65536", "--listen", "127.0.0.1:0"], "--port: must be at least 1 and at most 65,535, not 65536"),
        (["--port", "7070"], "--port: says where other hosts reach this one; add --listen, --hosts or --join"),
        (["--port", "7071", "--listen", "127.0.0.1:7070"], "--port: is 7071, but --listen names port 7070; one port"),
        (
            ["--port", "7071", "--hosts", "2", "--host-rank", "0", "--at", "127.0.0.1:7070"],
            "--port: is 7071, but --at names port 7070",
        ),
    ],
)
def test_ports_that_make_no_sense(tmp_path: Path, options: list[str], text: str) -> None:
    (tmp_path / "program.py").touch()
    assert commands.refused(tmp_path, "run", *options, "program.py").startswith(text)


@pytest.mark.parametrize("place", [["--listen", "127.0.0.1:0"], ["--join", "127.0.0.1:9"]])
def test_a_port_in_use(tmp_path: Path, place: list[str]) -> None:
    (tmp_path / "program.py").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = commands.refused(tmp_path, "run", *place, "--port", port, "program.py")
    assert said.startswith(f"--port: {port} is in use at 127.0.0.1; choose another port"), said


@pytest.mark.slow
def test_a_privileged_port_without_the_right(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("it takes root to take the right away")
    (tmp_path / "program.py").touch()
    with loopback() as here:
        words = lanes.command("--listen", "127.0.0.1:0", "--port", 80, tmp_path / "program.py")
        run = Running(here, command=["setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-all", *words])
        if Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text().strip() != "1024":
            pytest.skip("this machine lets everybody listen at port 80")
        assert run.end() == 2, run.text
        assert "--port: 80 needs a privilege that you do not have; choose a port from 1024 up" in run.text


def test_tasks_of_slurm_that_share_a_node(tmp_path: Path) -> None:
    (tmp_path / "program.py").touch()
    environment = {
        "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_PROCID": "1", "SLURM_NODEID": "0", "SLURM_LOCALID": "1",
    }  # fmt: skip
    said = commands.refused(tmp_path, "run", "--slurm", "--port", "7070", "program.py", **environment)
    assert said.startswith("--port: is one port for a whole node, but this step has 4 tasks on 2 nodes; start one task")
