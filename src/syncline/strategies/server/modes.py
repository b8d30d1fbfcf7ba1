"""Mode and rule depend on each other: how to complete the two settings, and which combinations are wrong."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.errors import UsageError
from syncline.rules import Add, Mean, Rule, optimises
from syncline.spec import write
from syncline.strategies.mode import Mode
from syncline.sync import Bsp, Ssp, SyncModel


def settle_mode(mode: Mode | None, rule: Rule | None, sync: Sequence[SyncModel]) -> tuple[Mode, Rule]:
    """The mode and the servers' rule. If neither is set, the mode is `gradients` under bsp and `changes` otherwise."""
    if mode is None:
        mode = _default_mode(rule, sync)
    if mode is Mode.RULE:
        if rule is None:
            raise UsageError("mode", "'rule' needs the setting rule, for example rule = \"sgd:0.1\"")
        if not optimises(rule):
            raise UsageError(
                "rule",
                f"{write(rule)!r} is not an optimizer; use one such as sgd:0.1, momentum:0.1, adam:0.001, fasgd:0.005",
            )
        return mode, rule
    own: Rule = Mean() if mode is Mode.GRADIENTS else Add()
    if rule is not None and rule != own:
        raise UsageError(
            "rule", f'{write(rule)!r} does not work with mode = {mode.value!r}; remove it, or set mode = "rule"'
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
