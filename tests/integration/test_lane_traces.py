"""One conformance suite for both lanes: every sync model runs, and the trace of each server follows the rules."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import cycle, product
from math import inf
from pathlib import Path
from typing import Any

import pytest

from lanes import SEED, Found, Line, Ran, check_once, check_stale, read_trace, replay, run_drawn
from samples import sampled

ITERATIONS = 20
WORKERS = 3


@dataclass(frozen=True)
class Case:
    """What is asked of a run, and in the checker's own words what each of its two servers does."""

    sync: tuple[str, ...]
    models: tuple[tuple[Any, ...], ...]
    stale: tuple[float, ...]
    """No worker is answered with i >= V + this."""

    def __str__(self) -> str:
        return "+".join(self.sync)


def both(word: str, model: tuple[Any, ...], stale: float) -> Case:
    return Case((word,), (model, model), (stale, stale))


CASES = [
    both("bsp", ("bsp",), 0),
    both("asp", ("asp",), inf),
    both("ssp:2", ("ssp", 2), 2),
    both("dsps:1,3", ("dsps", 1, 3), 3),
    both("drop:2", ("drop", 2), 0),
    both("pssp:s=1,p=0.5", ("pssp", 1, 0.5, None), inf),
    both("pssp:s=1,alpha=0.5", ("pssp", 1, None, 0.5), inf),
    both("psp:sample=1,s=1", ("psp", 1, 1), inf),
    Case(("ssp:1", "bsp"), (("ssp", 1), ("bsp",)), (1, 0)),
]
LANES, RELEASES = ("shm", "tcp"), ("lazy", "soft")
QUICK = [*zip(CASES[::2], cycle(LANES), cycle(("lazy", "soft", "soft", "lazy")), strict=False)]
"""Every second model, and each lane with each release."""


@pytest.mark.parametrize(("case", "lane", "release"), sampled(product(CASES, LANES, RELEASES), *QUICK), ids=str)
def test_a_lane_follows_the_rules(tmp_path: Path, case: Case, lane: str, release: str) -> None:
    sync = [word for model in case.sync for word in ("--sync", model)]
    ran = run_drawn(
        tmp_path, ITERATIONS, "-n", WORKERS, "--servers", 2, "--lane", lane, "--release", release, "--bucket", "16KiB",
        "--seed", SEED, *sync, uneven=True,
    )  # fmt: skip
    for server, (model, stale) in enumerate(zip(case.models, case.stale, strict=True)):
        trace = ran.trace(server)
        check_once(trace)
        check_stale(trace, stale)
        found = replay(trace, model, release == "soft", WORKERS)
        assert found.train_progress == ITERATIONS
        if model[0] != "drop":
            assert (found.updates, found.dropped_updates) == (WORKERS * ITERATIONS, 0)
        if model[0] == "bsp":
            assert found.delayed_pulls >= (WORKERS - 1) * ITERATIONS
        said = {"model": "model", "left": False, "pushes_skipped": 0, "fetches_skipped": 0}
        assert {"server": server, **asdict(found), **said} == ran.report["servers"][server]
    assert_sums(ran)


def assert_sums(ran: Ran) -> None:
    report = ran.report
    for key in ("updates", "dropped_updates", "delayed_pulls", "bytes_pushed", "bytes_pulled"):
        assert report[key] == sum(each[key] for each in report["servers"]), key


# The checker finds what it is for.

HEADER = "time,from,to,kind,progress,bytes,start,stop,version,v"
SSP_1 = """
1.0,worker0,server0,pull,-1,0,0,4,,
1.0,server0,worker0,params,-1,16,0,4,0,0
2.0,worker1,server0,pull,-1,0,0,4,,
2.0,server0,worker1,params,-1,16,0,4,0,0
3.0,worker0,server0,push,0,16,0,4,0,
3.0,server0,worker0,params,0,16,0,4,1,0
4.0,worker0,server0,push,1,16,0,4,1,
5.0,worker1,server0,push,0,16,0,4,0,
5.0,server0,worker1,params,0,16,0,4,3,1
6.0,worker1,server0,push,1,16,0,4,3,
6.0,server0,worker0,params,1,16,0,4,4,2
6.0,server0,worker1,params,1,16,0,4,4,2
7.0,coordinator,server0,view,-1,0,,,,
""".strip().splitlines()
"""Two workers under ssp:1, lazy; worker 0 waits once."""


def trace_of(lines: list[str], path: Path) -> list[Line]:
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return read_trace(path)


def test_a_good_trace_passes(tmp_path: Path) -> None:
    trace = trace_of(SSP_1, tmp_path / "t.csv")
    check_once(trace)
    check_stale(trace, 1)
    assert replay(trace, ("ssp", 1), False, 2) == Found(4, 0, 1, 2, 64, 64)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        (5, []),  # a push that is never answered
        (8, [SSP_1[8], SSP_1[8]]),  # answered twice
        (6, [SSP_1[6], "4.0,server0,worker0,params,1,16,0,4,2,0"]),  # answered too early
        (8, [SSP_1[8].replace("3,1", "2,1")]),  # an older version than there is
        (8, [SSP_1[8].replace("3,1", "3,0")]),  # V has not advanced
        (8, [SSP_1[8], "5.0,server0,worker0,params,1,16,0,4,3,1"]),  # soft, not lazy
        (4, ["3.0,worker0,server0,push,0,0,0,4,0,"]),  # an empty update that counted
        (11, [SSP_1[11].replace("worker1", "worker0")]),  # answered to the wrong worker
    ],
)
def test_a_trace_that_breaks_a_rule_is_refused(tmp_path: Path, line: int, instead: list[str]) -> None:
    trace = trace_of([*SSP_1[:line], *instead, *SSP_1[line + 1 :]], tmp_path / "t.csv")
    with pytest.raises(AssertionError):
        replay(trace, ("ssp", 1), False, 2)


def test_answers_beyond_the_bound_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="i >= V"):
        check_stale(trace_of(SSP_1, tmp_path / "t.csv"), 0)


@pytest.mark.parametrize("line", [3, 5, 11])
def test_a_lost_answer_is_found(tmp_path: Path, line: int) -> None:
    with pytest.raises(AssertionError, match="never answered"):
        check_once(trace_of([*SSP_1[:line], *SSP_1[line + 1 :]], tmp_path / "t.csv"))
