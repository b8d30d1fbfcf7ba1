"""The settings of a run as text, and the strategy that they define."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from syncline.errors import UsageError
from syncline.strategies.protocol import Strategy
from syncline.strategies.table import DEFAULT, read_strategy, strategy_class
from syncline.units import MOST_SEED, whole

RUN_DEFAULTS = {"strategy": DEFAULT, "seed": "0", "on_nan": "stop"}
"""The settings that every run has, whatever its strategy."""

ON_NAN = ("stop", "skip")
"""What a worker does with an update that contains NaN: end the run, or skip the update."""

FITTED = "the lane"
"""The origin of settings that were chosen to fit the hosts; they are ignored if the strategy does not have them."""

Settled = dict[str, tuple[str, str]]
"""Every setting as (text, origin)."""


def defaults(kind: str = DEFAULT) -> dict[str, str]:
    """The default settings of a run with this strategy."""
    return {**RUN_DEFAULTS, "strategy": kind, **strategy_class(kind).defaults}


def known_settings(kind: str = DEFAULT) -> tuple[str, ...]:
    """The names of the settings of a run with this strategy."""
    return (*RUN_DEFAULTS, *strategy_class(kind).settings())


def settle(
    layers: Mapping[str, Mapping[str, str]], servers: int | None, workers: int, *, joinable: bool = False
) -> Settled:
    """Every setting with its origin: the first of `layers` that has it wins. `UsageError` if they cannot work.

    `joinable`: workers on other hosts can join the run.
    """
    spread = {origin: _spread(words) for origin, words in layers.items()}
    kind, origin = next(((words["strategy"], each) for each, words in spread.items() if "strategy" in words), ("", ""))
    cls = strategy_class(kind or DEFAULT)
    found: Settled = {key: (word, "default") for key, word in defaults(kind or DEFAULT).items()}
    for each, words in reversed(list(spread.items())):
        for key in cls.superseded(words):
            found.pop(key, None)
        meant = words.get("strategy", kind if each == origin else DEFAULT) == (kind or DEFAULT)
        for key, word in words.items():
            if _is_setting(cls, key, word, must=meant and each != FITTED):
                found[key] = (word, each)
    _check_run(found)
    strategy = strategy_of({key: word for key, (word, _) in found.items()}, servers)
    strategy.check(max(workers, strategy.least_workers) if joinable else workers)
    for key, word in {"mode": strategy.mode.value, **strategy.words()}.items():
        found.setdefault(key, (word, "default"))
    return found


def _spread(words: Mapping[str, str]) -> dict[str, str]:
    """Expand `strategy="name:key=value"` into several settings; explicit settings override those in the text."""
    return {**read_strategy(words["strategy"]), **_without(words, "strategy")} if "strategy" in words else dict(words)


def _without(words: Mapping[str, str], key: str) -> dict[str, str]:
    return {each: word for each, word in words.items() if each != key}


def _is_setting(cls: type[Strategy], key: str, word: str, *, must: bool) -> bool:
    """Whether this is a setting of this strategy or of every run. `must`: raise `UsageError` if it is not."""
    if key in RUN_DEFAULTS or key in cls.settings():
        return True
    if key == "mode":
        only = cls.of({}).mode.value
        if word != only:
            raise UsageError(key, f"strategy {cls.name()!r} supports only mode {only!r}, not {word!r}")
        return False
    if must and key in cls.refuses:
        raise UsageError(key, cls.refuses[key])
    if must:
        raise UsageError(key, f"is not a setting; the settings are {', '.join((*RUN_DEFAULTS, *cls.settings()))}")
    return False


def _check_run(found: Settled) -> None:
    seed = found["seed"][0]
    if not (seed.isascii() and seed.isdecimal() and len(seed) < 20):
        raise UsageError("seed", f"{seed!r} is not a seed; use an integer from 0 to {MOST_SEED}")
    whole(int(seed), "seed", 0, MOST_SEED)
    if found["on_nan"][0] not in ON_NAN:
        raise UsageError("on_nan", f"{found['on_nan'][0]!r} is not one of {', '.join(ON_NAN)}")


def contradiction(wishes: Mapping[str, str], words: Mapping[str, str], stronger: Iterable[str]) -> str | None:
    """The first setting in `wishes` (what a worker asks for) that differs from `words`; None if all agree.

    Settings in `stronger` have an origin of higher priority and are not compared. The comparison is of texts: parsing
    the text of another process could import a class that it names.
    """
    settled = set(stronger)
    if settled & {"mode", "rule"}:
        settled |= {"mode", "rule"}
    if "strategy" in settled:
        return None
    return next((key for key, wish in wishes.items() if key not in settled and wish != words.get(key)), None)


def setting_word(key: str, value: object) -> str:
    """The value of a setting as text; a list has one value for each server, without spaces."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, list):
        return str(value)
    for word in map(str, value):
        if len(word.split()) != 1:
            raise UsageError(key, f"{word!r} is not one value; a list has one value for each server, without spaces")
    return " ".join(map(str, value))


def strategy_in(words: Mapping[str, str]) -> Strategy:
    """The strategy of a run, from its complete settings."""
    return strategy_class(words.get("strategy", DEFAULT)).of(words)


def strategy_of(words: Mapping[str, str], servers: int | None) -> Strategy:
    """The strategy with these settings and this many servers; None: the number that the settings give."""
    return strategy_in(words).with_servers(servers)
