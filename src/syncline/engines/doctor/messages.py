"""What the two sides of `syncline doctor --listen` and `--join` say to each other.

The first frame of a connection is `Hello` with the role "doctor", so that a run refuses it with a reason. These
messages keep their meaning from version to version: the two sides may have different ones, and must be able to say so.
"""

from __future__ import annotations

import platform
from typing import Annotated

import msgspec

from syncline.engines.doctor.finding import Finding
from syncline.engines.doctor.host_checks import version_of
from syncline.engines.net.control import PROTOCOL, Control, Word
from syncline.messages import Count, Seconds

ROLE = "doctor"

LONGEST_FLOOD = 5.0
"""The most seconds for which one side sends at the request of the other."""

BLOCK = 1 << 18
"""The payload bytes of one message of a measurement."""

MOST_FINDINGS = 64


class Facts(Control, frozen=True, tag="doctor-facts"):
    """Who I am: the first message after `Hello`, in both directions."""

    version: Word = ""
    protocol: Count = 0
    python: Word = ""
    numpy: Word = ""
    torch: Word = ""
    seen: Word = ""
    """The address that the other side has for me, as I see it."""


class Ping(Control, frozen=True, tag="doctor-ping"):
    """Joiner to listener: answer at once."""

    number: Count


class Pong(Control, frozen=True, tag="doctor-pong"):
    """The answer, with the listener's clock: seconds since 1970."""

    number: Count
    clock: Seconds


class FloodBlock(Control, frozen=True, tag="doctor-block"):
    """A payload that fills the way between the two hosts; it is not kept."""


class FloodEnd(Control, frozen=True, tag="doctor-end"):
    """That was the last block."""


class Flooded(Control, frozen=True, tag="doctor-flooded"):
    """Listener to joiner: so many bytes came after the first block, in so many seconds."""

    bytes: Count
    seconds: Seconds


class AskFlood(Control, frozen=True, tag="doctor-ask"):
    """Joiner to listener: send me blocks for so many seconds."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_FLOOD)]


class CallBack(Control, frozen=True, tag="doctor-call"):
    """Joiner to listener: connect to me at this address, and show this word in your `Hello`."""

    place: Word
    word: Word


class CalledBack(Control, frozen=True, tag="doctor-called"):
    """The answer: I have connected, or why I could not."""

    problem: Annotated[str, msgspec.Meta(max_length=1024)] = ""


class VisitEnd(Control, frozen=True, tag="doctor-verdict"):
    """Joiner to listener: what I have found. The listener answers with the same message, without findings."""

    findings: Annotated[tuple[Finding, ...], msgspec.Meta(max_length=MOST_FINDINGS)] = ()


MESSAGES = (Facts, Ping, Pong, FloodBlock, FloodEnd, Flooded, AskFlood, CallBack, CalledBack, VisitEnd)


def own_facts(seen: str) -> Facts:
    """`seen`: the address of the other side."""
    return Facts(
        version_of("syncline"), PROTOCOL, platform.python_version(), version_of("numpy"), version_of("torch"), seen
    )
