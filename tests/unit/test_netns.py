"""The two hosts of the tests: they reach each other, and nothing of them is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from netns import ip, two_hosts

LISTEN = """
import socket, sys
listener = socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
connection, peer = listener.accept()
connection.sendall(peer[0].encode())
"""

CONNECT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as connection:
    print(connection.recv(100).decode())
"""

SLEEP = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]


def left_behind() -> list[str]:
    return [line for line in ip("netns", "list").splitlines() if line.startswith(f"syncline-{os.getpid()}-")]


def test_one_host_reaches_the_other() -> None:
    with two_hosts() as (left, right):
        server = left.start(sys.executable, "-c", LISTEN, left.address, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        seen = right.run(sys.executable, "-c", CONNECT, left.address, port).stdout.strip()
        assert seen == right.address
        assert server.wait(10) == 0
    assert left_behind() == []


def test_each_host_has_a_loopback_of_its_own() -> None:
    with two_hosts() as (left, right):
        server = left.start(sys.executable, "-c", LISTEN, "127.0.0.1", stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        with pytest.raises(subprocess.CalledProcessError, match="non-zero"):
            right.run(sys.executable, "-c", CONNECT, "127.0.0.1", port)
        assert left.run(sys.executable, "-c", CONNECT, "127.0.0.1", port).stdout.strip() == "127.0.0.1"


def test_without_the_cable_nobody_is_reached() -> None:
    with two_hosts() as (left, right):
        right.link("down")
        with pytest.raises(subprocess.CalledProcessError, match="non-zero") as caught:
            right.run(sys.executable, "-c", CONNECT, left.address, "7070")
        assert "unreachable" in caught.value.stderr


def test_a_failure_leaves_nothing_behind() -> None:
    started: list[subprocess.Popen[str]] = []

    def fail() -> None:
        with two_hosts() as (left, right):
            started.append(left.start(*SLEEP, stdout=subprocess.PIPE, text=True))
            started.append(right.start("sh", "-c", f"{sys.executable} -c 'import signal; signal.pause()'"))
            assert started[0].stdout is not None
            assert started[0].stdout.readline() == "up\n"
            assert len(left_behind()) == 2
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    assert left_behind() == []
    assert all(process.poll() is not None for process in started)


def test_two_pairs_do_not_collide() -> None:
    with two_hosts() as (left, _), two_hosts() as (other, _):
        assert left.name != other.name
        assert len(left_behind()) == 4
    assert left_behind() == []


def test_a_user_who_is_not_root_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(pytest.skip.Exception, match="root"), two_hosts():
        pass


def test_a_machine_without_the_command_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(pytest.skip.Exception, match="iproute2"), two_hosts():
        pass
