"""Runs as SLURM and Kubernetes start them, and the examples for both."""

from __future__ import annotations

import json
import re
import shlex
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml

import commands
import lanes
from remote import SECRET, Loopback, Running, loopback
from syncline.engines.launch.slurm import port_of

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def here() -> Iterator[Loopback]:
    with loopback() as host:
        yield host


def free_job() -> int:
    """The number of a job whose port is free on this machine."""
    for job in count(4711):
        try:
            socket.create_server(("0.0.0.0", port_of(job, 0))).close()
        except OSError:
            continue
        return job
    raise AssertionError


@pytest.mark.parametrize(
    ("tasks", "nodes"),
    [([(1, 0, 1), (0, 0, 0)], 1), pytest.param([(2, 1, 0), (1, 0, 1), (0, 0, 0)], 2, marks=pytest.mark.slow)],
    ids=["one node", "two nodes"],
)
def test_tasks_of_slurm(here: Loopback, tmp_path: Path, tasks: list[tuple[int, int, int]], nodes: int) -> None:
    """All nodes are this machine. One worker for each task, one server for each node."""
    report, job = tmp_path / "report.json", free_job()
    runs = []
    for rank, node, local in tasks:
        environment = {
            "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0",
            "SLURM_STEP_NUM_TASKS": str(len(tasks)), "SLURM_STEP_NUM_NODES": str(nodes),
            "SLURM_STEP_NODELIST": "localhost", "SLURM_PROCID": str(rank), "SLURM_NODEID": str(node),
            "SLURM_LOCALID": str(local), "SYNCLINE_KEY": SECRET,
        }  # fmt: skip
        runs.append(Running(here, "--slurm", "--report", report, lanes.__file__, tmp_path, 5, **environment))
    assert [run.end() for run in runs] == [0] * len(tasks), "".join(run.text for run in runs)
    assert [each["server"] for each in json.loads(report.read_text())["servers"]] == list(range(nodes))
    found = [np.load(tmp_path / f"worker{worker}.npy") for worker in range(len(tasks))]
    assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--slurm"], "--slurm: works only in a task of srun"),
        (["--slurm", "--hosts", "2"], "--slurm: cannot be used with --hosts"),
        (["--slurm", "--join", "192.0.2.7:7070"], "--slurm: cannot be used with --join"),
        (["--hosts", "2"], "--host-rank: is missing"),
        (["--hosts", "2", "--host-rank", "0"], "--at: is missing"),
        (["--host-rank", "0"], "--host-rank: says more about --hosts"),
        (["--at", "192.0.2.7:7070"], "--at: says more about --hosts"),
        (["--hosts", "2", "--host-rank", "0", "--at", "192.0.2.7:7070", "--join", "192.0.2.7:7070"], "--hosts: cannot"),
        (["--hosts", "2", "--host-rank", "2", "--at", "192.0.2.7:7070"], "--host-rank: must be from 0 to 1"),
        (["--hosts", "2", "--host-rank", "0", "--at", "0.0.0.0:7070"], "--at: '0.0.0.0:7070': give an address"),
        (["--hosts", "2", "--host-rank", "1", "--at", "192.0.2.7:7070"], "--hosts: needs a key"),
        (["--hosts", "2", "--host-rank", "1", "--at", "127.0.0.1:7070", "--grow", "at=1s"], "--grow: cannot"),
        (["--hosts", "2", "--host-rank", "1", "--at", "127.0.0.1:7070", "--server-hosts", "0"], "--server-hosts: must"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: list[str], text: str) -> None:
    (tmp_path / "program.py").touch()
    assert commands.refused(tmp_path, "run", *options, "program.py").startswith(text)


