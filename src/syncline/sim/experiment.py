"""Turns an experiment file into a scenario and a model, and records where every setting came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from syncline import units
from syncline.errors import UsageError
from syncline.rules import Rule, optimises
from syncline.sim.compute import Compute, Lognormal, read_trace
from syncline.sim.dispatch import Dispatch, parse_dispatch
from syncline.sim.faults import read_faults
from syncline.sim.network import Links
from syncline.sim.overlap import Overlap
from syncline.sim.scenario import Cluster, Scenario
from syncline.sim.sections import (
    ClusterSection,
    ExperimentFile,
    ModelSection,
    NetworkSection,
    StrategySection,
    overlay,
    read_sections,
    read_toml,
)
from syncline.sim.stop import StopAt
from syncline.spec import one_of, parse
from syncline.strategies.protocol import Strategy
from syncline.strategies.settings import setting_word
from syncline.strategies.table import strategy_class

DEFAULT_PARAMETERS = 1_000_000
MOST_PARAMETERS = 10**12
DEFAULT_BATCH = 32


@dataclass(frozen=True)
class Setting:
    """One setting, its value as you would write it in the file, and where the value came from."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True)
class ModelChoice:
    """A recipe by name; or made-up updates, for a list of layers by name or for `parameters` parameters."""

    parameters: int
    recipe: str | None
    batch: int
    optimizer: Rule | None
    data: Path | None = None
    """The folder of a recipe that reads files."""
    layers: str | None = None
    validation: int | None = None
    """How many of a recipe's training examples are kept back for validation."""


@dataclass(frozen=True)
class Experiment:
    scenario: Scenario
    model: ModelChoice
    settings: tuple[Setting, ...]
    inputs: tuple[Path, ...]
    """The files that it was read from."""


