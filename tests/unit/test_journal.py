"""The coordinator's journal: what it contains, what is cut off, and what is removed from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.engines.coordinator.compaction import Compaction
from syncline.engines.coordinator.journal import (
    Came,
    ConnectionClosed,
    Entry,
    FactRead,
    Journal,
    Listens,
    RemovedCounts,
    Sent,
    TimersDue,
    entries_of,
)
from syncline.engines.net.control import Go
from syncline.engines.net.lasting import LastingConnection

SOME: list[Entry] = [
    Listens(13, "@there", ""),
    Came(1.5, 0, True, b"hello"),
    FactRead(["two", "lines"]),
    FactRead(""),
    FactRead(0.25),
    FactRead(True),
    Sent(2.5, 0, b"frame"),
    TimersDue(3.0),
    ConnectionClosed(4.0, 0, "gone"),
]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(str(tmp_path / "run"))
    assert made.open() == []
    return made


def again(journal: Journal) -> list[Entry]:
    """What the next coordinator finds."""
    journal.close()
    return journal.open()


def test_the_next_one_finds_everything(journal: Journal) -> None:
    for entry in SOME:
        journal.add(entry)
    assert again(journal) == SOME
    journal.add(TimersDue(5.0))
    assert again(journal) == [*SOME, TimersDue(5.0)]
    assert journal.path.stat().st_mode & 0o777 == 0o600
    assert journal.path.parent.stat().st_mode & 0o777 == 0o700
    assert journal.size == journal.path.stat().st_size
    journal.close()


def test_an_entry_that_was_cut_off_is_removed(journal: Journal) -> None:
    ends = []
    for entry in SOME:
        journal.add(entry)
        ends.append(journal.size)
    whole = journal.path.read_bytes()
    for size in range(len(whole), 0, -1):
        journal.path.write_bytes(whole[:size])
        there = sum(end <= size for end in ends)
        assert again(journal) == SOME[:there]
        assert journal.path.stat().st_size == journal.size == max([0, *(end for end in ends if end <= size)])
    journal.close()


def test_an_entry_can_be_taken_back(journal: Journal) -> None:
    journal.add(SOME[0])
    before = journal.size, journal.count
    journal.add(SOME[1])
    journal.add(SOME[2])
    journal.cut(*before)
    journal.add(SOME[7])
    assert again(journal) == [SOME[0], SOME[7]]
    assert journal.count == 2
    journal.close()


# All-gathers.


def share(wire: int) -> Sent:
    return Sent(1.0, wire, b"x" * 40, shares=True)


def test_values_that_everybody_has_are_removed(journal: Journal) -> None:
    wires = {number: LastingConnection.absent(near=True) for number in range(2)}
    compaction = Compaction(journal, least=400)
    journal.add(SOME[0])
    sizes = []
    for i in range(200):
        for number, wire in wires.items():
            journal.add(share(number))
            wire.heard += 1
            if number == 1:
                for each in wires.values():
                    each.send(Go())
            compaction.shared(wire, 40, complete=number == 1, wires=wires)
        if i % 16 == 15:
            for each in wires.values():
                each.acknowledged(each.sent)
        sizes.append(journal.size)
    assert max(sizes) < 16 * 2 * 100 + 2000
    found = again(journal)
    assert found[0] == SOME[0]
    for number, wire in wires.items():
        kept = sum(isinstance(each, Sent) and each.wire == number for each in found)
        counts = [each.by_wire[number] for each in found if isinstance(each, RemovedCounts)]
        assert kept + sum(heard for heard, _ in counts) == wire.heard
        assert kept + sum(sent for _, sent in counts) == wire.sent
        assert kept >= len(wire._kept)
    journal.close()


def test_values_that_somebody_lacks_are_kept(journal: Journal) -> None:
    wires = {number: LastingConnection.absent(near=True) for number in range(2)}
    compaction = Compaction(journal, least=400)
    for _ in range(50):
        for number, wire in wires.items():
            journal.add(share(number))
            if number == 1:
                for each in wires.values():
                    each.send(Go())
            compaction.shared(wire, 40, complete=number == 1, wires=wires)
        wires[0].acknowledged(wires[0].sent)
    assert entries_of(journal.path.read_bytes())[0] == [share(number) for _ in range(50) for number in range(2)]
    wires[1].away = False  # it is gone
    for number, wire in list(wires.items())[:1]:
        journal.add(share(number))
        wire.send(Go())
        wire.acknowledged(wire.sent)
        compaction.shared(wire, 40, complete=True, wires={0: wire})
    assert again(journal)[-1] == RemovedCounts({0: (51, 51)})
    journal.close()
