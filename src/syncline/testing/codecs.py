"""What every codec must hold, whatever it writes."""

from __future__ import annotations

import io
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from syncline.codecs import Bytes, Chance, Codec, Memory, is_exact, is_sparse, is_stochastic
from syncline.draw import Draw
from syncline.errors import PeerError
from syncline.layout import Payload, Values
from syncline.spec import parse, write

SIZES = (1, 7, 300, 2048, 5000)
"""Values in a bucket: fewer than a byte of bits, and no multiples of anything."""

STEPS = 3
DRAWS = 1000
GUARD = 64
SEED = 7

EPSILON = float(np.finfo(np.float32).eps)
LARGEST = np.finfo(np.float32).max


def check_codec(codec: Codec, *, mutations: int = 2000) -> None:
    """Raise AssertionError, with the reason, unless the codec keeps what every codec must keep.

    Over updates of many kinds and sizes: sent + residual = update + what was left before (to the bit if it says
    `sparse`, else to rounding), also for the largest numbers; if it says `stochastic` and keeps no residual, the mean
    over draws is the update; a payload is as long as `size` says; the update is not written; the same input gives the
    same bytes, also from a memory that was saved and loaded; NaN and infinity are seen by the receiver and never stay
    in the memory, and nothing else becomes either. `mutations` byte strings that no codec wrote give a PeerError or
    values, and nothing else. And the codec is a value: it has the methods, compares, and can be written as text and
    read back.
    """
    _check_value(codec)
    for values in SIZES:
        check_bucket(codec, values, mutations=mutations // len(SIZES))


def check_bucket(codec: Codec, values: int, *, mutations: int = 400) -> None:
    """The same for buckets of one size, for a codec that is never written as text."""
    what = f"{write(codec)}, {values} values"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, updates in _updates(values):
            _check_sums(codec, updates, f"{what}, {kind}")
        _check_pure(codec, values, what)
        _check_checkpoint(codec, values, what)
        if is_stochastic(codec) and not codec.memory(values):
            _check_unbiased(codec, values, what)
        with np.errstate(all="ignore"):  # what is no number may stay none
            for kind, updates in _huge_updates(values):
                _check_sums(codec, updates, f"{what}, {kind}")
            _check_not_finite(codec, values, what)
            _check_mutations(codec, values, mutations, what)
            _check_overflow(codec, values, what)


def _check_value(codec: Codec) -> None:
    assert isinstance(codec, Codec), f"{codec!r} lacks a method of Codec"
    assert type(codec).__hash__ is not None, f"{codec!r} must be hashable: use dataclass(frozen=True)"
    text = write(codec)
    assert parse("codec", text) == codec, f"{text!r} does not read back as {codec!r}; is it a frozen dataclass?"


def _updates(values: int) -> Iterator[tuple[str, list[Values]]]:
    """Updates of one kind, one after the other."""
    draw = Draw(SEED)
    normal = [draw.normals(values, "normal", step).astype(np.float32) for step in range(STEPS)]
    yield "normal", normal
    yield "small", [each * np.float32(1e-6) for each in normal]
    yield "large", [each * np.float32(1e30) for each in normal]
    yield "of all sizes", [np.exp(np.float32(8) * each) * np.sign(each) for each in normal]
    yield "zero", [np.zeros(values, np.float32)] * STEPS
    yield "equal", [np.full(values, -0.3, np.float32)] * STEPS
    yield "two values", [np.where(each > 0, np.float32(1), np.float32(-1)) for each in normal]
    yield "in order", [np.linspace(-1, 2, values, dtype=np.float32)] * STEPS
    yield "one", [np.where(np.arange(values) == step % values, np.float32(5), np.float32(0)) for step in range(STEPS)]


def _huge_updates(values: int) -> Iterator[tuple[str, list[Values]]]:
    """The same, huge at first; with what is left of it the others are still finite."""
    normal = Draw(SEED).normals(values, "huge").astype(np.float32)
    both = np.where(normal > 0, LARGEST, -LARGEST)
    yield "largest", [np.full(values, LARGEST), normal, normal]
    yield "largest of both signs", [both, normal, normal]
    yield "one of the largest", [np.where(np.arange(values) == values // 2, LARGEST, normal), normal, normal]
    yield "huge sums", [np.full(values, 2e36, np.float32), normal, normal]
    yield "huge", [np.clip(normal, -3, 3) * np.float32(1e38), normal, normal]


def _chance(step: int) -> Chance:
    return lambda: Draw(SEED).generator("codec", step)


def _encode(codec: Codec, update: Values, memory: Memory, step: int, fill: int = 0) -> Payload:
    out: Bytes = np.full(codec.size(update.size), fill, np.uint8)
    return codec.encode(update, memory, out, _chance(step))


def _decode(codec: Codec, payload: Payload, values: int) -> Values:
    return codec.decode(payload, np.full(values, 3, np.float32)).copy()


def _check_sums(codec: Codec, updates: list[Values], what: str) -> None:
    memory = codec.memory(updates[0].size)
    for step, update in enumerate(updates):
        before, carried = update.copy(), memory["residual"].copy() if "residual" in memory else np.float32(0)
        payload = _encode(codec, update, memory, step)
        assert np.array_equal(update, before), f"{what}: encoding changed the update"
        _check_size(codec, payload, update.size, what)
        codec.check(payload, update.size)
        sent = _decode(codec, payload, update.size)
        # With a velocity, what there is to send is known only while that is zero.
        if step == 0 or set(memory) <= {"residual"}:
            assert np.isfinite(sent).all(), f"{what}: finite values are decoded as NaN or infinity"
            _check_sum(codec, sent, memory, update + carried, what)
        _check_add_into(codec, payload, sent, what)


def _check_size(codec: Codec, payload: Payload, values: int, what: str) -> None:
    size = codec.size(values)
    if is_exact(codec):
        assert payload.nbytes == size, f"{what}: a payload has {payload.nbytes} bytes, but `size` says {size}"
    assert payload.nbytes <= size, f"{what}: a payload has {payload.nbytes} bytes, and `size` says at most {size}"


def _check_add_into(codec: Codec, payload: Payload, sent: Values, what: str) -> None:
    total = np.linspace(-1, 1, sent.size, dtype=np.float32)
    expected = total + sent
    codec.add_into(payload, total)
    assert np.array_equal(total, expected, equal_nan=True), f"{what}: `add_into` does not add what `decode` gives"


def _check_sum(codec: Codec, sent: Values, memory: Memory, total: Values, what: str) -> None:
    if "residual" not in memory:
        if not is_stochastic(codec):
            assert np.array_equal(sent, total), f"{what}: something was lost, and there is no residual"
        return
    found = sent.astype(np.float64) + memory["residual"]  # a float32 could round to infinity
    if is_sparse(codec):
        assert np.array_equal(found, total), f"{what}: sent + residual is not the update to the bit"
    else:
        room = 8 * EPSILON * np.maximum(np.abs(sent), np.abs(total))
        assert (np.abs(found - total) <= room).all(), f"{what}: sent + residual is not the update"


def _check_pure(codec: Codec, values: int, what: str) -> None:
    update = Draw(SEED).normals(values, "pure").astype(np.float32)
    memories = codec.memory(values), codec.memory(values)
    for step in range(STEPS):
        one, two = (_encode(codec, update, each, step, fill) for each, fill in zip(memories, (0, 255), strict=True))
        assert np.array_equal(one, two), f"{what}: the same update gave other bytes the second time"
        _check_same(*memories, f"{what}: the same update left something else behind the second time")


def _check_checkpoint(codec: Codec, values: int, what: str) -> None:
    memory = codec.memory(values)
    for name, each in memory.items():
        assert each.dtype == np.float32, f"{what}: {name!r} of the memory must be float32, not {each.dtype}"
        assert each.shape == (values,), f"{what}: {name!r} of the memory must be as long as the bucket"
    updates = [Draw(SEED).normals(values, "saved", step).astype(np.float32) for step in range(2 * STEPS)]
    for step, update in enumerate(updates[:STEPS]):
        _encode(codec, update, memory, step)
    file = io.BytesIO()
    np.savez(file, **memory)  # type: ignore[arg-type]
    file.seek(0)
    with np.load(file) as saved:
        loaded: Memory = dict(saved)
    for step, update in enumerate(updates[STEPS:], STEPS):
        one, two = (_encode(codec, update, each, step) for each in (memory, loaded))
        assert np.array_equal(one, two), f"{what}: a memory that was saved and loaded gave other bytes"
    _check_same(memory, loaded, f"{what}: a memory that was saved and loaded went another way")


def _check_same(one: Memory, two: Memory, problem: str) -> None:
    assert one.keys() == two.keys(), problem
    assert all(np.array_equal(one[name], two[name]) for name in one), problem


def _check_not_finite(codec: Codec, values: int, what: str) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        for place in (slice(values // 2, values // 2 + 1), slice(None)):
            memory = codec.memory(values)
            update = np.ones(values, np.float32)
            update[place] = bad
            sent = _decode(codec, _encode(codec, update, memory, 0), values)
            assert not np.isfinite(sent).all(), f"{what}: {bad} in an update is not seen by who decodes it"
            kept = all(np.isfinite(each).all() for each in memory.values())
            assert kept, f"{what}: {bad} in an update stays in the memory"


def _check_overflow(codec: Codec, values: int, what: str) -> None:
    """What is infinite only together with what was left is an infinity like any other."""
    memory, update = codec.memory(values), np.full(values, LARGEST)
    for step in range(STEPS):
        total = update + memory["residual"] if "residual" in memory else update
        sent = _decode(codec, _encode(codec, update, memory, step), values)
        seen = np.isfinite(total).all() or not np.isfinite(sent).all()
        assert seen, f"{what}: update + residual is infinite, which is not seen by who decodes it"
        kept = all(np.isfinite(each).all() for each in memory.values())
        assert kept, f"{what}: update + residual is infinite, and stays in the memory"


def _check_unbiased(codec: Codec, values: int, what: str) -> None:
    """Within six standard deviations, and what so few draws cannot tell."""
    update = Draw(SEED).normals(values, "unbiased").astype(np.float32)
    draws = max(DRAWS * 300 // max(values, 300), 100)
    sent = np.stack([_decode(codec, _encode(codec, update, {}, step), values) for step in range(draws)])
    gap = float(np.ptp(sent, axis=0).max())
    room = 6 * sent.std(axis=0, dtype=np.float64) / draws**0.5 + 8 * gap / draws + 1e-5 * np.abs(update)
    wrong = np.abs(sent.mean(axis=0, dtype=np.float64) - update) > room
    assert not wrong.any(), f"{what}: the mean of {draws} draws is not the update, at {wrong.sum()} of {values} places"


def _check_mutations(codec: Codec, values: int, mutations: int, what: str) -> None:
    generator = Draw(SEED).generator("mutations", values)
    good = [_as_bytes(_encode(codec, updates[0], codec.memory(values), 0)) for _, updates in _updates(values)]
    guarded = np.full(values + 2 * GUARD, 5, np.float32)
    for number in range(mutations):
        payload = _mutated(good[number % len(good)], generator)
        if number < 20:
            tracemalloc.start()
        try:
            _check_mutated(codec, payload, guarded, f"{what}, mutation {number}")
            if number < 20:
                peak = tracemalloc.get_traced_memory()[1]
                room = (1 << 22) + 64 * values
                assert peak < room, f"{what}, mutation {number}: decoding took {peak} bytes of memory"
        finally:
            tracemalloc.stop()


def _check_mutated(codec: Codec, payload: Bytes, guarded: Values, what: str) -> None:
    before, out = payload.copy(), guarded[GUARD:-GUARD]
    valid = _passes(partial(codec.check, payload, out.size), what)
    for decode in (codec.decode, codec.add_into):
        out[:] = 1
        done = _passes(partial(decode, payload, out), what)
        assert done or not valid, f"{what}: `check` lets pass what `{decode.__name__}` refuses"
    edges = np.concatenate([guarded[:GUARD], guarded[-GUARD:]])
    assert (edges == 5).all(), f"{what}: something was written outside the values"
    assert np.array_equal(payload, before), f"{what}: decoding changed the payload"


def _passes(call: Callable[[], object], what: str) -> bool:
    """Did it return, rather than refuse?"""
    try:
        call()
    except PeerError:
        return False
    except Exception as error:
        raise AssertionError(f"{what}: bytes from the wire raised {type(error).__name__}: {error}") from error
    return True


def _as_bytes(payload: Payload) -> Bytes:
    return np.ascontiguousarray(payload).view(np.uint8).copy()


def _mutated(good: Bytes, generator: np.random.Generator) -> Bytes:
    """A payload with some bytes changed, cut off, added or moved; or none at all."""
    how, where = generator.integers(8), generator.integers(max(good.size, 1))
    if how == 0:
        return good[:where].copy()
    if how == 1:
        return np.concatenate([good, generator.integers(0, 256, 1 + where, dtype=np.uint8)])
    if how == 2:
        return generator.integers(0, 256, good.size, dtype=np.uint8)
    if how == 3:
        return np.roll(good, where)
    changed = good.copy()
    if how == 4:
        changed[where:] = generator.integers(0, 256)
    elif good.size:
        places = generator.integers(0, good.size, 1 + how)
        changed[places] = generator.integers(0, 256, places.size, dtype=np.uint8)
    return changed
