"""Measure what a backup of every bucket costs: rounds of 2 workers and 2 servers, with and without `backups=1`.

    python benchmarks/backups.py [--values 256 1000000 25000000] [--mode gradients|changes] [--bursts 12]

Both runs are alive at the same time and take turns. `work` is the processor time of all processes of a run per round:
a backup does what its server does, so this is what is left to pay when every processor is busy anyway.
"""

from __future__ import annotations

import argparse
import json
import os
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from processor_time import busy, family
from syncline.bench.case import Case
from syncline.bench.own import Syncline

BURST_SECONDS = 0.5


def measured(lane: str, case: Case, bursts: int) -> dict[str, float]:
    """Seconds and processor time per round, by what was measured."""
    systems = {"plain": Syncline(lane), "backed": Syncline(lane, {"backups": "1"})}
    times: dict[str, list[float]] = {name: [] for name in systems}
    work: dict[str, list[float]] = {name: [] for name in systems}
    pids: dict[str, list[int]] = {}
    with ExitStack() as stack:
        for name, system in systems.items():
            others = set(family(os.getpid()))
            stack.callback(system.stop)
            system.start(case)
            pids[name] = [pid for pid in family(os.getpid()) if pid not in others]
        rounds = max(3, min(300, int(BURST_SECONDS / median(systems["backed"].burst(3)))))
        for _ in range(bursts):
            for name, system in systems.items():
                before = busy(pids[name])
                times[name] += system.burst(rounds)
                work[name].append((busy(pids[name]) - before) / (rounds + 1))  # one round is not timed
    return {
        **{name: median(found) for name, found in times.items()},
        **{f"{name}_work": median(found) for name, found in work.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, nargs="+", default=[256, 1_000_000, 25_000_000])
    parser.add_argument("--mode", choices=["gradients", "changes"], default="changes")
    parser.add_argument("--lane", nargs="+", choices=["shm", "tcp"], default=["shm", "tcp"])
    parser.add_argument("--bursts", type=int, default=12)
    parser.add_argument("--report", type=Path)
    chosen = parser.parse_args()
    rows = [
        {"lane": lane, "values": values, **measured(lane, Case(2, 2, values, chosen.mode), chosen.bursts)}
        for lane in chosen.lane
        for values in chosen.values
    ]
    table = Table("lane", "values", "plain ms", "backed ms", "ratio", "work: plain", "backed", "ratio")
    for row in rows:
        cells = [f"{1e3 * row[name]:.2f}" for name in ("plain", "backed", "plain_work", "backed_work")]
        ratios = (f"{row['backed'] / row['plain']:.2f}", f"{row['backed_work'] / row['plain_work']:.2f}")
        table.add_row(row["lane"], f"{row['values']:,}", *cells[:2], ratios[0], *cells[2:], ratios[1])
    Console(width=110).print(table)
    if chosen.report is not None:
        chosen.report.write_text(json.dumps({"schema": 1, "mode": chosen.mode, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
