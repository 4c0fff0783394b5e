"""A disk that is full is said in one line, and costs nothing but a second try."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmove_tools.home import snapshot as home_snapshot
from agentmove_tools.stream.paths import Phase
from tests.conftest import RunTool
from tests.home.builder import (
    MOVE,
    File,
    Snapshot,
    full_home,
    have_of,
    make_home,
    manifest_of,
    put,
    snapshot,
    stream_of,
    take,
    travelling,
)
from tests.home.machine import mounted_tmpfs, only_root

pytestmark = only_root

_DISK = 4 << 20
_PAGE = 4096


@pytest.fixture
def disk(here: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = here / "disk"
    folder.mkdir()
    with mounted_tmpfs(folder, str(_DISK)):
        yield folder


def _sender(folder: Path) -> Path:
    home = full_home(folder)
    for number in range(12):
        put(home, f"files/big/{number:02}", bytes([number]) * 100_000)
    put(home, "harness/conversations/main/events.jsonl", b'{"n":1}\n' * 20_000)
    return home


def _old(home: Path) -> None:
    make_home(
        home,
        files={"same": b"s" * 50_000, "gone": b"g" * 50_000},
        conversations={"main": b'{"n":1}\n' * 10},
        connections={"own.json": File(b"{}", 0o600)},
        other={"logs/a": b"l" * 20_000},
    )


def _fill(disk: Path, *, leaving: int) -> Path:
    """Fill the disk up but for so many bytes."""
    ballast = disk / "ballast"
    free = os.statvfs(disk).f_bavail * _PAGE
    ballast.write_bytes(b"\0" * max(0, free - leaving))
    return ballast


def _whole(home: Path) -> Snapshot | None:
    return snapshot(home) if home.exists() else None


def _one_line(stderr: bytes, name: str) -> None:
    lines = [line for line in stderr.decode().splitlines() if "not sent" not in line]
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"{name}: failed: ")
    assert "No space left on device" in lines[0]


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("phase", ["copy", "switch", "files"])
def test_a_receiver_on_a_full_disk(disk: Path, here: Path, phase: Phase, old: bool) -> None:
    """Wherever it stops, the Home is as it was, and with room again the same stream is taken."""
    sender = _sender(here / "sender")
    home = disk / "home"
    if old:
        _old(home)
    before = _whole(home)
    stream = stream_of(sender, phase, have=have_of(home))
    full = 0
    done = False
    for leaving in range(0, 2_400_000, 97_000 if phase == "switch" else 197_000):
        ballast = _fill(disk, leaving=leaving)
        try:
            result = take(home, stream).result
            done = True
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 - a try that succeeds ends the loop
            full += 1
        ballast.unlink()
        if done:
            break
        assert _whole(home) == before, leaving
    assert full > 3
    assert done
    assert result == ("staged" if phase == "copy" else "in place")
    if phase == "switch":
        theirs = travelling(snapshot(sender))
        ours = travelling(snapshot(home))
        assert {path: ours.get(path) for path in theirs} == theirs
    state = set(os.listdir(disk / ".home.lnk-move"))
    at_rest = {"lock", "last-move.json", "index", "index.staged"}
    assert state <= (at_rest | {"staged"} if phase == "copy" else at_rest)


def test_what_arrived_before_the_disk_was_full_is_not_sent_again(disk: Path, here: Path) -> None:
    """The files that are whole are staged, and the next try brings the others."""
    sender = _sender(here / "sender")
    home = disk / "home"
    ballast = _fill(disk, leaving=900_000)
    with pytest.raises(OSError, match="No space left"):
        take(home, stream_of(sender, "copy"))
    ballast.unlink()
    held = have_of(home)
    theirs = have_of(sender)
    assert {path: held[path] for path in held if path in theirs} == held
    assert 4 <= sum(path.startswith(b"files/big/") for path in held) < 12
    stream = stream_of(sender, "copy", have=held)
    assert len(stream) < 1_000_000
    take(home, stream)
    assert have_of(home) == have_of(sender)


def test_the_receiver_says_it_in_one_line(disk: Path, here: Path, tool: RunTool) -> None:
    """Exit 3, what failed, and nothing on standard output."""
    stream = stream_of(_sender(here / "sender"), "switch")
    for leaving in (0, _PAGE, 400_000):
        ballast = _fill(disk, leaving=leaving)
        done = tool("lnk-tar-apply", disk / "home", stdin=stream)
        assert done.returncode == 3
        assert done.stdout == b""
        _one_line(done.stderr, "lnk-tar-apply")
        ballast.unlink()
        assert not (disk / "home").exists()
    done = tool("lnk-tar-apply", disk / "home", stdin=stream)
    assert done.returncode == 0
    assert done.stderr == b""


def test_no_inodes_left(here: Path) -> None:
    """A disk that has room but no inodes is a full disk too."""
    sender = _sender(here / "sender")
    stream = stream_of(sender, "switch")
    disk = here / "disk"
    disk.mkdir()
    with mounted_tmpfs(disk, "8m", inodes=40):
        with pytest.raises(OSError, match="No space left"):
            take(disk / "home", stream)
        assert not (disk / "home").exists()


def test_have_on_a_full_disk(disk: Path, tool: RunTool) -> None:
    """Without room to remember the hashes, they are printed all the same."""
    home = disk / "home"
    _old(home)
    for number in range(300):
        put(home, f"files/many/{number}", b"%d" % number)
    with_room = tool("lnk-have", home)
    assert with_room.returncode == 0
    index = disk / ".home.lnk-move/index"
    for leaving in (0, _PAGE, 4 * _PAGE):
        index.unlink()
        ballast = _fill(disk, leaving=leaving)
        done = tool("lnk-have", home)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == with_room.stdout
        ballast.unlink()
        assert tool("lnk-have", home).stdout == with_room.stdout
        assert set(os.listdir(index.parent)) <= {"lock", "index", "index.staged"}


@pytest.mark.parametrize("leaving", [0, _PAGE, 3_000_000])
def test_a_sender_without_room_to_spool(disk: Path, tool: RunTool, leaving: int) -> None:
    """A large file that may change is spooled; without room for that it is one line, exit 3."""
    home = disk / "home"
    make_home(home, files={"large": b"x" * 300_000})
    manifest = manifest_of(home, "copy").to_json()
    before = snapshot(home)
    large = home_snapshot.IN_MEMORY + 100
    with (home / "files/large").open("ab") as file:
        file.truncate(large)  # a hole takes no room, until it is copied
    ballast = _fill(disk, leaving=leaving)
    done = tool("lnk-tar-create", home, stdin=manifest)
    assert done.returncode == 3
    _one_line(done.stderr, "lnk-tar-create")
    verified = tool("lnk-tar-verify", stdin=done.stdout)
    assert verified.returncode == 1
    ballast.unlink()
    with (home / "files/large").open("ab") as file:
        file.truncate(300_000)
    done = tool("lnk-tar-create", home, stdin=manifest)
    assert done.returncode == 0, done.stderr
    assert snapshot(home) == before


@pytest.mark.parametrize("leaving", [0, _PAGE, 1_000_000])
def test_output_to_a_full_disk(disk: Path, here: Path, tool: RunTool, leaving: int) -> None:
    """With -o, a full disk leaves the file that was there, and no half of a new one."""
    home = _sender(here / "sender")
    manifest = manifest_of(home, "switch", move=MOVE).to_json()
    output = disk / "stream"
    output.write_bytes(b"an older one")
    ballast = _fill(disk, leaving=leaving)
    done = tool("lnk-tar-create", home, "-o", output, stdin=manifest)
    assert done.returncode == 3
    _one_line(done.stderr, "lnk-tar-create")
    assert sorted(os.listdir(disk)) == ["ballast", "stream"]
    assert output.read_bytes() == b"an older one"
    ballast.unlink()
    done = tool("lnk-tar-create", home, "-o", output, stdin=manifest)
    assert done.returncode == 0
    assert output.read_bytes() == tool("lnk-tar-create", home, stdin=manifest).stdout


def test_standard_output_on_a_full_disk(here: Path, tool: RunTool) -> None:
    """The report that cannot be written is said; the Home is in place, and a retry ends well."""
    home = here / "home"
    stream = stream_of(_sender(here / "sender"), "switch")
    done = tool("lnk-tar-apply", home, "-o", "/dev/full", stdin=stream)
    assert done.returncode == 3
    _one_line(done.stderr, "lnk-tar-apply")
    assert (home / "agent.json").exists()
    done = tool("lnk-tar-apply", home, stdin=stream)
    assert done.returncode == 0
    assert b"already in place" in done.stdout
