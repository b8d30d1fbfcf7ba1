"""The report of a plan, as JSON."""

from __future__ import annotations

from typing import Any

from syncline.plan.advice import notes, reason
from syncline.plan.commands import commands_of
from syncline.plan.forecast import Forecast
from syncline.plan.planner import ClusterPlan
from syncline.sim.report import SCHEMA
from syncline.sim.tcp_links import GOODPUT

ASSUMPTIONS = (
    f"TCP leaves {GOODPUT:.1%} of a link's rate for values, and connections take turns of 256 KiB",
    "all machines are alike, each has one link and computes at the same speed",
    "gloo's ring is a formula: 2 (n - 1) / n models over each link and 2 (n - 1) latencies per bucket of DDP",
    "a codec's work is measured on this machine; other work of a worker on values takes no time",
    "more than 8 machines (16 in a split) are simulated by fewer machines with the same load",
)


def plan_report(plan: ClusterPlan, address: str = "", data: str = "") -> dict[str, Any]:
    """All figures of a plan."""
    model, machines = plan.model, plan.machines
    return {
        "schema": SCHEMA,
        "model": model.name,
        "values": model.layout.size,
        "bytes": model.size,
        "step_seconds": model.step,
        "step_from": model.origin,
        "batch": model.batch,
        "machines": machines.workers,
        "bandwidth_bytes_per_second": machines.bandwidth,
        "payload_bytes_per_second": machines.payload_rate,
        "latency_seconds": machines.latency,
        "apply_bytes_per_second": machines.apply,
        "memory_bytes": machines.memory,
        "load": plan.load,
        "rows": [_row(plan, row, address, data) for row in plan.rows],
        "splits": [
            {"servers": servers, "workers": machines.workers - servers, "steps_per_second": rate}
            for servers, rate in plan.splits.items()
        ],
        "recommendation": {
            "name": plan.best.candidate.label,
            "reason": reason(plan),
            "notes": list(notes(plan)),
            "commands": _commands(plan, plan.best, address, data),
        },
        "assumptions": list(ASSUMPTIONS),
    }


def _row(plan: ClusterPlan, row: Forecast, address: str, data: str) -> dict[str, Any]:
    candidate, batch = row.candidate, plan.model.batch
    return {
        "name": candidate.label,
        "form": candidate.form.value,
        "settings": dict(candidate.words),
        "overlap": candidate.overlap.value,
        "workers": row.trainers,
        "servers": _servers(plan, row),
        "partitions": candidate.parts if "partitions" in candidate.words else None,
        "seconds_per_iteration": row.seconds,
        "steps_per_second": row.rate,
        "examples_per_second": None if batch is None else row.rate * batch,
        "link_utilisation": row.link_used,
        "bytes_per_round": row.round_bytes,
        "staleness_bound": candidate.staleness,
        "limit": row.limit,
        "shares": dict(row.shares),
        "memory_bytes": row.memory,
        "fits": row.fits,
        "lossless": candidate.lossless,
        "commands": _commands(plan, row, address, data),
    }


def _servers(plan: ClusterPlan, row: Forecast) -> int:
    return plan.machines.workers if row.candidate.form == "co-located" else row.candidate.servers


def _commands(plan: ClusterPlan, row: Forecast, address: str, data: str) -> list[dict[str, str]]:
    found = commands_of(row.candidate, plan.model, plan.machines.workers, address, data)
    return [{"where": each.where, "command": each.line} for each in found]
