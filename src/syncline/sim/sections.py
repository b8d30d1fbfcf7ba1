"""The format of an experiment file: one struct per section. Unknown keys are refused."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from syncline.errors import UsageError
from syncline.strategies.table import DEFAULT, strategy_class

MOST_BYTES = 16 << 20
"""The size of the largest experiment file; a device such as /dev/zero has no end."""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base class of all sections."""


class ComputeSection(Section, frozen=True):
    trace: str | None = None
    mean: float | None = None
    sigma: float | None = None
    straggle: float | None = None
    factor: float | None = None


class ClusterSection(Section, frozen=True):
    workers: int
    compute: ComputeSection = ComputeSection()
    colocated: bool = False


class NetworkSection(Section, frozen=True):
    bandwidth: str | None = None
    latency: str | float | None = None
    apply: str | None = None
    handling: str | float | None = None
    turn: str | None = None
    delay_cost: str | float | None = None


class ModelSection(Section, frozen=True):
    parameters: int | None = None
    layers: str | None = None
    recipe: str | None = None
    data: str | None = None
    batch: int | None = None
    optimizer: str | None = None
    validation: int | None = None


class StrategySection(Section, frozen=True):
    """The settings of every strategy; `strategy_section` adds those of a particular one."""

    kind: str = DEFAULT
    servers: int | None = None
    overlap: str = "none"
    central: bool = False


@lru_cache
def strategy_section(kind: str) -> type[StrategySection]:
    """Make the section for the strategy of this name."""
    strategy = strategy_class(kind, "strategy.kind")
    settings = [
        (key, of, strategy.defaults[key]) if key in strategy.defaults else (key, of | None, None)
        for key, of in strategy.setting_types().items()
    ]
    return msgspec.defstruct(
        "StrategySection", settings, bases=(StrategySection,), frozen=True, forbid_unknown_fields=True
    )  # type: ignore[return-value]


class DispatchSection(Section, frozen=True):
    rule: str = "uniform"


class StopSection(Section, frozen=True):
    updates: int | None = None
    seconds: float | None = None
    loss: float | None = None
    accuracy: float | None = None


class ExperimentFile(Section, frozen=True):
    cluster: ClusterSection
    iterations: int = 100
    seed: int = 0
    stop: StopSection = StopSection()
    network: NetworkSection | None = None
    model: ModelSection = ModelSection()
    strategy: StrategySection = msgspec.field(default_factory=lambda: strategy_section(DEFAULT)())
    faults: list[dict[str, Any]] = msgspec.field(default_factory=list)
    dispatch: DispatchSection | None = None


def read_toml(path: Path) -> dict[str, Any]:
    """Read the file as plain values."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UsageError(str(path), f"is too large for an experiment file; use at most {MOST_BYTES >> 20} MiB")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise UsageError(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(str(path), "is not a text file") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(str(path), f"is not valid TOML: {error}") from None
    except ValueError:  # Python reads integers of at most 4,300 digits
        raise UsageError(str(path), "holds a number with too many digits") from None
    except RecursionError:
        raise UsageError(str(path), "is nested too deeply") from None


def read_sections(data: Mapping[str, Any]) -> ExperimentFile:
    """Convert plain values to sections and check their types; an error names the key and the expected type."""
    said = data.get("strategy")
    kind = said.get("kind", DEFAULT) if isinstance(said, dict) else DEFAULT
    section = strategy_section(kind) if isinstance(kind, str) else StrategySection
    others = {key: value for key, value in data.items() if key != "strategy"}
    try:
        file = msgspec.convert(others, ExperimentFile)
        found = msgspec.convert({"strategy": {} if said is None else said}, _within(section))
        return msgspec.structs.replace(file, strategy=found.strategy)
    except msgspec.ValidationError as error:
        refuses = strategy_class(kind, "strategy.kind").refuses if isinstance(kind, str) else {}
        raise _explained(str(error), section, refuses) from None


@lru_cache
def _within(section: type[StrategySection]) -> Any:
    """A struct that holds only this section, so that an error message contains the section's path."""
    return msgspec.defstruct("StrategyFile", [("strategy", section)], frozen=True)


def overlay(data: dict[str, Any], key: str, value: Any) -> None:
    """Set the value of a dotted key."""
    *sections, last = key.split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise UsageError(section, "must be a section")
    data[last] = value


_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`(?: - at `\$\.?(.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `([^`]*)`(?: - at `\$\.?(.*)`)?")
_WRONG = re.compile(r"Expected `([^`]*)`, got `([^`]*)` - at `\$\.?(.*)`")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a section",
    "array": "a list",
    "datetime": "a date",
}
SECTIONS: dict[str, type[Section]] = {
    "": ExperimentFile,
    "cluster": ClusterSection,
    "cluster.compute": ComputeSection,
    "network": NetworkSection,
    "model": ModelSection,
    "dispatch": DispatchSection,
    "stop": StopSection,
}


def _explained(words: str, strategy: type[StrategySection], refuses: Mapping[str, str]) -> UsageError:
    """Turn the text of a msgspec error into a `UsageError`; `refuses`: why the strategy has no such key."""
    if found := _UNKNOWN.fullmatch(words):
        if found[2] == "strategy" and found[1] in refuses:
            return UsageError(f"strategy.{found[1]}", refuses[found[1]])
        section = strategy if found[2] == "strategy" else SECTIONS[found[2] or ""]
        return _unknown(found[1], found[2] or "", section)
    if found := _MISSING.fullmatch(words):
        return UsageError(".".join(filter(None, (found[2], found[1]))), "is missing; this key is required")
    if found := _WRONG.fullmatch(words):
        return UsageError(found[3], f"must be {_in_words(found[1])}, not {_in_words(found[2])}")
    return UsageError("the file", words)


def _in_words(types: str) -> str:
    return " or ".join(_WORDS.get(word, word) for word in types.split(" | ") if word != "null")


def _unknown(key: str, section: str, struct: type[Section]) -> UsageError:
    known = struct.__struct_fields__
    close = get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose one of: {', '.join(known)}"
    return UsageError(".".join(filter(None, (section, key))), f"there is no such key; {hint}")
