"""Training with strategy `tree` in real processes: digits, synchronous SGD, PyTorch, and `syncline tell --topology`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import lanes
from engine import PREAMBLE, QUIET, Run, running, until
from samples import sampled
from trainings import SECONDS, train

SCRIPTS = Path(__file__).parents[1] / "scripts"

LANES = ("shm", "tcp")

WHATEVER_THE_LOAD = 0.7
"""The accuracy that asynchronous workers reach even on a busy machine, where updates are old; a guess has 0.1."""

RUNS = [(topology, lane) for topology in ("chain", "star", "twin", "tree:2") for lane in LANES]


@pytest.mark.parametrize(("topology", "lane"), sampled(RUNS))
def test_digits_are_learnt(topology: str, lane: str, tmp_path: Path) -> None:
    report, _ = train(tmp_path, "-q", "-n", "4", "--strategy", f"tree:topology={topology}", "--lane", lane)
    check_learnt(report)


@pytest.mark.parametrize(
    "settings",
    sampled(
        [
            "consistency=ssp:3",
            "consistency=approximate:50",
            "consistency=bsp,durable=true",
            "workers_per_node=2,codec=topk:0.1",
        ],
    ),
)
def test_digits_are_learnt_with_other_settings(settings: str, tmp_path: Path) -> None:
    report, _ = train(tmp_path, "-q", "-n", "4", "--strategy", f"tree:{settings}")
    check_learnt(report, 0.95 if "bsp" in settings else WHATEVER_THE_LOAD)


def check_learnt(report: dict[str, float], accuracy: float = WHATEVER_THE_LOAD) -> None:
    assert report["accuracy"] >= accuracy
    assert report["replica_gap"] < 1e-4
    assert report["updates"] == report["iterations_done"] == 4 * report["iterations"]


@pytest.mark.parametrize(("victim", "lane"), sampled([(0, "tcp"), (1, "shm"), (3, "tcp")]))
def test_digits_are_learnt_although_a_node_is_killed(victim: int, lane: str, tmp_path: Path) -> None:
    errors = train_with_a_loss(tmp_path, lambda launcher: node_of(launcher, victim), victim, "--lane", lane)
    assert f"server {victim}: is lost; the others go on without it" in errors


@pytest.mark.slow
def test_digits_are_learnt_although_a_node_is_killed_and_starts_again(tmp_path: Path) -> None:
    errors = train_with_a_loss(tmp_path, lambda launcher: node_of(launcher, 1), 1, "--restarts", "1")
    assert "server 1: has started again, from its checkpoint" in errors


@pytest.mark.slow
def test_digits_are_learnt_although_a_worker_is_killed_and_starts_again(tmp_path: Path) -> None:
    errors = train_with_a_loss(tmp_path, lambda launcher: worker_of(launcher, 2), 2, "--restarts", "1")
    assert "w2 ended by signal 9 (SIGKILL); it is restarted (restart 1 of 1)" in errors


def train_with_a_loss(directory: Path, process_of: Callable[[int], int], node: int, *more: str) -> str:
    """Kill a process of a training when this node has written a checkpoint of an update; returns what the run said."""
    options = ["-q", "-n", "4", "--strategy", "tree:durable=true", "--report", "report.json", *more]
    with subprocess.Popen(
        [sys.executable, "-m", "syncline", "train", *options],
        cwd=directory,
        env={**lanes.environment(), **QUIET, "TMPDIR": str(directory)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until(lambda: list(directory.glob(f"syncline-*/server{node}/model/0-*")), "a checkpoint")
        os.kill(process_of(process.pid), signal.SIGKILL)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    report = json.loads((directory / "report.json").read_text())
    assert report["accuracy"] >= WHATEVER_THE_LOAD
    assert report["replica_gap"] < 1e-4
    assert list(directory.glob("syncline-*")) == []
    return errors


@pytest.mark.slow
def test_a_training_grows(tmp_path: Path) -> None:
    slow = ["--slow", "0:5", "--slow", "1:5"]
    settings = ["-q", "-n", "2", "--strategy", "tree:consistency=ssp:3", "--grow", "at=500ms,workers=2"]
    report, _ = train(tmp_path, *settings, *slow)
    assert report["accuracy"] >= WHATEVER_THE_LOAD
    assert report["replica_gap"] < 1e-4
    assert report["updates"] == report["iterations_done"]
    assert [each["worker"] for each in report["workers"]] == [0, 1, 2, 3]
    assert report["settings"]["grow"] == {"value": "at=0.5s,nodes=1,workers=2", "origin": "command line"}


def worker_of(launcher: int, number: int) -> int:
    """The process of a worker that this launcher has started."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == launcher and f"SYNCLINE_WORKER={number}".encode() in (path / "environ").read_bytes():
                return int(path.name)
    raise AssertionError(f"{launcher} has no worker {number}")


