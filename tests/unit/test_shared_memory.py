"""Memory segments: a descriptor from another process is mapped only if it is a valid segment."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from syncline.engines.net.shared_memory import LaneMemory, map_segment, new_segment
from syncline.errors import PeerError
from syncline.layout import Bucket

VALUES = 3000
BYTES = VALUES * (2 * 4 + 1)
ADD_SEALS, SEAL, SHRINK, GROW, WRITE = 1033, 1, 2, 4, 8


@contextmanager
def descriptor(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def memfd(size: int, seals: int) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, ADD_SEALS, seals)
    return fd


def test_two_sides_share_a_segment() -> None:
    with descriptor(new_segment(VALUES)) as fd:
        ours, theirs = LaneMemory(VALUES, fd), map_segment(fd, VALUES)
    bucket = Bucket(10, 20)
    ours.update(bucket)[:] = 3
    theirs.param(bucket)[:] = 4
    assert np.array_equal(theirs.update(bucket), np.full(10, 3))
    assert np.array_equal(ours.params[10:20], np.full(10, 4))
    assert not ours.params[:10].any()
    assert not ours.updates[20:].any()


def test_memory_of_ones_own() -> None:
    memory = LaneMemory(VALUES)
    assert memory.updates.size == memory.params.size == VALUES
    memory.updates[:] = 1
    assert not memory.params.any()


def test_a_model_without_values_has_a_segment_as_well() -> None:
    with descriptor(new_segment(0)) as fd:
        assert map_segment(fd, 0).params.size == 0


def test_the_size_of_a_segment_is_sealed() -> None:
    with descriptor(new_segment(VALUES)) as fd:
        for size in (0, BYTES - 1, BYTES + 1):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
        with pytest.raises(PermissionError):
            fcntl.fcntl(fd, ADD_SEALS, WRITE)


@pytest.mark.parametrize("size", [0, 1, BYTES - 4, BYTES + 4, 1 << 40])
def test_a_segment_of_another_size(size: int) -> None:
    with descriptor(memfd(size, SHRINK | GROW | SEAL)) as fd, pytest.raises(PeerError, match="needs 27,000"):
        map_segment(fd, VALUES)


@pytest.mark.parametrize("seals", [0, SEAL, SHRINK, GROW, GROW | SEAL])
def test_a_segment_that_could_be_shortened(seals: int) -> None:
    with descriptor(memfd(BYTES, seals)) as fd, pytest.raises(PeerError, match="sealed"):
        map_segment(fd, VALUES)


def test_a_segment_that_cannot_be_written() -> None:
    with descriptor(memfd(BYTES, SHRINK | GROW | WRITE | SEAL)) as fd, pytest.raises(PeerError, match="mapped"):
        map_segment(fd, VALUES)


def test_a_segment_that_is_open_for_reading_only() -> None:
    with descriptor(new_segment(VALUES)) as fd:
        reading = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    with descriptor(reading), pytest.raises(PeerError, match="mapped"):
        map_segment(reading, VALUES)


def test_a_descriptor_that_is_not_a_segment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(BYTES))
    read, write = os.pipe()
    for fd in (
        os.open(tmp_path / "file", os.O_RDWR),
        os.open(os.devnull, os.O_RDWR),
        os.open(tmp_path, 0),
        read,
        write,
    ):
        with descriptor(fd), pytest.raises(PeerError):
            map_segment(fd, VALUES)


def test_a_descriptor_that_is_closed() -> None:
    fd = new_segment(VALUES)
    os.close(fd)
    with pytest.raises(PeerError, match="not a memory segment"):
        map_segment(fd, VALUES)


def test_a_refused_segment_leaves_no_descriptor_behind() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    for _ in range(20):
        test_a_segment_that_cannot_be_written()
        test_a_segment_of_another_size(1)
    assert count() == before


def test_a_mapping_outlives_its_descriptor() -> None:
    with descriptor(new_segment(mmap.PAGESIZE)) as fd:
        memory = map_segment(fd, mmap.PAGESIZE)
    memory.updates[:] = 2
    assert memory.updates.sum() == 2 * mmap.PAGESIZE
