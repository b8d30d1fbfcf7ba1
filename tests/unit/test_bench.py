"""The bench: right sums, fair turns, no process left behind, and a report that can be read. No test asserts a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from engine import until
from syncline.bench import run
from syncline.bench.case import Case, Row
from syncline.bench.crew import BenchCrew
from syncline.bench.floor import Floor
from syncline.bench.gloo import Gloo, installed
from syncline.bench.memory import free, needed
from syncline.bench.own import Syncline
from syncline.bench.sockets import Sockets
from syncline.bench.systems import System
from syncline.bench.values import check_sum, fill
from syncline.cli.main import main
from syncline.errors import RunError

Marked = Callable[[], set[int]]
needs_torch = pytest.mark.skipif(not installed(), reason="torch is not installed")


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Marked:
    """The ids of all processes that this test has started, directly or not, and that are still there."""
    mark = f"MARK_{uuid4().hex}"
    monkeypatch.setenv(mark, "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))

    def marked() -> set[int]:
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    found.add(int(folder.name))
            except OSError:
                continue
        return found

    return marked


def running(program: str, pids: set[int]) -> list[int]:
    """Those of these processes whose command line names this program; a process number does not say what it is."""
    found = [pid for pid in pids if program.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    assert found, f"there is no {program}"
    return found


@pytest.fixture
def bench(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], marked: Marked
) -> Callable[..., tuple[int, str]]:
    """Run `syncline bench`; return the exit code and stderr."""

    def bench(*options: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["syncline", "bench", *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not marked()
        return int(ended.value.code or 0), capsys.readouterr().err

    return bench


# The systems ----------------------------------------------------------------------------------------------------------

CASES = [
    pytest.param(Floor, Case(1, 1, 256), id="floor, 1 worker"),
    pytest.param(Floor, Case(3, 1, 1000), id="floor, 3 workers"),
    pytest.param(Floor, Case(3, 1, 1000, "changes"), id="floor, changes"),
    pytest.param(lambda: Syncline("shm"), Case(3, 2, 1000, "changes"), id="syncline, changes"),
    pytest.param(Gloo, Case(3, 1, 1000), id="gloo", marks=needs_torch),
    pytest.param(Sockets, Case(1, 1, 256), id="sockets, 1 worker"),
    pytest.param(Sockets, Case(3, 2, 1001), id="sockets, 2 servers"),
    pytest.param(Sockets, Case(3, 1, 500_000), id="sockets, threads"),
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_a_system_sums_and_leaves_no_process_behind(kind: Callable[[], System], case: Case, marked: Marked) -> None:
    """Every burst checks its sums, so what returns is right."""
    system = kind()
    try:
        system.start(case)
        before = marked()
        for rounds in (3, 1):
            seconds = system.burst(rounds)
            assert len(seconds) == rounds
            assert all(second > 0 for second in seconds)
        assert marked() == before != set()
    finally:
        system.stop()
    assert not marked()


@pytest.mark.parametrize("kind", [Floor, Gloo, Sockets])
def test_a_system_that_never_started_can_be_stopped(kind: Callable[[], System]) -> None:
    kind().stop()


@pytest.mark.parametrize("case", [Case(2, 1, 256), Case(2, 1, 500_000)], ids=["loop", "threads"])
@pytest.mark.parametrize("program", ["hold", "work"], ids=["server", "worker"])
def test_a_killed_process_is_a_failure_not_a_hang(program: str, case: Case, marked: Marked) -> None:
    """The other processes fail in consequence; the first of them that is asked is named."""
    system = Sockets()
    try:
        system.start(case)
        os.kill(running(f"syncline.bench.sockets:{program}", marked())[0], signal.SIGKILL)
        with pytest.raises(RunError, match=r"sockets: (worker|server) \d ended with exit code"):
            system.burst(5)
    finally:
        system.stop()
    assert not marked()


WRONG = """
import numpy as np
from syncline.bench.bursts import serve
from syncline.bench.values import check_sum, fill

class Wrong:
    def prepare(self): pass
    def round(self): pass
    def check(self):
        values = np.empty(256, np.float32)
        fill(values, 0)
        check_sum(values, 2)

