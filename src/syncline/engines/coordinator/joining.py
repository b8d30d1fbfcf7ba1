"""Which runs a worker can join while they are under way, and what to do where it cannot.

In mode `gradients` it cannot: every worker's optimizer runs on the round's mean with the same state, and no server has
that state. A worker that is started again is one that joins.
"""

from __future__ import annotations

from collections.abc import Mapping

from syncline.errors import UsageError
from syncline.strategies.server.strategy import Mode

REASON = "in mode 'gradients' a worker that joins would need the optimizer state of the others, and no server holds it"

REMEDY = (
    'start the run with mode="changes" or a rule, e.g. rule="sgd:0.1": on its command line (--mode changes, --rule '
    'sgd:0.1), or in every worker by session.distribute(model, optimizer, mode="changes") or session.tables(arrays, '
    'mode="changes")'
)

RESTART_REMEDY = "use --sync ssp:3 or asp, --mode changes, or a rule (--rule sgd:0.1); or leave --restarts out"


def check_joiner(worker: int, settings: Mapping[str, str]) -> None:
    """`UsageError`: this worker cannot join a model with these settings."""
    if not _takes_joiners(settings):
        raise UsageError("mode", f"worker {worker} cannot join: {REASON}; {REMEDY}")


def check_restarts(settings: Mapping[str, str]) -> None:
    """`UsageError`: a worker that dies could not come back to a model with these settings."""
    if not _takes_joiners(settings):
        raise UsageError("--restarts", f"{REASON}, so one that is started again could not go on; {RESTART_REMEDY}")


def _takes_joiners(settings: Mapping[str, str]) -> bool:
    return settings["mode"] != Mode.GRADIENTS.value
