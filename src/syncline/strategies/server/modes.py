"""Which mode and which rule follow from what was said: who optimises is one question in two words."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.errors import UsageError
from syncline.rules import Add, Mean, Rule, optimises
from syncline.spec import write
from syncline.strategies.mode import Mode
from syncline.sync import Bsp, Ssp, SyncModel


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
