"""The server strategy: its parts together, who optimises, and which combinations make no sense."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any, TypeVar

from syncline import units
from syncline.codecs import Codec, Dense
from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.gates import REAPPLY, Always, Gate
from syncline.layout import BUCKET_VALUES, VALUE_BYTES, Bucket, Layout, buckets
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.server.update_writer import is_plain
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.placement import Elastic, Placement
from syncline.rules import Add, Mean, Rule, optimises, reported
from syncline.spec import parse, write
from syncline.sync import Bsp, Drop, Release, Ssp, SyncModel

Choice = TypeVar("Choice", bound=StrEnum)

SETTINGS = ("codec", "reply_codec", "mode", "rule", "release", "gate", "placement", "bucket")
"""What is said of a strategy in words, beside its sync models."""


class Mode(StrEnum):
    """Who optimises: the workers on the round's mean gradient, each worker for itself, or the shards."""

    GRADIENTS = "gradients"
    CHANGES = "changes"
    RULE = "rule"


@dataclass(frozen=True)
class ServerStrategy:
    """Which parts a run of the server strategy is made of; `sync` has one model per server."""

    sync: tuple[SyncModel, ...] = (Bsp(),)
    release: Release = Release.LAZY
    mode: Mode = Mode.GRADIENTS
    rule: Rule = Mean()
    gate: Gate = Always()
    codec: Codec = Dense()
    placement: Placement = Elastic()
    bucket_values: int = BUCKET_VALUES
    reply_codec: Codec = Dense()

    @property
    def servers(self) -> int:
        return len(self.sync)

    def buckets(self, layout: Layout, ranges: Iterable[Bucket]) -> tuple[Bucket, ...]:
        """What one shard holds, cut into buckets; by table, if the gate chooses among tables."""
        return buckets(layout, ranges, self.bucket_values, bool(getattr(self.gate, "per_table", False)))

    @property
    def reply(self) -> Codec | None:
        """How parameters are written as changes; None: they go whole."""
        return None if is_plain(self.reply_codec) else self.reply_codec

    def terms(self, number: int, layout: Layout, draw: Draw) -> ShardTerms:
        """What the buckets of this shard have in common."""
        model = self.sync[number if number < len(self.sync) else 0]  # one that came later has the model of all
        return ShardTerms(
            model, self.rule, self.codec, draw, self.release, layout=layout, reply=self.reply, gate=self.gate
        )

    def parts(self, layout: Layout, draw: Draw) -> WorkerParts:
        """What all workers have in common, where somebody else looks for NaN."""
        means = self.mode is Mode.GRADIENTS
        return WorkerParts(layout, draw, self.codec, self.gate, finite=False, reply=self.reply, of_means=means)


def strategy_of(words: Mapping[str, str], sync: Sequence[SyncModel]) -> ServerStrategy:
    """The strategy that these words describe, with these sync models, one per server; what is not said is as usual."""
    said = {key: part_of(key, word) for key, word in words.items()}
    said["mode"], said["rule"] = settle_mode(said.get("mode"), said.get("rule"), sync)
    said["bucket_values"] = said.pop("bucket", BUCKET_VALUES)
    return ServerStrategy(sync=tuple(sync), **said)


