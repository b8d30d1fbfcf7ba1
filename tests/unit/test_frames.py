"""Frames: every message survives encoding and decoding, and invalid frames are refused."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import NASTY, every_message, mutate, recorded, split
from syncline.engines.net.control import MOST_VALUES, Declare, Declared, Frozen, Hello, declared, layout_of
from syncline.engines.net.frames import PREFIX, Frame, pack, unpack
from syncline.errors import PeerError
from syncline.layout import Bucket
from syncline.messages import Member, Push, View

EVERY = every_message("a run", "a host", 1)


@pytest.mark.parametrize("message", EVERY, ids=lambda each: type(each).__name__)
def test_every_message_comes_back_as_it_was(message: Frame) -> None:
    frame = pack(message, 12)
    header, payload = PREFIX.unpack_from(frame)
    assert (header, payload) == (len(frame) - PREFIX.size, 12)
    assert unpack(frame[PREFIX.size :]) == message


def test_a_payload_has_a_length_and_nothing_else_to_do_with_the_header() -> None:
    push = Push(1, 2, 3, Bucket(0, 4), 5)
    assert pack(push, 16)[PREFIX.size :] == pack(push)[PREFIX.size :]


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc0",
        b"\x00",
        b"\x80",
        b"\x90",
        b"\xc1",
        b"\x81\xa4type\xa4\xff\xff\xff\xff",
        b"\x81\xa4type\xa4nope",
        b"\x81\xa4type\x05",
        b"\x82\xa4type\xa4push\xa1x" + b"\x91" * 100_000,
        b"\x82\xa4type\xa4push\xa1x" + b"\x81\xa1a" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x82\xa4type\xa4view\xa7members\xdd\x7f\xff\xff\xff",
        pack(Push(1, 2, 3, Bucket(0, 4), 5))[PREFIX.size :] + b"\x00",
        msgspec.msgpack.encode({"type": "push", "view": 1.5}),
        msgspec.msgpack.encode({"type": "push", "view": "1"}),
        msgspec.msgpack.encode({"type": "push", "view": True}),
        msgspec.msgpack.encode({"type": "hello", "run": b"x", "role": "worker"}),
    ],
)
def test_an_invalid_frame_raises_peer_error(header: bytes) -> None:
    with pytest.raises(PeerError):
        unpack(header)


@pytest.mark.parametrize(
    "message",
    [
        Hello("r", "worker", -2),
        Hello("r", "worker", 1 << 16),
        Hello("r", "worker", 2**64 - 1),
        Hello("r", "worker", 0, -1),
        Hello("r", "worker", 0, 2**63),
        Hello("r" * 257, "worker"),
        Hello("r", "w" * 257),
        Hello("r", "server", 0, unix="@" * 257),
        Hello("r", "worker", pid=-1),
        Frozen("h" * 257, 1, 1.0),
        Declare((Declared("w", (-1,)),)),
        Declare((Declared("w", (MOST_VALUES + 1,)),)),
        Declare((Declared("w", (1,) * 33),)),
        Declare((Declared("w" * 4097, (1,)),)),
    ],
    ids=repr,
)
def test_a_message_beyond_its_limits_is_refused(message: Frame) -> None:
    with pytest.raises(PeerError):
        unpack(pack(message)[PREFIX.size :])


@pytest.mark.parametrize(
    "tables",
    [
        (Declared("w", (MOST_VALUES, 2)),),
        (Declared("w", (MOST_VALUES,)), Declared("v", (1,))),
        (Declared("w", (2,)), Declared("w", (2,))),
    ],
)
def test_an_invalid_model_is_refused(tables: tuple[Declared, ...]) -> None:
    with pytest.raises(PeerError):
        layout_of(tables)


def test_a_model_travels_as_its_tables() -> None:
    tables = (Declared("w", (3, 4)), Declared("scalar", ()), Declared("b", (4,)))
    assert declared(layout_of(tables)) == tables
    assert layout_of(tables).size == 17


@given(st.binary(max_size=200))
def test_random_bytes(header: bytes) -> None:
    unpacked(header)


@given(
    st.sampled_from(EVERY),
    st.data(),
    st.one_of(st.sampled_from(NASTY), st.integers(-(2**63), 2**64 - 1), st.floats(), st.text(max_size=20)),
)
def test_any_value_in_any_field(message: Frame, data: st.DataObject, value: object) -> None:
    fields = msgspec.msgpack.decode(pack(message)[PREFIX.size :])
    fields[data.draw(st.sampled_from(sorted(fields)))] = value
    unpacked(msgspec.msgpack.encode(fields))


def unpacked(header: bytes) -> None:
    """Either it decodes to a message, which can be encoded again, or it raises `PeerError`."""
    try:
        message = unpack(header)
    except PeerError:
        return
    again = pack(message)[PREFIX.size :]
    assert pack(unpack(again))[PREFIX.size :] == again


def test_mutated_frames_are_messages_or_peers_errors() -> None:
    draw = random.Random(3)
    pool = [recorded(each, bytes(8)) for each in EVERY]
    for _ in range(20_000):
        for frame in split(mutate(draw, pool)):
            unpacked(frame.header)


def test_a_view_holds_its_members_and_buckets() -> None:
    view = View(3, (Member(0, 1, None), Member(2, 0, 7)), ((Bucket(0, 4), Bucket(4, 9)), ()))
    found = unpack(pack(view)[PREFIX.size :])
    assert isinstance(found, View)
    assert found == view
    assert found.members[0].first is None
    assert type(found.holders[0][0]) is Bucket
