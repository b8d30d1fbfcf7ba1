"""How `syncline tell` finds a run."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from syncline.engines import operator
from syncline.engines.net.addresses import listen_unix
from syncline.engines.net.wiring import RUN
from syncline.engines.operator import find, name_of
from syncline.errors import RunError, UsageError


@contextmanager
def coordinator() -> Iterator[str]:
    """Somebody who listens as a coordinator does; its address."""
    listener, name = listen_unix(RUN)
    with listener:
        yield f"@{name}"


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let these be all the runs of this host: others may be tested at the same time."""
    monkeypatch.setattr(operator, "_listening", lambda: list(names))


def test_a_run_has_a_short_name() -> None:
    with coordinator() as address:
        short = name_of(address)
        assert len(short) == 8
        assert find(short) == (address,)
        assert find(address) == (address,)


def test_the_only_run_needs_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with coordinator() as address, coordinator() as other:
        only(monkeypatch, address)
        assert find(None) == (address,)
        only(monkeypatch, address, other)
        with pytest.raises(UsageError, match="RUN: you have several runs on this host; name one of"):
            find(None)
        only(monkeypatch)
        with pytest.raises(RunError, match="you have no run on this host"):
            find(None)


def test_a_run_that_has_ended_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with coordinator() as address:
        pass
    only(monkeypatch, address)
    with pytest.raises(RunError, match=f"you have no run '{name_of(address)}' on this host"):
        find(name_of(address))


def test_a_run_of_another_user_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with coordinator() as address:
        only(monkeypatch, address)
        monkeypatch.setattr("os.geteuid", lambda: 12345)
        with pytest.raises(RunError, match="you have no run on this host"):
            find(None)


def test_an_address() -> None:
    assert find("127.0.0.1:7070") == ("127.0.0.1:7070",)
    assert find("[::1]:7070") == ("[::1]:7070",)
    for wrong in ("0.0.0.0:7070", "127.0.0.1:0"):
        with pytest.raises(UsageError, match=r"RUN: .* is not a usable address; copy the one that --listen printed"):
            find(wrong)


def test_what_listens_and_is_no_run_is_not_found() -> None:
    listener, name = listen_unix()
    with listener:
        assert isinstance(listener, socket.socket)
        with pytest.raises(RunError):
            find(name.removeprefix("syncline-"))
