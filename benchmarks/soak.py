"""Soak test: a long run of small rounds in which workers join, leave and are killed.

    python benchmarks/soak.py [--minutes 10] [--lane shm|tcp]

Two workers stay from start to end. Other workers join, train for a few seconds, and leave or are killed. Every update
is -1 under rule sgd:1, so each parameter counts the updates that were applied to it. At the end the test checks:

1. Every acknowledged update was applied, and none was applied twice. A worker that was killed may have sent one update
   that was not acknowledged, to some buckets or to all.
2. The number of updates in each server's report equals the number that its parameters show.
3. The memory (RSS) of the coordinator and the servers has not grown since the first fifth of the run.

The exit code is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import numpy as np

import syncline

VALUES = 20_000
SERVERS = 2
BUCKET = "16KiB"
STAYERS = 2
WARM = 0.2
"""The fraction of the run after which memory must not grow."""

GROWTH = 1.05
"""The factor by which memory may grow nevertheless, since an allocator keeps some slack."""

SLACK = 2 << 20
"""The number of bytes by which memory may grow, if that is more."""

LOOK = 0.5
"""Seconds between two memory measurements."""

END = 60.0
"""Seconds that a run has to end after it was asked to."""


# A worker.


def work(directory: Path, iterations: int) -> None:
    """Train until the file `stop` exists, or for this many iterations, and then leave; record the updates sent."""
    session = syncline.connect()
    tables = session.tables({"w": np.zeros(VALUES)}, sync="ssp:3", rule="sgd:1", bucket=BUCKET)
    count = Count.create(directory / f"count{session.rank}")
    while not iterations or count.answered < iterations:
        if (directory / "stop").exists():
            break
        session.buffer("w").fill(-1)
        count.begin()
        session.update("w")
        session.clock()
        session.sync()
        count.end()
    if iterations:
        session.leave()
    else:
        session.close()
        np.save(directory / f"final{session.rank}.npy", tables["w"])


class Count:
    """How many updates a worker has begun to send, and how many were answered, in a file that outlives it."""

    def __init__(self, numbers: np.memmap[tuple[int], np.dtype[np.int64]]) -> None:
        self._numbers = numbers

    @classmethod
    def create(cls, path: Path) -> Count:
        return cls(np.memmap(path, np.int64, "w+", shape=(2,)))

    @classmethod
    def read(cls, path: Path) -> Count:
        return cls(np.memmap(path, np.int64, "r", shape=(2,)))

    @property
    def begun(self) -> int:
        return int(self._numbers[0])

    @property
    def answered(self) -> int:
        return int(self._numbers[1])

    def begin(self) -> None:
        self._numbers[0] += 1

    def end(self) -> None:
        self._numbers[1] += 1


# The memory of processes.


def rss(pid: int) -> int:
    """The resident memory of a process in bytes; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def children(pid: int) -> dict[str, int]:
    """The coordinator and the servers that this launcher has started, by name."""
    found: dict[str, int] = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        if "syncline.engines.coordinator" in words:
            found["coordinator"] = int(child)
        elif "syncline.engines.server" in words:
            found[f"server{words[words.index('syncline.engines.server') + 1]}"] = int(child)
    return found


@dataclass
class Memory:
    """RSS over time, by process; times are fractions of the run, from 0 to 1."""

    seen: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def look(self, processes: dict[str, int], when: float) -> None:
        for name, pid in processes.items():
            self.seen.setdefault(name, []).append((when, rss(pid)))

    def growth(self) -> dict[str, tuple[int, int]]:
        """For each process: its largest RSS in the first fifth of the run, and in the last."""
        return {
            name: (
                max((size for when, size in each if when <= WARM), default=0),
                max((size for when, size in each if when >= 1 - WARM), default=0),
            )
            for name, each in self.seen.items()
        }


# The run.


