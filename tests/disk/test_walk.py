from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from agentmove_tools.disk.walk import walk, walk_folders
from agentmove_tools.refusals import Refusal
from tests.home.builder import Fifo, Folder, Link, put, snapshot, take_away


def listed(
    folder: Path, leave_out: Callable[[bytes], bool] | None = None
) -> list[tuple[bytes, str]]:
    root = os.open(folder, os.O_RDONLY)
    try:
        return [(found[0], found[1]) for found in walk(root, b"top", leave_out=leave_out)]
    finally:
        os.close(root)


def test_sorted_by_the_bytes_of_full_paths(here: Path) -> None:
    """A folder comes before what is in it, and ``a-b`` before ``a/b`` though ``a`` comes first."""
    for path in ("a/b/c", "a/b-c", "a-b", "a.b/x", "a0", "\u00e9/x", "z\n", "A"):
        put(here, path, "x")
    put(here, "a/empty", Folder())
    found = [path for path, _ in listed(here)]
    assert found == sorted(found)
    assert found == sorted(b"top/" + path for path in snapshot(here))


def test_kinds(here: Path) -> None:
    """A link to a folder is a link; nothing special is opened."""
    put(here, "file", "x")
    put(here, "folder/x", "x")
    put(here, "link", Link(b"folder"))
    put(here, "fifo", Fifo())
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.fsencode(here / "socket"))
    listening.close()
    assert dict(listed(here)) == {
        b"top/file": "file",
        b"top/folder": "folder",
        b"top/folder/x": "file",
        b"top/link": "link",
        b"top/fifo": "other",
        b"top/socket": "other",
    }


def test_what_is_left_out_is_not_looked_into(here: Path) -> None:
    """Not even at a name that is none."""
    put(here, b"out/\xff", "x")
    put(here, "out-side", "x")
    assert listed(here, lambda path: path == b"top/out") == [(b"top/out-side", "file")]
    with pytest.raises(Refusal) as caught:
        listed(here)
    assert caught.value.details["path"] == "top/out/\\xff"


@pytest.mark.parametrize("depth", [10, 63, 64, 65, 200])
def test_deep_folders(here: Path, depth: int) -> None:
    """As deep as a path may be, with few of them open at once."""
    fd = os.open(here, os.O_RDONLY)
    for number in range(depth):
        os.close(os.open(b"z%d" % number, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.mkdir(b"d", dir_fd=fd)
        below = os.open(b"d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    found = listed(here)
    assert len(found) == 2 * depth
    assert found == sorted(found)
    root = os.open(here, os.O_RDONLY)
    assert len(list(walk_folders(root, b"top"))) == depth + 1
    os.close(root)
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("change", ["gone", "a file", "a link"])
def test_a_folder_that_goes_meanwhile(here: Path, change: str) -> None:
    """Is taken as empty; what a link there points to is not entered."""
    put(here, "home/a", "x")
    put(here, "home/b/c", "x")
    put(here, "home/d", "x")
    put(here, "outside/secret", "x")
    for walker in ("walk", "walk_folders"):
        put(here, "home/b/c", "x")
        root = os.open(here / "home", os.O_RDONLY)
        run = walk(root, b"top") if walker == "walk" else walk_folders(root, b"top")
        next(iter(run))
        take_away(here / "home" / "b")
        if change == "a file":
            put(here, "home/b", "x")
        if change == "a link":
            put(here, "home/b", Link(b"../outside"))
        rest = list(run)
        os.close(root)
        if walker == "walk":
            assert [found[0] for found in rest] == [b"top/b", b"top/d"]  # type: ignore[index]
        else:
            assert rest == []
        take_away(here / "home" / "b")


def test_walk_folders(here: Path) -> None:
    """Each folder with its files, sorted; links to folders are not among them."""
    put(here, "b/2", "x")
    put(here, "b/1", "x")
    put(here, "a/deep/x", "x")
    put(here, "link", Link(b"b"))
    root = os.open(here, os.O_RDONLY)
    found = [(folder.path, list(folder.files)) for folder in walk_folders(root, b"top")]
    os.close(root)
    assert found == [
        (b"top", []),
        (b"top/a", []),
        (b"top/a/deep", [b"x"]),
        (b"top/b", [b"1", b"2"]),
    ]
