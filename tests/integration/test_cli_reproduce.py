"""`syncline reproduce` as a person uses it: the list, a figure, an interrupt, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from syncline.cli.main import main
from syncline.reproduce.catalogue import FIGURES


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "syncline", "reproduce", *words]


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def refused(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What stands on stderr when this makes no sense."""
    monkeypatch.setattr(sys, "argv", ["syncline", "reproduce", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_without_a_name_the_figures_are_listed() -> None:
    done = subprocess.run(command(), env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in FIGURES)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fluent-9",), "'fluent-9' is not a figure; choose one of: mps-placement"),
        (("fluent-accuracy",), "--data: 'fluent-accuracy' trains on MNIST; name the folder that holds mnist.npz"),
        (("fluent-accuracy", "--data", "."), "--data: there is no mnist.npz in '.'; put it there (wanted: x_train"),
        (("mps-accuracy", "--quick", "--data", "nowhere"), "--data: there is no directory 'nowhere'; name the folder"),
        (("fluent-dpr", "--data", "file"), "--data: there is no directory 'file'"),
        (("--data", "nowhere"), "--data: there is no directory 'nowhere'"),
        (("fluent-dpr", "--jobs", "0"), "--jobs: must be at least 1 and at most 1,024, not 0"),
        (("--jobs", "0"), "--jobs: must be at least 1 and at most 1,024, not 0"),
        (("fluent-dpr", "--out", "file/figures"), "--out: cannot create 'file/figures'"),
    ],
)
def test_what_is_refused(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert said in refused(words, monkeypatch, capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_interrupted_and_taken_up_again(tmp_path: Path) -> None:
    words = ("fluent-overlap", "--quick", "--jobs", "1")
    run = subprocess.Popen(command(*words), cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    try:
        assert run.stderr is not None
        assert "1 of 9 runs" in run.stderr.readline()
        run.send_signal(signal.SIGTERM)
        rest = run.communicate(timeout=60)[1]
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 130
    assert rest.rstrip().splitlines()[-1] == "syncline: interrupted"
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["runs"]
    kept = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "figures" / "runs").iterdir()}
    assert kept
    done = subprocess.run(command(*words), cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("fluent-overlap in part (--quick): independent shards are up to ")
    again = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "figures" / "runs").iterdir()}
    assert kept.items() <= again.items(), "what was kept was simulated again"
    found = json.loads((tmp_path / "figures" / "fluent-overlap.json").read_text())
    assert len(found["runs"]) == len(again) == 9
    assert (tmp_path / "figures" / "fluent-overlap.png").stat().st_size > 10_000


@pytest.mark.slow
def test_every_figure_that_needs_no_data_can_be_made_quickly(tmp_path: Path) -> None:
    done = subprocess.run(
        command("all", "--quick"), cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    for name, figure in FIGURES.items():
        assert figure.needs_data(quick=True) == (f"{name}" not in done.stdout)
