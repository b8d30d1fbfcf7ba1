"""The exchange strategy in whole runs: synchronous SGD, real processes in both lanes, deaths and joiners."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from engine import running, until
from lanes import SECONDS, environment
from samples import sampled
from syncline.draw import Draw
from syncline.layout import Bucket, Layout, Values
from syncline.rules import Add
from syncline.sim import Cluster, Crash, Lognormal, MadeUp, Scenario, World
from syncline.sim.problem import Quality
from syncline.strategies.exchange.strategy import ExchangeStrategy

ROOT = Path(__file__).parent.parent.parent


def ran(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "syncline", *map(str, words)]
    return subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=SECONDS
    )


# Synchronous SGD.


def change(params: Values, worker: int, iteration: int) -> Values:
    """The change that the optimizer of a worker makes: a step towards a target of its own."""
    target = np.random.default_rng((worker, iteration)).standard_normal(params.size).astype(np.float32)
    return (target - params) * np.float32(0.25)


def by_rounds(workers: int, rounds: int, size: int) -> list[Values]:
    """The parameters of synchronous data-parallel SGD before each round, and after the last."""
    found = [np.zeros(size, np.float32)]
    for each in range(rounds):
        changes = [change(found[-1], worker, each) for worker in range(workers)]
        found.append(found[-1] + np.mean(changes, 0, dtype=np.float64).astype(np.float32))
    return found


class Watched:
    """A problem that notes from which parameters every gradient is computed."""

    optimizer = Add()
    always_finite = True
    layout = Layout.of([("a", (50,))])

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int], Values] = {}

    def start(self, buckets: Sequence[Bucket]) -> list[Values]:
        return [np.zeros(bucket.size, np.float32) for bucket in buckets]

    def gradient(self, pieces: Sequence[Values], worker: int, iteration: int) -> list[Values]:
        self.seen[worker, iteration] = np.concatenate(pieces)
        return [change(pieces[0], worker, iteration)]

    def quality(self, pieces: Sequence[Values]) -> Quality | None:
        return None


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_one_range_without_slack_is_synchronous_sgd_in_the_simulator(workers: int) -> None:
    problem = Watched()
    scenario = Scenario(Cluster(workers, Lognormal(0.1, 0.8)), ExchangeStrategy(1), 25, 3)
    outcome = World(scenario, problem).run()
    expected = by_rounds(workers, 25, 50)
    for (_, iteration), params in problem.seen.items():
        np.testing.assert_allclose(params, expected[iteration], rtol=0, atol=1e-5)
    np.testing.assert_allclose(outcome.model_vector(), expected[-1], rtol=0, atol=1e-5)
    assert outcome.replica_gap < 1e-5


ROUNDS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
import numpy as np, syncline
from test_exchange import by_rounds, change
session = syncline.connect()
tables = session.tables({{"w": np.zeros(50, np.float32)}})
expected, worst = by_rounds(session.size, 40, 50), 0.0
for each in range(40):
    worst = max(worst, float(abs(tables["w"] - expected[each]).max()))
    session.update("w", change(tables["w"], session.rank, each))
    session.clock()
    session.sync()
session.close()
print("worst", max(worst, float(abs(tables["w"] - expected[-1]).max())))
"""


@pytest.mark.parametrize("lane", sampled(["shm", "tcp"], "shm"))
def test_one_range_without_slack_is_synchronous_sgd_in_real_processes(lane: str, tmp_path: Path) -> None:
    program = tmp_path / "rounds.py"
    program.write_text(ROUNDS)
    done = ran("run", "-n", 3, "--lane", lane, "--strategy", "exchange:1", program)
    assert done.returncode == 0, done.stderr
    worst = [float(each) for each in re.findall(r"worst (\S+)", done.stdout)]
    assert len(worst) == 3
    assert max(worst) < 1e-5


WISHES = """
import numpy as np, syncline
with syncline.connect() as session:
    tables = session.tables({"w": np.zeros(50, np.float32)}, strategy="exchange:2")
    while session.iteration < 20:
        session.update("w", np.ones(50, np.float32))
        session.clock()
        session.sync()
    kind = session.settings["strategy"]
print("ended at", round(float(tables["w"].mean()), 3), kind)
"""


