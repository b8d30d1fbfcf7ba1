"""A change of the sync model while a run is under way: what is asked for, in words, and whether it makes sense."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from syncline.errors import UsageError
from syncline.spec import one_of, parse, write
from syncline.strategies.protocol import Strategy
from syncline.sync import Release

CHANGEABLE = ("sync", "release")


def words_of(sync: object, release: object, others: Iterable[str] = ()) -> tuple[tuple[str, ...], str]:
    """The models (one for all servers, one for each, or none: as they are) and the release as words.

    `sync`: a model, its text, or a list of them. `others`: settings that were asked for as well, and cannot be changed.
    """
    for key in others:
        raise UsageError(key, f"cannot be changed while the run is under way; {' and '.join(CHANGEABLE)} can")
    if sync is None and release is None:
        raise UsageError("sync", 'there is nothing to change; say sync="ssp:3", release="soft", or both')
    models = [] if sync is None else list(sync) if isinstance(sync, Sequence) and not isinstance(sync, str) else [sync]
    if sync is not None and not models:
        raise UsageError("sync", "the list is empty; name one model for all servers, or one for each")
    return tuple(map(_word, models)), "" if release is None else one_of(Release, str(release), "release").value


def _word(model: object) -> str:
    """A model as its text, which other processes read back."""
    if isinstance(model, str):
        return str(write(parse("sync", model)))
    word = str(write(model))
    if parse("sync", word) != model:
        raise UsageError("sync", f"{model!r} cannot be sent as a word: {word!r} is not it; make it a dataclass")
    return word


def check_change(sync: Sequence[str], release: str, strategy: Strategy, workers: int, servers: int) -> None:
    """`UsageError`: a run of this strategy, with so many workers and servers, cannot go on with this."""
    if len(sync) not in (0, 1, servers):
        raise UsageError("sync", f"names {len(sync)} models for {servers} servers: one for all, or one for each")
    settings = {"sync": " ".join(dict.fromkeys(sync))} if sync else {}
    if release:
        settings["release"] = release
    words = {**strategy.words(), "sync": "bsp"}
    alike = type(strategy).of({key: word for key, word in words.items() if key in strategy.settings()})
    count = len(dict.fromkeys(sync)) or None
    try:
        alike.with_servers(count).changed(settings, workers)
    except UsageError as error:
        raise UsageError("sync" if error.option == "mode" else error.option, error.problem) from None


def names_own_class(word: str) -> bool:
    """Does this text name a class outside of Syncline? To read it would import that."""
    return "." in word.partition(":")[0]


def written(sync: Sequence[str]) -> str:
    """These models as the setting `sync` has them: one word if all are the same."""
    return " ".join(sync if len(set(sync)) > 1 else sync[:1])
