"""What all tests need."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

import syncline
from peers import Peer
from syncline import Session

# If the tests run in the background, interrupts may be ignored; the processes that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile("no time is asserted", deadline=None)  # a slow example is no failure
settings.load_profile("no time is asserted")


@pytest.fixture(autouse=True)
def _same_path() -> Iterator[None]:
    """The command adds the current folder to the module path; remove it, because the next test has another folder."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture
def peer() -> Iterator[Callable[[], Peer]]:
    """Makes pairs of sockets, which are closed when the test is over."""
    made: list[Peer] = []

    def make() -> Peer:
        made.append(Peer())
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def session() -> Iterator[Session]:
    """A session with one worker, in this process."""
    before = signal.getsignal(signal.SIGTERM)
    made = syncline.connect({})
    yield made
    made.leave()
    signal.signal(signal.SIGTERM, before)