@pytest.mark.parametrize("lane", ["shm", "tcp"])
def test_a_program_may_ask_for_the_strategy_itself(lane: str, tmp_path: Path) -> None:
    """The server that was started before the program could ask is not needed, and ends well and without a word."""
    program, report = tmp_path / "wishes.py", tmp_path / "report.json"
    program.write_text(WISHES)
    done = ran("run", "-n", 2, "--lane", lane, "--report", report, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ended at 20.0 exchange") == 2
    assert done.stderr == ""  # a server that ends with another exit code than 0 is reported here
    found = json.loads(report.read_text())
    assert (found["updates"], found["servers"], found["train_progress"]) == (40, [], 20)
    assert found["bytes_pushed"] > 0
    assert found["partitions"] == 2
    assert sum(row[2] for row in found["staleness_histogram"]) == 40 * 2  # every update in two ranges


# Training.


def trained(directory: Path, *options: object) -> dict[str, object]:
    path = directory / "report.json"
    done = ran("train", "-q", "-n", 4, "--strategy", *options, "--report", path)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("exchange", "--lane", "shm"), marks=pytest.mark.slow),
        pytest.param(("exchange", "--lane", "tcp"), marks=pytest.mark.slow),
        pytest.param(("exchange:partitions=4,tau=2", "--lane", "shm"), marks=pytest.mark.slow),
        pytest.param(("exchange:partitions=3,codec=topk:0.1", "--lane", "tcp"), marks=pytest.mark.slow),
        ("exchange", "--engine", "sim"),
    ],
    ids=" ".join,
)
def test_digits_are_learnt(options: tuple[str, ...], tmp_path: Path) -> None:
    report = trained(tmp_path, *options)
    least = 0.75 if "tau=2" in options[0] else 0.95  # with updates so stale, a run may end at a bad moment
    assert report["accuracy"] >= least  # type: ignore[operator]
    assert 0 <= report["replica_gap"] < 0.1  # type: ignore[operator]
    assert report["updates"] == report["iterations_done"] == 4 * report["iterations"]  # type: ignore[operator]
    assert report["bytes_pushed"] > 0  # type: ignore[operator]
    assert report["deaths"] == []
    asked = re.search(r"partitions=(\d)", options[0])
    assert report["partitions"] == int(asked[1]) if asked else report["partitions"] >= 1  # type: ignore[operator]
    rows = report["staleness_histogram"]
    assert sum(row[2] for row in rows) >= 3 * report["updates"]  # type: ignore[attr-defined, operator]
    assert report["staleness_max"] == rows[-1][0]  # type: ignore[index]


def test_real_values_end_alike_in_the_simulator_whatever_dies() -> None:
    """The report names what of worker 1 has reached whom; the replicas differ by that and by nothing else."""
    scenario = Scenario(Cluster(4, Lognormal(0.1, 0.6)), ExchangeStrategy(4, 1), 30, 3, (Crash(1.0, 1, detect=0.3),))
    outcome = World(scenario, MadeUp(5000, Draw(3))).run()
    (row,) = outcome.report["deaths"]
    assert row["worker"] == 1
    assert set(row["reached"]) == {"0", "2", "3"}
    assert row["complete"] <= row["newest"] <= row["complete"] + 5
    assert outcome.notes[0].startswith("worker 1 died: its updates up to update")
    assert outcome.updates > 3 * 30


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
session.close()
total = sum(float(each.detach().double().sum()) for each in model.parameters())
print("accuracy", accuracy(model, data), "sum", total)
"""


@pytest.mark.parametrize("lane", sampled(["shm", "tcp"]))
def test_a_pytorch_script_trains_by_it(lane: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    strategy = "exchange:partitions=3,tau=1"
    done = ran("run", "-n", 3, "--lane", lane, "--strategy", strategy, script, ROOT / "tests" / "scripts")
    assert done.returncode == 0, done.stderr
    found = re.findall(r"accuracy (\S+) sum (\S+)", done.stdout)
    assert len(found) == 3
    assert min(float(each) for each, _ in found) > 0.9
    sums = [float(each) for _, each in found]
    assert max(sums) - min(sums) < 1e-3  # all end with the same parameters


DYING = """
begin(w=100_000)
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
    options = ("-n3", "--lane", lane, "--strategy", "exchange:partitions=2,tau=1")
    with running(tmp_path, DYING, *options, words=[str(tmp_path)]) as run:
        until(lambda: (tmp_path / "under way").exists(), "worker 1 is under way")
        run.kill(run.worker(1))
        assert run.ends() == 0, run.story()
        assert run.story().count("done") == 2
        assert run.story().count("worker 1 is gone; this worker has all of its updates up to update") == 2


