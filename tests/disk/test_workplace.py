from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmove_tools.disk import flush as flush_module
from agentmove_tools.disk.flush import Flusher
from agentmove_tools.disk.workplace import TREE, Workplace
from agentmove_tools.refusals import MachineError
from tests.home.builder import put

NAME = b".work"


@pytest.fixture
def parent(here: Path) -> Iterator[int]:
    """An open folder."""
    fd = os.open(here, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_it_is_there_while_it_is_used(here: Path, parent: int) -> None:
    """With an empty folder to stage in, private, and gone afterwards."""
    with Workplace(parent, NAME, busy="busy", mode=0o750) as work:
        assert os.listdir(here / ".work") == [TREE.decode()]
        assert (here / ".work").stat().st_mode & 0o777 == 0o700
        assert os.listdir(work.tree) == []
        put(here / ".work/tree", "a/b", "x")
    assert os.listdir(here) == []


def test_it_goes_when_the_work_fails(here: Path, parent: int) -> None:
    """And the failure comes through."""

    def work() -> None:
        with Workplace(parent, NAME, busy="busy"):
            put(here / ".work/tree", "a", "x")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        work()
    assert os.listdir(here) == []


def test_one_at_a_time(here: Path, parent: int) -> None:
    """A second one, of this process or another, is told and changes nothing."""
    with Workplace(parent, NAME, busy="somebody is at it") as work:
        put(here / ".work/tree", "a", "x")
        with pytest.raises(MachineError, match="somebody is at it"):
            Workplace(parent, NAME, busy="somebody is at it")
        assert os.listdir(work.tree) == ["a"]
    with Workplace(parent, NAME, busy="busy"):
        pass


def test_what_a_killed_one_left_goes(here: Path, parent: int) -> None:
    """Nobody holds it, so all that is in it is removed."""
    put(here, ".work/tree/deep/er", "x")
    put(here, ".work/new.tmp", "x")
    with Workplace(parent, NAME, busy="busy") as work:
        assert os.listdir(work.tree) == []
    assert os.listdir(here) == []


def test_a_lock_on_one_that_is_gone_counts_for_nothing(
    here: Path, parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits with an old folder open takes the one that is there now."""
    real = fcntl.flock
    swapped: list[Path] = []

    def flock(fd: int, operation: int) -> None:
        if not swapped:
            swapped.append(here / "old")
            os.rename(here / ".work", here / "old")
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with Workplace(parent, NAME, busy="busy") as work:
        put(here / ".work/tree", "a", "x")
        assert os.listdir(work.tree) == ["a"]
    assert os.listdir(here) == ["old"]


def test_no_descriptor_is_left_open(here: Path, parent: int) -> None:
    """Neither after the work nor after a failure to begin."""
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(3):
        with Workplace(parent, NAME, busy="busy"), pytest.raises(MachineError):
            Workplace(parent, NAME, busy="busy")
        put(here, ".work", "a file")
        with pytest.raises(OSError):
            Workplace(parent, NAME, busy="busy")
        (here / ".work").unlink()
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after == before


# -- syncs on the way


def test_the_last_sync_comes_after_the_last_write(
    parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many came before it."""
    made: list[str] = []

    def sync(fd: int) -> None:
        made.append("sync")

    monkeypatch.setattr(flush_module, "sync_file_system", sync)
    with Flusher(parent):
        made.append("write")
    assert made[-1] == "sync"


def test_a_failure_of_any_sync_is_told(parent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one in the thread, whose later ones would find nothing wrong."""
    monkeypatch.setattr(flush_module, "_FIRST_WAIT", 0.001)
    failed: list[int] = []

    def sync(fd: int) -> None:
        if not failed:
            failed.append(fd)
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(flush_module, "sync_file_system", sync)

    def work() -> None:
        with Flusher(parent) as flusher:
            if flusher._thread is not None:
                flusher._thread.join(30)

    with pytest.raises(OSError, match="Input/output"):
        work()


def test_a_failure_of_the_work_is_the_one_told(
    parent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came first, and nothing is brought to the disk for it."""

    def sync(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(flush_module, "sync_file_system", sync)
    with pytest.raises(ValueError, match="mine"), Flusher(parent):
        raise ValueError("mine")
