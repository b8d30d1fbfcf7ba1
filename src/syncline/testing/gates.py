"""The conformance suite for gates."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from syncline.draw import Draw
from syncline.gates import ACCUMULATE, REAPPLY, Gate, Offer, Outlook, Standing
from syncline.layout import Bucket, Values
from syncline.testing.common import MANY, asked, check_bool, check_flags, check_value, own_randomness

SIZES = (1, 7, 300, MANY)
"""The values of the buckets of the model."""

BUCKETS = tuple(Bucket(sum(SIZES[:place]), sum(SIZES[: place + 1])) for place in range(len(SIZES)))
WORKERS = 2
ITERATIONS = 5
SEED = 5

FLAGS = ("skips_fetches", "per_table", "needs_mean", "needs_params", "measures")

Answers = dict[tuple[int, int, Bucket], tuple[bool, bool]]
"""For each worker, iteration and bucket: whether the gate sends, and whether it fetches."""


def check_gate(gate: Gate) -> None:
    """Raise AssertionError, with the reason, if the gate breaks one of these rules.

    The offers are of many kinds: with and without an update, held-back updates and parameters, up to 262,144 values.

    1. `sends` and `fetches` return True or False.
    2. The same offer gets the same answer: asked again, in another order, and with other workers in between. Nothing is
       kept between calls, and no shared random generator is used.
    3. It does not change the arrays of an offer.
    4. With `skips_fetches = False` it always fetches.
    5. `on_skip` is "accumulate" or "reapply"; the other attributes are True or False.
    6. The gate is a value: it has the methods, compares and hashes, and can be written as text and read back.
    """
    what = check_value("gate", gate, Gate)
    check_flags(gate, *FLAGS)
    on_skip = getattr(gate, "on_skip", ACCUMULATE)
    assert on_skip in (ACCUMULATE, REAPPLY), f"{what}.on_skip must be {ACCUMULATE!r} or {REAPPLY!r}, not {on_skip!r}"
    with warnings.catch_warnings(), own_randomness(what):
        warnings.simplefilter("error")
        for kind in _kinds(gate):
            _check_kind(gate, kind, f"{what}, {kind.name}")


@dataclass(frozen=True)
class _Kind:
    """What an offer contains."""

    name: str
    fresh: bool = True
    held: bool = False
    params: bool = True
    scale: float = 1.0


def _kinds(gate: Gate) -> Iterator[_Kind]:
    yield _Kind("a usual offer")
    yield _Kind("an offer with a held-back update", held=True)
    yield _Kind("an offer without an update", fresh=False)
    yield _Kind("an offer with nothing but a held-back update", fresh=False, held=True)
    yield _Kind("an offer of zeros", scale=0.0)
    if not getattr(gate, "needs_params", False):
        yield _Kind("an offer without parameters, as in mode 'gradients'", params=False)


def _check_kind(gate: Gate, kind: _Kind, what: str) -> None:
    every = [(worker, i, bucket) for i in range(ITERATIONS) for worker in range(WORKERS) for bucket in BUCKETS]
    first = _answers(gate, kind, every, what)
    alone = [key for key in every if key[0] == 1]
    for order, problem in (
        (every, "asked again about the same offers it answered otherwise"),
        (every[::-1], "asked in another order it answered otherwise"),
        (alone, "without other workers in between it answered otherwise"),
    ):
        again = _answers(gate, kind, order, what)
        hint = "it must keep nothing between calls and take randomness only from offer.draw"
        assert all(first[key] == again[key] for key in order), f"{what}: {problem}; {hint}"
    if not getattr(gate, "skips_fetches", True):
        fetches = all(fetches for _, fetches in first.values())
        assert fetches, f"{what}: `fetches` returned False, but the class says skips_fetches = False"


def _answers(gate: Gate, kind: _Kind, order: Sequence[tuple[int, int, Bucket]], what: str) -> Answers:
    outlooks = {(worker, i): _outlook(i) for worker, i, _ in order}
    found: Answers = {}
    for worker, i, bucket in order:
        offer = _offer(kind, worker, i, bucket, outlooks[worker, i])
        arrays = [each for each in (offer.fresh, offer.held, offer.params, offer.update) if each is not None]
        before = [each.copy() for each in arrays]
        answers = [_ask(gate, name, offer, what) for name in ("sends", "fetches", "sends", "fetches")]
        changed = any(not np.array_equal(each, was) for each, was in zip(arrays, before, strict=True))
        assert not changed, f"{what}: it changed an array of the offer; work on a copy"
        same = answers[:2] == answers[2:]
        assert same, f"{what}: asked twice about one offer it gave two answers; it must keep nothing between calls"
        found[worker, i, bucket] = (answers[0], answers[1])
    return found


def _ask(gate: Gate, name: str, offer: Offer, what: str) -> bool:
    what = f"{what}: `{name}`"
    return check_bool(asked(lambda: getattr(gate, name)(offer), what), what)


def _offer(kind: _Kind, worker: int, i: int, bucket: Bucket, outlook: Outlook) -> Offer:
    def array(what: int, there: bool) -> Values | None:
        drawn = Draw(SEED).values(bucket.size, "gate", what, worker, i, bucket.start)
        return drawn * np.float32(kind.scale) if there else None

    return Offer(
        worker,
        i,
        bucket,
        outlook.standings[bucket].age,
        array(0, kind.fresh),
        array(1, kind.held),
        array(2, kind.params),
        Draw(SEED),
        lambda: outlook,
    )


def _outlook(i: int) -> Outlook:
    """The summary of the model when iteration i begins: every bucket is a table."""
    standings = {
        bucket: Standing(
            bucket.start,
            None if i == 0 else 1 / (i + place),
            None if i == 0 else 0.5,
            1 + (i + place) % 4,
            4 * bucket.size,
            4 * bucket.size,
        )
        for place, bucket in enumerate(BUCKETS)
    }
    return Outlook(standings, i + 1, 1000 * i, 500 * i)