ALONE_AT_FIRST = """
begin(w=1000)
while not there("stop"):
    step()
    say(f"under way with {len(session.members)}")
session.close()
say("done")
"""


@pytest.mark.parametrize("lane", sampled(["shm", "tcp"], "tcp"))
def test_a_run_of_one_worker_can_be_joined(lane: str, tmp_path: Path) -> None:
    options = ("-n1", "--lane", lane)
    with running(tmp_path, ALONE_AT_FIRST, *options, "--strategy", "exchange:2", "--listen", "127.0.0.1:0") as run:
        run.hears("under way with 1")
        address = run.hears(r"--join (\S+) -n 1 PROGRAM")[1]
        with running(tmp_path, ALONE_AT_FIRST, *options, "--join", address) as other:
            other.hears("under way with 2")
            run.hears("under way with 2")
            run.touch("stop")
            assert other.ends() == 0, other.story()
            assert run.ends() == 0, run.story()
            assert "done" in run.out + other.out


JOINING = """
import os, signal, sys
from pathlib import Path
import numpy as np, syncline
session, folder = syncline.connect(), Path(sys.argv[1])
tables, left, died = session.tables({"w": np.zeros(1000, np.float32)}), 30, folder / "died"
if session.rank == 2 and died.exists():
    (folder / "back").touch()
while left:
    if session.rank == 2 and session.iteration == 20 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    left -= (folder / "back").exists()
    session.update("w", np.ones(1000))
    session.clock()
    session.sync()
session.close()
print("rank", session.rank, "at", session.iteration, "values", float(tables["w"][0]), float(tables["w"][-1]))
"""


@pytest.mark.parametrize("lane", sampled(["shm", "tcp"], "tcp"))
def test_a_worker_that_is_started_again_takes_part(lane: str, tmp_path: Path) -> None:
    program = tmp_path / "joining.py"
    program.write_text(JOINING)
    strategy = "exchange:partitions=2,tau=1"
    done = ran("run", "-n", 3, "--lane", lane, "--restarts", 1, "--strategy", strategy, program, tmp_path)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"rank (\d) at (\d+) values (\S+) (\S+)", done.stdout)
    assert sorted(each for each, *_ in rows) == ["0", "1", "2"]
    assert min(int(at) for _, at, *_ in rows) >= 50  # it began at the others' clocks
    values = [float(value) for _, _, *pair in rows for value in pair]
    assert max(values) - min(values) < 4  # all but the last updates of the worker that died


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("-n", 1, "--strategy", "exchange"), "needs at least 2 workers"),
        (("-n", 2, "--strategy", "exchange:0"), "partitions: must be at least 1"),
        (("-n", 2, "--strategy", "exchange:tau=-1"), "tau: must be at least 0"),
        (("-n", 2, "--strategy", "exchange", "--servers", 2), "--servers: strategy 'exchange' has no servers"),
        (("-n", 2, "--strategy", "exchange", "--gate", "every:2"), "gate: strategy 'exchange' sends every value"),
        (("-n", 2, "--strategy", "exchange", "--rule", "sgd:0.1"), "rule: strategy 'exchange' adds up the changes"),
    ],
    ids=lambda each: str(each[-1]) if isinstance(each, tuple) else "",
)
def test_what_cannot_work_is_refused_before_anything_starts(words: tuple[object, ...], problem: str) -> None:
    done = ran("run", *words, __file__)
    assert done.returncode == 2
    assert problem in done.stderr
