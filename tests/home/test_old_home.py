"""What lies in an old Home is never lost by a commit, nor by what tidies up after one."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agentmove_tools.disk import system
from agentmove_tools.home import exchange, receiver
from agentmove_tools.home.state import HomePlace, read_json
from agentmove_tools.refusals import MachineError, Refusal, UsageError
from tests.conftest import lacking
from tests.home.applying import manifest
from tests.home.builder import (
    Folder,
    full_home,
    have_of,
    made_stream,
    manifest_of,
    put,
    snapshot,
    stream_of,
    take,
)


class _Killed(BaseException):
    """Stands for SIGKILL: nothing catches it, and nothing is tidied."""


def _kill(*_: object) -> None:
    raise _Killed


def test_a_file_system_mounted_in_the_home(here: Path) -> None:
    """The switch stops before it; neither a mount nor a bind mount is emptied."""
    if os.geteuid() != 0:
        lacking("only root mounts")
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    source = here / "source"
    source.mkdir()
    (source / "precious").write_bytes(b"1")
    (home / "bound").mkdir()
    (home / "own").mkdir()
    subprocess.run(["mount", "--bind", source, home / "bound"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", home / "own"], check=True)
    try:
        (home / "own/kept").write_bytes(b"2")
        stream = stream_of(sender, "switch", have=have_of(home))
        before = snapshot(home)
        with pytest.raises(MachineError, match="unmount it first"):
            take(home, stream)
        assert snapshot(home) == before
        assert (source / "precious").read_bytes() == b"1"
    finally:
        subprocess.run(["umount", home / "bound", home / "own"], check=True)
    assert take(home, stream).result == "in place"


def test_a_home_that_was_moved_away_after_a_kill(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old Home, which lay in the working state then, is kept as was asked for."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    put(home, "connections/own.json", b"{}")
    old = snapshot(home)
    stream = stream_of(sender, "switch", have=have_of(home))
    kept = here / "kept"
    with monkeypatch.context() as patched:
        patched.setattr(exchange, "clear_away", _kill)
        with pytest.raises(_Killed):
            take(home, stream, receiver.Options(keep_old=os.fsencode(kept)))
    home.rename(here / "elsewhere")
    have_of(home)
    assert snapshot(kept) == old


def test_an_old_home_of_which_nothing_is_known(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not removed on a guess."""
    home = full_home(here / "home")
    stream = stream_of(full_home(here / "sender"), "switch", have=have_of(home))
    with monkeypatch.context() as patched:
        patched.setattr(exchange, "remove", _kill)
        with pytest.raises(_Killed):
            take(home, stream)
    state = here / ".home.lnk-move"
    (state / "last-move.json").unlink()
    old = snapshot(state / "old/tree")
    with pytest.raises(MachineError, match="move it away"):
        take(home, stream)
    assert snapshot(state / "old/tree") == old


def test_a_record_that_cannot_be_read_is_not_a_missing_one(here: Path) -> None:
    """A folder in its place is an error, and nothing is decided without it."""
    (here / "record.json").mkdir()
    fd = os.open(here, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="directory"):
            read_json(fd, b"record.json")
        assert read_json(fd, b"none.json") is None
    finally:
        os.close(fd)


