"""Where a Home cannot be exchanged in one step, a journal puts the new one in place (section 5)."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from agentmove_tools.home import exchange, receiver
from agentmove_tools.refusals import MachineError
from tests.home.builder import (
    MOVE,
    OTHER_MOVE,
    File,
    Folder,
    Link,
    full_home,
    have_of,
    make_home,
    move,
    put,
    snapshot,
    stream_of,
    take,
    travelling,
)
from tests.home.dying import calls_of, die_at
from tests.home.machine import NOBODY, as_nobody, give_away, mounted_tmpfs, only_root


@pytest.fixture
def mount(here: Path) -> Iterator[Path]:
    """A small file system of its own, mounted where a Home is to be."""
    folder = here / "parent" / "home"
    folder.mkdir(parents=True)
    with mounted_tmpfs(folder, "16m"):
        yield folder


def _sender(folder: Path) -> Path:
    home = full_home(folder)
    put(home, "files/locked/inside", "locked in")
    put(home, "files/locked", Folder(0o555))
    return home


def _old(home: Path, agent_id: str = "a1") -> None:
    """Fill an empty folder as an older Home of the same agent."""
    made = make_home(
        home.parent / "made",
        agent_id,
        files={"a.txt": "old", "gone/x": "y", "same": "same"},
        conversations={"own": [{"n": 1}]},
        connections={"own.json": File(b"{}", 0o600)},
        other={"logs/a": "log", "link": Link(b"logs"), ".env": File(b"A=1", 0o600)},
    )
    subprocess.run(["cp", "-a", f"{made}/.", str(home)], check=True)
    subprocess.run(["rm", "-r", str(made)], check=True)


def _holds_new(home: Path, sender: Path) -> None:
    """All that the sender holds is in the Home, and what a move leaves alone still is too."""
    theirs = travelling(snapshot(sender))
    ours = travelling(snapshot(home))
    assert {path: ours.get(path) for path in theirs} == theirs


def _fails_with(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(one: bytes, _: bytes) -> None:
        raise OSError(code, os.strerror(code), one)

    monkeypatch.setattr(exchange, "exchange", none)


@pytest.mark.parametrize(
    "code", [errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EXDEV, errno.EBUSY]
)
def test_a_system_without_exchange(here: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Whatever the kernel says when it has none, the journal does it, and the report says so."""
    _fails_with(code, monkeypatch)
    sender = _sender(here / "sender")
    home = here / "home"
    home.mkdir()
    _old(home)
    report = move(sender, home, "switch")
    assert report.way == "journal"
    assert report.to_json()["way"] == "journal"
    assert "by a journal" in report.summary()[0]
    _holds_new(home, sender)
    assert (home / "logs/a").read_text() == "log"
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert (home / "connections/own.json").exists()
    assert not (home / "files/gone").exists()
    left = set(os.listdir(here / ".home.lnk-move"))
    assert left <= {"lock", "last-move.json", "index", "index.staged"}
    assert move(sender, home, "switch").result == "already in place"


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.ENOMEM])
def test_an_exchange_that_fails_is_no_missing_one(
    here: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A failing disk is said, and leaves the Home as it was; the next try works."""
    sender = _sender(here / "sender")
    home = here / "home"
    home.mkdir()
    _old(home)
    before = snapshot(home)
    stream = stream_of(sender, "switch", have=have_of(home))
    with monkeypatch.context() as patched:
        _fails_with(code, patched)
        with pytest.raises(OSError, match=os.strerror(code)):
            take(home, stream)
    assert snapshot(home) == before
    report = take(home, stream)
    assert report.way == "exchange"
    _holds_new(home, sender)


def test_a_journal_keeps_the_old_home_whole(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--keep-old gives all of the old Home there too, also what the new one carries on with."""
    _fails_with(errno.ENOSYS, monkeypatch)
    sender = _sender(here / "sender")
    home = here / "home"
    home.mkdir(0o750)
    _old(home)
    before = snapshot(home)
    kept = here / "kept"
    options = receiver.Options(keep_old=os.fsencode(kept))
    report = move(sender, home, "switch", options=options)
    assert report.way == "journal"
    assert snapshot(kept) == before
    inodes = [
        {(info.st_dev, info.st_ino) for info in map(os.lstat, root.rglob("*")) if not _folder(info)}
        for root in (kept, home)
    ]
    assert not inodes[0] & inodes[1]


def _folder(info: os.stat_result) -> bool:
    return stat.S_ISDIR(info.st_mode)


@only_root
def test_a_home_that_is_a_mount_point(mount: Path, here: Path) -> None:
    """Its working state lies in it, is never part of it, and a journal puts it in place."""
    _old(mount)
    sender = _sender(here / "sender")
    assert move(sender, mount, "copy").result == "staged"
    assert (mount / ".lnk-move/staged").is_dir()
    report = move(sender, mount, "switch")
    assert report.way == "journal"
    _holds_new(mount, sender)
    assert (mount / "logs/a").read_text() == "log"
    assert not (here / "parent/.home.lnk-move").exists()
    assert set(os.listdir(mount / ".lnk-move")) <= {
        "lock",
        "last-move.json",
        "index",
        "index.staged",
    }
    assert move(sender, mount, "switch").result == "already in place"
    again = stream_of(mount, "copy")
    assert b".lnk-move" not in again


@only_root
def test_an_empty_mount_point(mount: Path, here: Path) -> None:
    """A file system that was just made is an empty Home, its lost+found aside or not."""
    sender = _sender(here / "sender")
    assert move(sender, mount, "copy").result == "staged"
    assert move(sender, mount, "switch").way == "journal"
    _holds_new(mount, sender)


@only_root
def test_killed_on_a_mount_point(mount: Path, here: Path) -> None:
    """A receiver that was killed there is completed by the next command."""
    sender = _sender(here / "sender")
    _old(mount)
    first = stream_of(sender, "switch", move=OTHER_MOVE, have=have_of(mount))
    calls = calls_of(lambda: take(mount, first), here / "calls")
    renames = calls.count("rename")
    finished = 0
    for number in range(2, renames):
        sent = f"{number:032x}"
        put(sender, f"files/of/{number}", sent)
        stream = stream_of(sender, "switch", move=sent, have=have_of(mount))
        before = snapshot(mount)
        assert die_at(number, partial(take, mount, stream), of="rename")
        have_of(mount)
        after = snapshot(mount)
        finished += after != before
        if after != before:
            _holds_new(mount, sender)
        assert take(mount, stream).result == ("already in place" if after != before else "in place")
        _holds_new(mount, sender)
    assert 5 < finished < renames - 2


@only_root
def test_a_parent_that_is_not_writable(here: Path) -> None:
    """An unprivileged agent whose Home root made: the working state lies in the Home."""
    parent = here / "srv"
    home = parent / "home"
    home.mkdir(parents=True)
    _old(home)
    sender = _sender(here / "sender")
    stream = stream_of(sender, "copy")
    give_away(home, sender)

    def copy_and_switch() -> None:
        assert take(home, stream).result == "staged"
        switch = stream_of(sender, "switch", have=have_of(home))
        assert take(home, switch).way == "journal"
        assert take(home, switch).result == "already in place"

    as_nobody(copy_and_switch, reach=here)
    _holds_new(home, sender)
    assert (home / ".lnk-move").stat().st_uid == NOBODY
    assert not (parent / ".home.lnk-move").exists()
    assert {(home / name).stat().st_uid for name in os.listdir(home)} == {NOBODY}


@only_root
def test_a_parent_that_becomes_writable(here: Path) -> None:
    """The working state, with the copy staged in it, moves beside the Home, and is exchanged."""
    parent = here / "srv"
    home = parent / "home"
    home.mkdir(parents=True)
    _old(home)
    sender = _sender(here / "sender")
    copy = stream_of(sender, "copy")
    give_away(home, sender)

    def stage() -> None:
        assert take(home, copy).result == "staged"

    def switch() -> None:
        held = have_of(home)
        assert b"files/deep/er/b.bin" in held, "what was staged is known still"
        stream = stream_of(sender, "switch", have=held)
        assert take(home, stream).way == "exchange"
        assert take(home, stream).result == "already in place"

    as_nobody(stage, reach=here)
    assert (home / ".lnk-move/staged").is_dir()
    os.chown(parent, NOBODY, NOBODY)
    as_nobody(switch, reach=here)
    assert not (home / ".lnk-move").exists()
    assert (parent / ".home.lnk-move/last-move.json").exists()
    _holds_new(home, sender)


@only_root
def test_half_way_and_then_the_parent_becomes_writable(here: Path) -> None:
    """A journal in the Home is completed also by a command that could do without one by now."""
    parent = here / "srv"
    home = parent / "home"
    home.mkdir(parents=True)
    _old(home)
    sender = _sender(here / "sender")
    stream = stream_of(sender, "switch", have=have_of(home))
    subprocess.run(["rm", "-r", str(parent / ".home.lnk-move")], check=True)
    give_away(home, sender)

    def killed() -> None:
        def half(_: object, __: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        exchange._give_modes = half  # type: ignore[assignment]
        take(home, stream)

    as_nobody(killed, reach=here, status=-signal.SIGKILL)
    assert (home / ".lnk-move/journal.json").exists()
    os.chown(parent, NOBODY, NOBODY)
    assert take(home, stream, receiver.Options()).result == "already in place"
    _holds_new(home, sender)


@only_root
def test_folders_that_their_owner_cannot_write(here: Path) -> None:
    """Folders of mode 0555 and 0500 at either end hinder an unprivileged agent in neither way."""
    parent = here / "srv"
    parent.mkdir()
    sender = _sender(here / "sender")
    for name in ("files", "memory"):
        (sender / name).chmod(0o555)
    for own in (True, False):
        home = parent / f"home-{own}"
        home.mkdir()
        _old(home)
        (home / "files/gone").chmod(0o555)
        (home / "files").chmod(0o555)
        (home / "logs").chmod(0o500)
        give_away(home, sender)
        os.chown(parent, NOBODY if own else 0, -1)
        way = "exchange" if own else "journal"

        def work(home: Path = home, way: str = way) -> None:
            for number in range(2):
                switch = stream_of(sender, "switch", move=f"{number:032x}", have=have_of(home))
                assert take(home, switch).way == way

        as_nobody(work, reach=here)
        _holds_new(home, sender)
        assert (home / "files").stat().st_mode & 0o777 == 0o555
        assert (home / "files/locked").stat().st_mode & 0o777 == 0o555
        assert (home / "logs").stat().st_mode & 0o777 == 0o500
        state = home / ".lnk-move" if way == "journal" else parent / f".{home.name}.lnk-move"
        assert set(os.listdir(state)) <= {"lock", "last-move.json", "index", "index.staged"}


@only_root
@pytest.mark.parametrize("exchanged", [True, False])
def test_a_home_that_its_owner_cannot_write(
    here: Path, monkeypatch: pytest.MonkeyPatch, exchanged: bool
) -> None:
    """A Home of mode 0555 is moved to all the same, keeps its mode, and so does the old one."""
    if not exchanged:
        _fails_with(errno.ENOSYS, monkeypatch)
    parent = here / "srv"
    home = parent / "home"
    home.mkdir(parents=True)
    _old(home)
    home.chmod(0o555)
    sender = _sender(here / "sender")
    give_away(parent, sender)
    before = snapshot(home)
    kept = parent / "kept"

    def work() -> None:
        held = have_of(home)
        options = receiver.Options(keep_old=os.fsencode(kept))
        report = take(home, stream_of(sender, "switch", have=held), options)
        assert report.way == ("exchange" if exchanged else "journal")

    as_nobody(work, reach=here)
    _holds_new(home, sender)
    assert snapshot(kept) == before
    assert [path.stat().st_mode & 0o777 for path in (home, kept)] == [0o555, 0o555]


@only_root
def test_no_home_and_a_parent_that_is_not_writable(here: Path) -> None:
    """Nothing can be made there, and that is what is said."""
    parent = here / "srv"
    parent.mkdir()
    stream = stream_of(_sender(here / "sender"), "switch")

    def refused() -> None:
        with pytest.raises(MachineError, match="cannot make it"):
            take(parent / "home", stream)

    as_nobody(refused, reach=here)
    assert os.listdir(parent) == []


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_a_damaged_journal(here: Path, text: bytes) -> None:
    """It is said, and neither half of the Home is touched."""
    sender = _sender(here / "sender")
    home = here / "home"
    home.mkdir()
    _old(home)
    stream = stream_of(sender, "switch", have=have_of(home))
    state = here / ".home.lnk-move"
    (state / "incoming/tree/files").mkdir(parents=True)
    (state / "incoming/old/memory").mkdir(parents=True)
    (state / "journal.json").write_bytes(text)
    before = snapshot(here)
    for look in (lambda: take(home, stream), lambda: have_of(home)):
        with pytest.raises(MachineError, match="damaged"):
            look()
    after = snapshot(here)
    after.pop(b".home.lnk-move/lock", None)
    assert after == before


def test_a_journal_that_names_what_is_no_part_of_a_home(here: Path) -> None:
    """A hostile journal moves nothing but a Home's own folders."""
    home = here / "home"
    home.mkdir()
    _old(home)
    have_of(home)
    state = here / ".home.lnk-move"
    (state / "incoming/tree/logs").mkdir(parents=True)
    (state / "incoming/tree/sub").mkdir(parents=True)
    (state / "journal.json").write_text(
        '{"replace":["logs","../x","/etc","sub",".",3],"remove":["logs",".env","..",null]}'
    )
    before = snapshot(home)
    have_of(home)
    assert snapshot(home) == before
    assert not (state / "journal.json").exists()


def test_the_move_id_is_not_enough_to_tell_what_was_exchanged(here: Path) -> None:
    """Two runs of ``files`` may have one ID; the first one's end says nothing of the second's."""
    sender = _sender(here / "sender")
    home = here / "home"
    home.mkdir()
    _old(home)
    kept = here / "kept"
    options = receiver.Options(keep_old=os.fsencode(kept))
    assert take(home, stream_of(sender, "files", move=MOVE), options).result == "in place"
    old = snapshot(kept)
    put(sender, "files/later", "later")
    stream = stream_of(sender, "files", move=MOVE)
    calls = calls_of(receiver.Options, here / "none")
    assert calls == [""]
    assert die_at(60, lambda: take(home, stream))
    assert take(home, stream).result == "in place"
    assert snapshot(kept) == old
    assert (home / "files/later").read_text() == "later"
