"""A receiver that is killed at any instant leaves a whole Home behind (Move Stream, section 5)."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from agentmove_tools.home import exchange, receiver
from agentmove_tools.home.report import Report
from agentmove_tools.stream.paths import Phase
from tests.home.builder import (
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
    take_away,
)
from tests.home.dying import calls_of, die_at

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


def whole(home: Path) -> Snapshot | None:
    """All of a Home, its own mode too; None where there is none."""
    if not home.exists():
        return None
    return {b"": ("folder", home.stat().st_mode & 0o7777, b""), **snapshot(home)}


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process wrote is in the system's cache: a sync would only take time."""
    monkeypatch.setattr(exchange, "sync_file_system", lambda _: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def _difference(left: Snapshot | None, right: Snapshot | None) -> list[bytes]:
    """The paths at which two Homes differ."""
    one, other = left or {}, right or {}
    return sorted(path for path in {*one, *other} if one.get(path) != other.get(path))


class Case:
    """One way to apply one stream: what was there before, and what must come of it."""

    def __init__(
        self,
        folder: Path,
        phase: Phase = "switch",
        *,
        old: bool = True,
        staged: bool = False,
        keep_old: bool = False,
    ) -> None:
        self._before = folder / "before"
        self._before.mkdir()
        self._work = folder / "work"
        self._log = folder / "calls"
        self.home = self._work / "home"
        self.state = self._work / ".home.lnk-move"
        self.kept = folder / "kept"
        self.options = receiver.Options(keep_old=os.fsencode(self.kept) if keep_old else None)
        home = self._before / "home"
        sender = _sender(folder / "sender")
        if old:
            _receiver(home)
        if staged:
            take(home, stream_of(sender, "copy", have=have_of(home)))
            put(sender, "files/after the copy", "late")
            (sender / "files/a.txt").unlink()
        self.phase = phase
        self.stream = stream_of(sender, phase, have=have_of(home))
        self.reset()
        self.old = whole(self.home)
        self.calls = calls_of(self.apply, self._log)
        new = whole(self.home)
        assert new is not None
        self.new = new

    def reset(self) -> None:
        """Have everything as it was before."""
        for gone in (self._work, self.kept):
            take_away(gone)
        subprocess.run(["cp", "-a", self._before, self._work], check=True)

    def apply(self) -> Report:
        """Apply the stream in this process."""
        return take(self.home, self.stream, self.options)

    def points(self, *, dense: int, sparse: int) -> list[int]:
        """Which calls to die at: each of the last ``dense``, ``sparse`` of those before."""
        total = len(self.calls)
        first = max(1, total - dense + 1)
        return sorted({*range(1, first, max(1, first // sparse)), *range(first, total + 1)})

    def holds_after(self, where: str) -> None:
        """What must hold after a kill; ``where`` says which one it was."""
        if (self.state / "journal.json").exists():
            have_of(self.home)
            assert not _difference(whole(self.home), self.new), where
        left = whole(self.home)
        assert left in (self.old, self.new), f"{where}: {_difference(left, self.new)}"
        have_of(self.home)
        assert whole(self.home) == left, where
        self.ends_well(where)

    def ends_well(self, where: str) -> None:
        """The same stream is taken now, and nothing is left lying about."""
        left = whole(self.home)
        report = self.apply()
        if left == self.new and left != self.old and self.phase == "switch":
            assert report.result == "already in place", where
        assert not _difference(whole(self.home), self.new), where
        assert set(os.listdir(self.state)) <= _AT_REST, where
        if self.options.keep_old is not None and self.old is not None:
            assert not _difference(whole(self.kept), self.old), where


def _die_everywhere(case: Case, *, dense: int, sparse: int, points: Iterable[int] = ()) -> None:
    for number in (*case.points(dense=dense, sparse=sparse), *points):
        case.reset()
        where = f"killed before call {number} of {len(case.calls)}: {case.calls[number - 1]}"
        assert die_at(number, case.apply), where
        case.holds_after(where)


def test_killed_switch_over_an_old_home(here: Path) -> None:
    """The Home is the old agent or the new one, and the switch again ends in the new one."""
    _die_everywhere(Case(here), dense=40, sparse=30)


def test_killed_switch_of_a_staged_copy(here: Path) -> None:
    """The same, where a copy came before."""
    _die_everywhere(Case(here, staged=True), dense=20, sparse=25)


def test_killed_switch_to_a_new_home(here: Path) -> None:
    """The same, where there was no Home: then there is none, or all of it."""
    _die_everywhere(Case(here, old=False), dense=15, sparse=15)


def test_killed_switch_that_keeps_the_old_home(here: Path) -> None:
    """The old Home ends up where it is to be kept, whole, whenever the receiver was killed."""
    _die_everywhere(Case(here, keep_old=True), dense=35, sparse=30)


def test_killed_files(here: Path) -> None:
    """The same for the Home's files alone."""
    _die_everywhere(Case(here, "files"), dense=20, sparse=15)


def test_killed_copy(here: Path) -> None:
    """A copy never touches the Home, and the same copy again ends as one that was not killed."""
    case = Case(here, "copy")
    assert case.new == case.old
    staged = snapshot(case.state / "staged")
    for number in case.points(dense=5, sparse=20):
        case.reset()
        where = f"killed before call {number}: {case.calls[number - 1]}"
        assert die_at(number, case.apply), where
        assert whole(case.home) == case.old, where
        case.apply()
        again = snapshot(case.state / "staged")
        assert {p for p in again if p != b"move.json"} == {p for p in staged if p != b"move.json"}
        assert set(os.listdir(case.state)) <= {*_AT_REST, "staged"}, where


@pytest.mark.parametrize("keep_old", [False, True])
def test_killed_switch_without_an_exchange(
    here: Path, monkeypatch: pytest.MonkeyPatch, keep_old: bool
) -> None:
    """By a journal: the next command that looks at the Home finds it whole, the old or the new."""

    def none(_: bytes, __: bytes) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(exchange, "exchange", none)
    case = Case(here, keep_old=keep_old)
    assert "journal" not in case.calls
    first = len(case.calls) - case.calls[::-1].index("exchange")
    _die_everywhere(
        case, dense=0, sparse=5, points=range(first, min(first + 45, len(case.calls) + 1))
    )


def test_killed_again_and_again(here: Path) -> None:
    """A receiver that is killed while it brings a killed one's work in order loses nothing."""
    case = Case(here, staged=True)
    total = len(case.calls)
    for first in range(total // 2, total + 1, 14):
        case.reset()
        where = f"killed before call {first} of {total}: {case.calls[first - 1]}"
        assert die_at(first, case.apply), where
        for second in (4, 15, 40, 41 + first % 60):
            die_at(second, case.apply)
            assert whole(case.home) in (case.old, case.new), f"{where}, and then at {second}"
        case.ends_well(where)
