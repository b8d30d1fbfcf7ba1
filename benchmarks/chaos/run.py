"""One run: its faults, and whether it makes progress, ends, leaves nothing, and keeps every update."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep

from benchmarks.chaos.cases import PATIENCE, WORKERS, Case, Fault
from benchmarks.chaos.ledger import Finding, accounts, judge
from benchmarks.chaos.processes import MARK, find, marked, send

HANG_SECONDS = 30.0
"""Seconds without any progress after which a run counts as hanging, besides the time for which a process is stopped."""

LOOK = 0.05
PROGRAM = Path(__file__).with_name("program.py")


class Hang(Exception):
    """For what the run was waited for in vain."""


@dataclass(frozen=True)
class Result:
    """What came of one case; `done`: its faults, as far as they happened."""

    case: Case
    done: tuple[str, ...]
    finding: Finding
    problems: tuple[str, ...]
    output: str


def play(case: Case, folder: Path, scale: float) -> Result:
    """Play a case in an empty folder. `scale`: multiplies HANG_SECONDS, for slow machines."""
    return _Player(case, folder, scale).play()


class _Player:
    def __init__(self, case: Case, folder: Path, scale: float) -> None:
        self._case, self._folder = case, folder
        self._limit = HANG_SECONDS * scale
        self._mark = token_hex(8)
        self._done: list[str] = []
        self._visits: list[tuple[subprocess.Popen[bytes], float, bool]] = []
        """Servers that have joined from outside, when each shall leave, or be gone, and whether it was asked to."""
        self._output = folder / "output"

    def play(self) -> Result:
        self._environment = environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "SYNCLINE_PATIENCE": str(PATIENCE),
            "CHAOS_RULE": str(int(self._case.rule)),
            MARK: self._mark,
        }
        command = [sys.executable, "-m", "syncline", "run", "-v", *self._case.command, str(PROGRAM)]
        with self._output.open("w") as output:
            self._launcher = subprocess.Popen(
                command, cwd=self._folder, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
        problems: list[str] = []
        try:
            self._strike_all()
            (self._folder / "end").touch()
            self._wait(lambda: self._launcher.poll() is not None, "the end of the run")
            if self._launcher.returncode:
                problems.append(f"exit code {self._launcher.returncode}")
        except Hang as hang:
            problems.append(f"no progress for {self._limit:g} s: {hang}")
        finally:
            problems += self._clear()
        finding = (
            Finding() if problems else judge(self._folder, self._case.shares, self._case.promised, self._case.partial)
        )
        return Result(self._case, tuple(self._done), finding, (*problems, *finding.problems), self._output.read_text())

    def _strike_all(self) -> None:
        self._wait(self._all_advance(), "the first updates")
        for fault in self._case.faults:
            sleep(fault.after)
            self._end_visits()
            if self._launcher.poll() is not None:
                return
            if fault.what == "change":
                self._change(fault.who)
            elif fault.what == "visit":
                self._begin_visit(fault)
            else:
                self._strike(fault)
        self._wait(lambda: not self._end_visits(), "servers to leave")
        self._wait(self._all_advance(), "all workers, after the last fault")

    def _strike(self, fault: Fault) -> None:
        if fault.who.startswith("worker"):
            self._wait(self._all_advance(), f"all workers, before: {fault}")
        pid = find(self._mark, self._launcher.pid, fault.who)
        if pid is None:
            return  # it is starting again
        self._done.append(str(fault))
        if fault.what == "kill":
            send(pid, signal.SIGKILL)
        else:
            send(pid, signal.SIGSTOP)
            sleep(fault.seconds)
            send(pid, signal.SIGCONT)

    def _change(self, sync: str) -> None:
        """Change the sync model from outside; while a server is missing this may be refused."""
        name = next((line.split()[-3] for line in self._output.read_text().splitlines() if "syncline tell" in line), "")
        command = [sys.executable, "-m", "syncline", "tell", name, "--sync", sync]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self._limit)
        except subprocess.TimeoutExpired:
            raise Hang(f"syncline tell --sync {sync}") from None
        self._done.append(f"change to {sync}{'' if done.returncode == 0 else ' (refused)'}")

    def _begin_visit(self, fault: Fault) -> None:
        """Let a server join; other faults happen while it is there."""
        lines = [line.split() for line in self._output.read_text().splitlines() if " --join " in line]
        address = lines[0][lines[0].index("--join") + 1]
        command = [sys.executable, "-m", "syncline", "run", "--join", address, "-n", "0", "--servers", "1"]
        with (self._folder / f"visit-{len(self._visits)}").open("w") as output:
            visit = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )
        self._visits.append((visit, monotonic() + fault.seconds, False))
        self._done.append(str(fault))

    def _end_visits(self) -> bool:
        """Ask servers whose time has come to leave; whether any are still there."""
        for number, (visit, until, asked) in enumerate(self._visits):
            if visit.poll() is not None or monotonic() < until:
                continue
            if asked:
                raise Hang("a server to leave")
            visit.send_signal(signal.SIGTERM)
            self._visits[number] = (visit, monotonic() + self._limit, True)
        return any(visit.poll() is None for visit, *_ in self._visits)

    def _all_advance(self) -> Callable[[], bool]:
        """Whether since now as many processes as there are workers have had an update answered, and are alive."""
        before = {each.name: each.counts[1] for each in accounts(self._folder)}

        def advanced() -> bool:
            now = {each.name: each.counts[1] for each in accounts(self._folder)}
            alive = {str(pid) for pid in marked(self._mark)}
            moved = [name for name, count in now.items() if count > before.get(name, 0)]
            return len({name.partition("-")[0] for name in moved if name.partition("-")[2] in alive}) == WORKERS

        return advanced

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        """Wait until `done()`, or until there was no progress for too long, or the run has ended."""
        seen, since = -1, monotonic()
        while not done():
            if self._launcher.poll() is not None:
                return
            total = sum(sum(each.counts) for each in accounts(self._folder))
            if total != seen:
                seen, since = total, monotonic()
            if monotonic() - since > self._limit:
                raise Hang(what)
            sleep(LOOK)

    def _clear(self) -> list[str]:
        """End what is left; return what should not have been left."""
        ended = self._launcher.poll() is not None
        until = monotonic() + self._limit
        while ended and marked(self._mark) and monotonic() < until:
            sleep(LOOK)
        left = marked(self._mark)
        for pid in left:
            send(pid, signal.SIGKILL)
        for process in (self._launcher, *(visit for visit, *_ in self._visits)):
            process.wait()
        return [f"{len(left)} processes were left"] if ended and left else []
