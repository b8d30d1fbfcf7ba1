"""Rules against their formulas in float64, and momentum against PyTorch's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.rules import RULES, Add, Mean, Memory, Momentum, Rule, Sasgd, Sgd

SIZE, STEPS = 33, 20
Reals = npt.NDArray[np.float64]
ALL: list[Rule] = [Mean(), Add(), Sgd(0.1), Momentum(0.1), Momentum(0.05, 0.5), Sasgd(0.1)]


def start() -> npt.NDArray[np.float32]:
    return Draw(1).normals(SIZE, "start").astype(np.float32)


def updates() -> list[npt.NDArray[np.float32]]:
    return [Draw(1).normals(SIZE, "update", step).astype(np.float32) for step in range(STEPS)]


def applied(rule: Rule, staleness: int = 0, lr: float | None = None) -> npt.NDArray[np.float32]:
    params = start()
    memory = rule.start(params)
    for update in updates():
        rule.apply(params, update, memory, staleness, lr)
    return params


def by_formula(rule: Rule, staleness: int = 0, lr: float | None = None) -> Reals:
    w, m = start().astype(np.float64), np.zeros(SIZE)
    tau = max(1, staleness)
    for g in (update.astype(np.float64) for update in updates()):
        match rule:
            case Mean():
                w = g
            case Add():
                w = w + g
            case Sgd(alpha):
                w = w - (alpha if lr is None else lr) * g
            case Momentum(alpha, mu):
                m = mu * m + g
                w = w - (alpha if lr is None else lr) * m
            case Sasgd(alpha):
                w = w - (alpha if lr is None else lr) / tau * g
    return w


def test_all_shipped_rules_are_tried() -> None:
    assert {type(rule) for rule in ALL} == set(RULES)


@pytest.mark.parametrize("lr", [None, 0.02])
@pytest.mark.parametrize("staleness", [0, 1, 5])
@pytest.mark.parametrize("rule", ALL, ids=str)
def test_a_rule_is_its_formula(rule: Rule, staleness: int, lr: float | None) -> None:
    np.testing.assert_allclose(applied(rule, staleness, lr), by_formula(rule, staleness, lr), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mu", [0.0, 0.5, 0.9])
def test_momentum_is_that_of_torch(mu: float) -> None:
    torch = pytest.importorskip("torch")
    params = torch.nn.Parameter(torch.from_numpy(start()))
    optimizer = torch.optim.SGD([params], lr=0.1, momentum=mu)
    for update in updates():
        params.grad = torch.from_numpy(update)
        optimizer.step()
    np.testing.assert_allclose(applied(Momentum(0.1, mu)), params.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_momentum_with_a_rate_that_changes_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    params, mine, rule = torch.nn.Parameter(torch.from_numpy(start())), start(), Momentum(0.1)
    memory = rule.start(mine)
    optimizer = torch.optim.SGD([params], lr=0.1, momentum=0.9)
    for step, update in enumerate(updates()):
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        params.grad = torch.from_numpy(update)
        optimizer.step()
        rule.apply(mine, update, memory, 0, 0.1 / (step + 1))
    np.testing.assert_allclose(mine, params.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", ALL, ids=str)
def test_a_rule_works_in_place_and_leaves_the_update_alone(rule: Rule) -> None:
    params, update = start(), updates()[0]
    memory = rule.start(params)
    before, held = update.copy(), {key: id(value) for key, value in memory.items()}
    address = params.__array_interface__["data"]
    update.flags.writeable = False
    rule.apply(params, update, memory, 0, None)
    assert params.__array_interface__["data"] == address
    assert params.dtype == np.float32
    assert (update == before).all()
    assert {key: id(value) for key, value in memory.items()} == held


@pytest.mark.parametrize("rule", ALL, ids=str)
@given(cut=st.integers(1, SIZE - 1))
def test_a_rule_is_elementwise(rule: Rule, cut: int) -> None:
    """Two buckets give what one gives, to the bit."""
    whole, parts = start(), start()
    pieces = (slice(0, cut), slice(cut, SIZE))
    memory = rule.start(whole)
    memories: list[Memory] = [rule.start(parts[piece]) for piece in pieces]
    for update in updates()[:5]:
        rule.apply(whole, update, memory, 2, None)
        for piece, own in zip(pieces, memories, strict=True):
            rule.apply(parts[piece], update[piece], own, 2, None)
    assert (whole == parts).all()


@pytest.mark.parametrize("rule", ALL, ids=str)
def test_the_memory_of_two_buckets_is_not_shared(rule: Rule) -> None:
    one, other = rule.start(start()), rule.start(start())
    assert all(one[key] is not other[key] for key in one)


def test_sasgd_ignores_a_staleness_of_0() -> None:
    assert (applied(Sasgd(0.1), 0) == applied(Sgd(0.1))).all()
    assert (applied(Sasgd(0.1), 1) == applied(Sgd(0.1))).all()


def test_who_divides_and_who_keeps() -> None:
    assert [(rule.of_gradients, rule.keeps) for rule in (Mean(), Add(), Sgd(1.0))] == [
        (True, False),
        (False, True),
        (True, True),
    ]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("rule", [Sgd, Momentum, Sasgd])
def test_a_learning_rate_is_above_0_and_finite(rule: type[Sgd | Momentum | Sasgd], rate: float) -> None:
    with pytest.raises(UsageError, match="learning rate"):
        rule(rate)


@pytest.mark.parametrize("mu", [-0.1, 1.0, float("nan")])
def test_momentum_forgets(mu: float) -> None:
    with pytest.raises(UsageError, match="mu must be in"):
        Momentum(0.1, mu)
