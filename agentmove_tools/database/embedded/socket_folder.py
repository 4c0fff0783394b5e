"""The socket folder: short, of the server's account alone, and checked before each use."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Final

from agentmove_tools.database.embedded.settings import PORT
from agentmove_tools.disk.system import write_all

if TYPE_CHECKING:
    from agentmove_tools.database.embedded.account import ServerUser
    from agentmove_tools.database.embedded.places import Places

# A socket's path is under 104 bytes on macOS, so it lies neither in the data folder nor in TMPDIR.
_ABOVE: Final = "/tmp"  # noqa: S108 - a folder of mode 0700 is made in it, by mkdtemp
_PREFIX: Final = "agentfy-"
SOCKET: Final = f".s.PGSQL.{PORT}"
_FILES: Final = (SOCKET, f"{SOCKET}.lock")
_PRIVATE: Final = 0o700


def find_socket(places: Places, uid: int) -> str | None:
    """The socket folder that the data folder names, if it is there and ``uid``'s alone.

    Raises ``OSError``.
    """
    try:
        folder = _named(places)
        info = os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    good = stat.S_ISDIR(info.st_mode) and info.st_uid == uid
    return folder if good and stat.S_IMODE(info.st_mode) == _PRIVATE else None


def has_socket(folder: str) -> bool:
    """Say whether there is a socket in the folder."""
    return os.path.lexists(os.path.join(folder, SOCKET))


def make_socket(places: Places, user: ServerUser) -> str:
    """The socket folder, empty: the one that a killed server left, or a new one.

    Raises ``OSError``.
    """
    folder = find_socket(places, user.uid)
    if folder is not None:
        _empty(folder)
        return folder
    import tempfile  # noqa: PLC0415 - a client has no need of it

    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=_ABOVE)
    try:
        os.chmod(folder, _PRIVATE)
        if user.separate:
            os.chown(folder, user.uid, user.gid)
        _name(places, folder)
    except BaseException:
        os.rmdir(folder)
        raise
    return folder


def drop_socket(places: Places, folder: str) -> None:
    """Remove the socket folder, and what a server left in it; a failure is the next start's."""
    with contextlib.suppress(OSError):
        _empty(folder)
        os.rmdir(folder)
    with contextlib.suppress(OSError):
        if _named(places) == folder:  # a data folder that was made anew has another's
            os.unlink(places.socket)


def _named(places: Places) -> str:
    """The folder that the file names; none if it is a copy, of a data folder that has a server."""
    with open(places.socket, "rb") as file:
        folder, _, title = os.fsdecode(file.read(4096)).partition("\n")
    return folder if title.strip() == places.title else ""


def _empty(folder: str) -> None:
    for name in _FILES:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))


def _name(places: Places, folder: str) -> None:
    beside = f"{places.socket}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    writing = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(writing, os.fsencode(f"{folder}\n{places.title}\n"))
    finally:
        os.close(writing)
    os.rename(beside, places.socket)
