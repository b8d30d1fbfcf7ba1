"""The experiment file as it is written: one struct per section, unknown keys refused."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from syncline.errors import UsageError


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all sections."""


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
    kind: str = "server"
    servers: int | None = None
    sync: str | list[str] = "bsp"
    release: str = "lazy"
    mode: str | None = None
    rule: str | None = None
    gate: str = "always"
    placement: str = "elastic"
    codec: str = "dense"
    reply_codec: str = "dense"
    bucket: str = "1MiB"
    overlap: str = "none"
    central: bool = False


class DispatchSection(Section, frozen=True):
    rule: str = "uniform"


class ExperimentFile(Section, frozen=True):
    cluster: ClusterSection
    iterations: int = 100
    seed: int = 0
    network: NetworkSection | None = None
    model: ModelSection = ModelSection()
    strategy: StrategySection = StrategySection()
    faults: list[dict[str, Any]] = msgspec.field(default_factory=list)
    dispatch: DispatchSection | None = None


def read_toml(path: Path) -> dict[str, Any]:
    """The file as plain values."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise UsageError(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(str(path), "is not a text file") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(str(path), f"is not valid TOML: {error}") from None


def read_sections(data: Mapping[str, Any]) -> ExperimentFile:
    """The sections, with types checked; an error names the key and what would be right."""
    try:
        return msgspec.convert(data, ExperimentFile)
    except msgspec.ValidationError as error:
        raise _explained(str(error)) from None


def overlay(data: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key in plain values."""
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
    "strategy": StrategySection,
    "dispatch": DispatchSection,
}


def _explained(words: str) -> UsageError:
    """msgspec's words in ours."""
    if found := _UNKNOWN.fullmatch(words):
        return _unknown(found[1], found[2] or "")
    if found := _MISSING.fullmatch(words):
        return UsageError(".".join(filter(None, (found[2], found[1]))), "is missing, and has no default")
    if found := _WRONG.fullmatch(words):
        return UsageError(found[3], f"must be {_in_words(found[1])}, not {_in_words(found[2])}")
    return UsageError("the file", words)


def _in_words(types: str) -> str:
    return " or ".join(_WORDS.get(word, word) for word in types.split(" | ") if word != "null")


def _unknown(key: str, section: str) -> UsageError:
    known = SECTIONS[section].__struct_fields__
    close = get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"one of: {', '.join(known)}"
    return UsageError(".".join(filter(None, (section, key))), f"there is no such key; {hint}")
