"""A receiver that is killed at any instant leaves a whole Home behind (Move Stream, section 5)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agentmove_tools.home import exchange, receiver
from agentmove_tools.home.report import Report
from tests.home.builder import (
    MOVE,
    OTHER_MOVE,
    File,
    Folder,
    Link,
    Snapshot,
    full_home,
    have_of,
    put,
    snapshot,
    stream_of,
    take,
)
from tests.home.dying import calls_of, die_at

_STATE = ".home.lnk-move"
# What a receiver that is done leaves in the working state.
_AT_REST = {"lock", "last-move.json", "index", "index.staged"}


def _sender(folder: Path) -> Path:
    home = full_home(folder)
    put(home, "files/new/big", os.urandom(300_000))
    put(home, "files/new/only", "here")
    put(home, "files/locked", Folder(0o555))
    put(home, "files/x", "was a folder")
    put(home, "files/y/z", "was a file")
    put(home, "harness/conversations/main/events.jsonl", b'{"n":1}\n{"n":2}\n{"n":3}\n{"n":4}\n')
    return home


def _receiver(folder: Path) -> Path:
    """An older Home of the same agent, with things that a move must keep."""
    home = full_home(folder)
    for number in range(4):
        put(home, f"files/same/{number}", b"same %d" % number)
    put(home, "files/run.sh", File(b"#!/bin/sh\n", 0o755))
    put(home, "files/gone.txt", "no longer")
    put(home, "files/x/y/z", "below a folder")
    put(home, "files/y", "a file")
    put(home, "harness/conversations/main/events.jsonl", b'{"n":1}\n{"n":2}\n')
    put(home, "harness/conversations/side/events.jsonl", b'{"n":1}\n{"n":9}\n')
    put(home, "harness/conversations/own/events.jsonl", b'{"n":5}\n')
    put(home, "harness/conversations/own/drafts/1", "draft")
    put(home, "harness/other/deep/er/y", "of the harness")
    put(home, "harness/other/zz", "more")
    put(home, "connections/own.json", File(b'{"own":1}', 0o600))
    put(home, "logs/old/1.log", "log 1")
    put(home, "logs/old/2.log", "log 2")
    put(home, "logs/link", Link(b"old"))
    put(home, "schedule/other", "the harness's own")
    return home


class Case:
    """One way to apply one stream: what was there before, and what must come of it."""

    def __init__(
        self, folder: Path, stream: bytes, before: Path, options: receiver.Options
    ) -> None:
        self.folder = folder
        self.stream = stream
        self.before = before  # holds the Home and its working state as they were
        self.options = options
        self.work = folder / "work"
        self.home = self.work / "home"
        self.state = self.work / _STATE
        self.kept = folder / "kept" / "old"
        self.kept.parent.mkdir(exist_ok=True)

    def reset(self) -> None:
        """Have everything as it was before."""
        for gone in (self.work, self.kept):
            if gone.exists():
                shutil.rmtree(gone)
        subprocess.run(["cp", "-a", self.before, self.work], check=True)
        self._forget_inode()

    def _forget_inode(self) -> None:
        """A copied working state tells of another inode: a last move is none of this Home."""

    def apply(self) -> Report:
        return take(self.home, self.stream, self.options)

    def quietly(self) -> None:
        self.apply()

    def found(self) -> Snapshot | None:
        return whole(self.home)


def whole(home: Path) -> Snapshot | None:
    """All of a Home, its own mode too; None where there is none."""
    if not home.exists():
        return None
    return {b"": ("folder", home.stat().st_mode & 0o7777, b""), **snapshot(home)}


def _made(
    folder: Path,
    *,
    old: bool,
    phase: str = "switch",
    staged: bool = False,
    options: receiver.Options | None = None,
) -> Case:
    sender = _sender(folder / "sender")
    before = folder / "before"
    before.mkdir()
    home = before / "home"
    if old:
        _receiver(home)
    if staged:
        take(home, stream_of(sender, "copy", have=have_of(home)))
        put(sender, "files/after the copy", "late")
        (sender / "files/a.txt").unlink()
    have = have_of(home)
    stream = stream_of(sender, "files" if phase == "files" else "switch", have=have)
    if phase == "copy":
        stream = stream_of(sender, "copy", have=have)
    if options is not None and options.keep_old is not None:
        options = receiver.Options(keep_old=os.fsencode(folder / "kept" / "old"))
    return Case(folder, stream, before, options or receiver.Options())


def _points(calls: Sequence[str], *, dense: int, sparse: int) -> list[int]:
    """Which calls to die at: the last ``dense`` ones, and ``sparse`` of those before, evenly."""
    total = len(calls)
    first = max(1, total - dense + 1)
    step = max(1, first // sparse)
    return sorted({*range(1, first, step), *range(first, total + 1)})


def _die_everywhere(case: Case, *, dense: int, sparse: int) -> None:
    case.reset()
    old = case.found()
    calls = calls_of(case.quietly, case.folder / "calls")
    new = case.found()
    assert new is not None
    for number in _points(calls, dense=dense, sparse=sparse):
        case.reset()
        assert die_at(number, case.quietly), f"there is no call {number}"
        where = f"killed before call {number} of {len(calls)}: {calls[number - 1]}"
        _holds_after(case, old, new, where)


def _holds_after(case: Case, old: Snapshot | None, new: Snapshot, where: str) -> None:
    left = case.found()
    assert left in (old, new), where
    have = have_of(case.home)
    assert case.found() == left, f"{where}: have changed the Home"
    if left == new:
        assert have == have_of_whole(case.home), where
    report = case.apply()
    if left == new:
        assert report.result == "already in place", where
    assert case.found() == new, where
    _is_at_rest(case, where)
    if case.options.keep_old is not None and old is not None:
        assert whole(case.kept) == old, where


def have_of_whole(home: Path) -> dict[bytes, bytes]:
    return have_of(home)


def _is_at_rest(case: Case, where: str) -> None:
    assert set(os.listdir(case.state)) <= _AT_REST, where
