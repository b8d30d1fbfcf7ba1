"""Changes of the sync model and the release during a run: their text form, and the check whether they are possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from syncline.errors import UsageError
from syncline.spec import one_of, parse, sendable, write
from syncline.strategies.protocol import Strategy
from syncline.sync import Release

CHANGEABLE = ("sync", "release")


def words_of(sync: object, release: object, others: Iterable[str] = ()) -> tuple[tuple[str, ...], str]:
    """The requested models and the release as text; one model for all servers, one for each, or none (no change).

    `sync`: a model, its text, or a list of them. `others`: other requested settings, which cannot be changed.
    """
    for key in others:
        raise UsageError(key, f"cannot change during a run; only {' and '.join(CHANGEABLE)} can")
    if sync is None and release is None:
        raise UsageError("sync", 'there is nothing to change; give sync="ssp:3", release="soft", or both')
    models = [] if sync is None else list(sync) if isinstance(sync, Sequence) and not isinstance(sync, str) else [sync]
    if sync is not None and not models:
        raise UsageError("sync", "the list is empty; give one model for all servers, or one for each")
    return tuple(map(_word, models)), "" if release is None else one_of(Release, str(release), "release").value


def topology_words(topology: str) -> str:
    """The text of a topology; the edges in a file are read now, because other hosts do not have the file."""
    if not topology.strip():
        raise UsageError("topology", "is empty; use chain, star, twin, tree:D, or a list of edges (0-1 1-2)")
    path = Path(topology)
    try:
        found = path.read_text() if path.is_file() else topology
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("topology", f"cannot read {topology}: {error}") from None
    lines = (line.partition("#")[0].split() for line in found.splitlines())
    return " ".join(f"{line[0]}-{line[1]}" if _is_pair(line) else " ".join(line) for line in lines).strip()


def merge_numbers(nodes: Iterable[int]) -> tuple[int, ...]:
    """The numbers of the nodes to merge, each once; the first one takes the place of all."""
    found = tuple(dict.fromkeys(nodes))
    if len(found) < 2 or any(type(each) is not int or each < 0 for each in found):
        raise UsageError("merge", "must name at least two nodes by their numbers, for example 1,4")
    return found


def _is_pair(words: Sequence[str]) -> bool:
    """Is this line of a file an edge, written as two numbers?"""
    return len(words) == 2 and all(word.isdecimal() for word in words)


def _word(model: object) -> str:
    """The text of a model, from which other processes can rebuild it."""
    if isinstance(model, str):
        return str(write(parse("sync", model)))
    return sendable("sync", model)


def check_change(sync: Sequence[str], release: str, strategy: Strategy, workers: int, servers: int) -> None:
    """Raise `UsageError` if a run of this strategy, with this many workers and servers, cannot make this change."""
    if len(sync) not in (0, 1, servers):
        raise UsageError("sync", f"has {len(sync)} models for {servers} servers; give one for all, or one for each")
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


def written(sync: Sequence[str]) -> str:
    """These models as the text of the setting `sync`: one model if all are the same."""
    return " ".join(sync if len(set(sync)) > 1 else sync[:1])
