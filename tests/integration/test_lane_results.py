"""The lanes give results bit-identical to the simulator's, and obey the node contract on payloads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import lanes
from lanes import SEED, SHAPES, drawn_updates, first_values, run_drawn, vector
from samples import sampled
from syncline.engines.launch.child import Child
from syncline.engines.launch.launcher import Launcher
from syncline.engines.launch.plan import Plan, checked
from syncline.engines.net.wiring import Wiring
from syncline.layout import Bucket, Layout, Values
from syncline.rules import Add, Rule, Sgd
from syncline.sim import Cluster, Outcome, Quality, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.strategies.server.strategy import Mode
from syncline.strategies.settings import settle, strategy_of

LANES = ["shm", "tcp"]
ITERATIONS = 12
SMALL = {"bucket": "4KiB", "seed": str(SEED)}
MODES = {
    "changes": {"mode": "changes"},
    "sgd": {"mode": "rule", "rule": "sgd:0.1"},
    "momentum": {"mode": "rule", "rule": "momentum:0.1,0.9"},
    "fasgd": {"rule": "fasgd:0.1,gamma=0.9,beta=0.9"},
    "adam": {"rule": "adam:0.1"},
    "gradients": {"mode": "gradients"},
}


class Drawn:
    """The simulator's side of the updates that lanes.py draws."""

    always_finite = True

    def __init__(self, optimizer: Rule) -> None:
        self.optimizer = optimizer
        self.layout = Layout.of(SHAPES.items())
        self._buckets: Sequence[Bucket] = ()

    def start(self, buckets: Sequence[Bucket]) -> list[Values]:
        self._buckets = buckets
        return self._cut(first_values(0))

    def gradient(self, pieces: Sequence[Values], worker: int, iteration: int) -> list[Values]:
        return self._cut(drawn_updates(worker, iteration))

    def quality(self, pieces: Sequence[Values]) -> Quality | None:
        return None

    def _cut(self, tables: Mapping[str, Values]) -> list[Values]:
        whole = vector(tables)
        return [whole[bucket.start : bucket.stop].copy() for bucket in self._buckets]


def simulated(words: Mapping[str, str], workers: int = 3, servers: int = 2) -> Outcome:
    """The same run in the simulator."""
    settled = settle({"test": words}, servers, workers)
    strategy = strategy_of({key: word for key, (word, _) in settled.items()}, servers)
    optimizer = Sgd(0.1) if strategy.mode is Mode.GRADIENTS else Add()
    scenario = Scenario(Cluster(workers, Lognormal(0.1, 0.5)), strategy, ITERATIONS, SEED)
    return World(scenario, Drawn(optimizer)).run()


def options(words: Mapping[str, str]) -> list[str]:
    return [word for key, value in words.items() for word in (f"--{key}", value)]


@pytest.mark.parametrize(
    ("mode", "lane"),
    sampled(product(MODES, LANES), ("changes", "shm"), ("fasgd", "tcp"), ("adam", "shm"), ("gradients", "tcp")),
)
def test_bsp_gives_the_simulators_parameters_to_the_bit(tmp_path: Path, mode: str, lane: str) -> None:
    words = {**SMALL, **MODES[mode], "sync": "bsp"}
    outcome = simulated(words)
    assert len(outcome.buckets) >= 12

    ran = run_drawn(tmp_path, ITERATIONS, "-n", 3, "--servers", 2, "--lane", lane, *options(words), uneven=True)

    expected = outcome.model_vector()
    assert np.abs(expected - vector(first_values(0))).max() > 0.1
    for worker in range(3):
        assert ran.params(worker).tobytes() == expected.tobytes(), f"worker {worker}"
    assert ran.report["updates"] == outcome.updates == 2 * 3 * ITERATIONS


@pytest.mark.parametrize("lane", LANES)
def test_an_update_that_a_gate_holds_back_is_not_lost(tmp_path: Path, lane: str) -> None:
    """Two iterations ride in one push, and the last one leaves with its worker."""
    words = {**SMALL, "mode": "rule", "rule": "sgd:0.1", "gate": "every:push=2", "sync": "bsp"}
    rounds = 5

    ran = run_drawn(tmp_path, rounds, "-n", 1, "--lane", lane, *options(words))

    expected = vector(first_values(0))
    for pair in ((0, 1), (2, 3), (4,)):
        held = [vector(drawn_updates(0, i)) for i in pair]
        expected -= np.float32(0.1) * (held[0] + held[1] if len(held) > 1 else held[0])
    assert np.allclose(ran.params(0), expected, rtol=0, atol=1e-6)


FETCHING = """
import numpy as np
import syncline

session = syncline.connect()
tables = session.tables({"w": np.zeros(3)})
seen = []
for i in range(6):
    session.update("w", np.full(3, 10.0**i))
    session.clock()
    session.sync()
    seen.append(int(tables["w"][0]))
print(seen)
"""


@pytest.mark.parametrize("gate", ["every:fetch=3", "every:push=2,fetch=3"])
def test_a_worker_keeps_its_own_change_where_a_gate_skips_the_fetch(tmp_path: Path, gate: str) -> None:
    """As a replica does in the simulator; what a fetch brings counts once it comes."""
    (tmp_path / "program.py").write_text(FETCHING)
    ran = lanes.run(tmp_path, "-n", 1, "--sync", "asp", "--gate", gate, "program.py")
    fetched = 11 if "push=2" in gate else 111  # an update that is held back is not in what is fetched
    assert ran.output == f"[w0] [1, 11, {fetched}, {fetched + 1000}, {fetched + 11000}, 111111]\n", ran.errors


