"""The conformance suite for codecs."""

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
from syncline.spec import write
from syncline.testing.common import MANY, check_flags, check_value, own_randomness

SIZES = (1, 7, 300, 2048, 5000)
"""Numbers of values in a bucket, including less than 8 and some that are no multiple of a block."""

STEPS = 3
DRAWS = 1000
GUARD = 64
SEED = 7

EPSILON = float(np.finfo(np.float32).eps)
LARGEST = np.finfo(np.float32).max


def check_codec(codec: Codec, *, mutations: int = 2000) -> None:
    """Raise AssertionError, with the reason, if the codec breaks one of these rules.

    The updates are of many kinds and sizes, up to 262,144 values.

    1. sent + new residual = update + old residual, also for the largest numbers: exactly if it is `sparse`, otherwise
       up to rounding.
    2. If it is `stochastic` and keeps no residual, the mean over draws is the update.
    3. A payload has as many bytes as `size` says, or at most that many if it is not `exact`.
    4. Encoding does not change the update, and decoding does not change the payload.
    5. The same input gives the same bytes, also with a state that was saved and loaded, and with another bucket in
       between. Nothing is kept between calls, and no shared random generator is used.
    6. The receiver notices NaN and infinity. They never stay in the state. Finite values never become NaN or infinity.
    7. Corrupted payloads (`mutations` of them) give a PeerError or values, and no other error.
    8. `exact`, `plain`, `sparse` and `stochastic` are True or False, and `size` returns a whole number.
    9. The codec is a value: it has the methods, compares and hashes, and can be written as text and read back.
    """
    what = check_value("codec", codec, Codec)
    check_flags(codec, "exact", "plain", "sparse", "stochastic")
    with own_randomness(what):
        for values in SIZES:
            check_bucket(codec, values, mutations=mutations // len(SIZES))
        _check_large(codec, f"{what}, {MANY:,} values")


def _check_large(codec: Codec, what: str) -> None:
    """The checks in which the number of values matters, on one bucket of many."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, updates in _updates(MANY):
            if kind in ("normal", "of all sizes", "one"):
                _check_sums(codec, updates, f"{what}, {kind}")
        _check_pure(codec, MANY, what)
        _check_apart(codec, MANY, what)
        with np.errstate(all="ignore"):
            _check_mutations(codec, MANY, 40, what)


def check_bucket(codec: Codec, values: int, *, mutations: int = 400) -> None:
    """Check buckets of one size; also for a codec that cannot be written as text."""
    what = f"{write(codec)}, {values} values"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, updates in _updates(values):
            _check_sums(codec, updates, f"{what}, {kind}")
        _check_pure(codec, values, what)
        _check_apart(codec, values, what)
        _check_checkpoint(codec, values, what)
        if is_stochastic(codec) and not codec.memory(values):
            _check_unbiased(codec, values, what)
        with np.errstate(all="ignore"):  # these updates overflow or contain NaN on purpose
            for kind, updates in _huge_updates(values):
                _check_sums(codec, updates, f"{what}, {kind}")
            _check_not_finite(codec, values, what)
            _check_mutations(codec, values, mutations, what)
            _check_overflow(codec, values, what)


def _updates(values: int) -> Iterator[tuple[str, list[Values]]]:
    """(kind, updates in order): ordinary magnitudes."""
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
    """(kind, updates in order): the first is huge, and residual + update stays finite after it."""
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
        # A codec with a velocity sends more than update + residual; only in the first step is the velocity zero before.
        if step == 0 or set(memory) <= {"residual"}:
            assert np.isfinite(sent).all(), f"{what}: finite values were decoded as NaN or infinity"
            _check_sum(codec, sent, memory, update + carried, what)
        _check_add_into(codec, payload, sent, what)


def _check_size(codec: Codec, payload: Payload, values: int, what: str) -> None:
    size: object = codec.size(values)
    assert isinstance(size, int), f"{what}: `size` must return a whole number, not {size!r}"
    if is_exact(codec):
        assert payload.nbytes == size, f"{what}: a payload has {payload.nbytes} bytes, but `size` says {size}"
    assert payload.nbytes <= size, f"{what}: a payload has {payload.nbytes} bytes, but `size` says at most {size}"


def _check_add_into(codec: Codec, payload: Payload, sent: Values, what: str) -> None:
    total = np.linspace(-1, 1, sent.size, dtype=np.float32)
    expected = total + sent
    codec.add_into(payload, total)
    assert np.array_equal(total, expected, equal_nan=True), f"{what}: `add_into` does not add what `decode` returns"


def _check_sum(codec: Codec, sent: Values, memory: Memory, total: Values, what: str) -> None:
    if "residual" not in memory:
        if not is_stochastic(codec):
            assert np.array_equal(sent, total), f"{what}: decoding changed values, but the codec keeps no residual"
        return
    found = sent.astype(np.float64) + memory["residual"]  # a float32 could round to infinity
    if is_sparse(codec):
        assert np.array_equal(found, total), f"{what}: sent + residual is not bit-identical to the update"
    else:
        room = 8 * EPSILON * np.maximum(np.abs(sent), np.abs(total))
        assert (np.abs(found - total) <= room).all(), f"{what}: sent + residual does not equal the update"


def _check_pure(codec: Codec, values: int, what: str) -> None:
    update = Draw(SEED).normals(values, "pure").astype(np.float32)
    memories = codec.memory(values), codec.memory(values)
    for step in range(STEPS):
        one, two = (_encode(codec, update, each, step, fill) for each, fill in zip(memories, (0, 255), strict=True))
        assert np.array_equal(one, two), f"{what}: encoding the same update twice gave different bytes"
        _check_same(*memories, f"{what}: encoding the same update twice gave different memories")


def _check_apart(codec: Codec, values: int, what: str) -> None:
    """Two buckets of the same codec, in turn: each gives the bytes that it gives alone, and these stay as they are."""
    draw = Draw(SEED)
    updates = [[draw.normals(values, "apart", n, step).astype(np.float32) for step in range(STEPS)] for n in range(2)]
    alone, memory = [], codec.memory(values)
    for step, update in enumerate(updates[0]):
        alone.append(_encode(codec, update, memory, step).copy())
    memories = [codec.memory(values) for _ in updates]
    for step in range(STEPS):
        one, _ = (_encode(codec, each[step], kept, step) for each, kept in zip(updates, memories, strict=True))
        problem = "with another bucket in between, an update gave other bytes; a codec must keep nothing between calls"
        assert np.array_equal(one, alone[step]), f"{what}: {problem}"
    _check_same(memory, memories[0], f"{what}: with another bucket in between, the memories differ")


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
        assert np.array_equal(one, two), f"{what}: after saving and loading the memory, the bytes differ"
    _check_same(memory, loaded, f"{what}: after saving and loading the memory, the memories differ")


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
            assert not np.isfinite(sent).all(), f"{what}: {bad} in an update was decoded as finite values"
            kept = all(np.isfinite(each).all() for each in memory.values())
            assert kept, f"{what}: {bad} in an update stays in the memory"


def _check_overflow(codec: Codec, values: int, what: str) -> None:
    """If only the sum of update and residual is infinite, the receiver must notice that too."""
    memory, update = codec.memory(values), np.full(values, LARGEST)
    for step in range(STEPS):
        total = update + memory["residual"] if "residual" in memory else update
        sent = _decode(codec, _encode(codec, update, memory, step), values)
        seen = np.isfinite(total).all() or not np.isfinite(sent).all()
        assert seen, f"{what}: update + residual is infinite, but was decoded as finite values"
        kept = all(np.isfinite(each).all() for each in memory.values())
        assert kept, f"{what}: update + residual is infinite and stays in the memory"


def _check_unbiased(codec: Codec, values: int, what: str) -> None:
    """The mean over draws must be the update, within six standard deviations and what so few draws can resolve."""
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
        assert done or not valid, f"{what}: `check` accepts a payload that `{decode.__name__}` refuses"
    edges = np.concatenate([guarded[:GUARD], guarded[-GUARD:]])
    assert (edges == 5).all(), f"{what}: decoding wrote outside the array of values"
    assert np.array_equal(payload, before), f"{what}: decoding changed the payload"


def _passes(call: Callable[[], object], what: str) -> bool:
    """True if the call returned, False if it raised PeerError; any other error fails the check."""
    try:
        call()
    except PeerError:
        return False
    except Exception as error:
        raise AssertionError(f"{what}: a corrupted payload raised {type(error).__name__}: {error}") from error
    return True


def _as_bytes(payload: Payload) -> Bytes:
    return np.ascontiguousarray(payload).view(np.uint8).copy()


def _mutated(good: Bytes, generator: np.random.Generator) -> Bytes:
    """The payload with some bytes changed, removed, added or moved."""
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
