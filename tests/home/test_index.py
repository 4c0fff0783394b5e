from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agentmove_tools.home import digests
from tests.home.builder import Folder, full_home, have_of, make_home, put, take_away

INDEX = ".home.lnk-move/index"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the inode of each file that is hashed from now on."""
    inodes: list[int] = []

    def noting(real: Callable[[int], bytes]) -> Callable[[int], bytes]:
        def hash_it(fd: int) -> bytes:
            inodes.append(os.fstat(fd).st_ino)
            return real(fd)

        return hash_it

    monkeypatch.setattr(digests, "hash_bytes", noting(digests.hash_bytes))
    monkeypatch.setattr(digests, "hash_events", noting(digests.hash_events))
    return inodes


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock be far ahead of every file, so that none counts as written just now."""
    from agentmove_tools.home import index

    monkeypatch.setattr(index, "_FINE", -(10**18))
    monkeypatch.setattr(index, "_COARSE", -(10**18))


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


@pytest.mark.usefixtures("later")
def test_nothing_is_hashed_twice(here: Path, hashed: list[int]) -> None:
    """What has not changed is known from the run before, conversations too."""
    home = full_home(here / "home")
    first = have_of(home)
    assert len(hashed) == len(first) == 7
    hashed.clear()
    assert have_of(home) == first
    assert hashed == []


def same_size_and_mtime(path: Path) -> None:
    path.write_bytes(b"ahpla")
    os.utime(path, (9, 9))


def another_inode(path: Path) -> None:
    path.with_name("new").write_bytes(b"12345")
    os.utime(path.with_name("new"), (9, 9))
    path.with_name("new").rename(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda path: put(path.parent, path.name, "OTHER"),
    "same size and mtime": same_size_and_mtime,
    "mode": lambda path: path.chmod(0o600),
    "time": lambda path: os.utime(path, (7, 7)),
    "another inode": another_inode,
}


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_hashed_again(here: Path, hashed: list[int], change: str) -> None:
    """Whatever a program changes, its inode's change time tells, and nothing else is hashed."""
    home = full_home(here / "home")
    path = home / "files" / "a.txt"
    os.utime(path, (9, 9))
    first = have_of(home)
    hashed.clear()
    CHANGES[change](path)
    assert have_of(home) == {**first, b"files/a.txt": sha256(path.read_bytes())}
    assert hashed == [path.stat().st_ino]


@pytest.mark.usefixtures("later")
def test_files_that_come_and_go(here: Path, hashed: list[int]) -> None:
    """Beside others that stay, in the middle, at either end, and in whole folders."""
    home = make_home(here / "home", files={f"{n:02}": str(n) for n in range(10, 20)})
    have_of(home)
    hashed.clear()
    for name in ("10", "15", "19"):
        take_away(home / "files" / name)
    for name in ("00", "145", "99", "new/x"):
        put(home, f"files/{name}", name)
    have = have_of(home)
    assert {path: digest for path, digest in have.items() if path[6:] in (b"00", b"145")} == {
        b"files/00": sha256(b"00"), b"files/145": sha256(b"145")
    }  # fmt: skip
    assert len(hashed) == 4
    assert len(have) == 11
    take_away(home / "files" / "new")
    put(home, "files/new", "a file now")
    assert have_of(home)[b"files/new"] == sha256(b"a file now")


def test_a_file_written_just_now_is_hashed_again(here: Path, hashed: list[int]) -> None:
    """A later write within one tick of the clock would leave the same times (a racy file)."""
    home = make_home(here / "home", files={"a": "x"})
    have_of(home)
    hashed.clear()
    have_of(home)
    assert len(hashed) == 1


