"""Codecs over random values, also extreme ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from syncline.codecs import Codec, is_sparse
from syncline.codecs.indices import index_bytes, read_indices, write_indices
from syncline.codecs.selecting import largest_positions
from syncline.draw import Draw
from syncline.errors import PeerError
from syncline.layout import Values
from syncline.spec import parse

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


def values(elements: st.SearchStrategy[float] = finite) -> st.SearchStrategy[Values]:
    return arrays.arrays(np.float32, st.integers(1, 300), elements=elements, fill=st.one_of(st.nothing(), elements))


KEEPING = [
    *("fp16", "bf16", "int8", "topk:0.1", "topk:0.7", "threshold:1", "onebit", "qsgd:7,feedback=true"),
    *("qsgd:127,feedback=true", "terngrad:true", "topk:0.3+fp16", "topk:0.3+int8", "topk:0.7+onebit"),
    *("topk:0.3+qsgd:31", "topk:0.3+terngrad", "threshold:1+bf16", "by_size:100,large=int8,small=onebit"),
]


@pytest.mark.parametrize("text", KEEPING)
@given(st.data())
@settings(max_examples=60)
def test_nothing_is_lost(text: str, data: Any) -> None:
    """Unless update and residual together are infinite: then that is sent, and not kept."""
    codec: Codec = parse("codec", text)
    first = data.draw(values())
    memory = codec.memory(first.size)
    out = np.empty(codec.size(first.size), np.uint8)
    for step in range(3):
        update = first * np.float32(0.5) ** step
        with np.errstate(over="ignore"):
            total = update + memory["residual"]
        payload = codec.encode(update, memory, out, lambda: Draw(0).generator("codec"))
        sent = codec.decode(payload, np.empty_like(update))
        assert np.isfinite(memory["residual"]).all()
        assert np.isfinite(sent).all() == np.isfinite(total).all()
        if not np.isfinite(total).all():
            continue
        found = sent.astype(np.float64) + memory["residual"]
        if is_sparse(codec):
            assert np.array_equal(found, total)
        else:
            room = 1e-6 * np.maximum(np.abs(sent.astype(np.float64)), np.abs(total)) + 1e-44
            assert (np.abs(found - total) <= room).all()


@pytest.mark.parametrize("text", ["qsgd:1", "qsgd:31", "qsgd:127", "terngrad"])
@given(values())
@settings(max_examples=60)
def test_what_is_finite_stays_so(text: str, update: Values) -> None:
    codec: Codec = parse("codec", text)
    out = np.empty(codec.size(update.size), np.uint8)
    payload = codec.encode(update, {}, out, lambda: Draw(0).generator("codec"))
    assert np.isfinite(codec.decode(payload, np.empty_like(update))).all()


@given(values(st.floats(width=32)), st.floats(0, 1, exclude_min=True))
def test_the_largest_are_the_largest(update: Values, ratio: float) -> None:
    """NaN is the largest of all, and of equal ones the first count."""
    count = max(1, round(ratio * update.size))
    sizes = update.view(np.uint32) & np.uint32(0x7FFFFFFF)
    order = np.lexsort((np.arange(update.size), -sizes.astype(np.int64)))[:count]
    assert np.array_equal(largest_positions(update, count), np.sort(order))


@given(st.integers(1, 400), st.data())
def test_positions_are_read_as_they_were_written(size: int, data: Any) -> None:
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1)))), np.intp)
    out = np.full(index_bytes(chosen.size, size), 255, np.uint8)
    write_indices(chosen, size, out)
    assert np.array_equal(read_indices(out, chosen.size, size), chosen)


@given(st.integers(1, 2**40), st.sets(st.integers(0, 2**40 - 1), min_size=1, max_size=20))
@settings(max_examples=30)
def test_so_are_positions_far_apart(size: int, places: set[int]) -> None:
    """A position takes about log2(values / count) + 2 bits."""
    chosen = np.array(sorted({place % size for place in places}), np.intp)
    out = np.empty(index_bytes(chosen.size, size), np.uint8)
    write_indices(chosen, size, out)
    assert np.array_equal(read_indices(out, chosen.size, size), chosen)
    assert out.size <= chosen.size * (np.log2(size / chosen.size) + 4) / 8 + 40


@given(st.integers(1, 500), st.data())
def test_any_bytes_are_positions_within_bounds_or_refused(size: int, data: Any) -> None:
    count = data.draw(st.integers(1, size))
    length = index_bytes(count, size)
    written = np.frombuffer(data.draw(st.binary(min_size=length, max_size=length)), np.uint8)
    try:
        found = read_indices(written, count, size)
    except PeerError:
        return
    assert found.size == count
    assert found[0] >= 0
    assert found[-1] < size
    assert (np.diff(found) > 0).all()
