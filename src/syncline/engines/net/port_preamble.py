"""The first bytes of a connection to a port that the processes of a host share: which of them it is for.

    4 bytes   0xffffffff        no frame and no TLS handshake begins like this
    1 byte    length of the name
    name      the name of the process's Unix socket

They come before TLS, in plain text. The name is no secret and proves nothing: the process that gets the connection does
the TLS handshake, and believes nothing before that. A connection without them is for the coordinator.
"""

from __future__ import annotations

import re

MAGIC = b"\xff\xff\xff\xff"

LONGEST_NAME = 64

_NAME = re.compile(r"syncline(-run)?-[0-9a-f]{32}")


def preamble(name: str) -> bytes:
    """The bytes to send first, for the process with this Unix socket."""
    return MAGIC + bytes([len(name)]) + name.encode()


def is_target(name: str) -> bool:
    """Whether a process of a run may have a Unix socket with this name."""
    return _NAME.fullmatch(name) is not None
