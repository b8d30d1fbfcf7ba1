"""Check whether a worker can join a run that is already training. A restarted worker is a joiner too.

A worker cannot join in mode `gradients`: every worker's optimizer runs on the mean gradient with the same state, and no
server has that state.
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

GROWTH_REMEDY = RESTART_REMEDY.replace("--restarts", "--grow")


def check_joiner(worker: int, strategy: Strategy) -> None:
    """Raise `UsageError` if this worker cannot join a run with this strategy."""
    if not strategy.takes_joiners:
        raise UsageError("strategy", f"worker {worker} cannot join: {_why_no_joiners(strategy)}")
    if strategy.mode is Mode.GRADIENTS:
        raise UsageError("mode", f"worker {worker} cannot join: {REASON}; {REMEDY}")


def check_restarts(strategy: Strategy) -> None:
    """Raise `UsageError` if a restarted worker could not rejoin a run with this strategy."""
    if not strategy.takes_joiners:
        raise UsageError("--restarts", f"{_why_no_joiners(strategy)}; leave --restarts out")
    if strategy.mode is Mode.GRADIENTS:
        raise UsageError("--restarts", f"{REASON}, so a restarted worker could not continue; {RESTART_REMEDY}")


def check_growth(strategy: Strategy, nodes: int) -> None:
    """Raise `UsageError` if no workers, or (`nodes` above 0) no nodes, can be added to a run with this strategy."""
    if not strategy.takes_joiners:
        raise UsageError("--grow", f"{_why_no_joiners(strategy)}; leave --grow out")
    if strategy.mode is Mode.GRADIENTS:
        raise UsageError("--grow", f"{REASON}, so no worker can be added; {GROWTH_REMEDY}")
    if nodes and not strategy.takes_servers:
        problem = f"nodes are a part of strategy 'tree', not of {strategy.name()!r}; leave nodes={nodes} out"
        raise UsageError("--grow", problem)


def _why_no_joiners(strategy: Strategy) -> str:
    return f"strategy {strategy.name()!r} does not let workers join a run that is already training"
