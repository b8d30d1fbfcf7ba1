"""The table of strategies by name. No other module outside of the strategies' own packages names them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from syncline.errors import UsageError
from syncline.spec import arguments, own_class
from syncline.strategies.exchange.strategy import ExchangeStrategy
from syncline.strategies.protocol import Strategy
from syncline.strategies.server.strategy import ServerStrategy
from syncline.strategies.tree.strategy import TreeStrategy

STRATEGIES: Mapping[str, type[Strategy]] = {
    each.kind: each for each in (ServerStrategy, ExchangeStrategy, TreeStrategy)
}

DEFAULT = ServerStrategy.kind


def strategy_class(kind: str, option: str = "strategy") -> type[Strategy]:
    """The strategy with this name, or the user's class at this dotted path."""
    if kind in STRATEGIES:
        return STRATEGIES[kind]
    if "." not in kind:
        close = get_close_matches(kind, STRATEGIES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        known = ", ".join(STRATEGIES)
        raise UsageError(
            option, f"there is no strategy {kind!r}; {hint}use one of {known}, or the dotted path of your own class"
        )
    found = own_class(kind, option)
    if not issubclass(found, Strategy):
        raise UsageError(option, f"{kind} is not a strategy; derive it from syncline.Strategy")
    return found


def read_strategy(text: str, option: str = "strategy") -> dict[str, str]:
    """The settings in a text, including `strategy`: `name`, `name:value,...` or `name:key=value,...`."""
    kind, colon, rest = text.strip().partition(":")
    keys = strategy_class(kind, option).settings()
    if colon and not rest.strip():
        raise UsageError(option, f"{text!r}: there is no value after the colon; leave the colon out")
    positional, named = arguments(rest, option, text)
    if len(positional) > len(keys):
        raise UsageError(
            option, f"{text!r} has more values than {kind} has settings; the settings are {', '.join(keys) or 'none'}"
        )
    words = dict(zip(keys, positional, strict=False))
    for key, word in named.items():
        if key not in keys or key in words:
            problem = "is given twice" if key in words else f"is not a setting of {kind}"
            raise UsageError(option, f"{text!r}: {key!r} {problem}; the settings are {', '.join(keys) or 'none'}")
        words[key] = word
    return {"strategy": kind, **words}
