"""The server strategy: its parts together, who optimises, and which combinations make no sense."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from syncline.codecs import Codec, Dense
from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.gates import Always, Gate
from syncline.layout import BUCKET_VALUES, Bucket
from syncline.placement import Elastic, Placement
from syncline.rules import Add, Mean, Rule, optimises
from syncline.spec import write
from syncline.sync import Bsp, Drop, Release, Ssp, SyncModel


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

    @property
    def servers(self) -> int:
        return len(self.sync)

    def keeps_own(self, worker: int, progress: int, bucket: Bucket, draw: Draw) -> bool:
        """Does this iteration's fetch bring nothing new, so that the worker's own change is all it will see?"""
        if self.mode is not Mode.CHANGES or type(self.gate) is Always:
            return False
        return not self.gate.fetches(worker, progress, bucket, draw)


def settle_mode(mode: Mode | None, rule: Rule | None, sync: Sequence[SyncModel]) -> tuple[Mode, Rule]:
    """The mode and the shards' rule that follow from what was said: `gradients` under bsp, `changes` otherwise."""
    if mode is None:
        mode = _default_mode(rule, sync)
    if mode is Mode.RULE:
        if rule is None:
            raise UsageError("mode", "'rule' needs a rule as well, e.g. rule = \"sgd:0.1\"")
        if not optimises(rule):
            raise UsageError(
                "rule", f"{write(rule)!r} does not optimise; one that does: sgd:0.1, momentum:0.1, sasgd:0.1"
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
    if strategy.mode is Mode.GRADIENTS and getattr(strategy.gate, "skips_fetches", True):
        raise UsageError(
            "gate",
            f"{write(strategy.gate)!r} skips fetches, but in mode 'gradients' every worker needs every round's mean; "
            'use gate = "always" or mode = "changes"',
        )


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