def test_a_home_that_was_exchanged_by_hand_during_a_switch(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is at the path now was never looked at, and stays."""
    home = full_home(here / "home")
    stream = stream_of(full_home(here / "sender"), "switch", have=have_of(home))
    real = system.sync_file_system

    def meanwhile(fd: int) -> None:
        real(fd)
        home.rename(here / "away")
        full_home(home)
        put(home, "files/new", b"never seen")

    monkeypatch.setattr(exchange, "sync_file_system", meanwhile)
    with pytest.raises(MachineError, match="moved away"):
        take(home, stream)
    assert (home / "files/new").read_bytes() == b"never seen"


@pytest.mark.parametrize("where", ["home/inside", ".home.lnk-move/kept"])
def test_the_old_home_is_not_kept_in_the_new_one(here: Path, where: str) -> None:
    """Nor in the working state; nothing has changed then."""
    home = full_home(here / "home")
    stream = stream_of(full_home(here / "sender"), "switch", have=have_of(home))
    before = snapshot(home)
    with pytest.raises(UsageError, match="cannot be kept in"):
        take(home, stream, receiver.Options(keep_old=os.fsencode(here / where)))
    assert snapshot(home) == before


def test_a_place_that_nothing_can_be_moved_to(here: Path) -> None:
    """It is found out before the exchange."""
    if os.geteuid() != 0:
        lacking("only root mounts")
    home = full_home(here / "home")
    stream = stream_of(full_home(here / "sender"), "switch", have=have_of(home))
    other = here / "other"
    other.mkdir()
    subprocess.run(["mount", "--bind", other, other], check=True)
    try:
        before = snapshot(home)
        with pytest.raises(UsageError):
            take(home, stream, receiver.Options(keep_old=os.fsencode(other / "kept")))
        assert snapshot(home) == before
    finally:
        subprocess.run(["umount", other], check=True)


def test_a_dry_run_checks_the_staged_move(here: Path) -> None:
    """It refuses what the real run would."""
    sender = full_home(here / "sender")
    home = here / "home"
    take(home, stream_of(sender, "copy", move="a" * 32))
    stream = stream_of(sender, "switch", move="b" * 32)
    with pytest.raises(Refusal) as refused:
        take(home, stream, receiver.Options(dry_run=True))
    assert refused.value.code == "move-mismatch"


def test_the_files_phase_leaves_modes_of_others_alone(here: Path) -> None:
    """A file that only the receiver has keeps its x bit; a skipped one gets the sender's."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    put(home, "files/mine.sh", b"#!")
    (home / "files/mine.sh").chmod(0o755)
    (home / "files/a.txt").chmod(0o600)
    take(home, stream_of(sender, "files", have=have_of(home)))
    assert (home / "files/mine.sh").stat().st_mode & 0o777 == 0o755
    assert (home / "files/a.txt").stat().st_mode & 0o777 == 0o644


def test_a_stream_that_speaks_for_no_collection(here: Path) -> None:
    """An empty list is none of them, not all: the receiver keeps its own."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    put(home, "harness/instructions.md", b"own")
    put(home, "memory/notes.md", b"own notes")
    have = have_of(home)
    none = replace(manifest_of(sender, "switch", have=have), collections=())
    stream = stream_of(sender, manifest=none, have=have)
    assert take(home, stream).result == "in place"
    assert (home / "harness/instructions.md").read_bytes() == b"own"
    assert (home / "memory/notes.md").read_bytes() == b"own notes"


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (b"harness/conversations/t", b"harness/conversations/t/events.jsonl"),
        (b"harness/conversations/t/thread.json/", b"harness/conversations/t/thread.json"),
        (b"harness/conversations/t/events.jsonl/", b"harness/conversations/t/events.jsonl"),
        (b"connections/c.json/", b"connections/c.json"),
        (b"connections/c.json/x", b"connections/c.json"),
        (b"harness/instructions.md/", b"harness/conversations/t/events.jsonl"),
    ],
)
def test_a_stream_that_brings_another_kind_of_thing(here: Path, path: bytes, kept: bytes) -> None:
    """What a Home cannot have at a path is passed over and said; nothing gives way to it."""
    home = full_home(here / "home")
    put(home, "harness/conversations/t/events.jsonl", b'{"id":"e1"}\n')
    put(home, "harness/conversations/t/thread.json", b'{"tools":[]}')
    put(home, "connections/c.json", b'{"key":"k"}')
    before = snapshot(home)[kept]
    entry = (path.rstrip(b"/"), Folder() if path.endswith(b"/") else b"x")
    report = take(home, made_stream(manifest("switch"), [entry]))
    assert snapshot(home)[kept] == before
    assert [row["path"] for row in report.passed_over] == [entry[0].decode()]


def test_a_home_that_is_bind_mounted(here: Path) -> None:
    """It has its parent's device and still cannot be exchanged: the journal way is taken."""
    if os.geteuid() != 0:
        lacking("only root mounts")
    home = full_home(here / "home")
    sender = full_home(here / "sender")
    put(sender, "files/new", b"new")
    subprocess.run(["mount", "--bind", home, home], check=True)
    try:
        report = take(home, stream_of(sender, "switch", have=have_of(home)))
        assert (report.result, report.way) == ("in place", "journal")
        assert (home / "files/new").read_bytes() == b"new"
    finally:
        subprocess.run(["umount", home], check=True)


def test_an_index_that_is_a_fifo(here: Path) -> None:
    """It is no index, and nobody waits for it."""
    home = full_home(here / "home")
    known = have_of(home)
    index = here / ".home.lnk-move/index"
    index.unlink()
    os.mkfifo(index)
    assert have_of(home) == known


def test_an_empty_name_of_a_home() -> None:
    """It is a variable that is not set, and not the current folder."""
    with pytest.raises(UsageError, match="empty"):
        HomePlace(b"")
