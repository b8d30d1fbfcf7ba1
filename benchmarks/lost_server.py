"""Measure how long training stands still when a server is killed, in a PyTorch run of 25 million parameters.

    python benchmarks/lost_server.py [--mode gradients|changes ...] [--lane shm tcp] [--backups 0 1] [--kills 2]

Two workers train under `bsp`. One server after the other is killed (SIGKILL), and those that are left go on with its
part, until there is only one. The time lost is the longest step since the kill, less a usual step. At the end both
workers must have the same parameters.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from rich.console import Console
from rich.table import Table

WIDTH, AFTER = 5000, 12
"""The width of the only layer, and how many steps follow a kill."""


def train(kills: int) -> None:
    """The program of a worker: steps, whose ends it writes to a file."""
    import hashlib

    import torch

    import syncline

    torch.manual_seed(0)
    session = syncline.connect()
    model = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    optimizer = session.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    chance = torch.Generator().manual_seed(session.rank)
    with open(f"steps-{session.rank}", "w", buffering=1) as steps:
        for _ in range(AFTER * (kills + 1)):
            optimizer.zero_grad()
            model(torch.randn(4, WIDTH, generator=chance)).square().mean().backward()
            optimizer.step()
            steps.write(f"{monotonic()}\n")
    session.wait()
    Path(f"final-{session.rank}").write_text(hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest())
    session.close()


def server(launcher: int, number: int) -> int | None:
    """The process of a server of this run."""
    for children in Path(f"/proc/{launcher}/task").glob("*/children"):
        for pid in children.read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[2:4] == [b"syncline.engines.server", str(number).encode()]:
                return int(pid)
    return None


def ends(folder: Path) -> list[float]:
    path = folder / "steps-0"
    return [float(line) for line in path.read_text().splitlines()] if path.exists() else []


def measured(mode: str, lane: str, backups: int, kills: int) -> tuple[float, list[float]]:
    """A usual step, and the time lost at each kill, in seconds."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        options = ["-n", "2", "--servers", str(kills + 1), "--sync", "bsp", "--mode", mode, "--lane", lane]
        options += ["--backups", str(backups), "--log-dir", str(folder / "log")]
        command = [sys.executable, "-m", "syncline", "run", *options, str(Path(__file__).resolve()), "--train"]
        struck: list[float] = []
        run = subprocess.Popen([*command, "--kills", str(kills)], cwd=folder)
        try:
            for number in range(kills):
                while len(ends(folder)) < AFTER * (number + 1) - AFTER // 2 and run.poll() is None:
                    sleep(0.01)
                pid = server(run.pid, number)
                if pid is None:
                    raise SystemExit(f"server {number} does not run")
                os.kill(pid, signal.SIGKILL)
                struck.append(monotonic())
            if run.wait(600):
                raise SystemExit("the run failed")
        finally:
            if run.poll() is None:
                run.terminate()
                run.wait()
        if (folder / "final-0").read_text() != (folder / "final-1").read_text():
            raise SystemExit("the workers ended with different parameters")
        found = ends(folder)
    steps = list(pairwise(found))
    usual = median(end - begin for begin, end in steps)
    until = [*struck[1:], found[-1]]
    return usual, [
        max(end - begin for begin, end in steps if end > kill and begin < last) - usual
        for kill, last in zip(struck, until, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", nargs="+", choices=["gradients", "changes"], default=["gradients", "changes"])
    parser.add_argument("--lane", nargs="+", choices=["shm", "tcp"], default=["shm", "tcp"])
    parser.add_argument("--backups", nargs="+", type=int, choices=[0, 1], default=[0, 1])
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.train:
        train(chosen.kills)
        return
    table = Table("mode", "lane", "backups", "a step, s", "lost at each kill, s", title=f"{WIDTH * WIDTH:,} parameters")
    for mode in chosen.mode:
        for lane in chosen.lane:
            for backups in chosen.backups:
                usual, lost = measured(mode, lane, backups, chosen.kills)
                table.add_row(mode, lane, str(backups), f"{usual:.2f}", ", ".join(f"{each:.2f}" for each in lost))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
