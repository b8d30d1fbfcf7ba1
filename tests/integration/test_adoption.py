"""Scripts as users write them, with the few lines for Syncline, started in every way: none hangs, all workers agree.

The scripts are in tests/scripts. `make test` takes a sample of them; `make test-all` takes each in every way.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import programs

SCRIPTS = Path(__file__).parents[1] / "scripts"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "toy")

SAMPLE = {("run", "uneven"), ("ssp", "load_best"), ("run", "hugging_face")}
"""What `make test` runs: a worker that leaves, values that are loaded, and a framework."""

LEAVES = {"uneven"}
"""In these scripts a worker leaves before the end, and keeps the parameters that it had then."""

OWN = {("ssp", "hugging_face"), ("ssp", "ema")}
"""In these scripts every worker has a model of its own at the end: the best that it has seen, or an average."""


@dataclass(frozen=True)
class Way:
    """How a script is started, and how many of it there are."""

    name: str
    command: tuple[str, ...]
    workers: int


WAYS = (
    Way("alone", (), 1),
    Way("run", ("-m", "syncline", "run", "-n", "2"), 2),
    Way("ssp", ("-m", "syncline", "run", "-n", "2", "--sync", "ssp:3"), 2),
    Way("torchrun", ("-m", "torch.distributed.run", "--nproc-per-node", "2"), 2),
)


def crossings() -> list[object]:
    return [
        pytest.param(way, name, id=f"{way.name}-{name}", marks=[] if (way.name, name) in SAMPLE else pytest.mark.slow)
        for way in WAYS
        for name in NAMES
    ]


def test_there_are_nineteen_scripts() -> None:
    assert len(NAMES) == 19
    assert {name for _, name in SAMPLE} | LEAVES <= set(NAMES)


@pytest.mark.parametrize(("way", "name"), crossings())
def test_a_script(way: Way, name: str, tmp_path: Path) -> None:
    (done,) = programs.run(tmp_path, [sys.executable, *way.command, str(SCRIPTS / f"{name}.py")])
    assert done.code == 0, done.story
    assert "Traceback" not in done.output + done.errors, done.story
    last = re.findall(r"ok rank=(\d+) digest=(\w+)$", done.output, re.MULTILINE)
    assert sorted(rank for rank, _ in last) == [str(rank) for rank in range(way.workers)], done.story
    if name not in LEAVES and (way.name, name) not in OWN:
        assert len({digest for _, digest in last}) == 1, done.story
    assert not list(tmp_path.iterdir()), "nothing is left behind"
