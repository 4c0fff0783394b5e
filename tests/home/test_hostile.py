"""A receiver among things that somebody, or an accident, put in its way."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentmove_tools.home import receiver
from agentmove_tools.refusals import MachineError, Refusal
from agentmove_tools.stream.manifest import Manifest
from agentmove_tools.stream.tar_writer import MoveWriter
from tests.conftest import RunTool
from tests.home.builder import (
    MOVE,
    OTHER_MOVE,
    Bytes,
    File,
    Folder,
    Link,
    full_home,
    have_of,
    make_home,
    manifest_of,
    move,
    put,
    snapshot,
    stream_of,
    take,
    travelling,
)
from tests.home.machine import NOBODY, as_nobody, give_away, only_root

_STATE = ".home.lnk-move"


def _old(home: Path) -> Path:
    return make_home(
        home,
        files={"a.txt": "old", "same": "same", "deep/er/b.bin": "below", "link": Link(b"a.txt")},
        memory={"engine/index.db": b"old"},
        skills={"cook/SKILL.md": "old"},
        conversations={"main": [{"n": 1, "text": "hello"}]},
        connections={"own.json": File(b"{}", 0o600)},
        other={"logs/a": "log"},
    )


def _outside(here: Path) -> Path:
    outside = here / "outside"
    outside.mkdir()
    put(outside, "a.txt", "mine")
    put(outside, "agent.json", '{"id": "a1"}')
    put(outside, "run.sh", "mine too")
    put(outside, "tree/files/a.txt", "mine as well")
    return outside


def _holds(home: Path, sender: Path) -> None:
    theirs = travelling(snapshot(sender))
    ours = travelling(snapshot(home))
    assert {path: ours.get(path) for path in theirs} == theirs


# -- links in the way


@pytest.mark.parametrize(
    "place",
    [
        "staged",
        "staged/tree",
        "staged/tree/files",
        "staged/tree/files/a.txt",
        "staged/tree/files/deep",
        "staged/tree/files/run.sh",
        "staged/tree/connections",
        "staged/tree/harness",
        "staged/tree/harness/conversations/main",
        "staged/tree/agent.json",
        "staged/move.json",
        "staged/move.json.tmp",
        "staged/new.tmp",
        "incoming",
        "incoming/tree",
        "incoming/tree/files",
        "old",
        "index",
        "index.staged",
        "last-move.json",
        "last-move.json.tmp",
        "journal.json.tmp",
        "lock",
        "journal.json",
    ],
)
@pytest.mark.parametrize("target", ["file", "folder", "nothing"])
def test_a_link_in_the_working_state_is_never_followed(here: Path, place: str, target: str) -> None:
    """Nothing outside is read or written: it gives way, or the move stops without harm."""
    sender = full_home(here / "sender")
    home = _old(here / "home")
    outside = _outside(here)
    before = snapshot(outside)
    old = snapshot(home)
    stream = stream_of(sender, "switch", have={})
    link = here / _STATE / place
    link.parent.mkdir(parents=True)
    link.symlink_to(
        {"file": outside / "a.txt", "folder": outside, "nothing": outside / "new"}[target]
    )
    (home / "files/same").unlink()
    old = snapshot(home)
    try:
        have_of(home)
        take(home, stream)
    except (OSError, MachineError):
        assert snapshot(home) == old
        link.unlink()
        take(home, stream)
    assert snapshot(outside) == before
    assert b"mine" not in b"".join(content for _, _, content in snapshot(home).values())
    _holds(home, sender)


@pytest.mark.parametrize("name", ["files", "memory", "harness", "connections", "schedule", "logs"])
def test_a_folder_of_the_home_that_is_a_link(here: Path, name: str) -> None:
    """A move would lose it, and stops; one that is no part of a move is carried over as it is."""
    sender = full_home(here / "sender")
    home = _old(here / "home")
    outside = _outside(here)
    shutil.rmtree(home / name, ignore_errors=True)
    (home / name).symlink_to(outside)
    (home / "files/same").unlink(missing_ok=True)
    before = snapshot(outside), snapshot(home)
    stream = stream_of(sender, "switch")
    if name == "logs":
        assert take(home, stream).result == "in place"
        _holds(home, sender)
        assert (home / name).is_symlink()
    else:
        with pytest.raises(MachineError, match="links are not followed"):
            take(home, stream)
        assert snapshot(home) == before[1]
    assert snapshot(outside) == before[0]


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "folder"])
def test_an_agent_json_that_is_no_file(here: Path, kind: str) -> None:
    """Whose Home it is cannot be said, so nothing is taken."""
    stream = stream_of(full_home(here / "sender"), "switch")
    home = _old(here / "home")
    outside = _outside(here)
    agent = home / "agent.json"
    agent.unlink()
    if kind == "fifo":
        os.mkfifo(agent)
    elif kind == "folder":
        agent.mkdir()
    else:
        agent.symlink_to(outside / ("agent.json" if kind == "link" else "none"))
    before = snapshot(home)
    with pytest.raises((OSError, MachineError)):
        take(home, stream)
    assert snapshot(home) == before


# -- what a Home may be


def test_a_home_that_is_a_link(here: Path) -> None:
    """It stays one; what it points to is exchanged, and the working state lies beside that."""
    sender = full_home(here / "sender")
    real = _old(here / "real" / "agent")
    (real / "files/same").unlink()
    link = here / "home"
    link.symlink_to("real/agent")
    inode = real.stat().st_ino
    assert move(sender, link, "copy").result == "staged"
    assert move(sender, link, "switch").way == "exchange"
    assert link.is_symlink()
    assert real.stat().st_ino != inode
    assert sorted(os.listdir(here / "real")) == [".agent.lnk-move", "agent"]
    assert not (here / _STATE).exists()
    _holds(real, sender)


def test_a_dangling_link(here: Path) -> None:
    """The Home is made where it points to."""
    sender = full_home(here / "sender")
    (here / "real").mkdir()
    (here / "home").symlink_to("real/agent")
    assert have_of(here / "home") == {}
    assert move(sender, here / "home", "switch").way == "rename"
    assert (here / "home").is_symlink()
    _holds(here / "real/agent", sender)


@pytest.mark.parametrize("kind", ["file", "fifo", "loop", "into nothing", "of a file"])
def test_a_home_that_can_be_none(here: Path, kind: str) -> None:
    """It is said, and nothing is made."""
    stream = stream_of(full_home(here / "sender"), "switch")
    home = here / "home"
    if kind == "file":
        home.write_text("a file")
    elif kind == "fifo":
        os.mkfifo(home)
    elif kind == "loop":
        home.symlink_to("home")
    elif kind == "into nothing":
        home.symlink_to("no/where")
    else:
        (here / "file").write_text("a file")
        home.symlink_to("file")
    before = sorted(os.listdir(here))
    for look in (lambda: have_of(home), lambda: take(home, stream)):
        with pytest.raises((OSError, MachineError)):
            look()
    assert sorted(os.listdir(here)) == before


@pytest.mark.parametrize("what", ["a.txt", "lost+found/", ".hidden"])
def test_a_folder_that_is_no_home(here: Path, what: str) -> None:
    """It is refused, stays as it is, and gets no working state."""
    stream = stream_of(full_home(here / "sender"), "switch")
    home = here / "home"
    home.mkdir()
    if what.endswith("/"):
        (home / what).mkdir()
    else:
        (home / what).write_text("x")
    with pytest.raises(Refusal) as refusal:
        take(home, stream)
    assert refusal.value.code == "home-missing"
    assert sorted(os.listdir(here)) == [".sender.lnk-move", "home", "sender"]


# -- whose working state


@only_root
def test_a_working_state_of_another_user(here: Path) -> None:
    """Somebody else may have planted it, so it is not used."""
    home = _old(here / "home")
    stream = stream_of(full_home(here / "sender"), "switch")
    state = here / _STATE
    state.mkdir(mode=0o777)
    os.chown(state, 1234, 1234)
    before = snapshot(home)
    with pytest.raises(MachineError, match="another user"):
        take(home, stream)
    assert snapshot(home) == before
    assert os.listdir(state) == []


@only_root
@pytest.mark.parametrize("keep", [False, True])
def test_root_gives_what_it_takes_to_the_homes_owner(here: Path, keep: bool) -> None:
    """An agent that runs as its own user can read and write its Home after root moved it."""
    sender = full_home(here / "sender")
    put(sender, "files/same", "same")
    home = _old(here / "home")
    home.chmod(0o750)
    give_away(home)
    move(sender, home, "copy")
    kept = os.fsencode(here / "kept") if keep else None
    move(sender, home, "switch", options=receiver.Options(keep_old=kept))
    _holds(home, sender)
    everything = [os.lstat(path) for path in (home, *home.rglob("*"))]
    assert {(info.st_uid, info.st_gid) for info in everything} == {(NOBODY, NOBODY)}
    assert home.stat().st_mode & 0o777 == 0o750


# -- folders that cannot be read or written


@only_root
@pytest.mark.parametrize("mode", [0o555, 0o500])
def test_read_only_folders_of_the_old_home(here: Path, mode: int) -> None:
    """Its owner moves, and removes, what is in them all the same."""
    sender = full_home(here / "sender")
    home = _old(here / "home")
    here.chmod(0o777)
    put(home, "files/shut/in/side", "x")
    put(home, "logs/shut/b", "log")
    for name in ("files/shut/in", "files/shut", "files", "memory", "logs/shut", "logs"):
        (home / name).chmod(mode)
    give_away(home, sender)

    def work() -> None:
        assert take(home, stream_of(sender, "switch", have=have_of(home))).way == "exchange"
        assert (
            take(home, stream_of(sender, "switch", move=OTHER_MOVE, have=have_of(home))).result
            == "in place"
        )

    as_nobody(work, reach=here)
    _holds(home, sender)
    assert (home / "logs/shut").stat().st_mode & 0o777 == mode
    assert set(os.listdir(here / _STATE)) <= {"lock", "last-move.json", "index", "index.staged"}


@only_root
@pytest.mark.parametrize("name", ["files/shut", "logs/shut", "files/shut/a", "connections/c.json"])
def test_what_the_receiver_cannot_read(here: Path, name: str) -> None:
    """A switch that would lose it stops, and names it; the Home is as it was."""
    sender = full_home(here / "sender")
    home = _old(here / "home")
    here.chmod(0o777)
    put(home, name, Folder() if name.endswith("shut") else "kept")
    if name.endswith("shut"):
        put(home, name + "/inside", "kept")
    (home / "files/same").unlink()
    give_away(home, sender)
    (home / name).chmod(0)
    before = snapshot(home)

    def work() -> None:
        stream = stream_of(sender, "switch", have={})
        with pytest.raises((OSError, MachineError, Refusal)):
            take(home, stream, receiver.Options(keep_old=os.fsencode(here / "kept")))

    as_nobody(work, reach=here)
    assert snapshot(home) == before
    assert not (here / "kept").exists()


# -- deep and long


def _deep(root: Path, levels: int, *, each: bytes | None = None) -> None:
    """Folders in folders, in some a file before and one after the next folder."""
    fd = os.open(root, os.O_RDONLY)
    for level in range(levels):
        for name in (b"a", b"z"):
            if (each is not None and level % 100 == 0) or level == levels - 1:
                file = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=fd)
                os.write(file, each or b"bottom")
                os.close(file)
        os.mkdir(b"d", dir_fd=fd)
        below = os.open(b"d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def _remove_deep(folder: Path) -> None:
    """Remove what ``shutil`` cannot: it recurses."""
    from agentmove_tools.disk.folders import remove

    above = os.open(folder.parent, os.O_RDONLY)
    try:
        remove(above, os.fsencode(folder.name))
    finally:
        os.close(above)


@pytest.fixture
def hollow(here: Path) -> Iterator[Path]:
    """A folder whose contents ``shutil`` could not remove, since it recurses."""
    yield here
    for name in os.listdir(here):
        _remove_deep(here / name)


@pytest.mark.parametrize("top", ["files", "logs", "harness/other"])
def test_very_deep_folders(hollow: Path, top: str) -> None:
    """1500 levels are copied, switched, kept, moved back, and removed."""
    sender = full_home(hollow / "sender")
    home = _old(hollow / "home")
    (home / "files/same").unlink()
    (sender / top).mkdir(parents=True, exist_ok=True)
    (home / top).mkdir(parents=True, exist_ok=True)
    _deep(sender / top, 1500, each=b"sent")
    _deep(home / top, 1500, each=b"own")
    held = have_of(home)
    assert move(sender, home, "switch").result == "in place"
    if top == "files":
        deepest = b"files/" + b"d/" * 1400 + b"z"
        assert held[deepest] != have_of(home)[deepest] == have_of(sender)[deepest]
        assert have_of(home)[deepest] == have_of(sender)[deepest]
    stream = stream_of(sender, "switch", move=OTHER_MOVE, have=have_of(home))
    assert take(home, stream).result == "in place"
    kept = receiver.Options(keep_old=os.fsencode(hollow / "kept"))
    third = stream_of(sender, "switch", move="3" * 32, have=have_of(home))
    assert take(home, third, kept).result == "in place"
    assert have_of(home) == have_of(sender)
    back = make_home(hollow / "back", files={})
    put(home, "schedule/paused", "")
    assert move(home, back, "switch", move_id="4" * 32).result == "in place"


def test_deeper_than_a_path_may_be(hollow: Path) -> None:
    """What is left alone may be deeper than any path can say; what is sent may not."""
    sender = full_home(hollow / "sender")
    home = _old(hollow / "home")
    (home / "files/same").unlink()
    _deep(home / "logs", 3000)
    assert move(sender, home, "switch").result == "in place"
    _deep(home / "files", 2200)
    with pytest.raises(Refusal) as refusal:
        stream_of(home, "copy")
    assert refusal.value.code == "home-path"
    with pytest.raises(Refusal):
        have_of(home)


def test_the_longest_names(here: Path) -> None:
    """255 bytes in a name, 4096 in a path, any byte that is no slash, at both ends."""
    sender = full_home(here / "sender")
    put(sender, b"files/" + "ß".encode() * 127 + b"x", "long")
    path = b"files"
    while len(path) < 3800:
        path += b"/" + b"n" * 250
    path += b"/" + b"m" * (4096 - len(path) - 1)
    assert len(path) == 4096
    fd = os.open(sender, os.O_RDONLY)
    *folders, name = path.split(b"/")
    for folder in folders:
        if not os.access(folder, os.F_OK, dir_fd=fd):
            os.mkdir(folder, dir_fd=fd)
        below = os.open(folder, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=fd))
    os.close(fd)
    for odd in (
        b"-rf",
        b"*",
        b"\\",
        b"\x01\x7f",
        b"\n",
        b" ",
        b"\xe2\x80\xae",
        b"new.tmp",
        b".lnk-move",
    ):
        put(sender, b"files/odd/" + odd, odd)
    home = here / "home"
    assert move(sender, home, "copy").result == "staged"
    assert move(sender, home, "switch").result == "in place"
    held = have_of(home)
    assert path in held
    assert held == have_of(sender)


# -- the staged tree is not what it should be


def _swap(tree: Path) -> None:
    """Folders where files must go, files where folders must, links at both, and what is locked."""
    put(tree, "files/a.txt/is/a/folder", "x")
    put(tree, "files/deep", "a file")
    put(tree, "files/empty", Link(b".."))
    put(tree, "files/link/is a folder", "x")
    put(tree, "files/run.sh", Link(b"../../move.json"))
    put(tree, "memory", "a file")
    put(tree, "harness/skills", "a file")
    put(tree, "harness/instructions.md/x", "x")
    put(tree, "harness/conversations/main/events.jsonl/x", "x")
    put(tree, "harness/conversations/side", "a file")
    put(tree, "connections", Link(b"../../.."))
    put(tree, "schedule/waiting", "a file")
    put(tree, "agent.json/x", "x")
    put(tree, "logs", "a file")
    put(tree, "unknown/x", "x")


@pytest.mark.parametrize("phase", ["switch", "copy"])
@pytest.mark.parametrize("name", ["staged", "incoming"])
def test_a_staged_tree_with_the_wrong_things_in_place(here: Path, name: str, phase: str) -> None:
    """An entry replaces what is at its path, of whatever kind; the rest is pruned."""
    sender = full_home(here / "sender")
    home = _old(here / "home")
    (home / "files/same").unlink()
    stream = stream_of(sender, "switch", have=have_of(home))
    copy = stream_of(sender, "copy", have=have_of(home))
    tree = here / _STATE / name / "tree"
    tree.mkdir(parents=True)
    _swap(tree)
    (tree.parent / "move.json").write_text('{"staged":true,"copy":true,"agent":"a1"}')
    if phase == "copy":
        take(home, copy)
        assert (here / _STATE / "staged/tree/files/a.txt").read_text() == "alpha"
    else:
        (tree.parent / "move.json").write_text(
            f'{{"staged":true,"copy":true,"agent":"a1","move":"{MOVE}"}}'
        )
    take(home, stream)
    _holds(home, sender)
    assert (home / "logs/a").read_text() == "log"
    assert not (home / "unknown").exists()


# -- inodes


def _inodes(folder: Path) -> set[tuple[int, int]]:
    return {
        (info.st_dev, info.st_ino)
        for info in map(os.lstat, folder.rglob("*"))
        if stat.S_ISREG(info.st_mode)
    }


def test_a_staged_copy_shares_no_inode_with_the_home(here: Path) -> None:
    """Not after a copy, and not after a switch that was refused at its very end."""
    sender = full_home(here / "sender")
    home = _old(here / "home")
    move(sender, home, "copy")
    staged = here / _STATE / "staged"
    assert staged.is_dir()
    assert not _inodes(staged) & _inodes(home)
    stream = stream_of(sender, "switch", have=have_of(home))
    put(home, "files/not known to the sender", "x")
    with pytest.raises(Refusal) as refusal:
        take(home, stream)
    assert refusal.value.code == "tree-mismatch"
    assert staged.is_dir()
    assert not _inodes(staged) & _inodes(home)


def test_a_kept_old_home_shares_no_inode_with_the_new(here: Path) -> None:
    """What is written to the one never shows in the other."""
    sender = full_home(here / "sender")
    put(sender, "files/same", "same")
    home = _old(here / "home")
    before = snapshot(home)
    kept = here / "kept"
    move(sender, home, "switch", options=receiver.Options(keep_old=os.fsencode(kept)))
    assert snapshot(kept) == before
    assert not _inodes(kept) & _inodes(home)


def test_an_unchanged_file_is_not_copied(here: Path) -> None:
    """The new Home shares it with the old one, which is gone."""
    sender = full_home(here / "sender")
    put(sender, "files/same", "same")
    home = _old(here / "home")
    inode = (home / "files/same").stat().st_ino
    move(sender, home, "switch")
    assert (home / "files/same").stat().st_ino == inode
    assert (home / "files/same").stat().st_nlink == 1


@pytest.mark.parametrize("code", [errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP])
def test_a_file_that_can_have_no_more_links(
    here: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """It is copied then, with its mode and time."""
    sender = full_home(here / "sender")
    put(sender, "files/same", File(b"same", 0o640))
    home = _old(here / "home")
    put(home, "files/same", File(b"same", 0o640))

    def none(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    before = (home / "files/same").stat()
    monkeypatch.setattr(os, "link", none)
    assert move(sender, home, "switch").result == "in place"
    after = (home / "files/same").stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert (home / "logs/a").read_text() == "log"


def test_hard_links_between_the_homes_files(here: Path) -> None:
    """Two names of one file are two files for a move; both arrive, and both are kept."""
    sender = full_home(here / "sender")
    os.link(sender / "files/a.txt", sender / "files/b.txt")
    home = _old(here / "home")
    (home / "files/same").unlink()
    os.link(home / "files/a.txt", home / "files/b.txt")
    os.link(home / "files/a.txt", here / "elsewhere")
    assert move(sender, home, "switch").result == "in place"
    _holds(home, sender)
    put(sender, "files/a.txt", "changed")
    assert move(sender, home, "switch", move_id=OTHER_MOVE).result == "in place"
    assert (home / "files/b.txt").read_text() == "alpha"
    assert (here / "elsewhere").read_text() == "old"


# -- damaged files of the working state


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flipped(data: bytes) -> bytes:
    return bytes(byte ^ 0x55 if at % 7 == 3 else byte for at, byte in enumerate(data))


_DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda _: b"",
    lambda _: b"\0" * 5000,
    lambda _: b"[" * 100_000,
    lambda _: b'{"moves":[1,null,{"inode":"x"},{"inode":[],"switch":3}],"move":7,"copy":"yes"}',
    lambda _: b"\xff\xfe\0{",
    lambda data: data + b"more",
    _cut,
    _flipped,
]


@pytest.mark.parametrize("damage", range(len(_DAMAGES)))
@pytest.mark.parametrize(
    "name", ["index", "index.staged", "last-move.json", "staged/move.json", "lock"]
)
def test_a_damaged_file_of_the_working_state(here: Path, name: str, damage: int) -> None:
    """It is as if it were not there: nothing wrong is remembered, nothing stops a move."""
    sender = full_home(here / "sender")
    home = _old(here / "home")
    (home / "files/same").unlink()
    move(sender, home, "switch", move_id=OTHER_MOVE)
    put(sender, "files/next", "next")
    move(sender, home, "copy")
    have_of(home)
    expected = have_of(home)
    file = here / _STATE / name
    file.write_bytes(_DAMAGES[damage](file.read_bytes()))
    assert have_of(home) == expected
    file.write_bytes(_DAMAGES[damage](file.read_bytes()))
    try:
        report = move(sender, home, "switch")
    except Refusal as refusal:
        # A copy that seems to be another agent's is dropped, and what it held is sent again.
        assert (refusal.code, name) == ("tree-mismatch", "staged/move.json")  # noqa: PT017
        report = move(sender, home, "switch")
    assert report.result == "in place"
    _holds(home, sender)


def test_an_index_that_lies(here: Path) -> None:
    """One of another Home, put here, changes nothing: it knows other inodes and times."""
    home = _old(here / "home")
    other = _old(here / "other")
    put(other, "files/a.txt", "new")
    have_of(other)
    expected = have_of(home)
    shutil.copy(here / ".other.lnk-move/index", here / _STATE / "index")
    assert have_of(home) == expected


def test_a_home_that_took_the_place_of_one_that_was_removed(here: Path) -> None:
    """A folder number that is given again is not taken for the Home of the last move."""
    sender = full_home(here / "sender")
    home = here / "home"
    stream = stream_of(sender, "switch")
    assert take(home, stream).result == "in place"
    number = home.stat().st_ino
    for _ in range(50):
        shutil.rmtree(home)
        home.mkdir()
        if home.stat().st_ino == number:
            break
    assert take(home, stream).result == "in place"
    _holds(home, sender)


# -- streams that are made to harm


def _sent(home: Path, manifest: bytes) -> None:
    sink = Bytes()
    MoveWriter(sink, Manifest.parse(manifest)).end()
    take(home, sink.getvalue())


def test_removed_paths_that_leave_the_home(here: Path) -> None:
    """``removed`` reaches ``files/`` and ``memory/`` only."""
    sender = full_home(here / "sender")
    home = _old(here / "home")
    before = snapshot(home)
    manifest = manifest_of(sender, "switch")
    for path in (b"files/../../outside", b"/etc/passwd", b"agent.json", b"connections/own.json"):
        raw = manifest.to_json().replace(b'{"', b'{"removed":["' + path + b'"],"', 1)
        with pytest.raises(Refusal):
            _sent(home, raw)
    assert snapshot(home) == before


def test_an_old_home_is_kept_under_a_name_that_is_no_utf_8(here: Path, tool: RunTool) -> None:
    """The report shows the name escaped, and does not fail over it."""
    home = _old(here / "home")
    full_home(here / "sender")
    (home / "files/same").unlink()
    before = snapshot(home)
    stream = stream_of(here / "sender", "switch", have=have_of(home))
    kept = os.fsencode(here) + b"/kept\xff\n"
    done = tool("lnk-tar-apply", "--keep-old", kept, home, stdin=stream)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "old_home" in json.loads(done.stdout)
    assert snapshot(Path(os.fsdecode(kept))) == before
    again = stream_of(here / "sender", "switch", move=OTHER_MOVE, have=have_of(home))
    done = tool("lnk-tar-apply", "--keep-old", kept, home, stdin=again)
    assert done.returncode == 2
    assert rb"kept\xff\x0a" in done.stderr.replace(rb"\udcff", rb"\xff")


def test_a_home_whose_own_name_is_no_utf_8(here: Path, tool: RunTool) -> None:
    """It is a Home like every other."""
    stream = stream_of(full_home(here / "sender"), "switch")
    home = os.fsencode(here) + b"/h\xff"
    assert tool("lnk-tar-apply", home, stdin=stream).returncode == 0
    done = tool("lnk-tar-apply", home, stdin=stream)
    assert json.loads(done.stdout)["result"] == "already in place"
    assert tool("lnk-have", home).returncode == 0
