"""The children of a launcher, without real processes: their output is passed on, and each end is noticed once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncline.engines.launch import children as module
from syncline.engines.launch.child import Child
from syncline.engines.launch.children import Children


class FakeProcess:
    """What a child needs of its process."""

    stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code = 0

    def wait(self) -> int:
        return self.code


class FakeChild(Child):
    """Its output is a pipe that the test writes to; it ends when the test says so."""

    def __init__(self, name: str, pid: int) -> None:
        read, self.write = os.pipe()
        os.set_blocking(read, False)
        super().__init__(name, FakeProcess(pid), open(read, "rb", buffering=0))  # type: ignore[arg-type]  # noqa: SIM115
        self.over = False
        self.signals: list[int] = []

    def has_ended(self) -> bool:
        return self.over

    def signal(self, number: int) -> None:
        if self.code is None:
            self.signals.append(number)

    def says(self, text: str) -> None:
        os.write(self.write, text.encode())

    def falls_silent(self) -> None:
        os.close(self.write)
        self.write = -1

    def close(self) -> None:
        super().close()
        self.stream.close()
        if self.write >= 0:
            self.falls_silent()


class Family:
    """Children, and what they are heard to say."""

    def __init__(self, log_dir: str = "") -> None:
        self.heard: list[tuple[str, str]] = []
        self.stopped = False
        self.children = Children(lambda child, text: self.heard.append((child.name, text)), log_dir)

    def start(self, name: str) -> FakeChild:
        made = self.children.start(name, [], {})
        assert isinstance(made, FakeChild)
        return made

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self.children.stop()


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Family]]:
    made: list[Family] = []

    def spawn(name: str, command: object, environment: object, everyone: list[Child], **_: bool) -> Child:
        everyone.append(FakeChild(name, 1000 + len(everyone)))
        return everyone[-1]

    def make(*words: Any) -> Family:
        made.append(Family(*words))
        return made[-1]

    monkeypatch.setattr(module, "spawn", spawn)
    yield make
    for each in made:
        each.stop()


def test_lines_are_passed_on_with_the_name_of_who_said_them(family: Callable[..., Family]) -> None:
    found = family()
    first, second = found.start("w0"), found.start("w1")
    first.says("one\ntw")
    found.children.turn(0)
    second.says("three\n")
    first.says("o\n")
    found.children.turn(0)
    assert found.heard[:1] == [("w0", "one")]
    assert sorted(found.heard[1:]) == [("w0", "two"), ("w1", "three")]


def test_a_line_without_an_end_is_said_when_its_process_falls_silent(family: Callable[..., Family]) -> None:
    found = family()
    child = found.start("w0")
    child.says("half a line")
    found.children.turn(0)
    assert found.heard == []
    child.falls_silent()
    found.children.turn(0)
    assert found.heard == [("w0", "half a line")]
    found.children.turn(0)


def test_what_explains_an_output_comes_before_it(family: Callable[..., Family]) -> None:
    """Both are there to be read: what is watched goes first."""
    found = family()
    found.start("w0").says("an error\n")
    read, write = os.pipe()
    try:
        found.children.watch(read, lambda: found.heard.append(("coordinator", os.read(read, 100).decode())))
        os.write(write, b"the reason")
        found.children.turn(0)
        assert found.heard == [("coordinator", "the reason"), ("w0", "an error")]
        found.children.forget(read)
        os.write(write, b"more")
        found.children.turn(0)
        assert len(found.heard) == 2
    finally:
        os.close(read)
        os.close(write)


def test_an_end_is_noticed_once(family: Callable[..., Family]) -> None:
    found = family()
    first, second = found.start("w0"), found.start("w1")
    assert list(found.children.ended()) == []
    second.over = True
    second.process.code = 3  # type: ignore[attr-defined]
    assert list(found.children.ended()) == [second]
    assert (first.code, second.code) == (None, 3)
    assert second.signals == [signal.SIGKILL], "what it has started ends with it"
    assert list(found.children.ended()) == []


def test_the_last_words_are_heard_when_all_are_stopped(family: Callable[..., Family]) -> None:
    found = family()
    first, second = found.start("w0"), found.start("w1")
    second.over = True
    assert list(found.children.ended()) == [second]
    first.says("line\n" * 10_000 + "last")
    second.says("of the dead")
    for child in (first, second):
        child.falls_silent()
    found.stop()
    assert found.heard[-2:] == [("w0", "last"), ("w1", "of the dead")]
    assert len(found.heard) == 10_002
    assert (first.signals, second.signals) == ([signal.SIGKILL], [signal.SIGKILL])
    assert first.code == 0
    assert first.stream.closed


def test_what_nobody_ends_is_not_waited_for(family: Callable[..., Family]) -> None:
    """Somebody else may hold the pipe of a process that is over."""
    found = family()
    found.start("w0").says("a line\n")
    found.stop()
    assert found.heard == [("w0", "a line")]


def test_output_goes_to_a_file_as_it_comes(family: Callable[..., Family], tmp_path: Path) -> None:
    found = family(str(tmp_path))
    child = found.start("w0")
    child.says("one\r\ntwo")
    found.children.turn(0)
    assert (tmp_path / "w0.log").read_bytes() == b"syncline: output of w0\none\r\ntwo"
    assert found.heard == [("w0", "one")]
