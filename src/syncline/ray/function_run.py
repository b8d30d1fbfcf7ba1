"""Call a function on several workers, which train one model, on a Ray cluster."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from syncline.engines.coordinator.joining import check_growth
from syncline.engines.launch.interrupts import InterruptHandler
from syncline.engines.launch.plan import MOST_PROCESSES, Plan, checked
from syncline.engines.net.wiring import Wiring
from syncline.engines.process import folders, say
from syncline.errors import UsageError
from syncline.ray import cluster
from syncline.ray.ray_run import Line, RayJob, RayRun
from syncline.strategies.mode import Mode

OPTION = "syncline.ray.run"


def run(
    fn: Callable[[], Any],
    *,
    workers: int | tuple[int, int] = 2,
    servers: int | None = None,
    cpus_per_worker: float = 1.0,
    restarts: int = 0,
    address: str | None = None,
    lane: str = "",
    traceback: bool = False,
    line: Line | None = None,
    **settings: object,
) -> list[Any]:
    """Call `fn` on every worker, and return what each of them returned, in the order of their numbers.

    Inside `fn`, `syncline.connect()` finds the run. `workers`: a number; or the least and the most, and the run grows
    and shrinks with the CPUs that Ray has. `servers`: how many, spread over the nodes that have workers; by default one
    on each. `restarts`: how many workers that are lost may be replaced. `address`: of the cluster, if the program is
    not connected to one. `settings`: those of `syncline run`, as texts or parts: `sync="ssp:3"`, `codec=...`. `line`:
    called with each line of output, (name, text); by default the lines are printed.

    What a worker that was lost would have returned is left out. If the run fails, a `RunError` says why.
    """
    cluster.imported_ray(OPTION)
    from ray import cloudpickle

    least, most = cluster.checked_workers(workers, MOST_PROCESSES)
    words = {key: text_of(value) for key, value in settings.items() if value is not None}
    here = folders(os.getcwd(), _folder_of_program())
    wiring = Wiring(lane=lane, folder=here)
    plan = Plan(("",), least, servers, words, wiring, restarts=restarts, traceback=traceback, joinable=most > least)
    plan = checked(plan)
    if most > least and not _may_be_gradients(plan):
        check_growth(plan.strategy, 0)
    if not cpus_per_worker > 0:
        raise UsageError("cpus_per_worker", f"must be above 0, not {cpus_per_worker!r}")
    connected = cluster.connect(address, "address")
    try:
        cluster.check_size(least, cpus_per_worker, "workers")
        job = RayJob(plan, cpus_per_worker, most, cloudpickle.dumps(fn), tuple(sys.path))
        made = RayRun(job, line or print_line)
        run_to_end(made)
        return [cloudpickle.loads(value) for _, value in sorted(made.results.items())]
    finally:
        if connected:
            import ray

            ray.shutdown()


def run_to_end(
    made: RayRun, started: Callable[[], None] | None = None, closed: type[BaseException] = KeyboardInterrupt
) -> None:
    """Start a run, wait for its end, and leave no process behind; `closed`: another reason to end it."""
    handler = InterruptHandler(made.hurry)
    with handler if threading.current_thread() is threading.main_thread() else nullcontext():
        try:
            try:
                made.start()
                if started is not None:
                    started()
                made.wait()
            except (KeyboardInterrupt, closed):
                made.interrupt()
                raise
            finally:
                handler.over()
        finally:
            made.stop()
    if made.failure is not None:
        raise made.failure


def print_line(name: str, text: str) -> None:
    """Print a line as `syncline run` does: that of a worker on stdout, others on stderr."""
    if name == "syncline":
        say(f"syncline: {text}")
    elif name.startswith("w"):
        print(f"[{name}] {text}", flush=True)
    else:
        say(f"[{name}] {text}")


def text_of(value: object) -> str:
    """A setting as on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _may_be_gradients(plan: Plan) -> bool:
    """Whether the mode is still open: the program may choose another one."""
    return plan.strategy.mode is Mode.GRADIENTS and "mode" not in plan.settings


def _folder_of_program() -> str:
    """The folder of the program, in which its modules lie."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return "" if main is None else str(Path(main).resolve().parent)
