"""The recommendation of a plan in words: what to run, why, and what else is worth knowing."""

from __future__ import annotations

from syncline.plan.candidates import Form
from syncline.plan.forecast import COMPUTE, Forecast
from syncline.plan.planner import CLOSE, ClusterPlan

MUCH = 4
"""Updates that are at most so many iterations late rarely matter; for later ones the advice names an alternative."""


FULL = 0.85
"""What is in use for at least this share of the time limits a run alone."""


def reason(plan: ClusterPlan) -> str:
    """Why the recommended row is recommended: two sentences."""
    best = plan.best
    label = best.candidate.label
    others = [row for row in plan.rows if plan.usable(row) and row.candidate.form is not best.candidate.form]
    rivals = [row for row in others if row.candidate.lossless]
    first = f"{_begin(label)} does {_rate(plan, best)}: {_why(best)}."
    if not rivals:
        return first
    rival = max(rivals, key=lambda row: row.rate)
    return f"{first} The best other way, {rival.candidate.label}, does {_rate(plan, rival)}: {_why(rival)}."


def notes(plan: ClusterPlan) -> tuple[str, ...]:
    """What else the user should know, one sentence each."""
    found = [*_late(plan), *_lossy(plan), *_not_startable(plan)]
    if any(not row.fits for row in plan.rows):
        found.append("Rows that are marked need more memory than a machine has.")
    return tuple(found)


def _late(plan: ClusterPlan) -> list[str]:
    """The fastest run with fresher updates, if those of the recommended one are very late."""
    best = plan.best
    if best.candidate.staleness <= MUCH:
        return []
    fresh = [
        row for row in plan.rows if plan.usable(row) and row.candidate.lossless and row.candidate.staleness <= MUCH
    ]
    late = f"With {best.candidate.label}, an update reaches the others up to {best.candidate.staleness} iterations late"
    if not fresh:
        return [f"{late}, so more steps may be needed."]
    row = max(fresh, key=lambda each: each.rate)
    return [f"{late}; if the model then learns too slowly, try {row.candidate.label} ({_rate(plan, row)})."]


def _lossy(plan: ClusterPlan) -> list[str]:
    faster = [row for row in _clearly_faster(plan) if not row.candidate.lossless]
    if not faster:
        return []
    row = faster[0]
    return [
        f"{_begin(row.candidate.label)} would do {_rate(plan, row)}, but sends less than every update; "
        "it may need more steps to the same accuracy."
    ]


def _not_startable(plan: ClusterPlan) -> list[str]:
    """Faster rows that `syncline run` cannot start on several machines."""
    found = []
    for row in (each for each in _clearly_faster(plan) if not plan.usable(each)):
        if row.candidate.form is Form.RING:
            found.append(f"PyTorch's DistributedDataParallel with gloo would do {_rate(plan, row)}, which is more.")
        else:
            found.append(
                f"{_begin(row.candidate.label)} would do {_rate(plan, row)}, but in mode gradients a run accepts no "
                "workers from other machines once it trains."
            )
    return found


def _clearly_faster(plan: ClusterPlan) -> list[Forecast]:
    """The rows that are faster than the recommended one by more than predictions may be off."""
    return [row for row in plan.rows if row.fits and row.rate > plan.best.rate * (1 + CLOSE)]


def _begin(label: str) -> str:
    return label[:1].upper() + label[1:]


def _rate(plan: ClusterPlan, row: Forecast) -> str:
    what = "steps/s" if plan.model.batch is None else "examples/s"
    return f"{figure(row.rate * (plan.model.batch or 1))} {what}"


def figure(number: float) -> str:
    """A number with at least three digits, and never as a power of ten."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:,.3g}"


def _why(row: Forecast) -> str:
    shares = dict(row.shares)
    compute = f"the machines compute {shares[COMPUTE]:.0%} of the time"
    if shares[row.limit] < FULL:
        return f"{compute} and then wait for the links, of which the busiest is in use {row.link_used:.0%} of the time"
    if row.limit == COMPUTE:
        return f"{compute}, and the busiest link is in use {row.link_used:.0%} of the time"
    return f"{row.limit} is the limit: it is in use {shares[row.limit]:.0%} of the time"
