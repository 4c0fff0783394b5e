from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agentmove_tools.database.embedded import data_folder, hold_server
from agentmove_tools.database.embedded.places import Places, make_folder
from agentmove_tools.refusals import MachineError
from tests.database.embedded.holding import Holder, ask, stopped_after
from tests.home.machine import NOBODY, mounted_tmpfs, only_root

KEPT = "SELECT number FROM kept"


def test_the_data_folder_of_an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is where such data lie; a relative XDG_DATA_HOME is none (XDG base directories)."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("AGENTFY_DATA", raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert data_folder() == "/home/me/.local/share/agentmove-tools"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert data_folder() == "/home/me/.local/share/agentmove-tools"
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert data_folder() == "/data/agentmove-tools"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_folder() == "/home/me/Library/Application Support/agentmove-tools"


def test_the_data_folder_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the system's, not in root's home, where no other account comes."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.delenv("AGENTFY_DATA", raising=False)
    assert data_folder() == "/var/lib/agentmove-tools"


def test_a_relative_data_folder(place: Path, data: Path) -> None:
    """It is below the current folder of the command, not of the server."""
    with Holder(None, env={"AGENTFY_DATA": "data"}, cwd=place) as holder:
        assert ask(holder.said(), KEPT) == [(7,)]


NAMES = {
    "everything": '  it\'s "a" $(touch x);`y`&|<>*?\\ Größe 数据 🦊 a,b=c#d%e ',
    "option": "-D",
    "not-utf-8": os.fsdecode(b"\xff\xfe"),
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_data_folder_of_any_name(place: Path, name: str) -> None:
    """Made, found again, and the server stopped."""
    with stopped_after(place / name / "data") as folder:
        for _ in range(2):
            with hold_server(str(folder)) as held:
                assert ask(held.parameters, "SELECT 1") == [(1,)]


def test_a_line_break_in_the_name(place: Path) -> None:
    """It is refused: the server's own files could not hold it."""
    with pytest.raises(MachineError, match="a data folder's name has no line break"):
        hold_server(str(place / "a\nb"))
    assert list(place.iterdir()) == []


def test_no_mode_above_is_changed(place: Path) -> None:
    """Missing folders are made, those that are there stay as they are."""
    above = place / "above"
    above.mkdir()
    above.chmod(0o751)
    with stopped_after(above / "new" / "data") as folder, hold_server(str(folder)):
        assert stat.S_IMODE(above.stat().st_mode) == 0o751
        assert stat.S_IMODE(place.stat().st_mode) == 0o711
        assert folder.parent.is_dir()


def test_a_folder_with_other_things_in_it(place: Path) -> None:
    """It is refused and left as it is: it might be anybody's home."""
    folder = place / "home"
    folder.mkdir(mode=0o755)
    (folder / "letter").write_text("dear")
    with pytest.raises(MachineError, match="the data folder holds other things"):
        hold_server(str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert [path.name for path in folder.iterdir()] == ["letter"]


def test_an_empty_folder_is_taken(place: Path) -> None:
    """Such as one that was made for it, or that a killed command left."""
    with stopped_after(place / "data") as folder:
        folder.mkdir(mode=0o755)
        with hold_server(str(folder)) as held:
            assert ask(held.parameters, "SELECT 1") == [(1,)]
        assert not stat.S_IMODE(folder.stat().st_mode) & 0o007


def test_a_command_that_was_killed_after_its_first_file(place: Path) -> None:
    """Its first file is the one by which the folder is known for ours."""
    with stopped_after(place / "data") as folder:
        make_folder(Places(str(folder)))
        assert [path.name for path in folder.iterdir()] == ["start.lock"]
        with hold_server(str(folder)) as held:
            assert ask(held.parameters, "SELECT 1") == [(1,)]


def test_a_file_in_its_place(place: Path) -> None:
    """It is told."""
    (place / "data").write_text("")
    with pytest.raises(MachineError, match="the data folder is no folder"):
        hold_server(str(place / "data"))


@only_root
def test_another_users_data_folder(data: Path) -> None:
    """It is refused, and nothing in it is changed."""
    os.chown(data, NOBODY, NOBODY)
    with pytest.raises(MachineError, match="the data folder belongs to another user"):
        hold_server(str(data))
    os.chown(data, 0, 0)


@only_root
@pytest.mark.parametrize("there", [False, True], ids=["missing", "there"])
def test_a_folder_that_the_account_cannot_reach(place: Path, there: bool) -> None:
    """It is told, with what to do, and nothing is changed."""
    private = place / "private"
    private.mkdir(mode=0o700)
    folder = private / "data"
    if there:
        folder.mkdir(mode=0o755)
    with pytest.raises(MachineError, match=r"agentfy-postgres.*cannot reach it") as caught:
        hold_server(str(folder))
    assert "AGENTFY_DATA" in str(caught.value.details["hint"])
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert folder.exists() == there
    if there:
        assert list(folder.iterdir()) == []


@only_root
def test_a_full_disk(place: Path) -> None:
    """While the database is made: one line, no half of it left, and the next try works."""
    disk = place / "disk"
    disk.mkdir()
    with mounted_tmpfs(disk, "150M"), stopped_after(disk / "data") as folder:
        disk.chmod(0o755)
        _fill(disk, leaving=20 << 20)
        with pytest.raises(MachineError, match="No space left on device"):
            hold_server(str(folder))
        assert not (folder / "postgres").exists()
        assert not (folder / "postgres.new").exists()
        (disk / "ballast").unlink()
        with hold_server(str(folder)) as held:
            assert ask(held.parameters, "SELECT 1") == [(1,)]


@only_root
def test_a_disk_that_is_full_at_a_start(place: Path) -> None:
    """One line, and the data are there when there is space again."""
    disk = place / "disk"
    disk.mkdir()
    from agentmove_tools.database.embedded import stop_server

    with mounted_tmpfs(disk, "150M"), stopped_after(disk / "data") as folder:
        disk.chmod(0o755)
        with hold_server(str(folder)) as held:
            ask(held.parameters, "CREATE TABLE kept AS SELECT 7 AS number")
        stop_server(str(folder))
        _fill(disk, leaving=0)
        with pytest.raises(MachineError, match="No space left on device"):
            hold_server(str(folder))
        (disk / "ballast").unlink()
        with hold_server(str(folder)) as held:
            assert ask(held.parameters, KEPT) == [(7,)]


def _fill(disk: Path, *, leaving: int) -> None:
    found = os.statvfs(disk)
    size = found.f_bavail * found.f_frsize - leaving
    with open(disk / "ballast", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
