"""Turns the options of `syncline train` into a job, a plan, and every setting with its origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from syncline.engines.launch.growth import read_growth
from syncline.engines.launch.plan import COMMAND_LINE, MOST_PROCESSES, Plan, checked
from syncline.engines.net.wiring import Wiring
from syncline.engines.process import ONE_THREAD
from syncline.engines.saving.request import checked_request
from syncline.errors import UsageError
from syncline.recipes import RECIPES, TO_COMPARE, TO_TRAIN, Recipe, check
from syncline.recipes.job import RecipeJob
from syncline.sim.stop import StopAt, read_stop
from syncline.units import MOST, whole

ENGINES = ("local", "sim")
DEFAULTS = {"workers": 4, "batch": 32}
MOST_COUNTS = {"workers": MOST_PROCESSES, "servers": MOST_PROCESSES, "repeats": 1000}
MOST_SLOW = 10_000.0
"""The largest factor of --slow: a slow worker really sleeps."""

Settings = dict[str, tuple[str, str]]


@dataclass(frozen=True)
class TrainRequest:
    """A job and how to run it."""

    job: RecipeJob
    plan: Plan
    """Its command is still empty; it is made when the job has its directory."""
    engine: str
    settings: Settings
    """Every setting, and where it came from."""


def request(
    named: str | None,
    words: Mapping[str, str],
    counts: Mapping[str, int | None],
    ways: Mapping[str, str | None],
    slow: Sequence[str],
    data: Path | None,
    *,
    compare: bool,
    stop: Sequence[str] = (),
    grow: Sequence[str] = (),
    restarts: int = 0,
) -> TrainRequest:
    """Settle what the options say, or refuse it; `words`: settings of the strategy, `ways`: engine and lane."""
    recipe = (TO_COMPARE if compare else TO_TRAIN) if named is None else named
    if counts["repeats"] is not None and not compare:
        raise UsageError("--repeats", "repeats the systems of a comparison; use it with --compare")
    examples = check(recipe, data, "RECIPE", "--data")
    found = _usual(RECIPES[recipe], compare)
    found |= {key: count for key, count in counts.items() if count is not None}
    _check_counts(found, examples)
    end = _stop(stop, counts["iterations"], compare)
    if end.replaces_iterations:
        del found["iterations"]
    engine, lane = ENGINES[0] if ways["engine"] is None else ways["engine"], ways["lane"]
    if engine not in ENGINES:
        raise UsageError("--engine", f"must be one of: {', '.join(ENGINES)}; not {engine!r}")
    if engine == "sim" and lane is not None:
        raise UsageError("--lane", "cannot be used with --engine sim, where messages take no time; remove it")
    if compare:
        _check_comparison(words, engine, found, examples)
    _check_changes({"--grow": grow, "--restarts": restarts}, engine, compare)
    wiring = Wiring(lane="shm" if lane is None else lane)
    asked = Plan(
        (),
        found["workers"],
        counts["servers"],
        words,
        wiring,
        environment=ONE_THREAD,
        restarts=restarts,
        growth=read_growth(grow),
        choosable=False,
    )
    plan = checked(asked, real=engine != "sim")
    if plan.growth and end.updates is not None and plan.strategy.synchronous:
        raise UsageError("--stop", "updates cannot be used with --grow under bsp, where all workers do the same rounds")
    found["servers"] = plan.server_count
    strategy = plan.settled()
    slowed = _slow(slow, found["workers"] + plan.later_workers) or ({found["workers"] - 1: 5.0} if compare else {})
    job = RecipeJob(
        recipe,
        found["workers"],
        found.get("iterations", 0),
        found["batch"],
        int(strategy["seed"][0]),
        "" if data is None else str(data.resolve()),
        slowed,
        compare=compare,
        repeats=found.get("repeats", 1),
        stop=end,
        later=plan.later_workers,
        restarts=restarts,
    )
    own: dict[str, Any] = {
        "recipe": recipe,
        "data": data,
        "engine": engine,
        "lane": None if engine == "sim" else wiring.lane,
        **found,
    }
    given = {"recipe": named, **ways, **counts, "slow": slow or None, "data": data, "stop": stop or None}
    given |= {"grow": grow or None, "restarts": restarts or None}
    own |= {
        "grow": "; ".join(map(str, plan.growth)) or None,
        "restarts": restarts or None,
        "stop": str(end) or None,
        "slow": " ".join(f"{worker}:{factor:g}" for worker, factor in slowed.items()) or None,
    }
    origins = {key: "default" if given[key] is None else COMMAND_LINE for key in own}
    settings = {key: (str(value), origins[key]) for key, value in own.items() if value is not None}
    return TrainRequest(job, plan, engine, settings if compare else {**settings, **strategy})


def with_checkpoints(asked: TrainRequest, folder: Path | None, every: str | None, resume: Path | None) -> TrainRequest:
    """The same request, with what the options about checkpoints ask for."""
    saving = checked_request(folder, every, resume, f"train {asked.job.recipe}")
    wiring = replace(
        asked.plan.wiring,
        save_to=saving.folder,
        save_every=saving.every,
        resume=saving.resume,
        program=saving.program,
    )
    return replace(asked, plan=replace(asked.plan, wiring=wiring))


def _stop(texts: Sequence[str], iterations: int | None, compare: bool) -> StopAt:
    said = read_stop(texts)
    if said and compare:
        raise UsageError("--stop", "cannot be used with --compare, which ends every system after the same images")
    updates = said.pop("updates", None)
    stop = StopAt(None if updates is None else int(updates), **said)
    try:
        stop.check()
    except UsageError as error:
        raise UsageError("--stop", f"{error.option.removeprefix('stop.')} {error.problem}") from None
    if stop.replaces_iterations and iterations is not None:
        raise UsageError("--stop", f"{stop} replaces --iterations; remove one of them")
    return stop


def _usual(recipe: Recipe, compare: bool) -> dict[str, int]:
    """The default counts."""
    if compare:
        return {**DEFAULTS, "batch": recipe.compare_batch, "iterations": recipe.compare_rounds, "repeats": 1}
    return {**DEFAULTS, "iterations": recipe.iterations}


def _check_counts(counts: Mapping[str, int], examples: int) -> None:
    for key, count in counts.items():
        whole(count, f"--{key}", 1, MOST_COUNTS.get(key, MOST))
    if counts["batch"] > examples:
        raise UsageError("--batch", f"is {counts['batch']}, but there are only {examples:,} examples to train on")


def _check_changes(given: Mapping[str, object], engine: str, compare: bool) -> None:
    """Refuse what only one run of real processes can do."""
    for option, value in given.items():
        if value and compare:
            raise UsageError(option, "cannot be used with --compare, which runs with the same workers throughout")
        if value and engine == "sim":
            remedy = "an experiment file has the faults grow and restart (syncline simulate)"
            raise UsageError(option, f"starts processes, so it cannot be used with --engine sim; {remedy}")


def _check_comparison(words: Mapping[str, str], engine: str, counts: Mapping[str, int], examples: int) -> None:
    for key in words:
        if key != "seed":
            raise UsageError(f"--{key.replace('_', '-')}", "cannot be used with --compare, which sets it; remove one")
    if engine == "sim":
        raise UsageError("--engine", "--compare measures real runs; leave one of them out")
    if counts["workers"] < 2:
        raise UsageError("--workers", "--compare needs at least 2 workers, of which one is slow")
    most = examples // counts["workers"]
    if counts["batch"] > most:
        raise UsageError(
            "--batch", f"one process takes the batches of all workers in one step; at most {most:,} with --compare"
        )


def _slow(texts: Sequence[str], workers: int) -> dict[int, float]:
    found: dict[int, float] = {}
    for text in texts:
        worker, factor = _pair(text)
        if worker not in range(workers):
            there = "there is only 0" if workers == 1 else f"0 to {workers - 1}"
            raise UsageError("--slow", f"{text}: there is no worker {worker}; {there}")
        if worker in found:
            raise UsageError("--slow", f"{text}: worker {worker} is given twice; give it once")
        if not 1 <= factor <= MOST_SLOW:
            limit = f"at least 1, since --slow only slows workers down, and at most {MOST_SLOW:,.0f}"
            raise UsageError("--slow", f"{text}: the factor must be {limit}")
        found[worker] = factor
    return found


def _pair(text: str) -> tuple[int, float]:
    worker, colon, factor = text.partition(":")
    try:
        return int(worker), float(factor if colon else "")
    except ValueError:
        raise UsageError("--slow", f"{text!r} is not WORKER:FACTOR; to slow worker 3 down 5 times, use 3:5") from None
