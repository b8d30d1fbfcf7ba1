"""The settings of a run as words, and the strategy that they describe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from syncline import units
from syncline.errors import UsageError
from syncline.messages import PAYLOAD
from syncline.spec import write
from syncline.strategies.server import strategy
from syncline.strategies.server.strategy import Mode, ServerStrategy, check, part_of

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
    settled = strategy_of({key: word for key, (word, _) in found.items()}, servers)
    check(settled, workers)
    found.setdefault("mode", (settled.mode.value, "default"))
    found.setdefault("rule", (write(settled.rule), "default"))
    return found


def contradiction(wishes: Mapping[str, str], words: Mapping[str, str], stronger: Iterable[str]) -> str | None:
    """The first setting for which a worker asks for something else, unless somebody stronger has said it.

    Words are compared as words: a stranger's are not read as parts, since that may import what they name.
    """
    settled = set(stronger)
    if settled & {"mode", "rule"}:
        settled |= {"mode", "rule"}
    return next((key for key, wish in wishes.items() if key not in settled and wish != words.get(key)), None)


def strategy_of(words: Mapping[str, str], servers: int) -> ServerStrategy:
    """The strategy that these words describe; `sync` has one model for all servers, or one for each, with blanks."""
    models = [part_of("sync", word) for word in words["sync"].split()]
    if len(models) == 1:
        models *= servers
    if len(models) != servers:
        raise UsageError("sync", f"names {len(models)} models for {servers} servers: one for all, or one each")
    if units.size(words["bucket"], "bucket") > PAYLOAD:
        raise UsageError("bucket", f"{words['bucket']!r} is more than a message carries; at most {PAYLOAD >> 30}GiB")
    return strategy.strategy_of({key: words[key] for key in strategy.SETTINGS if key in words}, models)


def strategy_in(words: Mapping[str, str]) -> ServerStrategy:
    """The strategy of a run that has begun: one model for all servers, or one for each that it began with."""
    return strategy_of(words, len(words["sync"].split()))
