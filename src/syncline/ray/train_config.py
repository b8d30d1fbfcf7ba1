"""Ray Train: the configuration of a trainer whose workers train one model with Syncline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.train.backend import Backend, BackendConfig

from syncline.engines.launch.plan import Plan, checked
from syncline.engines.net.wiring import Wiring
from syncline.ray.function_run import text_of
from syncline.ray.train_backend import ReplacingBackend, SynclineBackend
from syncline.ray.train_worker import training_function
from syncline.strategies.mode import Mode


class SynclineConfig(BackendConfig):
    """The `backend_config` of a `DataParallelTrainer`: in its training function, `syncline.connect()` finds the run.

    `servers`: how many, spread over the nodes that have workers; by default one on each. `lane`: as `--lane`.
    `replace`: whether Ray Train may replace a worker that dies; if not, it starts all workers again.
    `settings`: those of `syncline run`, as texts or parts: `sync="ssp:3"`, `mode="changes"`, `codec=...`.
    """

    def __init__(self, *, servers: int | None = None, lane: str = "", replace: bool = True, **settings: object) -> None:
        self.servers, self.lane = servers, lane
        self.settings = {key: text_of(value) for key, value in settings.items() if value is not None}
        self._joinable = replace and _takes_joiners(self.plan(2))

    def plan(self, workers: int) -> Plan:
        """The run with so many workers, as on one host; raises `UsageError` if a setting is wrong."""
        return checked(Plan(("",), workers, self.servers, self.settings, Wiring(lane=self.lane), joinable=True))

    @property
    def backend_cls(self) -> type[Backend]:
        """The backend; it lets Ray replace a worker by a new one if the strategy lets workers join."""
        return ReplacingBackend if self._joinable else SynclineBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        return training_function

    def to_dict(self) -> dict[str, Any]:
        """What Ray shows of this configuration."""
        return {"servers": self.servers, "lane": self.lane, **self.settings}


def _takes_joiners(plan: Plan) -> bool:
    """Whether a worker can join the run after it has begun, as far as known before the program calls Syncline."""
    chosen = "mode" in plan.settings or "rule" in plan.settings or "strategy" in plan.settings
    strategy = plan.strategy
    return strategy.takes_joiners and strategy.mode is not Mode.GRADIENTS and (chosen or not _is_bsp(plan))


def _is_bsp(plan: Plan) -> bool:
    """Whether the sync model is bsp, in which programs with PyTorch send gradients unless told otherwise."""
    return plan.settled().get("sync", ("", ""))[0] == "bsp"
