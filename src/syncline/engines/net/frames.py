"""Frames: how messages lie on a stream. A frame is checked before it is believed.

    4 bytes   length of the header            little-endian
    4 bytes   length of the payload
    header    one message as msgpack, tagged; nothing else is ever decoded
    payload   raw bytes, read straight to where they belong

A stranger's first frame is small; nothing is allocated by what a frame claims to hold.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Union

import msgspec

from syncline.engines.net.control import Control, ControlMessage
from syncline.errors import PeerError
from syncline.messages import MESSAGES, Message

PREFIX = Struct("<II")

STRANGER = 4096
"""The largest header before a peer has said who it is; whoever sends only pushes and pulls needs no larger one."""

DECLARATION = 4 << 20
"""The largest header of a worker that declares its tables."""

HANDOVER = 16 << 20
"""The largest header between servers: who has pushed what, of all workers."""

HEADER = 32 << 20
"""The largest header of all: the coordinator's, with a view and the tables of a model."""

Frame = Message | Control

_encoder = msgspec.msgpack.Encoder()


def pack(message: Frame, payload_bytes: int = 0) -> bytes:
    """The bytes of a frame up to its payload."""
    header = _encoder.encode(message)
    return PREFIX.pack(len(header), payload_bytes) + header


def unpack(header: bytes | bytearray | memoryview, further: tuple[type[Message], ...] = ()) -> Frame:
    """The message in a header; `further`: messages of a strategy's own that may be there too."""
    try:
        return _decoder(further).decode(header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PeerError(f"a frame that holds no message: {error}") from None


@cache
def _decoder(further: tuple[type[Message], ...]) -> msgspec.msgpack.Decoder[Frame]:
    return msgspec.msgpack.Decoder(Union[(*MESSAGES, *further, ControlMessage)])
