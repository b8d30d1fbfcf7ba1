"""`syncline train`: the same bits in every engine, a report, a straggler, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samples import sampled
from syncline.cli.main import main
from syncline.cli.progress_board import ProgressBoard
from syncline.draw import Draw
from syncline.engines.net.control import Pulse
from syncline.errors import UsageError
from syncline.recipes import RECIPES, build
from syncline.recipes.data import mnist
from trainings import simulated, train

SECONDS = 120
"""Seconds; far more than any run here takes. A run that takes longer hangs."""

BSP = ("--sync", "bsp", "--workers", "2", "--servers", "2", "--seed", "5", "--iterations", "40")
KEYS = {
    *("made_by", "schema", "engine", "lane", "iterations", "updates", "delayed_pulls", "dropped_updates"),
    *("waiting_seconds", "train_progress", "bytes_pushed", "bytes_pulled", "replica_gap", "bottleneck", "loss"),
    *("accuracy", "params_sha256", "workers", "settings", "pushes_skipped", "fetches_skipped"),
    *("iterations_done", "stopped_by", "staleness_mean", "staleness_max", "staleness_histogram"),
}


@pytest.fixture(scope="module")
def in_the_simulator(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return simulated(tmp_path_factory.mktemp("sim"), *BSP)


@pytest.mark.parametrize("lane", ["shm", "tcp"])
def test_a_real_run_comes_to_the_bits_of_the_simulated_one(
    lane: str, in_the_simulator: dict[str, Any], tmp_path: Path
) -> None:
    slow = ("--slow", "1:2") if lane == "tcp" else ()
    report, said = train(tmp_path, *BSP, "--lane", lane, *slow)
    for key in (
        "staleness_histogram",
        "params_sha256",
        "loss",
        "accuracy",
        "updates",
        "dropped_updates",
        "train_progress",
        "replica_gap",
    ):
        assert report[key] == in_the_simulator[key], key
    assert set(report) == KEYS | {"seconds"}
    assert set(in_the_simulator) == KEYS | {"virtual_seconds", "bytes_wire", "trace_sha256"}
    assert report["lane"] == lane
    assert report["settings"]["sync"] == {"value": "bsp", "origin": "command line"}
    assert report["settings"]["mode"] == {"value": "gradients", "origin": "default"}
    assert [row["iterations"] for row in report["workers"]] == [40] * 2
    assert "params_sha256" in said
    assert "Traceback" not in said
    if slow:
        assert report["settings"]["slow"] == {"value": "1:2", "origin": "command line"}


@pytest.mark.parametrize(
    "options",
    [
        ("--mode", "changes"),
        ("--rule", "momentum:0.1"),
        ("--rule", "fasgd:0.005"),
        ("--rule", "adam:0.005"),
        ("--mode", "changes", "--gate", "every:push=2,fetch=2"),
        ("--rule", "fasgd:0.005", "--gate", "bandwidth:push=1,fetch=1,on_skip=reapply"),
        ("--rule", "fasgd:0.005", "--gate", "budget:20kB,of=fetch"),
    ],
    ids=["changes", "momentum", "fasgd", "adam", "every", "bandwidth", "budget"],
)
@pytest.mark.slow
def test_the_bits_are_the_same_in_every_mode(options: tuple[str, ...], tmp_path: Path) -> None:
    real, _ = train(tmp_path, *BSP, *options, "--lane", "shm", "-q")
    expected = simulated(tmp_path, *BSP, *options)
    for key in ("params_sha256", "bytes_pushed", "pushes_skipped", "fetches_skipped"):
        assert real[key] == expected[key], key


@pytest.mark.parametrize(
    "sync",
    [
        pytest.param("ssp:3", id="ssp"),
        *(
            pytest.param(text, id=text.partition(":")[0], marks=pytest.mark.slow)
            for text in ("bsp", "asp", "dsps:1,4", "drop:2", "pssp:s=3,p=0.5", "pssp:s=3,alpha=0.5", "psp:sample=1,s=1")
        ),
    ],
)
def test_every_sync_model_learns_digits(sync: str, tmp_path: Path) -> None:
    report, _ = train(tmp_path, "--sync", sync, "-n", "2", "--stop", "updates=600", "--servers", "2", "-q")
    assert report["accuracy"] >= 0.95
    assert report["stopped_by"] == "updates"
    assert 600 <= report["iterations_done"] <= 601
    assert sum(updates for _, _, updates in report["staleness_histogram"]) > 0
    assert report["bytes_pushed"] > 0


@pytest.mark.parametrize("sync", sampled(("ssp:2", "dsps:1,2", "drop:2", "psp:sample=1,s=1", "asp"), "ssp:2"))
def test_the_slowest_worker_ends_the_run_while_another_waits_for_it(sync: str, tmp_path: Path) -> None:
    """Worker 0 alone measures the model, so it is the one that stops; worker 1 then waits for its next update."""
    report, _ = train(tmp_path, "--sync", sync, "-n", "2", "--slow", "0:30", "--stop", "loss=1", "-q")
    assert report["stopped_by"] == "loss"
    assert report["replica_gap"] is not None


COMPENSATING = ("dc-asgd:0.1", "dc-asgd:lr=0.1,lam=2,m=0.95", "gap-aware:0.1")


@pytest.mark.parametrize("rule", COMPENSATING)
def test_rules_that_know_what_a_worker_read_learn_digits(rule: str, tmp_path: Path) -> None:
    report = simulated(tmp_path, "--sync", "asp", "--rule", rule, "-n", "4", "--iterations", "200", "--servers", "2")
    assert report["accuracy"] >= 0.95


@pytest.mark.parametrize(("rule", "lane"), sampled(product(COMPENSATING, ("shm", "tcp"))))
def test_rules_that_know_what_a_worker_read_learn_digits_for_real(rule: str, lane: str, tmp_path: Path) -> None:
    options = ("--sync", "asp", "--rule", rule, "-n", "3", "--iterations", "300", "--servers", "2", "--lane", lane)
    report, _ = train(tmp_path, *options, "-q")
    assert report["accuracy"] >= 0.95


def test_a_slow_worker_is_slow_in_the_simulator_too(tmp_path: Path) -> None:
    report = simulated(tmp_path, "-n", "2", "--iterations", "5", "--slow", "1:3")
    assert report["virtual_seconds"] == pytest.approx(1.5)
    assert [row["compute_seconds"] for row in report["workers"]] == pytest.approx([0.5, 1.5])
    assert [row["waiting_seconds"] for row in report["workers"]] == pytest.approx([1.0, 0.0])


@pytest.mark.slow
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "syncline", "train", "-n", "1", "--iterations", "1000000", "--report", "r.json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    places = {"TMPDIR": str(tmp_path)}
    run = subprocess.Popen(command, cwd=tmp_path, env={**environment, **places}, stderr=subprocess.PIPE, text=True)
    try:
        assert run.stderr is not None
        while "accuracy" not in run.stderr.readline():
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        rest = run.communicate(timeout=SECONDS)[1]
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 130
    assert rest.rstrip().splitlines()[-1] == "syncline: interrupted"
    assert "Traceback" not in rest
    assert not list(tmp_path.iterdir())


# Bad input.


@pytest.mark.parametrize(
    ("options", "option", "words"),
    [
        (["nonsense"], "RECIPE", "digits-mlp, digits-cnn, mnist-mlp, mnist-cnn"),
        (["--slow", "9:2"], "--slow", "0 to 3"),
        (["--slow", "x"], "--slow", "WORKER:FACTOR"),
        (["--slow", "1:0.5"], "--slow", "at least 1"),
        (["--slow", "1:nan"], "--slow", "at least 1"),
        (["--slow", "1:2", "--slow", "1:3"], "--slow", "twice"),
        (["--iterations", "0"], "--iterations", "at least 1"),
        (["--workers", "0"], "--workers", "at least 1"),
        (["--servers", "100000"], "--servers", "at most"),
        (["--batch", "5000"], "--batch", "1,438"),
        (["--lane", "pigeon"], "--lane", "shm, tcp"),
        (["--engine", "steam"], "--engine", "local, sim"),
        (["--engine", "sim", "--lane", "tcp"], "--lane", "--engine sim"),
        (["--engine", "sim", "--tensorboard", "board"], "--tensorboard", "--engine sim"),
        (["--sync", "nonsense"], "sync", "bsp, asp"),
        (["--sync", "asp", "--mode", "gradients"], "mode", "works only with bsp"),
        (["--sync", "drop:9"], "sync", "drop:4"),
        (["--seed", "-1"], "seed", "an integer from 0 to"),
        (["--data", "."], "--data", "its own data"),
        (["mnist-mlp"], "--data", "mnist.npz"),
        (["mnist-cnn", "--data", "."], "--data", "x_train"),
        (["--compare", "--sync", "bsp"], "--sync", "--compare"),
        (["--compare", "--engine", "sim"], "--engine", "real"),
        (["--compare", "--workers", "1"], "--workers", "at least 2"),
        (["--compare", "--batch", "400"], "--batch", "at most 359"),
        (["--compare", "--repeats", "0"], "--repeats", "at least 1"),
        (["--repeats", "3"], "--repeats", "--compare"),
        (["--report", "."], "--report", "directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_options_are_refused_before_anything_starts(
    options: list[str],
    option: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["syncline", "train", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(f"syncline: {option}: ")
    assert words in said
    assert len(said.splitlines()) == 1
    assert not list(tmp_path.iterdir())


# MNIST, from a file of the user's.


def small_mnist(folder: Path, **changed: Any) -> None:
    """A file of the right form, with noise in it."""
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 64), ("test", 16)):
        arrays[f"x_{part}"] = random.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[f"y_{part}"] = random.integers(0, 10, count, np.uint8)
    np.savez(folder / "mnist.npz", **{**arrays, **changed})


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_recipe_says_how_large_its_network_is(name: str, tmp_path: Path) -> None:
    small_mnist(tmp_path)
    data = tmp_path if RECIPES[name].needs_data else None
    assert build(name, draw=Draw(0), workers=1, batch=1, data=data).layout.size == RECIPES[name].values


@pytest.mark.parametrize("recipe", ["mnist-mlp", "mnist-cnn"])
def test_mnist_is_read_from_a_folder(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist(tmp_path)
    (tmp_path / "x.toml").write_text(
        f'iterations = 2\n[cluster]\nworkers = 2\n[model]\nrecipe = "{recipe}"\ndata = "."\n'
    )
    report = tmp_path / "simulate.json"
    command = ["syncline", "simulate", str(tmp_path / "x.toml"), "-q", "--report", str(report)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    trained = simulated(tmp_path, recipe, "--data", str(tmp_path), "--iterations", "2", "--workers", "2")
    assert trained["params_sha256"] == json.loads(report.read_text())["params_sha256"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"x_train": np.zeros((64, 8, 8), np.uint8)}, "x_train holds uint8 of shape"),
        ({"y_test": np.full(16, 11, np.uint8)}, "a label from 0 to 9"),
        ({"y_train": np.zeros(63, np.uint8)}, "every image needs a label"),
    ],
)
def test_a_file_that_is_not_mnist_is_refused(changed: dict[str, Any], words: str, tmp_path: Path) -> None:
    small_mnist(tmp_path, **changed)
    with pytest.raises(UsageError, match=words):
        mnist(tmp_path)


def test_a_file_that_is_not_an_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_text("not an archive")
    with pytest.raises(UsageError, match=r"mnist\.npz"):
        mnist(tmp_path)


@pytest.mark.slow
def test_mnist_learns(tmp_path: Path) -> None:
    folder = Path(os.environ.get("SYNCLINE_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not (folder / "mnist.npz").is_file():
        pytest.skip("MNIST is not here; name its folder in SYNCLINE_DATA")
    options = ("mnist-mlp", "--data", str(folder), "-n", "2", "--iterations", "300", "--sync", "ssp:3", "-q")
    assert train(tmp_path, *options)[0]["accuracy"] > 0.9


# The view.


def test_the_slowest_is_named_with_the_reason() -> None:
    standing = ProgressBoard()
    assert standing.slowest() is None
    for worker, computed in ((0, 1.0), (1, 4.0), (2, 1.0)):
        standing.heard(Pulse(10, computed, 5.0 - computed, 0, worker=worker), 1.0)
    assert standing.slowest() == (1, "computes longest")
    standing.heard(Pulse(10, 1.0, 9.0, 0, worker=2), 2.0)
    assert standing.slowest() == (2, "waits for others")
    standing.heard(Pulse(12, 1.0, 9.0, 0, 0.5, 0.9, worker=2), 2.0)
    assert standing.quality == (0.5, 0.9)
    assert standing.places[2].rate == pytest.approx(0.0)
    standing.heard(Pulse(1, model="another", worker=0), 3.0)
    assert list(standing.places) == [0]


# The comparison.


@pytest.mark.slow
def test_a_comparison_times_every_system(tmp_path: Path) -> None:
    report, said = train(tmp_path, "--compare", "-n", "3", "--iterations", "12", "--repeats", "2")
    rows = {row["system"]: row for row in report["rows"]}
    assert list(rows) == [
        "one process",
        "DDP (gloo)",
        *(f"Syncline, {each}" for each in ("bsp", "ssp:3", "drop:2", "asp")),
    ]
    assert report["images"] == 12 * 3 * 32
    assert [len(row["runs"]) for row in rows.values()] == [2, 4, 4, 4, 4, 4]
    assert all(run["images"] >= report["images"] for row in rows.values() for run in row["runs"] if run["slow"])
    assert report["late_seconds"][:2] == [0, 0]
    assert report["late_seconds"][2] == pytest.approx(4 * report["step_seconds"])
    ddp, own, alone = (rows[name]["accuracy"] for name in ("DDP (gloo)", "Syncline, bsp", "one process"))
    assert own == ddp == alone  # the same arithmetic, to rounding
    assert report["simulated"]["model_bytes"] == 4 * RECIPES["digits-cnn"].values
    shown = " ".join(said.split())
    assert "SIMULATED, not measured: 3 machines, 1 Gbit network" in shown
    assert shown.endswith(report["meaning"])
    assert report["settings"]["recipe"] == {"value": "digits-cnn", "origin": "default"}


def test_a_recipe_needs_its_folder() -> None:
    with pytest.raises(UsageError, match=r"model\.data"):
        build("mnist-mlp", draw=Draw(0), workers=1, batch=1)
