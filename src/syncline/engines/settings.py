"""The settings of a run as words, and the strategy that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from syncline import units
from syncline.engines.frames import PAYLOAD
from syncline.errors import UsageError
from syncline.layout import VALUE_BYTES
from syncline.spec import parse, write
from syncline.strategy import Mode, ServerStrategy, check, settle_mode
from syncline.sync import Release

DEFAULTS = {
    "sync": "bsp",
    "release": "lazy",
    "gate": "always",
    "codec": "dense",
    "reply_codec": "dense",
    "placement": "elastic",
    "bucket": "1MiB",
    "seed": "0",
    "on_nan": "stop",
}
ON_NAN = ("stop", "skip")
"""What a worker does with an update that holds NaN: end the run, or leave that update out."""

KEYS = (*DEFAULTS, "mode", "rule")

Choice = TypeVar("Choice", bound=StrEnum)


def settle(layers: Mapping[str, Mapping[str, str]], servers: int, workers: int) -> dict[str, tuple[str, str]]:
    """Every setting and where it came from: of `layers` the first that has a word for it. Nonsense is refused."""
    found: dict[str, tuple[str, str]] = {key: (word, "default") for key, word in DEFAULTS.items()}
    for origin, words in reversed(list(layers.items())):
        if "rule" in words:  # who optimises is one question in two words: a new answer drops what contradicts it
            found.pop("mode", None)
        if words.get("mode", Mode.RULE.value) != Mode.RULE.value:
            found.pop("rule", None)
        for key, word in words.items():
            if key not in KEYS:
                raise UsageError(key, f"is no setting; there are {', '.join(KEYS)}")
            found[key] = (word, origin)
    if not found["seed"][0].isdecimal():
        raise UsageError("seed", f"{found['seed'][0]!r} is no seed; a whole number from 0 up")
    if found["on_nan"][0] not in ON_NAN:
        raise UsageError("on_nan", f"{found['on_nan'][0]!r} is none of {', '.join(ON_NAN)}")
    strategy = strategy_of({key: word for key, (word, _) in found.items()}, servers)
    check(strategy, workers)
    found.setdefault("mode", (strategy.mode.value, "default"))
    found.setdefault("rule", (write(strategy.rule), "default"))
    return found


def strategy_of(words: Mapping[str, str], servers: int) -> ServerStrategy:
    """The strategy that these words describe; `sync` has one model for all servers, or one for each, with blanks."""
    models = [parse("sync", word) for word in words["sync"].split()]
    if len(models) == 1:
        models *= servers
    if len(models) != servers:
        raise UsageError("sync", f"names {len(models)} models for {servers} servers: one for all, or one each")
    mode, rule = settle_mode(
        _one_of(Mode, words["mode"], "mode") if "mode" in words else None,
        parse("rule", words["rule"]) if "rule" in words else None,
        models,
    )
    return ServerStrategy(
        tuple(models),
        _one_of(Release, words["release"], "release"),
        mode,
        rule,
        parse("gate", words["gate"]),
        parse("codec", words["codec"]),
        parse("placement", words["placement"]),
        _bucket_values(words["bucket"]),
        parse("codec", words["reply_codec"], "reply_codec"),
    )


def strategy_in(words: Mapping[str, str]) -> ServerStrategy:
    """The strategy of a run that has begun: one model for all servers, or one for each that it began with."""
    return strategy_of(words, len(words["sync"].split()))


def _bucket_values(word: str) -> int:
    """How many values a bucket may have: it has at least one, and no more than a frame carries."""
    size = units.size(word, "bucket")
    if size > PAYLOAD:
        raise UsageError("bucket", f"{word!r} is more than a message carries; at most {PAYLOAD >> 30}GiB")
    return max(size // VALUE_BYTES, 1)


def _one_of(choices: type[Choice], word: str, option: str) -> Choice:
    try:
        return choices(word)
    except ValueError:
        raise UsageError(option, f"{word!r} is none of {', '.join(each.value for each in choices)}") from None
