"""Measure the simulator: events per second with synthetic updates, and the memory for 10,000 clients.

    python benchmarks/simulator.py [--report FILE.json]

Goals: 100,000 events per second; 10,000 clients in less than 8 GiB. An event is one entry of the event heap: the end of
a computation, the start of a message on a link, or the arrival of a message. Each run has its own process. The table
shows the best of three runs, since other work on the machine can only slow a run down. The last column is the rate of a
bare heap that pushes and pops as many entries and does nothing else.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from heapq import heappop, heappush
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.table import Table

from syncline.draw import Draw
from syncline.recipes import build
from syncline.sim import Cluster, MadeUp, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.sim.network import Links
from syncline.spec import parse
from syncline.strategies.server.strategy import ServerStrategy, settle_mode
from syncline.sync import Release

CASES: dict[str, tuple[str, int, int, bool, str | None]] = {
    # name: (sync, workers, iterations, 1 Gbit links, recipe)
    "bsp, 100 workers": ("bsp", 100, 1000, False, None),
    "ssp:3, 100 workers": ("ssp:3", 100, 1000, False, None),
    "asp, 100 workers": ("asp", 100, 1000, False, None),
    "bsp, 100 workers, 1 Gbit": ("bsp", 100, 1000, True, None),
    "asp, 100 workers, 1 Gbit": ("asp", 100, 1000, True, None),
    "asp, 10,000 workers": ("asp", 10_000, 20, False, None),
    "ssp:3, 10,000 workers": ("ssp:3", 10_000, 20, False, None),
    "asp, 10,000 workers, digits-mlp": ("asp", 10_000, 2, False, "digits-mlp"),
}


def run_case(name: str) -> dict[str, float]:
    """Run one case in this process; return its events, seconds and peak memory."""
    sync, workers, iterations, linked, recipe = CASES[name]
    model = parse("sync", sync)
    mode, rule = settle_mode(None, None, (model,))
    links = Links(125e6, 1e-4) if linked else None
    cluster = Cluster(workers, Lognormal(0.1, 0.3), links)
    scenario = Scenario(cluster, ServerStrategy((model,), Release.LAZY, mode, rule), iterations)
    problem = build(recipe, draw=Draw(0), workers=workers, batch=8) if recipe else MadeUp(10_000, Draw(0))
    world = World(scenario, problem)
    begun = perf_counter()
    outcome = world.run()
    seconds = perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"events": outcome.events, "seconds": seconds, "peak_gib": peak}


def bare_heap(events: int) -> float:
    """The seconds to push and pop this many entries of the same shape."""
    heap: list[tuple[float, int, int, object, tuple[int, ...]]] = []
    begun = perf_counter()
    for sequence in range(100):
        heappush(heap, (sequence * 0.1, sequence, sequence, None, (1, 2)))
    for sequence in range(events):
        time, worker, _, _, args = heappop(heap)
        heappush(heap, (time + 0.1, worker, sequence, None, args))
    return perf_counter() - begun


def in_fresh_process(name: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, "--case", name], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--report", type=Path, help="write the results as JSON")
    parser.add_argument("--case", choices=list(CASES), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(run_case(arguments.case)))
        return
    table = Table("case", "events", "events/s", "of 100,000/s", "peak GiB", "bare heap/s")
    rows = []
    for name in CASES:
        runs = [in_fresh_process(name) for _ in range(1 if "10,000" in name else 3)]
        events, seconds = runs[0]["events"], min(run["seconds"] for run in runs)
        row = {"case": name, "events": events, "events_per_second": events / seconds, "peak_gib": runs[0]["peak_gib"]}
        rows.append(row)
        rate = events / seconds
        bare = events / bare_heap(int(events))
        table.add_row(
            name, f"{events:,.0f}", f"{rate:,.0f}", f"{rate / 1e5:.2f}", f"{row['peak_gib']:.2f}", f"{bare:,.0f}"
        )
    Console(width=120).print(table)
    if arguments.report:
        arguments.report.write_text(json.dumps({"schema": 1, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
