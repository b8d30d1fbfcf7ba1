"""Generated requests: exit code 2 and one line, or a valid run. No traceback, and no hang."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from random import Random
from types import FrameType

import pytest

from commands import in_this_process
from nonsense import OPTIONS, command_line, experiment
from programs import Done
from samples import sampled
from syncline.cli.output import INCOMPLETE

BLOCK = 25
"""Requests of one test."""

BLOCKS = {"file": 64, "simulate": 16, "run": 16, "train": 12, "bench": 4, "plan": 4, "reproduce": 4, "tell": 4}
"""How many tests of each kind: 3,100 requests in all."""

SECONDS = 60
"""Seconds; far more than any of these requests takes. A request that takes longer hangs."""

BYTES = 4 << 30
"""The memory that a request may take; torch alone reserves more than it uses."""

CASES = [(kind, block) for kind, count in BLOCKS.items() for block in range(count)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program and an experiment; nothing that a command would start is started there."""
    (tmp_path / "program.py").write_text("print('ran')\n")
    (tmp_path / "x.toml").write_text("iterations = 2\n[cluster]\nworkers = 2\n[model]\nparameters = 100\n")
    started = ("cli.bench._run", "cli.plan._run", "cli.train_run.run", "cli.reproduce_view.produce")
    for name in (*started, "engines.operator.change"):
        monkeypatch.setattr(f"syncline.{name}", lambda *_: None)
    return tmp_path


@pytest.mark.parametrize(("kind", "block"), sampled(CASES, *((kind, 0) for kind in BLOCKS)))
def test_generated_requests(kind: str, block: int, folder: Path) -> None:
    for number in range(BLOCK):
        seed = f"{kind} {block} {number}"
        check(seed, request(Random(seed), kind, folder), folder)


def request(random: Random, kind: str, folder: Path) -> list[str]:
    """The words of a request; a file that it needs is written."""
    if kind == "file":
        (folder / "y.toml").write_text(experiment(random))
        return ["simulate", "y.toml", "-q", "--report", "report.json"]
    words = command_line(random, kind)
    extra = {"run": ["--dry-run"], "simulate": ["-q"]}
    return [words[0], *extra.get(kind, []), *words[1:]]


def check(seed: str, words: list[str], folder: Path) -> None:
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    story = f"{seed}: {[word[:80] for word in words]}"
    try:
        with limits():
            done = in_this_process(folder, *words)
    except BaseException as error:
        error.add_note(story)
        raise
    may_fail = words[0] in ("simulate", "tell")  # a simulation that is not finite; a run that is not there
    assert done.code in ((0, 1, 2, INCOMPLETE) if may_fail else (0, 2)), f"{story}\n{done.story[:2000]}"
    assert_sensible(done, f"{story}\n{done.story[:2000]}")
    if done.code == 0 and report.exists():
        figures = json.loads(report.read_text(), parse_constant=lambda word: pytest.fail(f"{word} in {story}"))
        assert isfinite(figures["virtual_seconds"]), story


def assert_sensible(done: Done, story: str) -> None:
    """Success; or one printable line that is not too long."""
    assert "Traceback" not in done.errors, story
    if done.code == 0:
        return
    assert done.output == "", story
    assert done.errors.startswith("syncline: "), story
    line = done.errors.removesuffix("\n")
    assert line.isprintable(), story
    assert len(line) <= 1500, story


@contextmanager
def limits() -> Iterator[None]:
    """Fail if what follows takes longer than SECONDS, or more than BYTES."""

    def late(signal: int, frame: FrameType | None) -> None:
        raise AssertionError(f"it does not end within {SECONDS} s")

    before, bytes_before = signal.signal(signal.SIGALRM, late), resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, bytes_before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, bytes_before)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_every_command_is_tried() -> None:
    assert set(OPTIONS) == set(BLOCKS) - {"file"}
