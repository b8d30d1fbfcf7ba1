"""The conformance suite for rules."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import Values
from syncline.rules import Memory, Need, Norms, Rule, UpdateOrigin, needs_of, reported
from syncline.testing.common import MANY, asked, check_flags, check_value, own_randomness

SIZES = (1, 7, 300, MANY)
STEPS = 4
STALENESS = (0, 1, 3, 50)
BLOCK = 1 << 15
GUARD = 8
SEED = 11


def check_rule(rule: Rule) -> None:
    """Raise AssertionError, with the reason, if the rule breaks one of these rules.

    1. `start` returns a dict of new float32 arrays, each as long as the parameters, and does not change these.
    2. `apply` changes the parameters and the state in place: it returns None and keeps every array where it is.
    3. `apply` changes neither the update nor what the worker read, and writes nowhere else.
    4. Value by value: block by block gives what the whole bucket gives, with up to 262,144 values.
    5. The same input gives the same result: nothing is kept between calls, except in the state. Neither the content of
       `work` nor another bucket in between matters, and no shared random generator is used.
    6. A learning rate that comes with a push overrides the rule's `lr`, also if it is 0.
    7. Finite parameters and updates, also if all are 0, give finite parameters and a finite state.
    8. The rule is a value: it has the methods, compares and hashes, and can be written as text and read back.
    """
    what = check_value("rule", rule, Rule)
    check_flags(rule, "of_gradients", "keeps")
    try:
        needs_of(rule)
    except UsageError as error:
        raise AssertionError(error.problem) from error
    with warnings.catch_warnings(), own_randomness(what), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        for values in (0, *SIZES):
            _check_start(rule, values, f"{what}, {values} values")
        for values in SIZES:
            _check_apply(rule, values, f"{what}, {values} values")
        _check_rate(rule, what)


def _drawn(values: int, *keys: int) -> Values:
    return _normals(values, *keys).copy()  # the rule may be one that changes what it must not change


@lru_cache(maxsize=32)
def _normals(values: int, *keys: int) -> Values:
    return Draw(SEED).normals(values, "rule", *keys).astype(np.float32)


def _check_start(rule: Rule, values: int, what: str) -> None:
    params = _drawn(values)
    before = params.copy()
    memory, again = (asked(lambda: rule.start(params), f"{what}: `start`") for _ in range(2))
    assert np.array_equal(params, before), f"{what}: `start` changed the parameters"
    _check_memory(memory, values, what)
    name = reported(rule)
    assert not name or name in memory, f"{what}: it reports {name!r}, which `start` does not return"
    assert memory.keys() == again.keys(), f"{what}: `start` returned other names the second time"
    for name, each in memory.items():
        others = (params, again[name], *(other for key, other in memory.items() if key != name))
        shared = any(np.shares_memory(each, other) for other in others)
        assert not shared, f"{what}: {name!r} of the state shares its memory with another array; `start` must copy"


def _check_memory(memory: object, values: int, what: str) -> None:
    assert isinstance(memory, dict), f"{what}: `start` must return a dict of arrays, not {type(memory).__name__}"
    for name, each in memory.items():
        assert isinstance(each, np.ndarray), f"{what}: {name!r} of the state must be an array, not {each!r:.60}"
        assert each.dtype == np.float32, f"{what}: {name!r} of the state must be float32, not {each.dtype}"
        right = f"must have {values} values, as many as the parameters"
        assert each.shape == (values,), f"{what}: {name!r} of the state {right}, not the shape {each.shape}"


class _Bucket:
    """The parameters and the state of a bucket, which the rule is applied to in one piece or block by block."""

    def __init__(self, rule: Rule, values: int, what: str, *, block: int | None = None, fill: float = 0.0) -> None:
        self._guarded = np.full(values + 2 * GUARD, 7, np.float32)
        self._rule, self._what, self._needs = rule, what, needs_of(rule)
        self.params = self._guarded[GUARD : GUARD + values]
        self.params[:] = _drawn(values)
        self.memory = rule.start(self.params)
        self._block, self._fill = block or max(values, 1), fill

    def apply(self, step: int, update: Values, lr: float | None = None) -> None:
        read = self.params - np.float32(0.01) * _drawn(update.size, step, 1)
        norms = self._norms(update, read)
        for start in range(0, update.size, self._block):
            where = slice(start, min(start + self._block, update.size))
            seen = UpdateOrigin(
                step % 3 if Need.WORKER in self._needs else None,
                read[where] if Need.READ in self._needs else None,
                norms if {Need.BUCKET_NORMS, Need.TABLE_NORMS} & self._needs else None,
            )
            self._apply(where, update[where], STALENESS[step % len(STALENESS)], lr, seen)
        edges = np.concatenate([self._guarded[:GUARD], self._guarded[-GUARD:]])
        assert (edges == 7).all(), f"{self._what}: `apply` wrote outside the parameters"

    def _norms(self, update: Values, read: Values) -> Norms:
        gap = float(np.linalg.norm(self.params - read)) if Need.READ in self._needs else None
        return Norms(float(np.linalg.norm(update)), float(np.linalg.norm(self.params)), gap)

    def _apply(self, where: slice, update: Values, staleness: int, lr: float | None, seen: UpdateOrigin) -> None:
        what = self._what
        params, memory = self.params[where], {name: each[where] for name, each in self.memory.items()}
        arrays, before = dict(memory), update.copy()
        before_read = None if seen.read is None else seen.read.copy()
        work = np.full(update.size, self._fill, np.float32)
        extra = (seen,) if self._needs else ()
        result = asked(
            lambda: self._rule.apply(params, update, memory, staleness, lr, work, *extra),
            f"{what}: `apply`",
        )
        right = "it must change `params` in place (params -= ..., or params[:] = ...) and return None"
        assert result is None, f"{what}: `apply` returned {type(result).__name__}; {right}"
        assert np.array_equal(update, before), f"{what}: `apply` changed the update; write to `work` instead"
        kept = before_read is None or np.array_equal(seen.read, before_read)  # type: ignore[arg-type]
        assert kept, f"{what}: `apply` changed what the worker has read; write to `work` instead"
        self._check_same_arrays(memory, arrays)

    def _check_same_arrays(self, memory: Mapping[str, Values], arrays: Mapping[str, Values]) -> None:
        right = "it must change the arrays of the state in place: memory[name][:] = ..."
        changed = sorted(memory.keys() ^ arrays.keys())
        assert not changed, (
            f"{self._what}: `apply` added or removed {changed[0]!r} of the state; {right}" if changed else ""
        )
        for name, each in arrays.items():
            assert memory[name] is each, f"{self._what}: `apply` replaced {name!r} of the state; {right}"


def _updates(values: int) -> Iterator[tuple[str, list[Values]]]:
    normal = [_drawn(values, step) for step in range(STEPS)]
    yield "normal", normal
    yield "small", [each * np.float32(1e-6) for each in normal]
    yield "zero", [np.zeros(values, np.float32)] * STEPS


def _check_apply(rule: Rule, values: int, what: str) -> None:
    for kind, updates in _updates(values):
        bucket = _Bucket(rule, values, f"{what}, {kind}")
        before = bucket.params.copy()
        for step, update in enumerate(updates):
            bucket.apply(step, update)
        finite = all(np.isfinite(each).all() for each in (bucket.params, *bucket.memory.values()))
        assert finite, f"{what}, {kind}: finite parameters and updates gave NaN or infinity"
        if kind == "normal":
            moved = not np.array_equal(bucket.params, before)
            assert moved, f"{what}: `apply` did not change `params`; write params -= ..., not params = params - ..."
            _check_repeated(rule, bucket, updates, what)
            _check_blocks(rule, bucket, updates, what)


def _check_repeated(rule: Rule, first: _Bucket, updates: list[Values], what: str) -> None:
    """Apply the same updates again, with other content of `work` and other buckets in between."""
    values = first.params.size
    again, other = _Bucket(rule, values, what, fill=np.nan), _Bucket(rule, values + 3, what)
    for step, update in enumerate(updates):
        other.apply(step + 1, _drawn(values + 3, step, 2))
        again.apply(step, update)
    alone = _Bucket(rule, values, what)
    for step, update in enumerate(updates):
        alone.apply(step, update)
    problem = f"{what}: the same updates gave another result the second time; does it keep something between calls, "
    _check_same(first, alone, problem + "outside of its state, or draw random numbers?")
    problem = f"{what}: another bucket in between, or other content of `work`, changed the result"
    _check_same(first, again, problem)


def _check_blocks(rule: Rule, first: _Bucket, updates: list[Values], what: str) -> None:
    """Block by block, only rounding may differ: some functions of numpy round the last values of an array otherwise."""
    values = first.params.size
    blocks = _Bucket(rule, values, what, block=BLOCK if values > BLOCK else max(values // 3, 1))
    for step, update in enumerate(updates):
        blocks.apply(step, update)
    problem = (
        f"{what}: block by block it gave another result than on the whole bucket; `apply` must work value by value"
    )
    hint = "" if needs_of(rule) else ", or have needs = ('bucket-norms',)"
    _check_same(first, blocks, problem + hint, 1e-4)


def _check_same(one: _Bucket, two: _Bucket, problem: str, room: float = 0.0) -> None:
    pairs = [(one.params, two.params), *((one.memory[name], two.memory[name]) for name in one.memory)]
    for first, second in pairs:
        assert np.allclose(first, second, rtol=room, atol=room), problem


def _after(rule: Rule, lr: float | None, what: str) -> tuple[Values, Memory]:
    bucket = _Bucket(rule, 300, what)
    for step in range(STEPS):
        bucket.apply(step, _drawn(300, step), lr)
    return bucket.params, bucket.memory


def _check_rate(rule: Rule, what: str) -> None:
    own = getattr(rule, "lr", None)
    if not isinstance(own, float):
        return
    plain, named, double, none = (_after(rule, lr, what)[0] for lr in (None, own, 2 * own, 0.0))
    problem = f"{what}: a push with the learning rate {own} gave another result than the rule's own, which is the same"
    assert np.array_equal(plain, named), problem
    assert not np.array_equal(plain, double), f"{what}: `apply` ignores the learning rate that comes with a push"
    hint = "write `self.lr if lr is None else lr`, not `lr or self.lr`"
    assert not np.array_equal(plain, none), f"{what}: `apply` ignores a learning rate of 0; {hint}"
