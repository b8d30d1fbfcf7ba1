"""How `syncline run --config` reads an experiment file: the strategy, the seed and the number of workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = ("strategy", "seed", "cluster")
"""The keys that a real run uses; of `cluster` it uses only `workers`."""

SIMULATED = ("overlap", "central")
"""The keys of `strategy` that only the simulator uses. A real program decides itself what overlaps, and a real run has
no central scheduler."""


@dataclass(frozen=True)
class Config:
    """The settings of a file; None, or a missing key, means that the file does not set it."""

    workers: int | None = None
    servers: int | None = None
    settings: dict[str, str] | None = None
    ignored: tuple[str, ...] = ()
    """The keys in the file that only the simulator uses."""


def read_config(path: Path | None) -> Config:
    """Read and check a file; without a file, nothing is set."""
    if path is None:
        return Config()
    from syncline.engines.launch.plan import MOST_PROCESSES
    from syncline.sim.sections import read_sections, read_toml
    from syncline.strategies.settings import setting_word
    from syncline.units import whole

    data = read_toml(path)
    file = read_sections(data)
    written = dict(data.get("strategy", {}))
    for key, count in (("cluster.workers", file.cluster.workers), ("strategy.servers", file.strategy.servers)):
        if count is not None:
            whole(count, key, 1, MOST_PROCESSES)
    settings = {
        key: setting_word(key, each) for key, each in written.items() if key not in ("kind", "servers", *SIMULATED)
    }
    if "kind" in written:
        settings["strategy"] = file.strategy.kind
    if "seed" in data:
        settings["seed"] = str(file.seed)
    sync = written.get("sync")
    servers = len(sync) if file.strategy.servers is None and isinstance(sync, list) else file.strategy.servers
    ignored = [key for key in data if key not in HERE]
    ignored += [f"cluster.{key}" for key in data["cluster"] if key != "workers"]
    ignored += [f"strategy.{key}" for key in SIMULATED if key in written]
    return Config(file.cluster.workers, servers, settings, tuple(ignored))
