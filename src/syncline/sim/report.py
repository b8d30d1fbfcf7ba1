"""The report: a run's figures as JSON."""

from __future__ import annotations

from hashlib import sha256
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.layout import Values
from syncline.nodes.staleness import staleness_figures

if TYPE_CHECKING:
    from syncline.sim.outcome import Outcome

SCHEMA = 1

REPORT_MARK = {"made_by": "syncline"}
"""How the file of a report begins. By this a later command knows that it may overwrite the file."""


def report(outcome: Outcome) -> dict[str, Any]:
    """The figures of a run, under the keys that the documentation lists."""
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "virtual_seconds": outcome.virtual_seconds,
        "iterations": None if outcome.scenario.stop.replaces_iterations else outcome.scenario.iterations,
        "iterations_done": outcome.iterations_done,
        "stopped_by": outcome.stopped_by,
        "updates": outcome.updates,
        "delayed_pulls": outcome.delayed_pulls,
        "dropped_updates": outcome.dropped_updates,
        "waiting_seconds": outcome.waiting_seconds,
        "train_progress": outcome.train_progress,
        "bytes_pushed": outcome.bytes_pushed,
        "bytes_pulled": outcome.bytes_pulled,
        "pushes_skipped": outcome.pushes_skipped,
        "fetches_skipped": outcome.fetches_skipped,
        "bytes_wire": outcome.bytes_wire,
        **staleness_figures(outcome.staleness),
        "replica_gap": outcome.replica_gap,
        "bottleneck": outcome.bottleneck,
        "trace_sha256": outcome.trace_sha256,
    }
    if outcome.partitions:
        found["partitions"] = outcome.partitions
    if outcome.tree is not None:
        found |= outcome.tree
    if outcome.restored is not None:
        found |= outcome.restored
    if outcome.deaths is not None:
        found["deaths"] = outcome.deaths
    if outcome.quality is not None:
        found["loss"] = outcome.quality.loss
        found["accuracy"] = None if isnan(outcome.quality.accuracy) else outcome.quality.accuracy
        found["params_sha256"] = params_sha256(outcome)
    return found


def params_sha256(outcome: Outcome) -> str:
    """The hash of the final model vector as little-endian float32."""
    return vector_sha256(outcome.model_vector())


def vector_sha256(vector: Values) -> str:
    return sha256(np.ascontiguousarray(vector, dtype="<f4").tobytes()).hexdigest()