def test_the_example_for_slurm_is_a_command_that_works(tmp_path: Path) -> None:
    text = (EXAMPLES / "slurm" / "train.sbatch").read_text()
    (line,) = re.findall(r"^srun .*", text, re.MULTILINE)
    words = shlex.split(line)
    command = words[words.index("syncline") + 1 :]
    assert (EXAMPLES / command[-1]).exists()
    (tmp_path / command[-1]).touch()
    found = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)", text, re.MULTILINE))
    tasks = int(found["nodes"]) * int(found["ntasks-per-node"])
    environment = {
        "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_NUM_NODES": found["nodes"], "SLURM_STEP_NODELIST": "node[1-4]", "SLURM_PROCID": "3",
        "SLURM_NODEID": "1", "SLURM_LOCALID": "1", "SYNCLINE_KEY": SECRET,
    }  # fmt: skip
    done = commands.in_this_process(tmp_path, command[0], "--dry-run", *command[1:], **environment)
    assert done.code == 0, done.errors
    assert "8; this is host 3 " in done.errors
    assert "node1:" in done.errors


# Kubernetes: a schema of what the example uses. Unknown fields and wrong types are errors, as in the API server.


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    pass


class Metadata(Strict):
    name: str


class ServiceSpec(Strict):
    cluster_ip: str = msgspec.field(name="clusterIP")
    publish_not_ready_addresses: bool
    selector: dict[str, str]


class Service(Strict, tag_field="kind", tag="Service"):
    api_version: str
    metadata: Metadata
    spec: ServiceSpec


class SecretKeyRef(Strict):
    name: str
    key: str


class ValueFrom(Strict):
    secret_key_ref: SecretKeyRef


class Variable(Strict):
    name: str
    value_from: ValueFrom


class Resources(Strict):
    requests: dict[str, str]
    limits: dict[str, str]


class Container(Strict):
    name: str
    image: str
    command: list[str]
    env: list[Variable]
    resources: Resources


class PodSpec(Strict):
    subdomain: str
    restart_policy: str
    termination_grace_period_seconds: int
    containers: list[Container]


class PodTemplate(Strict):
    spec: PodSpec


class JobSpec(Strict):
    completion_mode: str
    completions: int
    parallelism: int
    backoff_limit: int
    template: PodTemplate


class Job(Strict, tag_field="kind", tag="Job"):
    api_version: str
    metadata: Metadata
    spec: JobSpec


def manifest() -> tuple[Service, Job]:
    documents: list[Any] = list(yaml.safe_load_all((EXAMPLES / "kubernetes" / "train.yaml").read_text()))
    service, job = msgspec.convert(documents, list[Service | Job])
    assert isinstance(service, Service)
    assert isinstance(job, Job)
    return service, job


def test_the_manifest_fits_the_schema_and_itself() -> None:
    service, job = manifest()
    assert (service.api_version, job.api_version) == ("v1", "batch/v1")
    assert service.spec.cluster_ip == "None"
    assert service.spec.publish_not_ready_addresses
    assert service.spec.selector == {"job-name": job.metadata.name}, "the label that Kubernetes gives the pods of a job"
    pod = job.spec.template.spec
    assert pod.subdomain == service.metadata.name
    assert pod.restart_policy in ("OnFailure", "Never")
    assert job.spec.completion_mode == "Indexed"
    assert job.spec.completions == job.spec.parallelism


def test_every_pod_runs_a_command_that_works(tmp_path: Path) -> None:
    service, job = manifest()
    (container,) = job.spec.template.spec.containers
    assert [each.name for each in container.env] == ["SYNCLINE_KEY"]
    (tmp_path / container.command[-1]).touch()
    for index in range(job.spec.completions):
        words = [each.replace("$(JOB_COMPLETION_INDEX)", str(index)) for each in container.command]
        done = commands.in_this_process(tmp_path, words[1], "--dry-run", *words[2:], SYNCLINE_KEY=SECRET)
        assert done.code == 0, done.errors
        assert f"{job.spec.completions}; this is host {index} " in done.errors
        assert f"{job.metadata.name}-0.{service.metadata.name}:7070 " in done.errors
