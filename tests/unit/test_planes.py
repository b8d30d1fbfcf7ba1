"""Numbers of a few bits: what is packed comes out again, whatever the length of a row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.codecs.planes import pack, packed_bytes, unpack


@given(rows=st.integers(1, 5), count=st.integers(1, 70), bits=st.integers(1, 8), seed=st.integers(0, 2**32 - 1))
def test_what_is_packed_comes_out_again(rows: int, count: int, bits: int, seed: int) -> None:
    numbers = np.random.default_rng(seed).integers(0, 256, (rows, count), dtype=np.uint8)
    packed = np.full((rows, packed_bytes(count, bits)), 0xAA, np.uint8)
    pack(numbers, bits, packed)
    assert np.array_equal(unpack(packed, bits, count), numbers & (2**bits - 1))


@pytest.mark.parametrize(("bits", "count"), [(2, 4), (4, 2)])
def test_every_byte_is_read_and_written_alike(bits: int, count: int) -> None:
    every = np.arange(256, dtype=np.uint8)[:, None]
    numbers = unpack(every, bits, count)
    assert numbers.max() < 2**bits
    again = np.empty_like(every)
    pack(numbers, bits, again)
    assert np.array_equal(again, every)
    assert np.array_equal(numbers[:, 0], every[:, 0] & (2**bits - 1)), "the first is in the lowest bits"