class Soak:
    """One launcher for the workers that stay, and one launcher at a time for a worker that joins."""

    def __init__(self, directory: Path, seconds: float, lane: str | None) -> None:
        self.directory = directory
        self.seconds = seconds
        self.memory = Memory()
        self.joined = self.killed = 0
        self.left_badly: list[str] = []
        self._lane = ["--lane", lane] if lane else []
        self._random = random.Random(7)
        self._lines: list[str] = []

    def run(self) -> list[str]:
        """Run to the end; return the problems found."""
        command = ["--listen", "127.0.0.1:0", "-n", STAYERS, "--servers", SERVERS]
        launcher = self._start(*command, "--report", self.directory / "report.json", __file__, "--work", self.directory)
        reader = Thread(target=lambda: self._lines.extend(launcher.stdout or ()), daemon=True)
        reader.start()
        try:
            address = self._address(launcher)
            self._churn(launcher, address)
            (self.directory / "stop").touch()
            code = launcher.wait(END)
        except subprocess.TimeoutExpired:
            return [f"the run did not end within {END:g} s", *self._lines[-20:]]
        finally:
            launcher.kill()
            launcher.wait()
            reader.join(END)
        return [f"exit code {code}", *self._lines[-20:]] if code else self._judge()

    def _start(self, *words: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "syncline", "run", *self._lane, *map(str, words)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def _address(self, launcher: subprocess.Popen[str]) -> str:
        until = monotonic() + END
        while monotonic() < until and launcher.poll() is None:
            for line in list(self._lines):
                if "--join" in line:
                    return line.partition("--join ")[2].split()[0]
            sleep(0.05)
        raise RuntimeError("the run did not start: " + "".join(self._lines))

    def _churn(self, launcher: subprocess.Popen[str], address: str) -> None:
        begun, told = monotonic(), 0.0
        guest: Guest | None = None
        while (part := (monotonic() - begun) / self.seconds) < 1 and launcher.poll() is None:
            self.memory.look(children(launcher.pid), part)
            if guest is None:
                guest = self._invite(address)
            elif guest.over():
                self._farewell(guest)
                guest = None
            if monotonic() - told > self.seconds / 10:
                told = monotonic()
                self._say(part, launcher.pid)
            sleep(LOOK)
        if guest is not None:
            guest.kill()
            self._farewell(guest)

    def _invite(self, address: str) -> Guest:
        """Start a launcher that joins with one worker; half of them leave by themselves, half are killed."""
        self.joined += 1
        iterations = self._random.randrange(1, 300)
        deadly = self._random.random() < 0.5
        process = self._start(
            "--join", address, "-n", 1, __file__, "--work", self.directory, "--iterations", iterations
        )
        return Guest(process, monotonic() + self._random.uniform(1.0, 4.0) if deadly else None)

    def _farewell(self, guest: Guest) -> None:
        output = guest.process.communicate(timeout=END)[0]
        self.killed += guest.killed
        if guest.process.returncode and not guest.killed:
            self.left_badly.append(f"a worker that joined ended with exit code {guest.process.returncode}: {output}")

    def _say(self, part: float, pid: int) -> None:
        sent = sum(count.answered for count in self._counts())
        sizes = ", ".join(f"{name} {rss(each) / 2**20:.1f} MiB" for name, each in sorted(children(pid).items()))
        print(f"{part:4.0%}  {sent:,} updates, {self.joined} joined, {self.killed} killed; {sizes}", flush=True)

    def _counts(self) -> Iterable[Count]:
        return [Count.read(path) for path in sorted(self.directory.glob("count*")) if path.stat().st_size]

    # The checks.

    def _judge(self) -> list[str]:
        counts = list(self._counts())
        answered = sum(count.answered for count in counts)
        begun = sum(count.begun for count in counts)
        report = json.loads((self.directory / "report.json").read_text())
        final = np.load(self.directory / "final0.npy")
        print(f"{answered:,} updates answered, {begun - answered} more sent by workers that were killed")
        wrong = list(self.left_badly)
        if begun - answered > self.killed:
            wrong.append(f"{begun - answered} updates were not answered, but only {self.killed} workers were killed")
        if not answered <= final.min() <= final.max() <= begun:
            wrong.append(f"{answered} to {begun} updates were sent; parameters show {final.min():g} to {final.max():g}")
        for server, piece in zip(report["servers"], np.array_split(final, SERVERS), strict=True):
            taken, applied = server["updates"], int(piece.max())
            if taken != applied:
                wrong.append(f"server {server['server']} reports {taken} updates; its parameters show {applied}")
        for name, (warm, late) in self.memory.growth().items():
            print(f"{name}: {warm / 2**20:.1f} MiB after warm-up, {late / 2**20:.1f} MiB at the end")
            if late > max(GROWTH * warm, warm + SLACK):
                wrong.append(f"{name} grew from {warm / 2**20:.1f} to {late / 2**20:.1f} MiB")
        return wrong


@dataclass
class Guest:
    """A launcher that joins with one worker; `until` is when to kill it, None: never."""

    process: subprocess.Popen[str]
    until: float | None
    killed: bool = False

    def over(self) -> bool:
        if self.until is not None and monotonic() > self.until:
            self.kill()
        return self.process.poll() is not None

    def kill(self) -> None:
        """Kill the launcher; the kernel then kills its worker."""
        if self.process.poll() is None:
            self.killed = True
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--lane", choices=["shm", "tcp"])
    parser.add_argument("--work", type=Path, metavar="DIRECTORY", help=argparse.SUPPRESS)
    parser.add_argument("--iterations", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.iterations)
        return
    with tempfile.TemporaryDirectory() as directory:
        wrong = Soak(Path(directory), 60 * arguments.minutes, arguments.lane).run()
    for line in wrong:
        print(f"wrong: {line.rstrip()}")
    print("soak: failed" if wrong else "soak: passed; no update lost, memory did not grow")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
