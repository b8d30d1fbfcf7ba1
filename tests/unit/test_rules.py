"""Rules against their formulas in float64, and those that PyTorch has against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.rules import (
    RULES,
    Adam,
    Add,
    DcAsgd,
    Exponential,
    Fasgd,
    GapAware,
    Mean,
    Memory,
    Momentum,
    Rule,
    Sasgd,
    Sgd,
)

SIZE, STEPS = 33, 20
Reals = npt.NDArray[np.float64]
ALL: list[Rule] = [
    Mean(),
    Add(),
    Sgd(0.1),
    Momentum(0.1),
    Momentum(0.05, 0.5),
    Adam(0.01),
    Adam(0.01, 0.5, 0.9, 1e-3),
    Sasgd(0.1),
    Exponential(0.1),
    Exponential(0.1, 1.5),
    Fasgd(0.1),
    Fasgd(0.1, 0.5, 0.25, 0.01),
]
FORGETFUL = Fasgd(0.1, gamma=1, beta=1)
"""All its statistics are forced to one."""


def start() -> npt.NDArray[np.float32]:
    return Draw(1).normals(SIZE, "start").astype(np.float32)


def updates() -> list[npt.NDArray[np.float32]]:
    return [Draw(1).normals(SIZE, "update", step).astype(np.float32) for step in range(STEPS)]


def applied(rule: Rule, staleness: int = 0, lr: float | None = None) -> npt.NDArray[np.float32]:
    params = start()
    memory = rule.start(params)
    for update in updates():
        rule.apply(params, update, memory, staleness, lr, np.empty_like(params))
    return params


def by_formula(rule: Rule, staleness: int = 0, lr: float | None = None) -> Reals:
    w, m = start().astype(np.float64), np.zeros(SIZE)
    n, b, v = np.zeros(SIZE), np.zeros(SIZE), np.ones(SIZE)
    tau = max(1, staleness)
    for t, g in enumerate((update.astype(np.float64) for update in updates()), 1):
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
            case Adam(alpha, beta1, beta2, eps):
                m = beta1 * m + (1 - beta1) * g
                n = beta2 * n + (1 - beta2) * g**2
                m_hat, n_hat = m / (1 - beta1**t), n / (1 - beta2**t)
                w = w - (alpha if lr is None else lr) * m_hat / (np.sqrt(n_hat) + eps)
            case Sasgd(alpha):
                w = w - (alpha if lr is None else lr) / tau * g
            case Exponential(alpha, rho):
                w = w - (alpha if lr is None else lr) * np.exp(-rho * tau) * g
            case Fasgd(alpha, gamma, beta, eps):
                n = gamma * n + (1 - gamma) * g**2
                b = gamma * b + (1 - gamma) * g
                v = beta * v + (1 - beta) * np.sqrt(np.maximum(n - b**2, 0) + eps)
                w = w - (alpha if lr is None else lr) / tau * g / v
    return w


def test_all_shipped_rules_are_tried() -> None:
    assert {type(rule) for rule in ALL} | {DcAsgd, GapAware} == set(RULES)  # these two: test_rule_needs.py


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
        rule.apply(mine, update, memory, 0, 0.1 / (step + 1), np.empty_like(mine))
    np.testing.assert_allclose(mine, params.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.9), (0.0, 0.0)])
def test_adam_is_that_of_torch(betas: tuple[float, float]) -> None:
    torch = pytest.importorskip("torch")
    params, mine, rule = torch.nn.Parameter(torch.from_numpy(start())), start(), Adam(0.1, *betas)
    memory = rule.start(mine)
    optimizer = torch.optim.Adam([params], lr=0.1, betas=betas)
    for step, update in enumerate(updates()):
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        params.grad = torch.from_numpy(update)
        optimizer.step()
        rule.apply(mine, update, memory, 0, 0.1 / (step + 1), np.empty_like(mine))
    np.testing.assert_allclose(mine, params.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_adam_counts_each_value_for_itself() -> None:
    """A bucket may be put together from two whose counts differ: each half goes on as if it were alone."""
    rule, halves = Adam(0.1), [start(), start()]
    memories = [rule.start(half) for half in halves]
    for half, memory, steps in zip(halves, memories, (3, 7), strict=True):
        for update in updates()[:steps]:
            rule.apply(half, update, memory, 0, None, np.empty_like(half))
    both = np.concatenate(halves)
    together = {name: np.concatenate([memory[name] for memory in memories]) for name in memories[0]}
    for update in updates()[7:]:
        rule.apply(both, np.concatenate([update, update]), together, 0, None, np.empty_like(both))
        for half, memory in zip(halves, memories, strict=True):
            rule.apply(half, update, memory, 0, None, np.empty_like(half))
    assert both.tobytes() == np.concatenate(halves).tobytes()


def test_exponential_by_hand() -> None:
    """One value, g = 2, alpha = 0.5, rho = ln 2: the update is halved for every step of staleness, from tau = 1 on."""
    rule, params, gradient = Exponential(0.5, float(np.log(2))), np.array([10], np.float32), np.array([2], np.float32)
    found = []
    for staleness in (0, 1, 2, 3):
        rule.apply(params, gradient, {}, staleness, None, np.empty_like(params))
        found.append(float(params[0]))
    assert found == pytest.approx([9.5, 9.0, 8.75, 8.625], abs=1e-6)


def test_fasgd_by_hand() -> None:
    """g = 1, then -1, with gamma = beta = 1/2, eps = 1/16, alpha = 1.

    n = 1/2, b = 1/2, v = 1/2 + sqrt(1/4 + 1/16) / 2; then n = 3/4, b = -1/4, v = v / 2 + sqrt(11/16 + 1/16) / 2.
    """
    rule, params = Fasgd(1.0, 0.5, 0.5, 1 / 16), np.zeros(1, np.float32)
    memory = rule.start(params)
    first = 0.5 + 0.5 * (1 / 4 + 1 / 16) ** 0.5
    second = first / 2 + 0.5 * 0.75**0.5
    rule.apply(params, np.ones(1, np.float32), memory, 1, None, np.empty_like(params))
    assert float(params[0]) == pytest.approx(-1 / first, rel=1e-6)
    rule.apply(params, -np.ones(1, np.float32), memory, 4, None, np.empty_like(params))
    assert [float(memory[name][0]) for name in "nbv"] == pytest.approx([0.75, -0.25, second], rel=1e-6)
    assert float(params[0]) == pytest.approx(-1 / first + 1 / 4 / second, rel=1e-6)


@pytest.mark.parametrize("lr", [None, 0.02])
@pytest.mark.parametrize("staleness", [0, 1, 5])
def test_fasgd_with_its_statistics_forced_to_one_is_sasgd_to_the_bit(staleness: int, lr: float | None) -> None:
    assert applied(FORGETFUL, staleness, lr).tobytes() == applied(Sasgd(0.1), staleness, lr).tobytes()


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-3, 1.0, 1e6, 1e15])
@pytest.mark.parametrize("rule", ALL, ids=str)
def test_a_constant_gradient_for_10000_updates_gives_no_nan(rule: Rule, size: float) -> None:
    """Without variance the deviation is what rounding leaves of it, and may come out below zero."""
    params, update = np.zeros(3, np.float32), np.array([size, -size, 0.1 * size], np.float32)
    memory, work = rule.start(params), np.empty(3, np.float32)
    for _ in range(10_000):
        rule.apply(params, update, memory, 0, None, work)
    assert np.isfinite(params).all()
    assert all(np.isfinite(each).all() for each in memory.values())


@pytest.mark.parametrize("rule", ALL, ids=str)
def test_a_rule_works_in_place_and_leaves_the_update_alone(rule: Rule) -> None:
    params, update = start(), updates()[0]
    memory = rule.start(params)
    before, held = update.copy(), {key: id(value) for key, value in memory.items()}
    address = params.__array_interface__["data"]
    update.flags.writeable = False
    rule.apply(params, update, memory, 0, None, np.full_like(params, np.nan))
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
        rule.apply(whole, update, memory, 2, None, np.empty_like(whole))
        for piece, own in zip(pieces, memories, strict=True):
            rule.apply(parts[piece], update[piece], own, 2, None, np.empty_like(update[piece]))
    assert (whole == parts).all()


@pytest.mark.parametrize("rule", ALL, ids=str)
def test_the_memory_of_two_buckets_is_not_shared(rule: Rule) -> None:
    one, other = rule.start(start()), rule.start(start())
    assert all(one[key] is not other[key] for key in one)


def test_sasgd_ignores_a_staleness_of_0() -> None:
    assert (applied(Sasgd(0.1), 0) == applied(Sgd(0.1))).all()
    assert (applied(Sasgd(0.1), 1) == applied(Sgd(0.1))).all()


def test_which_rules_divide_and_which_keep_parameters() -> None:
    assert [(rule.of_gradients, rule.keeps) for rule in (Mean(), Add(), Sgd(1.0))] == [
        (True, False),
        (False, True),
        (True, True),
    ]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("rule", [Sgd, Momentum, Adam, Sasgd, Exponential, Fasgd])
def test_a_learning_rate_is_above_0_and_finite(
    rule: type[Sgd | Momentum | Adam | Sasgd | Exponential | Fasgd], rate: float
) -> None:
    with pytest.raises(UsageError, match="learning rate"):
        rule(rate)


@pytest.mark.parametrize("mu", [-0.1, 1.0, float("nan")])
def test_momentum_forgets(mu: float) -> None:
    with pytest.raises(UsageError, match="mu must be in"):
        Momentum(0.1, mu)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Fasgd(0.1, gamma=-0.1), "gamma must be in"),
        (lambda: Fasgd(0.1, gamma=float("nan")), "gamma must be in"),
        (lambda: Fasgd(0.1, beta=1.1), "beta must be in"),
        (lambda: Fasgd(0.1, eps=0.0), "eps must be above 0"),
        (lambda: Fasgd(0.1, eps=float("inf")), "eps must be above 0"),
        (lambda: Adam(0.1, 1.0), "beta1 must be in"),
        (lambda: Adam(0.1, 0.9, -1.0), "beta2 must be in"),
        (lambda: Adam(0.1, eps=0.0), "eps must be above 0"),
        (lambda: Exponential(0.1, -1.0), "rho must be at least 0"),
        (lambda: Exponential(0.1, float("inf")), "rho must be at least 0"),
    ],
)
def test_what_is_out_of_range_is_refused(make: Callable[[], Rule], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()
