"""A strategy of a user (tests/own_strategy.py) runs everywhere without a change in the package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.own_strategy import Ring

from engine import running, until
from lanes import SECONDS, environment
from samples import sampled
from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.sim import Cluster, Crash, Join, Leave, Links, Lognormal, MadeUp, Outcome, Scenario, World
from syncline.strategies.settings import settle, strategy_of

ROOT = Path(__file__).parent.parent.parent
RING = "tests.own_strategy.Ring"


def ran(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "syncline", *map(str, words)]
    return subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=SECONDS
    )


# The simulator.


def simulated(strategy: Ring, *faults: object, workers: int = 4, iterations: int = 12, **machines: object) -> Outcome:
    scenario = Scenario(Cluster(workers, **machines), strategy, iterations, 3, tuple(faults))  # type: ignore[arg-type]
    return World(scenario, MadeUp(5000, Draw(3))).run()


def test_workers_that_average_with_the_next_are_drawn_together() -> None:
    apart = simulated(Ring(every=100)).replica_gap
    assert 0 < simulated(Ring(every=1)).replica_gap < apart


def test_the_same_seed_gives_the_same_trace() -> None:
    machines = {"compute": Lognormal(0.1, 0.5), "links": Links(1e6, 0.001)}
    first, again = (simulated(Ring(every=3), **machines) for _ in range(2))
    assert first.trace_sha256 == again.trace_sha256
    assert first.updates == 4 * 12
    assert first.bytes_pushed == 4 * 4 * 5000 * 4  # four exchanges of four workers, whole models
    assert first.waiting_seconds > 0


@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize("dead", [0, 2, 3])
def test_nobody_waits_for_a_worker_that_has_died(every: int, dead: int) -> None:
    outcome = simulated(Ring(every), Crash(0.55, dead, detect=0.2), compute=Lognormal(0.1, 0.4))
    assert outcome.train_progress == 12
    assert 3 * 12 < outcome.updates < 4 * 12


def test_a_worker_leaves_without_losing_what_it_has_sent() -> None:
    assert simulated(Ring(), Leave(0.45, 1), workers=2).updates == 12 + 5


def test_what_it_cannot_do_is_refused_before_it_runs() -> None:
    with pytest.raises(UsageError, match="workers cannot join a run that has started"):
        simulated(Ring(), Join(0.5, 4))
    with pytest.raises(UsageError, match="must be at least 1 step"):
        settle({"command line": {"strategy": f"{RING}:0"}}, None, 2)


def test_its_text_contains_all_settings() -> None:
    assert str(Ring(every=4)) == f"{RING}:4"
    assert strategy_of({"strategy": RING, "every": "4"}, None) == Ring(every=4)
    assert settle({"a file": {"strategy": f"{RING}:every=4"}}, None, 2)["every"] == ("4", "a file")


def test_settings_of_a_weaker_origin_for_another_strategy_are_left_out() -> None:
    layers = {"command line": {"strategy": RING}, "file": {"sync": "ssp:3", "seed": "4"}}
    found = settle(layers, None, 2)
    assert found["seed"] == ("4", "file")
    assert "sync" not in found


# Real processes.


def report(directory: Path, *options: object) -> dict[str, object]:
    path = directory / "report.json"
    done = ran("train", "-q", "-n", 3, "--iterations", 40, *options, "--report", path)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("lane", sampled(["shm", "tcp"], "tcp"))
def test_real_processes_and_the_simulator_come_to_the_same_bits(lane: str, tmp_path: Path) -> None:
    strategy = ("--strategy", f"{RING}:every=2")
    real, virtual = report(tmp_path, *strategy, "--lane", lane), report(tmp_path, *strategy, "--engine", "sim")
    assert real["params_sha256"] == virtual["params_sha256"]
    assert real["replica_gap"] == virtual["replica_gap"] != 0


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import torch, syncline
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
assert session.settings["strategy"] == "tests.own_strategy.Ring"
print("accuracy", accuracy(model, data))
"""


@pytest.mark.parametrize("lane", sampled(["shm", "tcp"], "shm"))
def test_a_pytorch_script_trains_by_it(lane: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = ran("run", "-n", 2, "--lane", lane, "--strategy", f"{RING}:every=2", script, ROOT / "tests" / "scripts")
    assert done.returncode == 0, done.stderr
    found = [float(each) for each in re.findall(r"accuracy (\S+)", done.stdout + done.stderr)]
    assert len(found) == 2
    assert min(found) > 0.9


ALONE = """
import numpy as np, syncline
session = syncline.connect()
tables = session.tables({"w": np.zeros(5)}, strategy="tests.own_strategy.Ring:1")
for _ in range(3):
    session.update("w", np.ones(5))
    session.clock()
    session.sync()
session.close()
print(tables["w"].tolist())
"""


def test_a_program_can_choose_it_and_run_alone(tmp_path: Path) -> None:
    program = tmp_path / "alone.py"
    program.write_text(ALONE)
    path = os.pathsep.join((str(ROOT), environment().get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**environment(), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.stdout.strip() == "[3.0, 3.0, 3.0, 3.0, 3.0]", done.stderr


DYING = """
sys.path.append(os.getcwd())
begin()
step()
if rank == 1:
    (directory := Path(sys.argv[1])).joinpath("under way").touch()
    compute_until("never")
for _ in range(20):
    step()
session.close()
say("done")
"""


@pytest.mark.parametrize("lane", sampled(["shm", "tcp"], "shm"))
def test_a_worker_that_is_killed_does_not_stop_the_others(lane: str, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    options = ("-n3", "--lane", lane, "--strategy", f"{RING}:every=1")
    with running(tmp_path, DYING, *options, words=[str(tmp_path)]) as run:
        until(lambda: (tmp_path / "under way").exists(), "worker 1 is under way")
        run.kill(run.worker(1))
        assert run.ends() == 0, run.story()
        assert run.story().count("done") == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--servers", 2), "--servers: strategy 'tests.own_strategy.Ring' has no servers"),
        (("--sync", "ssp:3"), "sync: is not a setting"),
        (("--mode", "gradients"), "mode: strategy 'tests.own_strategy.Ring' supports only mode 'changes'"),
        (("--restarts", 1), "does not let workers join a run that is already training"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_options_that_do_not_go_with_it_are_refused(words: tuple[object, ...], problem: str) -> None:
    done = ran("run", "-n", 2, "--strategy", RING, *words, "--dry-run", __file__)
    assert done.returncode == 2
    assert problem in done.stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rng", "there is no strategy 'rng'"),
        ("serve", "did you mean 'server'?"),
        ("tests.own_strategy.RingNode", "is not a strategy"),
        ("tests.nothing.Ring", "tests.nothing"),
        (f"{RING}:every=x", "every"),
        (f"{RING}:step=2", "'step' is not a setting"),
    ],
)
def test_an_invalid_strategy_is_named(text: str, problem: str) -> None:
    done = ran("run", "-n", 2, "--strategy", text, "--dry-run", __file__)
    assert done.returncode == 2
    assert problem in done.stderr
