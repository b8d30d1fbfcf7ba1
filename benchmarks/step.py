"""Measure a training step of a network with 10 million parameters: DDP with gloo, and Syncline, in the same processes.

    python benchmarks/step.py [--steps 30] [--report FILE.json]

Two workers run on this host, each with one thread. The systems take turns, so that noise affects all equally, and the
table shows medians. The two parts and their goals:

- step: in shared memory, Syncline is faster than DDP with gloo (which uses TCP on loopback).
- overlap: over TCP, if communication takes as long as computation, a step with overlap is measurably faster than one
  without. Here each layer sleeps instead of computing, as if an accelerator computed, so that the cores are free to
  move data. All pauses together are as long as a step without overlap and without pauses.

With shared memory overlap gains little: a server reads and writes the memory while the worker goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import syncline

WIDTH, LAYERS, BATCH, WARM = 1120, 8, 32, 5

PARTS = {
    "step": ("shm", "shared memory; layers compute on this host's cores"),
    "overlap": ("tcp", "TCP; layers sleep instead of computing, as long as the rest takes"),
}
"""The lane and the title of each part."""


class Pause(torch.autograd.Function):
    """Sleeps for a third of the time in the forward pass and for two thirds in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        sleep(seconds / 3)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        sleep(2 * ctx.seconds / 3)
        return gradients[0], None


class Layer(nn.Module):
    """A linear layer; with `pause=True` it sleeps instead of multiplying, but still uses its parameters."""

    def __init__(self, pause: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.pause = pause
        self.seconds = 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.pause:
            return torch.relu(self.linear(x))
        return Pause.apply(x, self.seconds) + self.linear.weight[0, 0] * self.linear.bias  # type: ignore[no-any-return]


def network(pause: bool) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(pause) for _ in range(LAYERS)))


def stepper(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    x = torch.randn(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def systems(session: syncline.Session, pause: bool) -> dict[str, tuple[nn.Module, Callable[[], None]]]:
    """Every system, each with its own neural network."""
    found: dict[str, tuple[nn.Module, Callable[[], None]]] = {}
    kinds: dict[str, dict[str, Any]] = {
        "gradients": {},
        "gradients, no overlap": {"overlap": False},
        "rule": {"rule": "sgd:0.01"},
        "rule, no overlap": {"rule": "sgd:0.01", "overlap": False},
        "changes": {"mode": "changes"},
    }
    model = network(pause)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    found["ddp, gloo"] = model, stepper(wrapped, torch.optim.SGD(model.parameters(), 0.01))
    for kind, wishes in kinds.items():
        model = network(pause)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        session.distribute(model, optimizer, name=f"{kind} {pause}", **wishes)
        found[f"syncline, {kind}"] = model, stepper(model, optimizer)
    return found


def measure(found: dict[str, tuple[nn.Module, Callable[[], None]]], steps: int) -> dict[str, float]:
    """The median seconds of a step of each system; the systems take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for number in range(WARM + steps):
        for name, (_, step) in found.items():
            dist.barrier()
            begun = perf_counter()
            step()
            if number >= WARM:
                seconds[name].append(perf_counter() - begun)
    return {name: median(each) for name, each in seconds.items()}


def work(part: str, steps: int, report: Path) -> None:
    """The program of one worker."""
    torch.set_num_threads(1)
    session = syncline.connect()
    rendezvous = f"file://{os.environ['BENCH_RENDEZVOUS']}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=session.rank, world_size=session.size)
    found = systems(session, pause=part == "overlap")
    if part == "overlap":
        set_pauses(found, session.mean(measure(found, steps)["syncline, gradients, no overlap"]))
    seconds = measure(found, steps)
    if session.is_leader:
        report.write_text(json.dumps(seconds))
    dist.destroy_process_group()
    session.close()


def set_pauses(found: dict[str, tuple[nn.Module, Callable[[], None]]], together: float) -> None:
    for model, _ in found.values():
        for layer in model.children():
            assert isinstance(layer, Layer)
            layer.seconds = together / LAYERS


def run(part: str, steps: int, servers: int) -> dict[str, float]:
    """The seconds of every system in one part, measured in a separate run."""
    lane, _ = PARTS[part]
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "report.json"
        command = [sys.executable, "-m", "syncline", "run", "-n", "2", "--servers", str(servers), "--lane", lane]
        command += [__file__, "--", "--part", part, "--steps", str(steps), "--worker", str(file)]
        environment = {**os.environ, "BENCH_RENDEZVOUS": str(Path(directory) / "rendezvous"), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, env=environment, check=True)
        return dict(json.loads(file.read_text()))


def show(part: str, rows: dict[str, float]) -> None:
    table = Table("system", "ms per step", "relative to ddp", title=PARTS[part][1])
    for name, seconds in rows.items():
        table.add_row(name, f"{1000 * seconds:.1f}", f"{seconds / rows['ddp, gloo']:.2f}")
    Console(width=100).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--part", choices=list(PARTS), help="run only this part")
    parser.add_argument("--report", type=Path, help="write the results as JSON")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        work(args.part, args.steps, args.worker)
        return
    rows: list[dict[str, object]] = []
    for part in [args.part] if args.part else PARTS:
        seconds = run(part, args.steps, args.servers)
        show(part, seconds)
        rows += [{"part": part, "lane": PARTS[part][0], "system": name, "seconds": s} for name, s in seconds.items()]
    if args.report is not None:
        args.report.write_text(json.dumps({"schema": 1, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