def part_of(key: str, word: str) -> Any:
    """What a word says for this setting of a strategy; a bucket as the number of its values, at least one."""
    if key == "bucket":
        return max(units.size(word, key) // VALUE_BYTES, 1)
    if key in _CHOICES:
        return one_of(_CHOICES[key], word, key)
    return parse("codec" if key == "reply_codec" else key, word, key)


def one_of(choices: type[Choice], word: str, option: str) -> Choice:
    """The choice that this word is."""
    try:
        return choices(word)
    except ValueError:
        raise UsageError(option, f"{word!r} is none of {', '.join(choices)}") from None


_CHOICES: Mapping[str, type[StrEnum]] = {"mode": Mode, "release": Release}


def settle_mode(mode: Mode | None, rule: Rule | None, sync: Sequence[SyncModel]) -> tuple[Mode, Rule]:
    """The mode and the shards' rule that follow from what was said: `gradients` under bsp, `changes` otherwise."""
    if mode is None:
        mode = _default_mode(rule, sync)
    if mode is Mode.RULE:
        if rule is None:
            raise UsageError("mode", "'rule' needs a rule as well, e.g. rule = \"sgd:0.1\"")
        if not optimises(rule):
            raise UsageError(
                "rule",
                f"{write(rule)!r} does not optimise; one that does: sgd:0.1, momentum:0.1, adam:0.001, fasgd:0.005",
            )
        return mode, rule
    own: Rule = Mean() if mode is Mode.GRADIENTS else Add()
    if rule is not None and rule != own:
        raise UsageError(
            "rule", f'{write(rule)!r} makes no sense with mode = {mode.value!r}; leave it out, or set mode = "rule"'
        )
    return mode, own


def _default_mode(rule: Rule | None, sync: Sequence[SyncModel]) -> Mode:
    if rule is None:
        return Mode.GRADIENTS if all(is_bsp(model) for model in sync) else Mode.CHANGES
    if isinstance(rule, Mean):
        return Mode.GRADIENTS
    return Mode.CHANGES if isinstance(rule, Add) else Mode.RULE


def is_bsp(model: SyncModel) -> bool:
    return isinstance(model, Bsp) or (isinstance(model, Ssp) and model.s == 0)


def check(strategy: ServerStrategy, workers: int) -> None:
    """Refuse what makes no sense, before anything runs."""
    for model in strategy.sync:
        check_model(model, strategy.mode, workers)
    _check_codecs(strategy)
    _check_gate(strategy)


def _check_gate(strategy: ServerStrategy) -> None:
    """A gate needs what it asks for, and must not skip what the mode needs."""
    gate, mode, word = strategy.gate, strategy.mode, write(strategy.gate)
    if getattr(gate, "needs_mean", False) and not reported(strategy.rule):
        raise UsageError(
            "gate",
            f"{word!r} follows the statistics of fasgd, which {write(strategy.rule)!r} does not keep; "
            'use rule = "fasgd:0.005", or another gate',
        )
    if mode is Mode.GRADIENTS and getattr(gate, "skips_fetches", True):
        raise UsageError(
            "gate",
            f"{word!r} skips fetches, but in mode 'gradients' every worker needs every round's mean; "
            'use gate = "always" or mode = "changes"',
        )
    if mode is Mode.GRADIENTS and getattr(gate, "needs_params", False):
        raise UsageError(
            "gate",
            f"{word!r} compares updates with parameters, which in mode 'gradients' it never sees; "
            'use mode = "changes" or a rule',
        )
    if mode is Mode.CHANGES and getattr(gate, "on_skip", "") == REAPPLY:
        raise UsageError(
            "gate",
            f"{word!r}: a change that is skipped would be lost, and another one made twice; "
            "in mode 'changes' use on_skip=accumulate, or a rule",
        )


def _check_codecs(strategy: ServerStrategy) -> None:
    """Momentum correction is a matter of gradients: changes have had their momentum, and so have parameters."""
    corrects = [each for each in _parts_of(strategy.codec) if getattr(each, "momentum", 0)]
    if corrects and strategy.mode is Mode.CHANGES:
        raise UsageError(
            "codec",
            f"{write(strategy.codec)!r} corrects the momentum of gradients, but mode 'changes' sends changes; leave "
            'momentum out, or use mode = "gradients" or a rule',
        )
    if any(getattr(each, "momentum", 0) for each in _parts_of(strategy.reply_codec)):
        raise UsageError(
            "reply_codec", f"{write(strategy.reply_codec)!r}: replies have no momentum to correct; leave it out"
        )


def _parts_of(codec: object) -> Iterator[object]:
    """A codec, and those that it is made of."""
    yield codec
    for field in fields(codec) if is_dataclass(codec) else ():
        value = getattr(codec, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            for part in each if isinstance(each, tuple) else (each,):
                if isinstance(part, Codec):
                    yield from _parts_of(part)


def check_model(model: SyncModel, mode: Mode, workers: int, option: str = "sync") -> None:
    """Refuse a model that cannot run with so many workers or in this mode; also for a change to it."""
    if isinstance(model, Drop) and model.k > workers:
        raise UsageError(option, f"{write(model)!r} waits for {model.k} of {workers} workers; at most drop:{workers}")
    if mode is Mode.GRADIENTS and not is_bsp(model):
        raise UsageError(
            "mode" if option == "sync" else option,
            f"'gradients' is possible only under bsp, not {write(model)!r}, since every worker needs every round's "
            'mean; use mode = "changes" or a rule, or sync = "bsp"',
        )
