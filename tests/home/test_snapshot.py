from __future__ import annotations

import gc
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmove_tools.home import snapshot as module
from agentmove_tools.home.snapshot import FIRST_READ, IN_MEMORY, Gone, SnapshotReader, Unsteady
from agentmove_tools.refusals import MachineError
from tests.home.builder import LONG_AGO, Fifo, File, Folder, Link, put

SIZES = [0, 1, FIRST_READ - 1, FIRST_READ, FIRST_READ + 1, IN_MEMORY, IN_MEMORY + 1]


@pytest.fixture
def folder(here: Path) -> Iterator[int]:
    """Give the folder ``here``, open."""
    fd = os.open(here, os.O_RDONLY)
    yield fd
    os.close(fd)


def content_of(found: module.Snapshot | None) -> bytes:
    assert found is not None
    content = found[4]
    whole = content if isinstance(content, bytes) else b"".join(bytes(part) for part in content)
    assert len(whole) == found[2]
    assert hashlib.sha256(whole).digest() == found[3]
    return whole


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("still", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_any_size(
    here: Path, folder: int, size: int, still: bool, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was written just now or long ago, in a copy and in a switch."""
    if settled:
        monkeypatch.setattr(module, "_TICK", -(10**18))
    data = os.urandom(size)
    put(here, "f", File(data, 0o640, LONG_AGO))
    found = SnapshotReader(still=still, spool=folder).read(folder, b"f", b"files/f")
    assert content_of(found) == data
    assert found is not None
    assert found[:2] == (0o640, LONG_AGO)


def test_what_is_sent_does_not_change_any_more(here: Path, folder: int) -> None:
    """A copy's large file is what it was when it was read, also when it is cut or removed."""
    data = os.urandom(IN_MEMORY + 5)
    put(here, "f", data)
    found = SnapshotReader(still=False, spool=folder).read(folder, b"f", b"files/f")
    with open(here / "f", "r+b") as file:
        file.write(bytes(1000))
        file.truncate(2000)
    os.unlink(here / "f")
    assert content_of(found) == data


def test_descriptors_are_closed(here: Path, folder: int) -> None:
    """Of small files at once, of large ones when they are sent."""
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("there is no way to count them")
    put(here, "small", b"x")
    put(here, "middle", bytes(FIRST_READ + 1))
    put(here, "large", bytes(IN_MEMORY + 1))
    before = len(os.listdir("/proc/self/fd"))
    for still in (False, True):
        reader = SnapshotReader(still=still, spool=None)
        for name in (b"small", b"middle", b"large"):
            content_of(reader.read(folder, name, name))
        for name in (b"none", b"."):
            with pytest.raises((Gone, MachineError)):
                reader.read(folder, name, name)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("thing", [None, Folder(), Link(b"f"), Fifo()])
def test_what_is_no_file(here: Path, folder: int, thing: Folder | None) -> None:
    """Is gone in a copy, and stops a switch with its name; a FIFO is not waited for."""
    if thing is not None:
        put(here, "x", thing)
    with pytest.raises(Gone):
        SnapshotReader(still=False, spool=None).read(folder, b"x", b"files/x")
    with pytest.raises(MachineError) as caught:
        SnapshotReader(still=True, spool=None).read(folder, b"x", b"files/x")
    assert caught.value.details["path"] == "files/x"


def test_a_fifo_that_is_written_to(here: Path, folder: int) -> None:
    """Nothing is read from it, and nothing waited for."""
    put(here, "x", Fifo())
    writer = os.open(here / "x", os.O_RDWR)
    os.write(writer, b"secret")
    try:
        with pytest.raises(Gone):
            SnapshotReader(still=False, spool=None).read(folder, b"x", b"files/x")
    finally:
        os.close(writer)


def test_the_programs_own_file(here: Path, folder: int) -> None:
    """Is left out by its device and inode."""
    put(here, "x", "x")
    info = os.stat(here / "x")
    own = frozenset({(info.st_dev, info.st_ino)})
    assert SnapshotReader(still=True, spool=None, own=own).read(folder, b"x", b"x") is None


class Meddler:
    """Changes a file whenever a part of it was read."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.count = 0
        real = os.preadv

        def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
            count = real(fd, buffers, offset)
            self.count += 1
            self.change()
            return count

        monkeypatch.setattr(os, "preadv", preadv)

    def change(self) -> None:
        raise NotImplementedError


class Grower(Meddler):
    def change(self) -> None:
        with open(self.path, "ab") as file:
            file.write(b"more\n")


class Rewriter(Meddler):
    def change(self) -> None:
        time.sleep(0.011)  # a tick of any clock
        with open(self.path, "r+b") as file:
            file.write(b"%08d" % self.count)


class Cutter(Meddler):
    def change(self) -> None:
        with open(self.path, "r+b") as file:
            file.truncate(os.fstat(file.fileno()).st_size // 2)


@pytest.mark.parametrize("size", [FIRST_READ + 5, IN_MEMORY + 5])
def test_a_file_that_grows(
    here: Path, folder: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is sent in a copy as far as it went when it was looked at, and stops a switch."""
    data = os.urandom(size)
    put(here, "f", data)
    Grower(here / "f", monkeypatch)
    found = SnapshotReader(still=False, spool=folder).read(folder, b"f", b"f")
    assert content_of(found) == data
    if size < IN_MEMORY:  # a larger one is held against its hash as it is sent
        with pytest.raises(MachineError, match="changed"):
            SnapshotReader(still=True, spool=folder).read(folder, b"f", b"f")


@pytest.mark.parametrize("size", [FIRST_READ + 5, IN_MEMORY + 5])
def test_a_file_that_is_rewritten(
    here: Path, folder: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every try finds it changed: it is left out of a copy, and stops a switch."""
    put(here, "f", bytes(size))
    Rewriter(here / "f", monkeypatch)
    with pytest.raises(Unsteady):
        SnapshotReader(still=False, spool=folder).read(folder, b"f", b"f")
    if size < IN_MEMORY:
        with pytest.raises(MachineError, match="changed"):
            SnapshotReader(still=True, spool=folder).read(folder, b"f", b"f")


@pytest.mark.parametrize("size", [FIRST_READ + 5, IN_MEMORY + 5])
def test_a_file_that_is_cut(
    here: Path, folder: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again until it holds still, here when there is nothing left of it to cut."""
    put(here, "f", bytes(size))
    Cutter(here / "f", monkeypatch)
    with pytest.raises((Unsteady, MachineError)):
        SnapshotReader(still=True, spool=folder).read(folder, b"f", b"f")
    try:
        found = SnapshotReader(still=False, spool=folder).read(folder, b"f", b"f")
    except Unsteady:
        return
    assert content_of(found).strip(b"\0") == b""
