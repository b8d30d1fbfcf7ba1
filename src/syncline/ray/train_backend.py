"""The backend of Ray Train: it starts coordinator and servers beside the workers that Ray Train has started.

1. When a group of workers has started, a new run begins: the coordinator on the node of Ray Train's controller, and
   servers on the nodes of the workers. Each is an actor with a process of its own (host_actor.py).
2. A worker that replaces another one joins the run that goes on. Ray Train does so only for backends that say that
   their workers are replica groups. For others, and to change the number of workers, it restarts all workers, and a new
   run begins.
3. When the group ends, the run ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.train.backend import Backend

from syncline.errors import SynclineError
from syncline.ray.train_run import TrainRun
from syncline.ray.train_worker import find_run, node_of_worker

if TYPE_CHECKING:
    from syncline.ray.train_config import SynclineConfig


class SynclineBackend(Backend):
    """One run for each group of workers."""

    def __init__(self) -> None:
        self._run: TrainRun | None = None

    def on_start(self, worker_group: Any, backend_config: SynclineConfig) -> None:
        """Begin a run with these workers; or let them join, if they replace others."""
        if self._run is not None and self._run.is_going_on and self._replaces(worker_group):
            worker_group.execute(find_run, self._run.words_to_join())
            return
        self._end()
        nodes = worker_group.execute(node_of_worker)
        self._run = TrainRun(backend_config.plan(len(nodes)), nodes)
        try:
            words = self._run.start()
        except SynclineError:
            self._end()
            raise
        import ray

        ray.get([worker_group.execute_single_async(rank, find_run, each) for rank, each in enumerate(words)])

    def on_shutdown(self, worker_group: Any, backend_config: SynclineConfig) -> None:
        """End the run, unless only some of its workers are replaced."""
        if not self._replaces(worker_group):
            self._end()

    def _replaces(self, worker_group: Any) -> bool:
        """Whether these workers are a part of a group."""
        return not hasattr(worker_group, "get_replica_groups")

    def _end(self) -> None:
        if self._run is not None:
            self._run.end()
            self._run = None


class ReplacingBackend(SynclineBackend):
    """The same, for strategies in which a worker can join a run."""

    has_replica_groups = True