def test_a_change_that_leaves_the_times(
    here: Path, monkeypatch: pytest.MonkeyPatch, hashed: list[int]
) -> None:
    """On a file system that keeps whole seconds a change within two of them is found as well."""
    real = os.scandir

    class Coarse:
        """An entry whose times are whole seconds, and always the same ones."""

        def __init__(self, entry: os.DirEntry[str], seconds: int) -> None:
            self._entry = entry
            self._seconds = seconds
            self.name = entry.name
            self.is_file = entry.is_file
            self.is_symlink = entry.is_symlink
            self.is_dir = entry.is_dir

        def stat(self, *, follow_symlinks: bool) -> object:
            info = self._entry.stat(follow_symlinks=follow_symlinks)
            whole = self._seconds * 10**9

            class Info:
                st_size, st_ino, st_mode = info.st_size, info.st_ino, info.st_mode
                st_mtime_ns = st_ctime_ns = whole

            return Info()

    class Scan:
        def __init__(self, fd: int) -> None:
            self._entries = real(fd)

        def __enter__(self) -> list[Coarse]:
            return [Coarse(entry, now) for entry in self._entries]

        def __exit__(self, *_: object) -> None:
            self._entries.close()

    home = make_home(here / "home", files={"a": "one"})
    now = os.stat(home / "files" / "a").st_ctime_ns // 10**9
    monkeypatch.setattr(os, "scandir", Scan)
    assert have_of(home) == {b"files/a": sha256(b"one")}
    (home / "files" / "a").write_bytes(b"two")
    assert have_of(home) == {b"files/a": sha256(b"two")}
    now -= 10  # long ago: then it is known
    have_of(home)
    hashed.clear()
    have_of(home)
    assert hashed == []


@pytest.mark.usefixtures("later")
def test_a_damaged_index_is_ignored(here: Path) -> None:
    """Whatever of it is cut or altered: no digest that is not right comes out of it."""
    home = full_home(here / "home")
    first = have_of(home)
    index = here / INDEX
    whole = index.read_bytes()
    damages = [whole[:size] for size in range(0, len(whole), 97)]
    damages += [
        whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :] for at in range(0, len(whole), 23)
    ]
    for damaged in [*damages, b"", whole + b"x", whole + whole, bytes(5000)]:
        index.write_bytes(damaged)
        assert have_of(home) == first


@pytest.mark.usefixtures("later")
def test_an_index_that_cannot_be_written_or_read(here: Path) -> None:
    """Then nothing is remembered, and everything is hashed."""
    home = make_home(here / "home", files={"a": "x"})
    first = have_of(home)
    os.unlink(here / INDEX)
    os.symlink("/etc/passwd", here / INDEX)
    assert have_of(home) == first
    os.unlink(here / INDEX)
    (here / INDEX).mkdir()
    with pytest.raises(OSError, match="directory"):
        have_of(home)


@pytest.mark.usefixtures("later")
def test_the_order_of_a_large_folder(here: Path, hashed: list[int]) -> None:
    """A folder of more files than one block holds is known whole, and found again in part."""
    home = make_home(here / "home", files={})
    for number in range(5000):
        (home / "files" / f"{number:05}").write_bytes(b"%d" % (number % 3))
    first = have_of(home)
    assert len(first) == 5000
    hashed.clear()
    assert have_of(home) == first
    for number in range(0, 5000, 1000):
        (home / "files" / f"{number:05}").write_bytes(b"changed")
    second = have_of(home)
    assert len(hashed) == 5
    assert sum(second[path] != first[path] for path in first) == 5
    assert list(second) == sorted(second)


def test_odd_names_in_the_index(here: Path) -> None:
    """A folder and a file beside it whose names share a start, newlines, an empty folder."""
    files = {"a/b": "1", "a-b": "2", "a\nb": "3", "\u00fc/\u00fc": "4", "a.": "5"}
    home = make_home(here / "home", files={"a": Folder(), "empty": Folder()})
    for path, content in files.items():
        put(home, f"files/{path}", content)
    expected = {
        b"files/" + path.encode(): sha256(content.encode()) for path, content in files.items()
    }
    assert have_of(home) == expected
    assert have_of(home) == expected
