"""The ledger of a chaos run finds updates that are lost or count twice; cases follow from their numbers."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


def module(name: str) -> Any:
    """A module of benchmarks/chaos."""
    sys.path.insert(0, str(ROOT))
    try:
        return import_module(f"benchmarks.chaos.{name}")
    finally:
        sys.path.remove(str(ROOT))


ledger = module("ledger")
VALUE = ledger.VALUE
SENT, ANSWERED = ledger.CHUNK + 3, ledger.CHUNK + 2


@pytest.fixture
def final(tmp_path: Path) -> np.ndarray:
    """Two workers have sent updates, of which all but the last was answered; worker 1 has died. All of them count."""
    values = np.zeros(ledger.ELEMENTS)
    for name in ("0-10", "1-11"):
        account = ledger.Account(tmp_path, name)
        account.open()
        for number in range(SENT):
            element = account.element()
            assert values[element] == 0, "no two updates have the same element"
            values[element] = VALUE / 2
            account.sends()
            if number < ANSWERED:
                account.is_answered()
    return values


def problems(folder: Path, final: np.ndarray, partial: int = 0) -> tuple[str, ...]:
    np.save(folder / "final-0-10.npy", final)
    return ledger.judge(folder, ledger.DIVIDED, True, partial).problems


def last(folder: Path, name: str, back: int = 1) -> int:
    return ledger.Account(folder, name).elements()[-back]


def test_what_counts_once_is_no_problem(tmp_path: Path, final: np.ndarray) -> None:
    assert problems(tmp_path, final) == ()
    found = ledger.judge(tmp_path, ledger.DIVIDED, True, 0)
    assert (found.answered, found.unanswered, found.counted, found.lost) == (2 * ANSWERED, 2, 2, 0)


def test_an_update_without_an_answer_may_be_lost(tmp_path: Path, final: np.ndarray) -> None:
    final[last(tmp_path, "1-11")] = 0
    assert problems(tmp_path, final) == ()


def test_an_answered_update_may_not_be_lost(tmp_path: Path, final: np.ndarray) -> None:
    final[last(tmp_path, "1-11", 2)] = 0
    assert problems(tmp_path, final) == (f"update {SENT - 2} of process 1-11 was answered and is lost",)
    assert problems(tmp_path, final, partial=2) == ()


@pytest.mark.parametrize("twice", [VALUE, 2 * VALUE / 3, 5 * VALUE / 6])
def test_no_update_may_count_twice(twice: float, tmp_path: Path, final: np.ndarray) -> None:
    final[last(tmp_path, "0-10", 5)] = twice
    assert problems(tmp_path, final) == (f"update {SENT - 5} of process 0-10 shows {twice:g}",)


def test_a_value_that_nobody_has_sent(tmp_path: Path, final: np.ndarray) -> None:
    final[-1] = VALUE / 2
    assert problems(tmp_path, final) == ("an element has a value that nobody has sent",)


def test_all_end_alike(tmp_path: Path, final: np.ndarray) -> None:
    other = final.copy()
    other[last(tmp_path, "0-10")] = VALUE / 3
    np.save(tmp_path / "final-2-12.npy", other)
    assert problems(tmp_path, final) == ("processes 0-10 and 2-12 end with parameters that differ by 2",)


def test_a_number_is_always_the_same_case() -> None:
    random_case = module("cases").random_case
    cases = [random_case(number, 5) for number in range(200)]
    assert cases == [random_case(number, 5) for number in range(200)]
    assert len({case.command for case in cases}) > 100
    assert all(len(case.faults) == 5 for case in cases)


@pytest.mark.slow
def test_a_case_is_played_in_real_processes() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "chaos"), "--case", "3", "--faults", "3", "--scale", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 runs, 0 failed" in done.stdout
