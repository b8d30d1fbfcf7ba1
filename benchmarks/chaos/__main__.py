"""Kill and stop the processes of random runs, and check that no run hangs, leaves anything behind or loses an update.

    python benchmarks/chaos [--minutes 10] [--seed 0] [--faults 8]
    python benchmarks/chaos --case 4711          play one case again

Each case follows from its number: strategy, sync model, mode, codec, lane, and the faults. Workers, servers and the
coordinator are killed (SIGKILL), or stopped (SIGSTOP) for a while; the sync model is changed. Everything that dies is
started again.
Each update has an element of its own, so the parameters at the end show whether it counted once (ledger.py).

When a case fails, its number and its output are printed, and its folder is kept. The exit code is 1 then.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.chaos.cases import random_case
from benchmarks.chaos.run import Result, play


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to go on (10)")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first case (0)")
    parser.add_argument("--faults", type=int, default=8, help="faults in each run (8)")
    parser.add_argument("--case", type=int, help="play only this case")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the time after which a run hangs (1)")
    given = parser.parse_args()
    if given.minutes <= 0 or given.faults < 0 or given.seed < 0 or given.scale <= 0:
        parser.error("--minutes and --scale must be above 0, --seed and --faults at least 0")
    until, totals, failed = monotonic() + 60 * given.minutes, Counter[str](), 0
    for number in [given.case] if given.case is not None else count(given.seed):
        if monotonic() > until:
            break
        folder = Path(mkdtemp(prefix="syncline-chaos-"))
        result = play(random_case(number, given.faults), folder, given.scale)
        _count(totals, result)
        print(f"{result.case}: {len(result.done)} faults, {result.finding.answered:,} updates answered", flush=True)
        if result.problems:
            failed += 1
            _tell(result, folder)
        else:
            shutil.rmtree(folder)
    print(
        f"{totals['runs']} runs, {failed} failed; {totals['faults']} faults: {totals['workers']} of workers, ", end=""
    )
    print(f"{totals['servers']} of servers, {totals['coordinator']} of the coordinator, ", end="")
    print(f"{totals['changes']} changes; {totals['answered']:,} updates answered")
    return 1 if failed else 0


def _count(totals: Counter[str], result: Result) -> None:
    totals["runs"] += 1
    totals["faults"] += len(result.done)
    totals["workers"] += sum(" worker" in each for each in result.done)
    totals["servers"] += sum(" server" in each for each in result.done)
    totals["coordinator"] += sum(" coordinator" in each for each in result.done)
    totals["changes"] += sum(each.startswith("change") for each in result.done)
    totals["answered"] += result.finding.answered


def _tell(result: Result, folder: Path) -> None:
    for problem in result.problems:
        print(f"  wrong: {problem}")
    print(f"  faults: {'; '.join(result.done)}")
    print(f"  play it again: python benchmarks/chaos --case {result.case.number}")
    print(f"  its files: {folder}")
    print("".join(f"  | {line}\n" for line in result.output.splitlines()[-40:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
