"""What all tests need."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

# Whoever runs the tests in the background may have interrupts ignored, and every process that a test starts would too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _same_path() -> Iterator[None]:
    """The command looks for modules in the folder where it is given, which is another one in the next test."""
    before = list(sys.path)
    yield
    sys.path[:] = before
