"""The results of a training run with processes: its workers write them to a directory; this module combines them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from syncline.engines.net.control import Figures
from syncline.errors import RunError
from syncline.layout import Values
from syncline.nodes.peer_losses import PeerLoss, loss_figures
from syncline.nodes.staleness import merged, staleness_figures
from syncline.recipes.job import RecipeJob
from syncline.sim.problem import Quality
from syncline.sim.report import SCHEMA, vector_sha256
from syncline.strategies.mode import Mode
from syncline.strategies.protocol import Strategy
from syncline.strategies.settings import strategy_in

_TRAFFIC = ("bytes_pushed", "bytes_pulled", "pushes_skipped", "fetches_skipped")


class WorkerFigures(msgspec.Struct, frozen=True):
    """The results of one worker; times are in seconds."""

    worker: int
    iterations: int
    computed: float
    waited: float
    most_stale: int
    began: float
    ended: float
    quality: Quality | None
    """The quality of the final model; only one of the workers measures it."""
    settings: dict[str, tuple[str, str]]
    """Every setting of the strategy, and where it came from."""
    stopped_by: str
    """What ended the run: "iterations", or a key of the job's stop."""
    bytes_sent: int = 0
    """The bytes that this worker has sent to other workers."""
    losses: list[PeerLoss] | None = None
    """The workers that died, if workers send each other updates."""
    staleness: dict[int, int] = {}
    """How many updates of other workers had each staleness, if workers send each other updates."""
    partitions: int = 0
    """Into how many ranges this worker cut the model at the end, if workers send each other parts of it."""


def leave_figures(directory: Path, figures: WorkerFigures) -> None:
    (directory / f"w{figures.worker}.json").write_bytes(msgspec.json.encode(figures))


def leave_vectors(directory: Path, worker: int, own: Values, final: Values) -> None:
    """Write the worker's parameters after its last iteration, and the final model."""
    np.savez(directory / f"w{worker}.npz", own=own, final=final)


def read_figures(directory: Path) -> list[WorkerFigures]:
    """Read the results of all workers that finished, ordered by number."""
    found = [msgspec.json.decode(path.read_bytes(), type=WorkerFigures) for path in directory.glob("w*.json")]
    return sorted(found, key=lambda each: each.worker)


def outcome(job: RecipeJob, lane: str, servers: Sequence[Figures]) -> dict[str, Any]:
    """The report of a run with processes. It has the simulator's keys, but `seconds` are real seconds."""
    workers = read_figures(Path(job.directory))
    if not any(worker.quality for worker in workers):
        raise RunError("the worker that measures the final model ended early, so its loss and accuracy are unknown")
    strategy = strategy_in({key: word for key, (word, _) in workers[0].settings.items()})
    final, gap = _vectors(Path(job.directory), [worker.worker for worker in workers], strategy)
    if not np.isfinite(final).all():
        raise RunError("the final model contains NaN or infinity; try a smaller learning rate")
    quality = next(worker.quality for worker in workers if worker.quality)
    computed, waited = (sum(getattr(each, key) for each in workers) for key in ("computed", "waited"))
    return {
        "schema": SCHEMA,
        "engine": "local",
        "lane": lane,
        "seconds": max(each.ended for each in workers) - min(each.began for each in workers),
        "iterations": job.iterations or None,
        "iterations_done": sum(each.iterations for each in workers),
        "stopped_by": workers[0].stopped_by,
        **_taken(workers, servers),
        "waiting_seconds": waited,
        "train_progress": min(
            [*([job.iterations] if job.iterations else []), *(each.train_progress for each in servers)]
        ),
        **{key: sum(getattr(each, key) for each in servers) for key in _TRAFFIC},
        **_between_workers(workers),
        **staleness_figures(merged(each.staleness for each in (servers or workers))),
        "replica_gap": gap,
        "bottleneck": "compute" if computed >= waited else "sync",
        "loss": quality.loss,
        "accuracy": quality.accuracy,
        "params_sha256": vector_sha256(final),
        "workers": [_row(each) for each in workers],
    }


def _taken(workers: Sequence[WorkerFigures], servers: Sequence[Figures]) -> dict[str, int]:
    """What servers count; without servers every update is taken."""
    found = {
        key: sum(getattr(each, key) for each in servers) for key in ("updates", "delayed_pulls", "dropped_updates")
    }
    return found if servers else {**found, "updates": sum(each.iterations for each in workers)}


def _between_workers(workers: Sequence[WorkerFigures]) -> dict[str, Any]:
    """What only runs have in which workers send each other updates."""
    found = {each.worker: each.losses for each in workers if each.losses is not None}
    if not found:
        return {}
    return {
        "bytes_pushed": sum(each.bytes_sent for each in workers),
        "partitions": max(each.partitions for each in workers),
        "deaths": loss_figures(found),
    }


def _row(figures: WorkerFigures) -> dict[str, Any]:
    return {
        "worker": figures.worker,
        "iterations": figures.iterations,
        "seconds": figures.ended - figures.began,
        "compute_seconds": figures.computed,
        "waiting_seconds": figures.waited,
        "most_stale": figures.most_stale,
    }


def _vectors(directory: Path, workers: Sequence[int], strategy: Strategy) -> tuple[Values, float]:
    """The final model, and the largest difference between it and a replica; in mode `gradients`, between replicas.

    If the servers come to rest after the run, it is the largest difference between the final replicas.
    """
    found = []
    for worker in workers:
        with np.load(directory / f"w{worker}.npz") as file:
            found.append((file["own"], file["final"]))
    final: Values = found[0][1]
    own = np.stack([last if strategy.settles else each for each, last in found])
    lives_in_workers = strategy.mode is Mode.GRADIENTS or any(not np.array_equal(each, final) for _, each in found)
    spread = own.max(0) - own.min(0) if lives_in_workers else np.abs(own - final)
    return final, float(spread.max(initial=0))
