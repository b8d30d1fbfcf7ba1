"""Under bsp the final parameters are those of DDP, up to rounding."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import programs
from ddp_cases import CASES, LOOPS
from ddp_cases import __file__ as program

QUICK = ("everything",)
"""What `make test` trains."""

SLOW = tuple(name for name in (*(case.name for case in CASES), *LOOPS) if name not in QUICK)
EACH = [
    *(pytest.param(QUICK, name, id=name) for name in QUICK),
    *(pytest.param(SLOW, name, id=name, marks=pytest.mark.slow) for name in SLOW),
]

Found = dict[str, dict[str, Tensor]]


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Found]:
    """The parameters that each of these cases ends with: under DDP, and under Syncline."""
    directory = tmp_path_factory.mktemp("ddp")
    return with_ddp(directory, *request.param), with_syncline(directory, *request.param)


def with_ddp(directory: Path, *names: str) -> Found:
    file = directory / "ddp.pt"
    command = [sys.executable, program, "ddp", str(file), *names]
    meeting = {"RENDEZVOUS": (directory / "rendezvous").as_uri()}
    for done in programs.run(directory, command, command, environments=[{**meeting, "RANK": rank} for rank in "01"]):
        assert done.code == 0, done.story
    return torch.load(file, weights_only=True)


def with_syncline(directory: Path, *names: str) -> Found:
    file = directory / "syncline.pt"
    command = [sys.executable, "-m", "syncline", "run", "-n", "2", program, "syncline", str(file), *names]
    (done,) = programs.run(directory, command)
    assert done.code == 0, done.story
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(("both", "name"), EACH, indirect=["both"])
def test_a_training_is_what_it_is_under_ddp(name: str, both: tuple[Found, Found]) -> None:
    theirs, ours = (found[name] for found in both)
    assert theirs.keys() == ours.keys()
    for parameter, expected in theirs.items():
        torch.testing.assert_close(ours[parameter], expected, rtol=1e-5, atol=0.0, msg=f"{name}: {parameter}")
