"""Which runs a worker can join while they are under way, and what to do where it cannot.

In mode `gradients` it cannot: every worker's optimizer runs on the round's mean with the same state, and no server has
that state. A worker that is started again is one that joins.
"""

from __future__ import annotations

from syncline.errors import UsageError
from syncline.strategies.mode import Mode
from syncline.strategies.protocol import Strategy

REASON = "in mode 'gradients' a worker that joins would need the optimizer state of the others, and no server holds it"

REMEDY = (
    'start the run with mode="changes" or a rule, e.g. rule="sgd:0.1": on its command line (--mode changes, --rule '
    'sgd:0.1), or in every worker by session.distribute(model, optimizer, mode="changes") or session.tables(arrays, '
    'mode="changes")'
)

RESTART_REMEDY = "use --sync ssp:3 or asp, --mode changes, or a rule (--rule sgd:0.1); or leave --restarts out"


def check_joiner(worker: int, strategy: Strategy) -> None:
    """`UsageError`: this worker cannot join a run of this strategy."""
    if not strategy.takes_joiners:
        raise UsageError("strategy", f"worker {worker} cannot join: {_takes_nobody(strategy)}")
    if strategy.mode is Mode.GRADIENTS:
        raise UsageError("mode", f"worker {worker} cannot join: {REASON}; {REMEDY}")


def check_restarts(strategy: Strategy) -> None:
    """`UsageError`: a worker that dies could not come back to a run of this strategy."""
    if not strategy.takes_joiners:
        raise UsageError("--restarts", f"{_takes_nobody(strategy)}; leave --restarts out")
    if strategy.mode is Mode.GRADIENTS:
        raise UsageError("--restarts", f"{REASON}, so one that is started again could not go on; {RESTART_REMEDY}")


def _takes_nobody(strategy: Strategy) -> str:
    return f"strategy {strategy.name()!r} takes no workers into a run that is under way"