def node_of(launcher: int, number: int) -> int:
    """The process of a node that this launcher has started."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == launcher and words[2:4] == [b"syncline.engines.server", str(number).encode()]:
                return int(path.name)
    raise AssertionError(f"{launcher} has no node {number}")


ROUNDS = """
updates = lambda rank, i: np.random.default_rng((7, rank, i)).standard_normal(1000).astype(np.float32)
session = syncline.connect()
tables = session.tables({"w": np.zeros(1000, np.float32)})
expected, worst = np.zeros(1000), 0.0
for i in range(40):
    session.update("w", updates(session.rank, i))
    session.clock()
    session.sync()
    expected += sum(updates(rank, i).astype(np.float64) for rank in range(session.size)) / session.size
    worst = max(worst, float(abs(tables["w"] - expected).max()))
session.close()
say("worst", max(worst, float(abs(tables["w"] - expected).max())))
"""


@pytest.mark.parametrize(("topology", "lane"), sampled(RUNS, ("chain", "tcp")))
def test_bsp_over_a_tree_is_synchronous_sgd_in_every_round(topology: str, lane: str, tmp_path: Path) -> None:
    strategy = f"tree:topology={topology},consistency=bsp,durable=true"
    with running(tmp_path, ROUNDS, "-n4", "--lane", lane, "--strategy", strategy) as run:
        assert run.ends() == 0, run.story()
        worst = [float(each) for each in re.findall(r"worst (\S+)", run.out)]
    assert len(worst) == 4
    assert max(worst) < 1e-5


SCRIPT = """
sys.path.insert(0, sys.argv[1])
import torch
from toy import accuracy, classifier, examples
session = syncline.connect()
torch.manual_seed(session.rank)
data, model = examples(), classifier()
optimizer = torch.optim.Adam(model.parameters(), 0.05)
session.distribute(model, optimizer)
loader = torch.utils.data.DataLoader(data, 16, sampler=session.sampler(data, shuffle=True))
for epoch in range(6):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
session.close()
total = sum(float(each.detach().double().sum()) for each in model.parameters())
say("accuracy", accuracy(model, data), "sum", total)
"""


@pytest.mark.parametrize("lane", sampled(LANES, "shm"))
def test_a_pytorch_script_trains_by_it(lane: str, tmp_path: Path) -> None:
    strategy = "tree:topology=star,period=0.02"
    with running(tmp_path, SCRIPT, "-n3", "--lane", lane, "--strategy", strategy, words=[str(SCRIPTS)]) as run:
        assert run.ends() == 0, run.story()
        found = re.findall(r"accuracy (\S+) sum (\S+)", run.out)
    assert len(found) == 3
    assert min(float(each) for each, _ in found) > 0.9
    sums = [float(each) for _, each in found]
    assert max(sums) - min(sums) < 1e-3


GROWING = SCRIPT.replace("for epoch in range(6):\n", "rest = 6\nwhile rest:\n").replace(
    "session.close()",
    """
    if rest < 6 or len(session.members) == 3:
        rest -= 1
        if rest == 3 and session.rank == 0:
            session.merge([0, 2])
session.close()""",
)


@pytest.mark.slow
def test_a_pytorch_script_grows_and_merges_nodes(tmp_path: Path) -> None:
    given = ["-n2", "--strategy", "tree:topology=star,period=0.02,durable=true", "--grow", "at=500ms"]
    with running(tmp_path, GROWING, *given, words=[str(SCRIPTS)]) as run:
        run.hears("server 2: has joined")
        run.hears("server 2: is leaving; server 0 takes over what it holds")
        assert run.ends() == 0, run.story()
        found = re.findall(r"accuracy (\S+) sum (\S+)", run.out)
    assert len(found) == 3
    assert min(float(each) for each, _ in found) > 0.9
    sums = [float(each) for _, each in found]
    assert max(sums) - min(sums) < 1e-3


WISHES = """
with syncline.connect() as session:
    tables = session.tables({"w": np.zeros(50, np.float32)}, strategy="tree:consistency=ssp:2")
    while session.iteration < 20:
        session.update("w", np.ones(50, np.float32))
        session.clock()
        session.sync()
    session.barrier()
