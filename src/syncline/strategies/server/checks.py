"""Checks for combinations of parts that cannot work. They raise `UsageError` before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.codecs import every_codec
from syncline.errors import UsageError
from syncline.gates import REAPPLY, Always
from syncline.layout import VALUE_BYTES, Layout
from syncline.messages import PAYLOAD, Holders
from syncline.rules import OF_ONE_WORKER, Need, Rule, needs_of, reported
from syncline.spec import write
from syncline.strategies.mode import Mode
from syncline.strategies.server.modes import is_bsp
from syncline.sync import Drop, SyncModel, applies_at_close, asks_again

if TYPE_CHECKING:
    from syncline.strategies.server.strategy import ServerStrategy


def check(strategy: ServerStrategy, workers: int) -> None:
    """Raise `UsageError` if the parts of this strategy cannot work together, or not with this many workers."""
    for model in strategy.sync:
        check_model(model, strategy.mode, workers, strategy.rule)
    _check_codecs(strategy)
    _check_gate(strategy)
    _check_needs(strategy)
    if strategy.backups:
        _check_backups(strategy, workers)


def _check_backups(strategy: ServerStrategy, workers: int) -> None:
    """Check that there is another server, and that the state of a bucket fits in a message."""
    if strategy.servers == 1:
        raise UsageError(
            "backups", "the backup of a server is another server, but there is only one; use --servers 2, or backups 0"
        )
    if (strategy.moved_arrays + workers) * strategy.bucket_values * VALUE_BYTES > PAYLOAD:
        problem = f"is too large to send to a backup with the updates of {workers} workers"
        raise UsageError("bucket", f"{problem}; use a smaller --bucket, or backups 0")


def _check_needs(strategy: ServerStrategy) -> None:
    """Check that the servers know what each worker has read, if the rule needs it."""
    if Need.READ in needs_of(strategy.rule) and type(strategy.gate) is not Always:
        raise UsageError(
            "rule",
            f"{write(strategy.rule)!r} needs what a worker has read, but with the gate {write(strategy.gate)!r} an "
            'update can be a sum over several reads; use gate = "always", or another rule',
        )


def check_tables(strategy: ServerStrategy, layout: Layout, holders: Holders) -> None:
    """Raise `UsageError` if the rule needs norms over tables, and a table is not one bucket."""
    if Need.TABLE_NORMS not in needs_of(strategy.rule):
        return
    held = {(bucket.start, bucket.stop) for each in holders for bucket in each}
    for table in layout.tables:
        if table.size * VALUE_BYTES > PAYLOAD:
            problem = f"and table {table.name!r} does not fit in a message of {PAYLOAD >> 30} GiB"
        elif table.size and (table.start, table.stop) not in held:
            problem = f'but {write(strategy.placement)!r} splits table {table.name!r}; use placement = "balanced"'
        else:
            continue
        raise UsageError("placement", f"{write(strategy.rule)!r} needs norms over whole tables, {problem}")


def _check_gate(strategy: ServerStrategy) -> None:
    """Check that the gate gets the data it needs and does not skip what the mode needs."""
    gate, mode, word = strategy.gate, strategy.mode, write(strategy.gate)
    if getattr(gate, "needs_mean", False) and not reported(strategy.rule):
        raise UsageError(
            "gate",
            f"{word!r} uses the statistics of the rule fasgd, which {write(strategy.rule)!r} does not compute; "
            'use rule = "fasgd:0.005", or another gate',
        )
    if mode is Mode.GRADIENTS and getattr(gate, "skips_fetches", True):
        raise UsageError(
            "gate",
            f"{word!r} skips fetches, but in mode 'gradients' every worker needs the mean of every round; "
            'use gate = "always" or mode = "changes"',
        )
    if mode is Mode.GRADIENTS and getattr(gate, "needs_params", False):
        raise UsageError(
            "gate",
            f"{word!r} compares updates with parameters, which servers do not send in mode 'gradients'; "
            'use mode = "changes" or a rule',
        )
    if mode is Mode.CHANGES and getattr(gate, "on_skip", "") == REAPPLY:
        raise UsageError(
            "gate",
            f"{word!r}: in mode 'changes' a skipped change would be lost and another one would be applied twice; "
            "use on_skip=accumulate, or a rule",
        )


def _check_codecs(strategy: ServerStrategy) -> None:
    """Check that momentum correction is used only for gradients: changes and parameters already include momentum."""
    corrects = [each for each in every_codec(strategy.codec) if getattr(each, "momentum", 0)]
    if corrects and strategy.mode is Mode.CHANGES:
        raise UsageError(
            "codec",
            f"{write(strategy.codec)!r} corrects the momentum of gradients, but mode 'changes' sends changes; remove "
            'momentum, or use mode = "gradients" or a rule',
        )
    if any(getattr(each, "momentum", 0) for each in every_codec(strategy.reply_codec)):
        raise UsageError(
            "reply_codec", f"{write(strategy.reply_codec)!r}: replies have no momentum to correct; remove momentum"
        )


def check_model(model: SyncModel, mode: Mode, workers: int, rule: Rule | None = None, option: str = "sync") -> None:
    """Raise `UsageError` if a model cannot work with this many workers or in this mode; also used for changes."""
    asks_again(model)
    if isinstance(model, Drop) and model.k > workers:
        raise UsageError(
            option, f"{write(model)!r} waits for {model.k} of {workers} workers; use drop:{workers} or a smaller number"
        )
    alone = OF_ONE_WORKER & needs_of(rule)
    if alone and applies_at_close(model):
        raise UsageError(
            option,
            f"the rule {write(rule)!r} needs to know this of each update: {', '.join(sorted(alone))}. But under "
            f"{write(model)!r} the servers apply the updates of a round together; use another rule, or "
            'sync = "asp" or "ssp:3"',
        )
    if mode is Mode.GRADIENTS and not is_bsp(model):
        raise UsageError(
            "mode" if option == "sync" else option,
            f"'gradients' works only with bsp, not {write(model)!r}, because every worker needs the mean of every "
            'round; use mode = "changes" or a rule, or sync = "bsp"',
        )
