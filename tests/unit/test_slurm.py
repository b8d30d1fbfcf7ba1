"""SLURM's variables, as srun sets them for the tasks of a step, and the places that follow from them."""

from __future__ import annotations

import pytest

from syncline.engines.launch.hosts import Hosts
from syncline.engines.launch.slurm import first_node, port_of, slurm_hosts
from syncline.errors import UsageError


def task(rank: int, node: int, local: int, **others: str) -> dict[str, str]:
    """A task of a step with five tasks on two nodes."""
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "5",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NODELIST": "gpu[07-08]",
        "SLURM_JOB_NODELIST": "cpu1,gpu[07-08]",
        "SLURM_PROCID": str(rank),
        "SLURM_NODEID": str(node),
        "SLURM_LOCALID": str(local),
        **others,
    }


TASKS = [task(0, 0, 0), task(1, 0, 1), task(2, 0, 2), task(3, 1, 0), task(4, 1, 1)]
AT = f"gpu07:{port_of(4711, 0)}"


def test_every_task_is_a_host_and_the_first_of_each_node_serves() -> None:
    places = [slurm_hosts(each) for each in TASKS]
    assert places == [Hosts(5, rank, AT, 2, place) for rank, place in enumerate((0, -1, -1, 1, -1))]
    assert [list(each.servers_here(2)) for each in places] == [[0, 1], [], [], [2, 3], []]
    assert [list(each.workers_here(1)) for each in places] == [[0], [1], [2], [3], [4]]


def test_servers_on_some_nodes_only() -> None:
    assert [slurm_hosts(each, serving=1).place for each in TASKS] == [0, -1, -1, -1, -1]
    with pytest.raises(UsageError, match="--server-hosts: is 3, but this step has only 2 nodes"):
        slurm_hosts(TASKS[0], serving=3)


def test_the_address_can_be_chosen() -> None:
    assert slurm_hosts(TASKS[3], at="10.0.0.7:7070").address == "10.0.0.7:7070"


def test_variables_of_older_versions() -> None:
    old = {key.replace("STEP_NUM_TASKS", "NTASKS").replace("STEP_NUM_NODES", "NNODES"): word
           for key, word in TASKS[0].items()}  # fmt: skip
    assert slurm_hosts(old) == slurm_hosts(TASKS[0])


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ("gpu07", "gpu07"),
        ("gpu07,gpu08", "gpu07"),
        ("gpu[07-09,12],cpu1", "gpu07"),
        ("gpu[7]", "gpu7"),
        ("rack[2-3]n[01-16,20]", "rack2n01"),
        ("node-a[3,5-6]-ib,node-b", "node-a3-ib"),
    ],
)
def test_the_first_node_of_a_list(names: str, first: str) -> None:
    assert first_node(names) == first


def test_ports_of_neighbouring_steps_differ() -> None:
    found = {port_of(job, step) for job in range(1000, 1100) for step in range(4)}
    assert len(found) == 400
    assert min(found) >= 1024
    assert max(found) < 32768


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("SLURM_STEP_ID", "works only in a task of srun; start it with: srun syncline run --slurm PROGRAM"),
        ("SLURM_PROCID", "SLURM has not set SLURM_PROCID; use --hosts, --host-rank and --at instead"),
        ("SLURM_JOB_ID", "SLURM has not set SLURM_JOB_ID; use --hosts, --host-rank and --at instead"),
    ],
)
def test_outside_of_a_step_it_is_refused(missing: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        slurm_hosts({key: word for key, word in TASKS[0].items() if key != missing})
    assert (caught.value.option, caught.value.problem) == ("--slurm", text)


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="SLURM_NODEID is 'two', which is not a number"):
        slurm_hosts(task(0, 0, 0, SLURM_NODEID="two"))