say("ended at", round(float(tables["w"].mean()), 3))
"""


@pytest.mark.parametrize("servers", ["1", "2"])
def test_a_program_may_ask_for_the_strategy_itself(servers: str, tmp_path: Path) -> None:
    with running(tmp_path, WISHES, "-n2", "--servers", servers) as run:
        assert run.ends() == 0, run.story()
        assert run.out.count("ended at 20.0") == 2, run.story()


def test_a_run_of_one_worker_needs_no_launcher(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PREAMBLE + WISHES.replace("tree:consistency=ssp:2", "tree:consistency=bsp,durable=true"))
    command = [sys.executable, str(program)]
    done = subprocess.run(command, env=lanes.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "ended at 20.0\n"), done.stderr


STEPS = """
begin()
while not there("enough"):
    step()
    if session.iteration == 5:
        say("under way")
    if rank == 0 and session.iteration % 10 == 0:
        say("topology", session.settings["topology"])
    time.sleep(0.005)
session.close()
say("final", float(tables["w"].min()), float(tables["w"].max()))
"""


def tell(run: Run, *options: str) -> tuple[int, str]:
    name = run.hears(r"syncline tell (\w+)")[1]
    command = [sys.executable, "-m", "syncline", "tell", name, *options]
    done = subprocess.run(command, env=lanes.environment(), capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


WRONG = [
    (("--topology", "0-1 1-2 2-0"), "--topology: has a loop: 0-1-2-0"),
    (("--topology", "0-1"), "--topology: lacks node 2"),
    (("--topology", "star", "--sync", "asp"), "--topology: cannot change together"),
    (("--sync", "asp"), "--sync: strategy 'tree' can change only its topology"),
    (("--merge", "0,2"), "--merge: nodes 0, 2 are not connected with each other"),
    (("--merge", "1,7"), "--merge: there is no node 7; the nodes are 0 to 2"),
    (("--merge", "1"), "--merge: must name at least two nodes"),
    (("--merge", "1,x"), "--merge: must name at least two nodes"),
    (("--merge", "0,1", "--topology", "star"), "--merge: cannot change together"),
    (("--merge", "0,1", "--sync", "asp"), "--merge: cannot change together"),
    (("--merge", "0,1", "--model", "model"), "--merge: is for all models of the run"),
]


@pytest.mark.slow
def test_an_operator_changes_the_topology_and_merges_nodes(tmp_path: Path) -> None:
    with running(tmp_path, STEPS, "-n3", "-v", "--strategy", "tree:consistency=ssp:3") as run:
        run.hears("under way", 3)
        for options, problem in WRONG:
            code, said = tell(run, *options)
            assert (code, said.count("\n")) == (2, 1), said
            assert said.startswith(f"syncline: {problem}"), said
        edges = tmp_path / "edges.txt"
        edges.write_text("0 2  # the first\n1 2\n")
        for topology, written in (("star", "star"), (str(edges), "0-2 1-2")):
            code, said = tell(run, "--topology", topology)
            assert (code, said) == (0, f"topology {written}: the nodes change over\n"), said
            run.hears(f"topology {written} from now on, as an operator asked")
            run.hears(f"] topology {written}\n")
        code, said = tell(run, "--merge", "2,1")
        assert (code, said) == (0, "merge 2,1: the nodes change over\n"), said
        run.hears("node 2 takes the place of 1, 2 from now on, as an operator asked")
        run.hears("server 1: has left; the others hold what it held")
        code, said = tell(run, "--merge", "2,1")
        assert (code, said) == (2, "syncline: --merge: there is no node 1; the nodes are 0, 2\n")
        run.touch("enough")
        assert run.ends() == 0, run.story()
        finals = set(re.findall(r"final (\S+) (\S+)", run.out))
    assert len(finals) == 1
