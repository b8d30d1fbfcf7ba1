"""The public names are a promise: a change here is a change for users."""

from __future__ import annotations

import syncline


def test_the_public_names_are_these() -> None:
    assert sorted(syncline.__all__) == [
        "Asp",
        "Bsp",
        "Bucket",
        "Codec",
        "Drop",
        "Dsps",
        "GoneError",
        "Layout",
        "NotFinite",
        "PeerError",
        "Psp",
        "Pssp",
        "Release",
        "RunError",
        "Session",
        "Ssp",
        "Stalled",
        "Strategy",
        "SyncModel",
        "SynclineError",
        "Table",
        "UsageError",
        "__version__",
        "connect",
        "parse",
    ]
    assert all(hasattr(syncline, name) for name in syncline.__all__)
