"""`syncline plan` as a person uses it: its table, its files, the commands that it prints, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from commands import in_this_process, refused
from programs import Done
from syncline.cli.output_checks import REPORT

LAYERS = "first:100000,middle:50000,last:30000"
SLOW = ("--bandwidth", "100Mbit", "--step", "50ms", "--memory", "1GB")

NUMPY_PROGRAM = """
import sys
import numpy as np
import syncline

print("noise")
with syncline.connect() as session:
    tables = session.tables({"w": np.zeros((30, 10)), "b": np.zeros(10)})
    for step in range(int(sys.argv[1])):
        session.update("w", np.ones((30, 10)))
        session.update("b", np.ones(10))
        session.clock()
        session.sync()
open("finished", "w").close()
"""


TORCH_PROGRAM = """
import torch
import syncline

session = syncline.connect()
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
session.distribute(model, optimizer)
while True:
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
open("finished", "w").close()
"""


def planned(folder: Path, *words: object) -> Done:
    done = in_this_process(folder, "plan", *words)
    assert done.code == 0, done.story
    return done


def test_the_table_the_report_and_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = planned(tmp_path, LAYERS, *SLOW, "-n", 4, "--report", "plan.json", "--plot", "plan.svg")
    assert REPORT.match((tmp_path / "plan.json").read_bytes())
    found = json.loads((tmp_path / "plan.json").read_text())
    rates = [row["steps_per_second"] for row in found["rows"]]
    assert rates == sorted(rates, reverse=True)
    names = [row["name"] for row in found["rows"]]
    places = [done.output.index(f"\n{name} ") for name in names]
    assert places == sorted(places), "the table has the order of the report"
    assert f"Recommended: {found['recommendation']['reason'][:40]}" in done.output
    assert "made by syncline" in (tmp_path / "plan.svg").read_text()
    assert done.errors == ""


def test_quiet(tmp_path: Path) -> None:
    done = planned(tmp_path, LAYERS, *SLOW, "-q", "--report", "plan.json")
    assert (done.output, done.errors) == ("", "")
    assert (tmp_path / "plan.json").is_file()


@pytest.mark.parametrize("program", ["train.py", "my model.py"])
def test_every_command_that_it_prints_is_valid(program: str, tmp_path: Path) -> None:
    """Each is run as it is, with --dry-run; the commands of all rows, not only of the recommended one."""
    (tmp_path / program).write_text("import syncline\n")
    words = (LAYERS, *SLOW, "--program", program, "--address", "127.0.0.1:7070", "--report", "plan.json")
    done = planned(tmp_path, *words)
    found = json.loads((tmp_path / "plan.json").read_text())
    lines = [each["command"] for row in found["rows"] for each in row["commands"]]
    assert len(lines) > 10
    assert any("--strategy exchange" in line for line in lines)
    assert all(each["command"] in done.output for each in found["recommendation"]["commands"])
    for line in dict.fromkeys(lines):
        name, command, *rest = shlex.split(line)
        assert (name, command) == ("syncline", "run")
        rest = [word.replace(":7070", ":0") if "--listen" in rest else word for word in rest]
        tried = in_this_process(tmp_path, "run", "--dry-run", *rest)
        assert tried.code == 0, f"{line}\n{tried.story}"
        assert "would start" in tried.errors


def test_the_command_of_a_recipe_trains(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    done = planned(tmp_path, "digits-mlp", "--step", "1s", "-n", 2)
    (line,) = re.findall(r"^ +(syncline train .*)$", done.output, re.MULTILINE)
    words = shlex.split(line)[1:]
    trained = in_this_process(tmp_path, *words, "--iterations", 3, "--engine", "sim", "-q", "--report", "done.json")
    assert trained.code == 0, trained.story
    assert json.loads((tmp_path / "done.json").read_text())["iterations_done"] == 6


def test_a_program_is_run_for_a_few_steps(tmp_path: Path) -> None:
    (tmp_path / "little.py").write_text(NUMPY_PROGRAM)
    words = ("little.py", "--bandwidth", "1Mbit", "--report", "plan.json", "--", "1000000000")
    done = planned(tmp_path, *words)
    found = json.loads((tmp_path / "plan.json").read_text())
    assert (found["values"], found["step_from"]) == (310, "measured here")
    assert 0 < found["step_seconds"] < 60
    assert "little.py 1000000000" in done.output
    assert "noise" not in done.output
    assert not (tmp_path / "finished").exists()


def test_a_program_that_ends_early_is_measured_if_it_did_enough_steps(tmp_path: Path) -> None:
    (tmp_path / "little.py").write_text(NUMPY_PROGRAM)
    planned(tmp_path, "little.py", "-q", "--", 6)
    assert (tmp_path / "finished").exists()
    said = refused(tmp_path, "plan", "little.py", "--", 2)
    assert said.startswith("MODEL: 'little.py' ended after 2 steps, too few to measure")


def test_a_pytorch_program_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "learn.py").write_text(TORCH_PROGRAM)
    planned(tmp_path, "learn.py", "-q", "--report", "plan.json")
    found = json.loads((tmp_path / "plan.json").read_text())
    assert (found["values"], found["step_from"]) == (8 * 3 + 3, "measured here")
    assert not (tmp_path / "finished").exists()


@pytest.mark.slow
def test_the_documentation_shows_these_rows(tmp_path: Path) -> None:
    """The figures of codecs differ by machine, but the rows and the recommendation are those of the page."""
    page = (Path(__file__).parents[2] / "docs/plan.md").read_text()
    words = re.findall(r"^syncline (plan googlenet .*) --plot", page, re.MULTILINE)[0].split()
    planned(tmp_path, *words[1:], "-q", "--memory", "8GB", "--report", "plan.json")
    found = json.loads((tmp_path / "plan.json").read_text())
    for row in found["rows"]:
        (line,) = [line for line in page.splitlines() if re.match(rf"{re.escape(row['name'])} +\d", line)]
        if row["settings"].get("codec") is None:
            rate = float(line.removeprefix(row["name"]).split()[1])
            assert rate == pytest.approx(row["steps_per_second"], rel=0.01)
    assert found["recommendation"]["commands"][0]["command"] in page


@pytest.mark.parametrize(
    ("text", "code", "problem"),
    [
        ("pass", 2, "MODEL: 'bad.py' ended without training a model; it must call syncline.connect()"),
        ("raise SystemExit(3)", 1, "'bad.py' failed with exit code 3"),
        ("1 / 0", 1, "'bad.py' failed with exit code 1: ZeroDivisionError: division by zero"),
    ],
)
def test_programs_that_cannot_be_measured(text: str, code: int, problem: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(text)
    done = in_this_process(tmp_path, "plan", "bad.py", "--report", "plan.json")
    assert done.code == code, done.story
    assert done.errors.startswith(f"syncline: {problem}"), done.story
    assert done.errors.count("\n") == 1
    assert not (tmp_path / "plan.json").exists()


BAD: dict[str, tuple[tuple[object, ...], str]] = {
    "no model": ((), "Missing argument 'MODEL'"),
    "unknown": (("digits-xyz",), "MODEL: there is no model 'digits-xyz'; use one of digits-mlp"),
    "no step": ((LAYERS,), "--step: is missing: .* give it, e.g. --step 100ms"),
    "no step, of a checkpoint": (("m.safetensors",), "--step: is missing: m.safetensors is only a list of sizes"),
    "step 0": ((LAYERS, "--step", "0s"), "--step: must be above 0"),
    "step": ((LAYERS, "--step", "soon"), "--step: 'soon' is not a time"),
    "bandwidth 0": ((LAYERS, "--step", "1s", "--bandwidth", "0Gbit"), "--bandwidth: '0Gbit' must be finite and above"),
    "bandwidth": ((LAYERS, "--step", "1s", "--bandwidth", "fast"), "--bandwidth: 'fast' is not a rate"),
    "latency": ((LAYERS, "--step", "1s", "--latency", "-1ms"), "--latency: '-1ms' is not a time"),
    "one worker": ((LAYERS, "--step", "1s", "-n", 1), "--workers: is 1, and one machine has nobody to exchange"),
    "no worker": ((LAYERS, "--step", "1s", "-n", 0), "--workers: must be at least 2"),
    "many workers": ((LAYERS, "--step", "1s", "-n", 10**9), "--workers: must be at least 2 and at most 1,024"),
    "memory": (("10_000_000_000", "--step", "1s", "--memory", "64GB"), "--memory: .* 10,000,000,000 values and need"),
    "few values": (("a:3", "--step", "1s"), "MODEL: has 3 values, fewer than there are machines"),
    "memory 0": ((LAYERS, "--step", "1s", "--memory", "0GB"), "--memory: '0GB' must be finite and above 0"),
    "too many values": (("1" * 500, "--step", "1s"), "MODEL: has .* values; a plan takes at most"),
    "no file": (("no.safetensors", "--step", "1s"), "MODEL: there is no file 'no.safetensors'"),
    "damaged": (("damaged.safetensors", "--step", "1s"), "MODEL: 'damaged.safetensors' is not a safetensors file"),
    "a folder": (("folder.pt", "--step", "1s"), "MODEL: 'folder.pt' is not a file"),
    "overlap": ((LAYERS, "--step", "1s", "--overlap", "all"), "--overlap: .*none.*backward.*forward"),
    "batch": ((LAYERS, "--step", "1s", "--batch", 0), "--batch: must be at least 1"),
    "address": ((LAYERS, "--step", "1s", "--address", "here"), "--address: 'here' is not an address"),
    "arguments": ((LAYERS, "--step", "1s", "--", "x"), "ARGS: 'x': only a program takes arguments"),
    "report": ((LAYERS, "--step", "1s", "--report", "mine.txt"), "--report: 'mine.txt' exists, and Syncline has not"),
    "its model": (("m.safetensors", "--step", "1s", "--report", "m.safetensors", "--force"), "--report: .*an input"),
    "plot": ((LAYERS, "--step", "1s", "--plot", "plan.bmp"), "--plot: cannot draw 'plan.bmp'"),
    "data": ((LAYERS, "--step", "1s", "--data", "."), "--data: is for recipes that read files"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_requests(case: str, tmp_path: Path) -> None:
    words, pattern = BAD[case]
    header = json.dumps({"w": {"dtype": "F32", "shape": [10, 10], "data_offsets": [0, 400]}}).encode()
    (tmp_path / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(400))
    (tmp_path / "damaged.safetensors").write_bytes(b"nothing")
    (tmp_path / "mine.txt").write_text("not Syncline's")
    (tmp_path / "folder.pt").mkdir()
    before = sorted(tmp_path.iterdir())
    said = refused(tmp_path, "plan", *words)
    assert re.match(pattern, said), said
    assert sorted(tmp_path.iterdir()) == before
