"""The conformance suites name the mistake of a wrong part, and pass correct parts, such as all shipped ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import own_parts
import wrong_parts
import wrong_rules
from mistakes import WRONG
from syncline import testing
from syncline.gates import GATES, Always, Bandwidth, Budget, Cached, Every, Gate, Significance
from syncline.placement import PLACEMENTS
from syncline.rules import RULES, Adam, Add, DcAsgd, Exponential, Fasgd, GapAware, Mean, Momentum, Sasgd, Sgd
from syncline.spec import write

SUITES: dict[str, Callable[[Any], None]] = {
    "rule": testing.check_rule,
    "gate": testing.check_gate,
    "placement": testing.check_placement,
    "sync": lambda model: testing.check_sync_model(model, schedules=4),
    "codec": lambda codec: testing.check_codec(codec, mutations=50),
}
MISTAKES = [
    pytest.param(kind, part, message, id=f"{kind} {getattr(part, '__name__', type(part).__name__)}")
    for kind, parts in WRONG.items()
    for part, message in parts
]


@pytest.mark.parametrize(("kind", "part", "message"), MISTAKES)
def test_a_mistake_is_named(kind: str, part: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        SUITES[kind](part)


SHIPPED_RULES: list[Any] = [
    Mean(),
    Add(),
    Sgd(0.1),
    Momentum(0.1),
    Adam(0.01),
    Sasgd(0.1),
    Exponential(0.1),
    Fasgd(0.1),
    DcAsgd(0.1),
    DcAsgd(0.1, 2.0, 0.95),
    GapAware(0.1),
]
SHIPPED_GATES: list[Gate] = [
    Always(),
    Every(push=2, fetch=3),
    Every(push=2, on_skip="reapply"),
    Cached(2),
    Bandwidth(push=0.1, fetch=0.2),
    Bandwidth(push=0.1, fetch=0.2, per="table"),
    Significance(0.5),
    Significance(0),
    Budget(2000),
    Budget(1 << 20, of="fetch"),
]


def test_every_shipped_part_is_tried() -> None:
    assert {type(rule) for rule in SHIPPED_RULES} == set(RULES)
    assert {type(gate) for gate in SHIPPED_GATES} == set(GATES)


OTHER_RULES: list[Any] = [
    wrong_rules.Plain(),
    wrong_rules.Heavy(),
    own_parts.WorkerSum(),
    own_parts.Normalised(0.1),
    own_parts.Normalised(0.1, "table-norms"),
]


@pytest.mark.parametrize("rule", [*SHIPPED_RULES, *OTHER_RULES], ids=write)
def test_rules_conform(rule: Any) -> None:
    testing.check_rule(rule)


@pytest.mark.parametrize("gate", [*SHIPPED_GATES, wrong_parts.EverySecond()], ids=write)
def test_gates_conform(gate: Gate) -> None:
    testing.check_gate(gate)


@pytest.mark.parametrize(
    "placement", [*(part() for part in PLACEMENTS), own_parts.by_turns, wrong_parts.Ranges()], ids=write
)
def test_placements_conform(placement: Any) -> None:
    testing.check_placement(placement)


def test_the_right_ones_next_to_the_wrong_ones_conform() -> None:
    testing.check_sync_model(wrong_parts.Ssp2(), bound=2, schedules=4)
    testing.check_codec(wrong_parts.Copy(), mutations=100)
