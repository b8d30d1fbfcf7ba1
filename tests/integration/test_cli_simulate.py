"""`syncline simulate`: the report, determinism, which setting overrides which, and the files that it writes."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
KEYS = {
    "made_by",
    "schema",
    "virtual_seconds",
    "iterations",
    "updates",
    "delayed_pulls",
    "dropped_updates",
    "waiting_seconds",
    "train_progress",
    "bytes_pushed",
    "bytes_pulled",
    "pushes_skipped",
    "fetches_skipped",
    "bytes_wire",
    "iterations_done",
    "stopped_by",
    "staleness_mean",
    "staleness_max",
    "staleness_histogram",
    "replica_gap",
    "bottleneck",
    "trace_sha256",
}
RECIPE_KEYS = {"loss", "accuracy", "params_sha256"}

RANDOM = """
seed = 7
iterations = 12
[cluster]
workers = 4
compute = { mean = 0.1, sigma = 0.5, straggle = 0.1, factor = 4.0 }
[network]
bandwidth = "1Gbit"
latency = "0.1ms"
apply = "2GB/s"
[model]
parameters = 600_000
[strategy]
servers = 2
sync = ["ssp:1", "pssp:s=1,p=0.5"]
[[faults]]
kind = "crash"
at = 0.5
worker = 1
[[faults]]
kind = "restart"
at = 0.8
worker = 1
"""
PLAIN = "iterations = 3\n[cluster]\nworkers = 4\n[model]\nparameters = 1000\n"
DIGITS = """
seed = 7
iterations = 100
[cluster]
workers = 8
compute = { mean = 0.1, sigma = 0.3, straggle = 0.05, factor = 5.0 }
[model]
recipe = "digits-mlp"
"""

Simulate = Callable[..., dict[str, Any]]


@pytest.fixture
def simulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulate:
    """Run the command in this process on a file with this text; its report."""

    def simulate(text: str | Path, *args: str) -> dict[str, Any]:
        file = text if isinstance(text, Path) else tmp_path / "x.toml"
        if isinstance(text, str):
            file.write_text(text)
        report = tmp_path / "r.json"
        monkeypatch.setattr(sys, "argv", ["syncline", "simulate", str(file), "-q", "--report", str(report), *args])
        with pytest.raises(SystemExit) as exit:
            main()
        assert not exit.value.code
        found: dict[str, Any] = json.loads(report.read_text())
        return found

    return simulate


def process(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(path for path in sys.path if path)
    whole = os.environ | {"PYTHONPATH": paths} | environment
    command = [sys.executable, "-m", "syncline", *args]
    return subprocess.run(command, cwd=cwd, env=whole, capture_output=True, text=True, check=False)


# The report.


def test_the_keys_of_a_report(simulate: Simulate) -> None:
    report = simulate(RANDOM)
    assert set(report) == KEYS
    assert report["schema"] == 1
    assert report["iterations"] == 12


def test_the_keys_of_a_report_of_a_recipe(simulate: Simulate) -> None:
    report = simulate(DIGITS, "--iterations", "2")
    assert set(report) == KEYS | RECIPE_KEYS
    assert 0 <= report["accuracy"] <= 1
    assert len(report["params_sha256"]) == 64


def test_the_types_of_a_report(simulate: Simulate) -> None:
    report = simulate(RANDOM)
    reals = {"virtual_seconds", "waiting_seconds", "replica_gap", "staleness_mean"}
    texts = {"made_by", "bottleneck", "trace_sha256", "stopped_by"}
    rows = report.pop("staleness_histogram")
    assert all(type(each) is int for row in rows for each in row)
    assert {key for key, value in report.items() if isinstance(value, float)} == reals
    assert {key for key, value in report.items() if isinstance(value, str)} == texts
    assert all(type(report[key]) is int for key in report.keys() - reals - texts)


def test_figures_by_hand(simulate: Simulate) -> None:
    # 4 equal workers, 0.1 s, bsp, messages take no time: 3 rounds; in each three pulls are parked for no time at all.
    report = simulate(PLAIN)
    seconds = report.pop("virtual_seconds")
    assert seconds == 0.1 + 0.1 + 0.1
    assert report.pop("bytes_wire") > 2 * 3 * 4 * 4000
    report.pop("trace_sha256")
    assert report == {
        "made_by": "syncline",
        "schema": 1,
        "iterations": 3,
        "iterations_done": 12,
        "stopped_by": "iterations",
        "updates": 12,
        "delayed_pulls": 9,
        "dropped_updates": 0,
        "waiting_seconds": 0.0,
        "train_progress": 3,
        "bytes_pushed": 3 * 4 * 4000,
        "bytes_pulled": 3 * 4 * 4000,
        "pushes_skipped": 0,
        "fetches_skipped": 0,
        "staleness_mean": 0.0,
        "staleness_max": 0,
        "staleness_histogram": [[0, 0, 12]],
        "replica_gap": 0.0,
        "bottleneck": "compute",
    }


# The end of a run, and its curve.


def test_stop_ends_a_run_and_replaces_the_iterations_of_the_file(simulate: Simulate) -> None:
    found = simulate(DIGITS, "--sync", "asp", "--stop", "updates=50")
    assert (found["iterations"], found["iterations_done"], found["stopped_by"]) == (None, 50, "updates")
    found = simulate("stop = { updates = 50 }\n" + PLAIN.removeprefix("iterations = 3\n"))
    assert found["stopped_by"] == "updates"
    found = simulate("stop = { updates = 50 }\n" + PLAIN.removeprefix("iterations = 3\n"), "--iterations", "2")
    assert (found["iterations"], found["stopped_by"]) == (2, "iterations")


@pytest.mark.parametrize(
    ("text", "options", "problem"),
    [
        ("stop = { updates = 9 }\n" + PLAIN, [], "stop.updates: replaces iterations; remove one of them"),
        (PLAIN, ["--stop", "updates=9", "--iterations", "3"], "stop.updates: replaces iterations"),
        ("stop = { loss = 0.1 }\n" + PLAIN, [], "stop.loss: needs a model that is trained"),
        ("stop = { accuracy = 95 }\n" + DIGITS, [], "stop.accuracy: must be above 0 and at most 1, not 95"),
        ("stop = { update = 9 }\n" + PLAIN, [], "stop.update: there is no such key; did you mean 'updates'?"),
        (PLAIN, ["--stop", "seconds=0"], "stop.seconds: must be above 0 and at most 1,000,000,000, not 0.0"),
        (PLAIN, ["--stop", "updates=1e3"], "--stop: updates must be a whole number, not '1e3'"),
        (PLAIN, ["--stop", "9"], "--stop: cannot read '9'; write it like updates=4000"),
        (PLAIN, ["--every", "9"], "--every: has no effect without --curve"),
        (PLAIN, ["--curve", "c.csv", "--every", "0"], "--every: must be at least 1"),
    ],
)
def test_an_invalid_stop_is_refused(text: str, options: list[str], problem: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(text)
    done = process("simulate", "x.toml", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"syncline: {problem}")
    assert len(done.stderr.splitlines()) == 1


def test_a_curve_is_a_table_of_points(simulate: Simulate, tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    found = simulate(DIGITS, "--iterations", "10", "--curve", str(path), "--every", "20")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["iterations"]) for row in rows] == [20, 40, 60, 80]
    assert list(rows[0]) == ["seconds", "iterations", "loss", "accuracy", "bytes_pushed", "bytes_pulled"]
    assert float(rows[-1]["loss"]) == found["loss"]
    assert found == simulate(DIGITS, "--iterations", "10")
    simulate(PLAIN, "--curve", str(path))
    with path.open(newline="") as file:
        assert [(row["iterations"], row["loss"]) for row in csv.DictReader(file)] == [("4", ""), ("8", ""), ("12", "")]


# Determinism.


def test_ten_runs_and_a_fresh_process_have_one_report(simulate: Simulate, tmp_path: Path) -> None:
    reports = [simulate(RANDOM) for _ in range(10)]
    assert all(report == reports[0] for report in reports)
    for hash_seed in ("1", "2"):
        done = process(
            "simulate", "x.toml", "-q", "--report", f"{hash_seed}.json", cwd=tmp_path, PYTHONHASHSEED=hash_seed
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads((tmp_path / f"{hash_seed}.json").read_text()) == reports[0]


def test_a_recipe_has_the_same_bits_in_a_fresh_process(simulate: Simulate, tmp_path: Path) -> None:
    report = simulate(DIGITS, "--iterations", "5")
    done = process(
        "simulate", "x.toml", "-q", "--iterations", "5", "--report", "p.json", cwd=tmp_path, PYTHONHASHSEED="5"
    )
    assert done.returncode == 0
    assert json.loads((tmp_path / "p.json").read_text()) == report


def test_another_seed_has_another_trace_where_anything_is_random(simulate: Simulate) -> None:
    traces = {simulate(RANDOM, "--seed", f"{seed}")["trace_sha256"] for seed in range(5)}
    assert len(traces) == 5


def test_another_seed_has_the_same_trace_where_nothing_is_random(simulate: Simulate) -> None:
    assert len({simulate(PLAIN, "--seed", f"{seed}")["trace_sha256"] for seed in range(3)}) == 1


def test_a_recipe_starts_from_its_seed(simulate: Simulate) -> None:
    hashes = {simulate(DIGITS, "--iterations", "1", "--seed", f"{seed}")["params_sha256"] for seed in range(3)}
    assert len(hashes) == 3


# The trace.


def test_the_trace_is_what_its_hash_says(simulate: Simulate, tmp_path: Path) -> None:
    report = simulate(RANDOM, "--trace", str(tmp_path / "t.csv"))
    assert hashlib.sha256((tmp_path / "t.csv").read_bytes()).hexdigest() == report["trace_sha256"]
    assert simulate(RANDOM)["trace_sha256"] == report["trace_sha256"]


def test_the_trace_adds_up(simulate: Simulate, tmp_path: Path) -> None:
    report = simulate(RANDOM, "--trace", str(tmp_path / "t.csv"))
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["time", "from", "to", "kind", "progress", "bytes"]
    assert sum(int(row["bytes"]) for row in rows if row["kind"] == "push") == report["bytes_pushed"]
    assert sum(int(row["bytes"]) for row in rows if row["kind"] == "params") == report["bytes_pulled"]
    assert sum(int(row["bytes"]) for row in rows) < report["bytes_wire"]
    times = [float(row["time"]) for row in rows]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= report["virtual_seconds"]
    assert {row["from"] for row in rows} == {*(f"worker{n}" for n in range(4)), "server0", "server1", "coordinator"}


def test_the_trace_of_a_plain_run_row_by_row(simulate: Simulate, tmp_path: Path) -> None:
    simulate(PLAIN, "--trace", str(tmp_path / "t.csv"), "--workers", "2", "--iterations", "1")
    assert (tmp_path / "t.csv").read_text() == (
        "time,from,to,kind,progress,bytes\n"
        "0.1,worker0,server0,push,0,4000\n"
        "0.1,worker1,server0,push,0,4000\n"
        "0.1,server0,worker0,params,0,4000\n"
        "0.1,server0,worker1,params,0,4000\n"
    )


# Which setting overrides which.


def test_an_option_beats_the_file(simulate: Simulate) -> None:
    report = simulate(PLAIN, "--workers", "3", "--iterations", "5", "--sync", "asp", "--servers", "2")
    assert (report["iterations"], report["updates"], report["delayed_pulls"]) == (5, 3 * 5 * 2, 0)


def test_every_part_of_a_strategy_has_an_option(simulate: Simulate) -> None:
    parts = {"gate": "every:push=2,fetch=2", "codec": "topk:0.1", "reply_codec": "int8", "placement": "balanced"}
    text = DIGITS.replace("100", "5") + '[strategy]\nservers = 2\nsync = "ssp:3"\n'
    words = [word for key, value in parts.items() for word in (f"--{key.replace('_', '-')}", value)]
    written = text + "".join(f'{key} = "{value}"\n' for key, value in parts.items())
    assert simulate(text, *words) == simulate(written) != simulate(text)


def test_options_and_file_give_the_same_result(simulate: Simulate) -> None:
    written = simulate(f"seed = 9\n{RANDOM.replace('seed = 7', '')}".replace('["ssp:1", "pssp:s=1,p=0.5"]', '"ssp:2"'))
    assert simulate(RANDOM, "--seed", "9", "--sync", "ssp:2") == written


def test_a_model_per_server(simulate: Simulate) -> None:
    text = PLAIN + '[strategy]\nsync = ["bsp", "asp"]\n'
    assert simulate(PLAIN, "--sync", "bsp", "--sync", "asp") == simulate(text)


def test_the_settings_say_where_they_came_from(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(PLAIN)
    done = process("simulate", "x.toml", "--workers", "2", "--sync", "ssp:1", cwd=tmp_path, COLUMNS="200")
    assert (done.returncode, done.stdout) == (0, "")
    rows = [line.split() for line in done.stderr.splitlines()]
    for setting in (
        ["cluster.workers", "2", "command", "line"],
        ["strategy.sync", "ssp:1", "command", "line"],
        ["iterations", "3", "file"],
        ["seed", "0", "default"],
    ):
        assert setting in rows
    assert ["strategy.mode", "changes"] in [row[:2] for row in rows]
    assert ["train_progress", "3"] in [row[:2] for row in rows]


def test_every_setting_is_shown_also_what_was_left_out(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(PLAIN)
    done = process("simulate", "x.toml", cwd=tmp_path, COLUMNS="200")
    for setting in ("strategy.servers", "cluster.compute.mean", "strategy.rule"):
        assert setting in done.stderr


# Files.


def test_a_trace_is_looked_for_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    (there / "x.toml").write_text('iterations = 2\n[cluster]\nworkers = 2\ncompute = { trace = "times.csv" }\n')
    (there / "times.csv").write_text("1,1\n2,3\n")
    (here / "times.csv").write_text("9,9\n9,9\n")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "argv", ["syncline", "simulate", "../there/x.toml", "-q", "--report", "r.json"])
    with pytest.raises(SystemExit) as exit:
        main()
    assert not exit.value.code
    assert json.loads((here / "r.json").read_text())["virtual_seconds"] == 5.0


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG\r\n\x1a\n"), (".pdf", b"%PDF-"), (".svg", b"<?xml")])
def test_a_picture(suffix: str, magic: bytes, simulate: Simulate, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with_plot = simulate(RANDOM, "--plot", str(tmp_path / f"p{suffix}"))
    assert (tmp_path / f"p{suffix}").read_bytes().startswith(magic)
    assert with_plot == simulate(RANDOM)


def test_nothing_but_what_was_asked_for_is_written(simulate: Simulate, tmp_path: Path) -> None:
    simulate(RANDOM, "--trace", str(tmp_path / "t.csv"))
    assert {path.name for path in tmp_path.iterdir()} == {"x.toml", "r.json", "t.csv"}


def test_a_report_replaces_an_earlier_one(simulate: Simulate, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"made_by": "syncline", "schema": 1}' + " " * 100_000)
    assert simulate(PLAIN)["updates"] == 12


# The command.


def test_quiet_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(PLAIN)
    for option in ("-q", "--quiet"):
        done = process("simulate", "x.toml", option, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_note_names_its_section(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('iterations = 2\n[cluster]\nworkers = 2\n[dispatch]\nrule = "uniform"\n')
    assert "note: [dispatch] has no clock" in process("simulate", "run.toml", cwd=tmp_path).stderr


def test_version(tmp_path: Path) -> None:
    done = process("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"syncline {syncline.__version__}\n")


def test_help(tmp_path: Path) -> None:
    done = process("--help", cwd=tmp_path, COLUMNS="120", NO_COLOR="1")
    assert done.returncode == 0
    assert "simulate" in done.stdout
    done = process("simulate", "--help", cwd=tmp_path, COLUMNS="120", NO_COLOR="1")
    assert done.returncode == 0
    for option in ("--report", "--plot", "--trace", "--sync", "--seed", "--workers", "--quiet", "FILE.toml"):
        assert option in done.stdout


# Examples and recipes.


FURTHER = {
    "exchange": {"deaths", "partitions"},
    "tree": {
        "bytes_per_link",
        "hops_max",
        "hops_mean",
        "lost_origins",
        "replica_gap_after_rest",
        "seconds_to_agree",
        "staleness_curve",
    },
}
"""What a report says about a strategy, in addition."""


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.toml")))
def test_an_example_runs(example: str, simulate: Simulate) -> None:
    text = (EXAMPLES / example).read_text()
    traced = "trace" in tomllib.loads(text)["cluster"].get("compute", {})
    report = simulate(EXAMPLES / example, *(() if traced else ("--iterations", "5")))
    keys = KEYS | FURTHER.get(tomllib.loads(text)["strategy"].get("kind", "server"), set())
    assert set(report) in (keys, keys | RECIPE_KEYS)


@pytest.mark.parametrize("model", ["bsp", "ssp:3", "asp", "pssp:s=3,p=0.5"])
def test_digits_are_learnt(model: str, simulate: Simulate) -> None:
    report = simulate(DIGITS, "--sync", model)
    assert report["accuracy"] >= 0.95
    assert report["train_progress"] == 100