def work(channel): serve(channel, Wrong())
"""


def test_a_wrong_sum_fails_loudly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marked: Marked) -> None:
    (tmp_path / "wrong_worker.py").write_text(WRONG)
    monkeypatch.syspath_prepend(tmp_path)
    crew = BenchCrew("wrong")
    try:
        crew.add_worker("wrong_worker:work")
        crew.ready()
        with pytest.raises(
            RunError, match=r"wrong: worker 0 ended with exit code 1: .*value 0 of the sum is 1\.0 instead of 3\.0"
        ):
            crew.burst(1)
    finally:
        crew.stop()
    assert not marked()


ABANDONED = """
import sys
from syncline.bench.crew import BenchCrew
crew = BenchCrew("abandoned")
crew.add_worker("syncline.bench.floor:work", workers=2, size=256)
crew.ready()
crew.add_server("syncline.bench.sockets:hold", workers=2, size=256)
print("started", flush=True)
sys.stdin.read()
"""


def test_no_process_outlives_a_killed_bench(marked: Marked) -> None:
    """Neither one that waits for a command nor one that waits for workers that never come."""
    command = [sys.executable, "-c", ABANDONED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        assert bench.stdout.readline() == "started\n"
        assert len(marked()) == 3
        bench.kill()
    until(lambda: not marked(), "their end by themselves")


# The values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 250, 251, 1000, 251 * 4096 + 7])
def test_a_sum_is_checked_to_the_last_value(size: int) -> None:
    updates = np.empty((3, size), np.float32)
    for worker, update in enumerate(updates):
        fill(update, worker)
    total = updates.sum(axis=0)
    check_sum(total, 3)
    total[-1] += 1
    with pytest.raises(RunError, match=f"value {size - 1} of the sum"):
        check_sum(total, 3)


@pytest.mark.parametrize("given", [(0, 0), (1, 1), (0,), (0, 1, 1)], ids=str)
def test_a_wrong_set_of_updates_is_found(given: tuple[int, ...]) -> None:
    total = np.zeros(300, np.float32)
    for worker in given:
        update = np.empty_like(total)
        fill(update, worker)
        total += update
    with pytest.raises(RunError):
        check_sum(total, 2)


# The run --------------------------------------------------------------------------------------------------------------


class Scripted:
    """A system that takes no time, tells given figures, and may fail."""

    def __init__(self, name: str, log: list[str], seconds: float, fails: str = "") -> None:
        self.name = name
        self._log, self._seconds, self._fails = log, seconds, fails

    def start(self, case: Case) -> None:
        self._note("start")

    def burst(self, rounds: int) -> list[float]:
        self._note(f"burst {rounds}")
        return [self._seconds] * rounds

    def stop(self) -> None:
        self._note("stop")

    def _note(self, what: str) -> None:
        self._log.append(f"{self.name} {what}")
        if self._fails and what.startswith(self._fails):
            raise RunError(f"{self.name} failed")


def test_systems_take_turns() -> None:
    log: list[str] = []
    shares: list[float] = []
    pair = [Scripted("floor", log, 0.1), Scripted("sockets", log, 0.2)]
    rows = run.measure(Case(2, 1, 256), pair, 4, shares.append)
    assert rows == [Row("floor", 2, 0, 256, 0.1), Row("sockets", 2, 1, 256, 0.2)]
    turns = [f"{name} burst {rounds}" for rounds in (3, 3, 1) for name in ("floor", "sockets")]
    assert log == ["floor start", "sockets start", *turns, "sockets stop", "floor stop"]
    assert shares == [0.0, 0.75, 1.0]


@pytest.mark.parametrize("fails", ["start", "burst", "stop"])
def test_all_systems_are_stopped_whichever_fails(fails: str) -> None:
    log: list[str] = []
    with pytest.raises(RunError, match="b failed"):
        run.measure(Case(2, 1, 256), [Scripted("a", log, 0.1), Scripted("b", log, 0.1, fails)], 3)
    assert log[-2:] == ["b stop", "a stop"]


@pytest.mark.parametrize(
    ("seconds", "burst", "total"), [([1e-6, 1e-4], 200, 4000), ([0.02, 0.04], 7, 140), ([0.5, 0.5, 5.0], 3, 6)]
)
def test_a_slow_case_has_fewer_rounds(seconds: list[float], burst: int, total: int) -> None:
    assert run.plan(seconds) == (burst, total)


def test_memory_grows_with_the_case() -> None:
    assert needed(Case(2, 1, 25_000_000), 3) > 3 * 2 * 2 * 100_000_000
    assert needed(Case(4, 1, 256), 3) > needed(Case(2, 1, 256), 3)
    there = free()
    assert there is None or there > 0


# The command ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "torch", [pytest.param(True, marks=[needs_torch, pytest.mark.slow]), False], ids=["torch", "no torch"]
)
def test_the_report_has_a_row_for_each_system_and_case(
    bench: Callable[..., tuple[int, str]], torch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "installed", lambda: torch)
    path = tmp_path / "r.json"
    sizes = ["256", "1000", "256"] if torch else ["256", "256"]
    options = [word for size in sizes for word in ("--size", size)]
    code, err = bench(*options, "--workers", "2", "--servers", "2", "--rounds", "5", "--report", str(path))
    assert code == 0
    report = json.loads(path.read_text())
    assert report.keys() == {"made_by", "schema", "rows"}
    assert report["schema"] == 1
    assert all(row.keys() == {"system", "workers", "servers", "size", "seconds", "mode"} for row in report["rows"])
    assert all(row["seconds"] > 0 for row in report["rows"])
    own = {"syncline-shm": 2, "syncline-tcp": 2}
    servers = own | {"floor": 0, "sockets": 2} | ({"gloo": 0} if torch else {})
    found = [(row["system"], row["workers"], row["servers"], row["size"]) for row in report["rows"]]
    wanted = {(name, 2, count, int(size)) for name, count in servers.items() for size in sizes}
    assert len(found) == len(wanted)
    assert wanted <= set(found)
    assert ("gloo uses TCP on loopback" in err) == torch
    assert ("gloo was skipped because torch is not installed" in err) != torch


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--size", "0"], "--size: "),
        (["--size", "256", "--size", "-1"], "--size: "),
        (["--size", "many"], "Invalid value for '--size'"),
        (["--size", "1000000000000"], "--size: "),
        (["--workers", "0"], "--workers: "),
        (["--workers", "1000000", "--size", "256"], "--workers: "),
        (["--servers", "0"], "--servers: "),
        (["--servers", "257"], "--servers: "),
        (["--rounds", "0"], "--rounds: "),
        (["--report", "nowhere/r.json"], "--report: "),
        (["--report", "."], "--report: "),
    ],
    ids=" ".join,
)
def test_bad_options_are_refused(bench: Callable[..., tuple[int, str]], options: list[str], named: str) -> None:
    code, err = bench(*options)
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith(f"syncline: {named}")


def test_ratios_are_syncline_to_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    from syncline.cli.bench_table import show_rows

    figures = {"syncline-shm": 0.03, "syncline-tcp": 0.0012, "gloo": 0.12, "sockets": 0.001, "floor": 2.0}
    show_rows([Row(name, 2, 1, 1000, seconds) for name, seconds in figures.items()])
    lines = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert ["2", "1,000", "30", "ms", "2", "s", "0.01", "120", "ms", "0.25"] in lines
    assert ["2", "1,000", "1.2", "ms", "120", "ms", "0.01", "1", "ms", "1.20"] in lines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_bench_leaves_nothing_behind(number: signal.Signals, tmp_path: Path, marked: Marked) -> None:
    options = ["--size", "256", "--workers", "2", "--rounds", "1000000", "--report", "r.json"]
    command = [sys.executable, "-m", "syncline", "bench", *options]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as bench:
        while len(marked()) < 3:
            assert bench.poll() is None
        bench.send_signal(number)
        err = bench.communicate(timeout=60)[1]
    assert bench.returncode == 130
    assert err == "syncline: interrupted\n"
    assert not marked()
    assert not list(tmp_path.iterdir())
