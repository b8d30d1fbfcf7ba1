"""Random faults: one or two processes of a run are stopped or killed, at any moment. The run ends, and nothing is left.

Every case follows from its number. `make test` runs some of them, `make test-all` all. How long the end took after the
last fault is recorded as a property of each test (`--junitxml`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from engine import Run, running, state, until

COUNT = 200
SAMPLE = (0, 1, 2, 3)

PROGRAM = """
say("begins")
session = syncline.connect()
if session.rank == 0:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
tables = session.tables({"w": np.zeros(50_000), "b": np.zeros(10)})
say("has declared")
for i in range(30):
    step()
    say("has done", i)
CLOSE
"""

MOMENTS = ("begins", "has declared", "has done 0", "has done 5", "has done 15", "has done 25", "has done 29")

WATCHERS = ("launcher", "coordinator", "guard")
OTHERS = ("worker0", "worker1", "server0", "server1")
SIGNALS = (signal.SIGSTOP, signal.SIGKILL)


@dataclass(frozen=True)
class Fault:
    """A signal to a process, sent when a worker has come this far."""

    who: str
    number: signal.Signals
    moment: str

    def __str__(self) -> str:
        return f"{self.number.name}-{self.who}-{self.moment.replace(' ', '-')}"


@dataclass(frozen=True)
class Case:
    """A run, and what happens to it."""

    sync: str
    lane: str
    closes: bool
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return "_".join((self.sync, self.lane, "closes" if self.closes else "ends", *map(str, self.faults)))


def random_case(number: int) -> Case:
    draw = Random(number)
    pairs: tuple[Callable[[], list[str]], ...] = (
        lambda: ["coordinator", "launcher"],
        lambda: draw.sample(WATCHERS, 2),
        lambda: [draw.choice(WATCHERS), draw.choice(OTHERS)],
        lambda: [draw.choice((*WATCHERS, *OTHERS))],
    )
    who = pairs[number % 4]()
    draw.shuffle(who)
    moments = sorted(draw.choices(MOMENTS, k=len(who)), key=MOMENTS.index)
    faults = tuple(Fault(each, draw.choice(SIGNALS), moment) for each, moment in zip(who, moments, strict=True))
    return Case(draw.choice(("bsp", "ssp:2", "asp")), draw.choice(("shm", "tcp")), draw.random() < 0.7, faults)


def reached(run: Run, moment: str) -> bool:
    """True if a worker has come this far, or the run has ended."""
    return f"{moment}\n" in run.out or run.process.poll() is not None


def strike(run: Run, fault: Fault) -> None:
    """Send the signal, unless the process has ended before; a stopped launcher prints nothing any more."""
    if not launcher_is_stopped(run):
        until(lambda: reached(run, fault.moment) or launcher_is_stopped(run), fault.moment)
    pid = run.process.pid if fault.who == "launcher" else run.find(fault.who)
    with suppress(ProcessLookupError):
        if pid is not None and run.process.poll() is None:
            os.kill(pid, fault.number)


def launcher_is_stopped(run: Run) -> bool:
    return state(run.process.pid) == "T"


def is_only_stopped(run: Run) -> bool:
    """True if the launcher was stopped after the run had ended: it is like any stopped program, and nothing is left."""
    return launcher_is_stopped(run) and run.processes() == [run.process.pid]


CASES = [
    pytest.param(number, id=f"{number}-{random_case(number)}", marks=[] if number in SAMPLE else pytest.mark.slow)
    for number in range(COUNT)
]


@pytest.mark.parametrize("number", CASES)
def test_whatever_happens_the_run_ends_and_leaves_nothing(
    number: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    case = random_case(number)
    options = ("-n", "2", "--servers", "2", "--sync", case.sync, "--lane", case.lane)
    body = PROGRAM.replace("CLOSE", "session.close()" if case.closes else "")
    with running(tmp_path, body, *options, SYNCLINE_PATIENCE="1") as run:
        for fault in case.faults:
            strike(run, fault)
        struck = monotonic()
        until(lambda: run.process.poll() is not None or is_only_stopped(run), f"the end of the run\n{run.story()}")
        with suppress(ProcessLookupError):
            os.kill(run.process.pid, signal.SIGCONT)
        code = run.ends()
        run.gone()
        record_property("seconds", round(monotonic() - struck, 1))
        assert code in (0, 1, -signal.SIGKILL), run.story()
        assert "Traceback" not in run.err, run.story()
