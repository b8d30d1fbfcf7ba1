"""Frames: how messages lie on a stream. A frame is checked before it is believed.

    4 bytes   length of the header            little-endian
    4 bytes   length of the payload
    header    one message as msgpack, tagged; nothing else is ever decoded
    payload   raw bytes, read straight to where they belong

A stranger's first frame is small; nothing is allocated by what a frame claims to hold.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from syncline.engines.net.control import ControlMessage
from syncline.errors import PeerError
from syncline.messages import AnyMessage

PREFIX = Struct("<II")

STRANGER = 4096
"""The largest header before a peer has said who it is; whoever sends only pushes and pulls needs no larger one."""

DECLARATION = 4 << 20
"""The largest header of a worker that declares its tables."""

HANDOVER = 16 << 20
"""The largest header between servers: who has pushed what, of all workers."""

HEADER = 32 << 20
"""The largest header of all: the coordinator's, with a view and the tables of a model."""

Frame = AnyMessage | ControlMessage

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def pack(message: Frame, payload_bytes: int = 0) -> bytes:
    """The bytes of a frame up to its payload."""
    header = _encoder.encode(message)
    return PREFIX.pack(len(header), payload_bytes) + header


def unpack(header: bytes | bytearray | memoryview) -> Frame:
    """The message in a header."""
    try:
        return _decoder.decode(header)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PeerError(f"a frame that holds no message: {error}") from None