def read_experiment(path: Path, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Read and check a file; `overrides` (dotted keys) take precedence over the file."""
    experiment = experiment_of(read_toml(path), path.parent, overrides)
    return replace(experiment, inputs=(path, *experiment.inputs))


def experiment_of(data: dict[str, Any], folder: Path, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Check the values of an experiment file in this folder; this writes the overrides into `data`."""
    written = set(_flat(data))
    _settle_length(data, written, set(overrides or ()))
    for key, value in (overrides or {}).items():
        overlay(data, key, value)
    file = read_sections(data)
    try:
        scenario = _scenario(file, folder)
        scenario.check()
    except UsageError as error:
        if error.option in file.strategy.__struct_fields__:
            raise UsageError(f"strategy.{error.option}", error.problem) from None
        raise
    model = _model(file.model, folder)
    settings = _settings(file, scenario, model, written, set(overrides or ()))
    trace = file.cluster.compute.trace
    inputs = () if trace is None else (folder / trace,)
    return Experiment(scenario, model, settings, inputs if model.data is None else (*inputs, model.data / "mnist.npz"))


_LENGTHS = {"stop.updates", "stop.seconds"}
"""The keys that replace `iterations`."""


def _settle_length(data: dict[str, Any], written: set[str], overridden: set[str]) -> None:
    """Refuse `iterations` beside what replaces it; but on the command line each replaces the other in the file."""
    for keys in (written - overridden if not overridden & {"iterations", *_LENGTHS} else set(), overridden):
        if "iterations" in keys and keys & _LENGTHS:
            raise UsageError(sorted(keys & _LENGTHS)[0], "replaces iterations; remove one of them")
    if overridden & _LENGTHS:
        data.pop("iterations", None)
    if "iterations" in overridden and isinstance(data.get("stop"), dict):
        data["stop"] = {key: value for key, value in data["stop"].items() if f"stop.{key}" not in _LENGTHS}


def _scenario(file: ExperimentFile, folder: Path) -> Scenario:
    faults = read_faults(file.faults, file.cluster.workers)
    if file.dispatch is not None:
        _refuse_with_dispatch(file)
    shape = Scenario(Cluster(file.cluster.workers), iterations=file.iterations, faults=faults)
    compute = _compute(file.cluster, folder, shape.worker_numbers, file.iterations)
    links, apply = _links(file.network)
    return Scenario(
        cluster=Cluster(
            file.cluster.workers,
            compute,
            links,
            apply,
            file.cluster.colocated,
            _handling(file.network),
            _delay_cost(file.network),
        ),
        strategy=_strategy(file.strategy),
        iterations=file.iterations,
        seed=file.seed,
        faults=faults,
        dispatch=_dispatch(file),
        overlap=one_of(Overlap, file.strategy.overlap, "overlap"),
        central=file.strategy.central,
        stop=_stop(file),
    )


def _stop(file: ExperimentFile) -> StopAt:
    stop = StopAt(file.stop.updates, file.stop.seconds, file.stop.loss, file.stop.accuracy)
    if stop.has_target and file.model.recipe is None:
        key = "loss" if stop.loss is not None else "accuracy"
        raise UsageError(f"stop.{key}", 'needs a model that is trained; set model.recipe, e.g. "digits-mlp"')
    return stop


def _refuse_with_dispatch(file: ExperimentFile) -> None:
    for key, there in (("network", file.network is not None), ("faults", bool(file.faults))):
        if there:
            raise UsageError(key, "cannot be used with [dispatch], which has no clock; remove one of them")


def _dispatch(file: ExperimentFile) -> Dispatch | None:
    return None if file.dispatch is None else parse_dispatch(file.dispatch.rule)


def _compute(cluster: ClusterSection, folder: Path, workers: int, iterations: int) -> Compute:
    section = cluster.compute
    if section.trace is not None:
        for key in ("mean", "sigma", "straggle", "factor"):
            if getattr(section, key) is not None:
                raise UsageError(f"cluster.compute.{key}", "cannot be used with a trace; remove one of them")
        return read_trace(folder / section.trace, workers, iterations, "cluster.compute.trace")
    default = Lognormal()
    for key, other in (("straggle", "factor"), ("factor", "straggle")):
        if getattr(section, key) is not None and getattr(section, other) is None:
            raise UsageError(
                f"cluster.compute.{key}", f"has no effect without {other}; set cluster.compute.{other} too"
            )
    return Lognormal(
        _or(section.mean, default.mean),
        _or(section.sigma, default.sigma),
        _or(section.straggle, default.straggle),
        _or(section.factor, default.factor),
    )


def _links(network: NetworkSection | None) -> tuple[Links | None, float | None]:
    if network is None:
        return None, None
    apply = None if network.apply is None else units.rate(network.apply, "network.apply")
    turn = None if network.turn is None else units.size(network.turn, "network.turn")
    if turn == 0:
        raise UsageError("network.turn", f"must be at least 1 byte, not {network.turn!r}")
    if turn is not None and network.bandwidth is None:
        raise UsageError("network.turn", "has no effect without a bandwidth; set network.bandwidth as well")
    if network.bandwidth is None and network.latency is None:
        return None, apply
    free = Links()
    bandwidth = free.bandwidth if network.bandwidth is None else units.rate(network.bandwidth, "network.bandwidth")
    latency = free.latency if network.latency is None else units.seconds(network.latency, "network.latency")
    return Links(bandwidth, latency, turn), apply


def _handling(network: NetworkSection | None) -> float:
    if network is None or network.handling is None:
        return 0.0
    return units.seconds(network.handling, "network.handling")


def _delay_cost(network: NetworkSection | None) -> float:
    if network is None or network.delay_cost is None:
        return 0.0
    return units.seconds(network.delay_cost, "network.delay_cost")


def _strategy(section: StrategySection) -> Strategy:
    strategy = strategy_class(section.kind, "strategy.kind")
    said = {key: getattr(section, key) for key in strategy.settings()}
    words = {key: setting_word(key, value) for key, value in said.items() if value is not None}
    servers = section.servers
    for key, value in said.items():
        if isinstance(value, list) and len(value) != (max(len(value), 1) if servers is None else servers):
            problem = f"lists {len(value)} models for {servers or 1} servers; give one for each, or one for all"
            raise UsageError(f"strategy.{key}", problem)
    made = strategy.of(words)
    if servers and not made.fitted(1).servers:
        raise UsageError("strategy.servers", f"strategy {made.name()!r} has no servers; leave it out")
    return made.with_servers(servers)


def _model(section: ModelSection, folder: Path) -> ModelChoice:
    for key, with_one, there in (
        ("parameters", "a recipe", section.recipe is not None),
        ("parameters", "a list of layers", section.layers is not None),
        ("layers", "a recipe", section.recipe is not None),
    ):
        if there and getattr(section, key) is not None:
            raise UsageError(f"model.{key}", f"cannot be used with {with_one}; remove one of them")
    if section.recipe is None:
        for key in ("batch", "optimizer", "data", "validation"):
            if getattr(section, key) is not None:
                raise UsageError(f"model.{key}", 'needs a recipe, e.g. recipe = "digits-mlp"')
    parameters = units.whole(_or(section.parameters, DEFAULT_PARAMETERS), "model.parameters", 1, MOST_PARAMETERS)
    batch = units.whole(_or(section.batch, DEFAULT_BATCH), "model.batch", 1)
    if section.validation is not None:
        units.whole(section.validation, "model.validation", 1)
    optimizer = None if section.optimizer is None else parse("optimizer", section.optimizer, "model.optimizer")
    if optimizer is not None and not optimises(optimizer):
        raise UsageError(
            "model.optimizer", f"{section.optimizer!r} is not an optimizer; use one, such as sgd:0.1 or momentum:0.1"
        )
    data = None if section.data is None else folder / section.data
    return ModelChoice(parameters, section.recipe, batch, optimizer, data, section.layers, section.validation)


# Settings and where they came from.


def _settings(
    file: ExperimentFile, scenario: Scenario, model: ModelChoice, written: set[str], overridden: set[str]
) -> tuple[Setting, ...]:
    found = []
    for key, value in (_flat(_plain(file)) | _effective(file, scenario, model)).items():
        origin = "command line" if key in overridden else "file" if key in written else "default"
        if value is not None:
            found.append(Setting(key, str(value).lower() if value is True or value is False else str(value), origin))
    for number, fault in enumerate(file.faults):
        words = " ".join(f"{key}={value}" for key, value in fault.items() if key != "kind")
        found.append(Setting(f"faults[{number}]", f"{fault['kind']} {words}", "file"))
    return tuple(found)


def _effective(file: ExperimentFile, scenario: Scenario, model: ModelChoice) -> dict[str, Any]:
    """The values that were chosen for the settings that the file leaves open."""
    strategy, compute = scenario.strategy, scenario.cluster.compute
    words = strategy.words()
    found: dict[str, Any] = {
        "strategy.servers": strategy.fitted(scenario.cluster.workers).servers,
        "strategy.mode": strategy.mode.value,
        **{f"strategy.{key}": words[key] for key in words if getattr(file.strategy, key) is None},
        "model.optimizer": file.model.optimizer or ("the recipe's" if model.recipe else None),
        "model.batch": model.batch if model.recipe else None,
        "model.parameters": None if model.recipe or model.layers else model.parameters,
        "faults": None,
        **({"iterations": None} if scenario.stop.replaces_iterations else {}),
    }
    if file.network is None and file.dispatch is None:
        found["network"] = "free: messages take no time"
    if isinstance(compute, Lognormal) and file.dispatch is None:
        found |= {f"cluster.compute.{field.name}": getattr(compute, field.name) for field in fields(compute)}
    return found


def _plain(value: Any) -> Any:
    fields = getattr(value, "__struct_fields__", None)
    return value if fields is None else {name: _plain(getattr(value, name)) for name in fields}


def _flat(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{before}{key}."))
        elif value != []:
            found[before + key] = value
    return found


# Small helpers.

T = TypeVar("T")


def _or(value: T | None, default: T) -> T:
    return default if value is None else value
