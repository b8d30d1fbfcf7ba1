"""How the launchers of the other hosts reach the coordinator of a run that begins on several hosts.

Hosts start in any order, and minutes apart. So a launcher tries again until the coordinator is there, and says what it
waits for. It does not try again if the coordinator has refused its key: that would not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import monotonic, sleep

from syncline.engines.launch.coordinator_link import CoordinatorLink, reach
from syncline.engines.net import addresses
from syncline.engines.net.control import Hello
from syncline.engines.net.wiring import NotListening, Wiring
from syncline.errors import RunError, UsageError

PAUSE = 0.5
"""Seconds between two attempts."""

FIRST_SECONDS = 10.0
"""Seconds after which the user is told what the launcher waits for; each further pause is twice as long."""

LIMIT_SECONDS = 3600.0
"""Seconds after which the launcher gives up."""


def reach_first_host(
    place: str,
    wiring: Wiring,
    hello: Hello,
    patience: float,
    note: Callable[[str], None],
    late: Callable[[], None] = lambda: None,
) -> CoordinatorLink:
    """Connect to the coordinator at `place`, ADDRESS:PORT; the host may be a name that is not known yet.

    `note`: prints a line. `late`: called once, after the first such line. The wiring of the link says where this host's
    processes listen.
    """
    began, pause = monotonic(), FIRST_SECONDS
    while True:
        try:
            link = _reach(place, wiring, hello, patience)
        except (NotListening, UsageError) as error:
            problem, waited = str(error), monotonic() - began
        else:
            listen_towards(link)
            return link
        if waited > LIMIT_SECONDS:
            raise RunError(f"host 0 has not started for {waited:.0f} s: {problem}")
        if waited > pause:
            note(f"waiting for host 0 for {waited:.0f} s: {problem}")
            if pause == FIRST_SECONDS:
                late()
            pause *= 2
        sleep(PAUSE)


def listen_towards(link: CoordinatorLink) -> None:
    """Let the processes of this host listen at its address on the way to the coordinator, where others reach them."""
    there = addresses.parse(link.wiring.coordinator, "--at").host
    link.wiring = replace(link.wiring, listen=addresses.route_to(there))


def _reach(place: str, wiring: Wiring, hello: Hello, patience: float) -> CoordinatorLink:
    """Connect at the first of the host's addresses where a coordinator answers."""
    *others, last = addresses.resolve(place, "--at")
    for address in others:
        try:
            return reach((str(address),), wiring, hello, patience)
        except NotListening:
            continue
    return reach((str(last),), wiring, hello, patience)