def test_a_rule_on_the_command_line_selects_its_mode(tmp_path: Path) -> None:
    ran = run_drawn(tmp_path, 2, "-n", 1, "--rule", "sgd:0.1")
    assert ran.report["updates"] == 2


# The node contract: the test overwrites memory as soon as the contract allows it.

SCRIBBLING = """
import sys
import numpy as np
from syncline.effects import Received, Send
from syncline.engines.server import held_model, process
from syncline.nodes.server.shard import Shard

class Scribbling(Shard):
    '''Writes NaN over an update when its push is answered, and over what it has sent at its next event.

    What it sends are copies, so that the parameters themselves stay whole.
    '''

    def __init__(self, *args):
        super().__init__(*args)
        self.updates, self.sent = {}, []

    def handle(self, event, now):
        for payload in self.sent:
            payload.fill(np.nan)
        self.sent = []
        if type(event) is Received and event.payload is not None:
            self.updates[event.source, event.message.bucket] = event.payload
        return [self.let_go(effect) for effect in super().handle(event, now)]

    def let_go(self, effect):
        update = self.updates.pop((effect.to, getattr(effect.message, "bucket", None)), None)
        if update is not None:
            update.fill(np.nan)
        if effect.payload is None:
            return effect
        self.sent.append(effect.payload.copy())
        return Send(effect.to, effect.message, self.sent[-1])

held_model.Shard = Scribbling
sys.exit(process.main())
"""

PARTIAL = """
import sys
from pathlib import Path
from time import sleep
import numpy as np
import syncline

directory = Path(sys.argv[1])
session = syncline.connect()
tables = session.tables({"w": np.zeros(int(sys.argv[2])), "v": np.zeros(500), "b": np.zeros(7)})
for i in range(8):
    session.buffer("w").fill(2 ** session.rank)
    session.update("w")
    if i % 2:  # else it is not changed, whatever its memory holds
        session.update("b", np.full(7, 2 ** session.rank))
    session.clock()
    (directory / f"clock{i}-{session.rank}").touch()
    while len(list(directory.glob(f"clock{i}-*"))) < session.size:  # answers pile up meanwhile
        sleep(0.001)
    session.sync()
    assert all(np.isfinite(table).all() for table in tables.values()), i
    session._link.memory.updates.fill(np.nan)
session.close()
np.savez(directory / f"tables{session.rank}.npz", **tables)
"""


class ScribblingLauncher(Launcher):
    """Starts servers that scribble; `program` is theirs."""

    program: Path

    def _spawn(self, name: str, command: list[str], *rest: object, **more: object) -> Child:
        if name.startswith("server"):
            command = [sys.executable, str(self.program), command[-1]]
        return super()._spawn(name, command, *rest, **more)  # type: ignore[arg-type]


SIZES = {"many": (5000, "4KiB"), "large": (4_000_000, "8MiB")}
QUICK = [("many", "bsp", "tcp"), ("many", "asp", "shm"), ("large", "asp", "tcp"), ("large", "bsp", "shm")]


@pytest.mark.parametrize(("buckets", "sync", "lane"), sampled(product(SIZES, ("bsp", "asp"), LANES), *QUICK))
def test_memory_is_left_alone_when_the_contract_says_so(tmp_path: Path, buckets: str, sync: str, lane: str) -> None:
    """Every worker adds 2^rank, so that the sum tells who is missing; large buckets fill a socket's buffers."""
    values, bucket = SIZES[buckets]
    (tmp_path / "server.py").write_text(SCRIBBLING)
    (tmp_path / "program.py").write_text(PARTIAL)
    words = {"sync": sync, "bucket": bucket, "mode": "rule", "rule": "sgd:1"}
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path), str(values)]
    launcher = ScribblingLauncher(
        checked(Plan(command, 3, 2, words, Wiring(lane=lane), environment=lanes.environment()))
    )
    launcher.program = tmp_path / "server.py"
    try:
        launcher.start()
        assert launcher.wait() == 0
        assert [worker.code for worker in launcher.workers] == [0, 0, 0]
    finally:
        launcher.stop()

    share = 3 if sync == "bsp" else 1  # a round is one mean, or each update is applied as it comes
    for worker in range(3):
        with np.load(tmp_path / f"tables{worker}.npz") as tables:
            assert np.allclose(tables["w"], -8 * 7 / share, rtol=1e-6)
            assert np.allclose(tables["b"], -4 * 7 / share, rtol=1e-6)
            assert not tables["v"].any()


# A long run.


@pytest.mark.slow
@pytest.mark.parametrize("lane", LANES)
def test_half_a_minute_of_the_soak(lane: str) -> None:
    script = Path(__file__).parents[2] / "benchmarks/soak.py"
    command = [sys.executable, str(script), "--minutes", "0.5", "--lane", lane]
    soak = subprocess.run(command, env=lanes.environment(), capture_output=True, text=True, timeout=300)
    assert soak.returncode == 0, soak.stdout + soak.stderr
    assert "no update lost, memory did not grow" in soak.stdout
