"""Frames: the encoding of messages on a stream. Every frame is validated when it is decoded.

    4 bytes   length of the header            little-endian
    4 bytes   length of the payload
    header    one tagged message as msgpack; nothing else is ever decoded
    payload   raw bytes, read directly to their destination

The first frame of an unauthenticated peer must be small. No memory is allocated because of an announced header length.
Texts that are meant to be printed arrive with escapes in place of characters that are not printable.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from struct import Struct
from typing import Union

import msgspec
from msgspec.structs import replace

from syncline.engines.net.control import (
    Abort,
    ChangeReply,
    CheckpointWritten,
    Control,
    ControlMessage,
    Figures,
    Notice,
    Pulse,
    Reached,
    Refused,
    Seen,
    TermsTaken,
)
from syncline.errors import PeerError, printable
from syncline.messages import MESSAGES, Message

PREFIX = Struct("<II")

FIRST_HEADER = 4096
"""The largest header of an unauthenticated peer; also enough for a peer that sends only pushes and pulls."""

DECLARATION = 4 << 20
"""The largest header of a worker that declares its tables."""

HANDOVER = 16 << 20
"""The largest header between servers: a handover lists what every worker has pushed."""

HEADER = 32 << 20
"""The largest header of all: the coordinator sends a view and the tables of a model."""

Frame = Message | Control

_PRINTED: Mapping[type[Frame], str] = {
    Refused: "reason",
    Abort: "reason",
    Seen: "what",
    Notice: "text",
    ChangeReply: "problem",
    CheckpointWritten: "problem",
    Reached: "problem",
    TermsTaken: "problem",
    Pulse: "model",
    Figures: "model",
}
"""The fields that the receiver prints, or puts into the message of an error."""

_encoder = msgspec.msgpack.Encoder()


def pack(message: Frame, payload_bytes: int = 0) -> bytes:
    """The bytes of a frame up to its payload."""
    header = _encoder.encode(message)
    return PREFIX.pack(len(header), payload_bytes) + header


def header_of(message: Frame) -> bytes:
    """The message as it stands in a header."""
    return _encoder.encode(message)


def unpack(header: bytes | bytearray | memoryview, further: tuple[type[Frame], ...] = ()) -> Frame:
    """Decode the message in a header; `further`: message types that are accepted too, such as those of the strategy."""
    try:
        message = _decoder(further).decode(header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PeerError(f"it sent a frame that is not a valid message: {error}") from None
    field = _PRINTED.get(type(message))
    if field is not None and not getattr(message, field).isprintable():
        return replace(message, **{field: printable(getattr(message, field))})
    return message


@cache
def _decoder(further: tuple[type[Frame], ...]) -> msgspec.msgpack.Decoder[Frame]:
    return msgspec.msgpack.Decoder(Union[(*MESSAGES, *further, ControlMessage)])
