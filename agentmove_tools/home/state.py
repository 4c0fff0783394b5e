"""The working state that lies beside a Home: lock, staged copy, index, last move (section 1)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from typing import Final, Self

from agentmove_tools.disk.folders import OPEN_FILE, OPEN_FOLDER, name_bytes
from agentmove_tools.disk.system import mount_points, write_all
from agentmove_tools.home.layout import WORKING_STATE
from agentmove_tools.refusals import MachineError, Refusal, UsageError

HOME_INDEX: Final = b"index"
STAGED_INDEX: Final = b"index.staged"
STAGED: Final = b"staged"
INCOMING: Final = b"incoming"
TREE: Final = b"tree"
LOCK: Final = b"lock"
MOVE: Final = b"move.json"  # in each of staged and incoming: what it was made by
_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class HomePlace:
    """Where a Home is: its real path, the folder it lies in, and where its working state goes.

    The Home may be reached through a link, and need not be there. ``path``, ``parent`` and
    ``state_path`` are absolute. Raises ``OSError``, and ``MachineError`` where the parent is
    missing or the path names no folder.
    """

    def __init__(self, home: bytes) -> None:
        if not home:
            msg = "HOME is empty: a variable that is not set?"
            raise UsageError(msg)
        self.path = os.path.realpath(home)
        self.shown = name_bytes(os.fsdecode(home)).decode("utf-8", "backslashreplace")
        self.parent, self.name = os.path.split(self.path)
        if not self.name:
            msg = "the file system's root is no Home"
            raise MachineError(msg, path=self.shown)
        try:
            parent = os.stat(self.parent)
        except FileNotFoundError:
            msg = "the folder that it would lie in is not there"
            raise MachineError(msg, path=self.shown) from None
        try:
            info = os.lstat(self.path)
        except FileNotFoundError:
            self.exists = False
        else:
            self.exists = True
            if not stat.S_ISDIR(info.st_mode):
                msg = "a Home is a folder, and this is none"
                raise MachineError(msg, path=self.shown)
        # Nothing can be renamed across a mount point; a bind mount may have its parent's device.
        self.mounted = self.exists and (info.st_dev != parent.st_dev or self.path in mount_points())
        beside = os.path.join(self.parent, b"." + self.name + b".lnk-move")
        inside = os.path.join(self.path, WORKING_STATE)
        # One that is there is gone on with, whatever this user may do in the parent.
        self.can_lie_beside = not self.mounted and (
            os.path.lexists(beside) or os.access(self.parent, os.W_OK | os.X_OK)
        )
        self.beside = self.can_lie_beside and (
            os.path.lexists(beside) or not os.path.lexists(inside)
        )
        self._beside_path = beside
        self.state_path = beside if self.beside else inside

    def open(self) -> int:
        """Open the Home. Raises ``OSError``, and ``Refusal`` (home-missing) where it is not."""
        try:
            return os.open(self.path, OPEN_FOLDER)
        except FileNotFoundError:
            raise Refusal("home-missing", "there is no such folder", place=self.shown) from None

    def open_state(self, *, make: bool) -> int | None:
        """Open the working state; None where it is not there, or cannot be made.

        Raises ``OSError``, and ``MachineError`` where it is somebody else's.
        """
        if make:
            if not self.beside and not self.exists:
                msg = "there is no such folder, and this user cannot make it: make it first"
                raise MachineError(msg, path=self.shown)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.state_path, 0o700)
        try:
            fd = os.open(self.state_path, OPEN_FOLDER)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                msg = "the working state beside the Home is no folder: remove it"
                raise MachineError(msg, path=os.fsdecode(self.state_path)) from None
            if isinstance(error, PermissionError):
                msg = "another user worked on this Home before: run as that user"
                raise MachineError(msg, path=os.fsdecode(self.state_path)) from None
            raise
        owner = os.fstat(fd).st_uid
        if owner not in (os.geteuid(), 0):
            allowed = os.geteuid() == 0 and self.exists and owner == os.stat(self.path).st_uid
            if not allowed:
                os.close(fd)
                msg = "the working state beside the Home belongs to another user"
                raise MachineError(msg, path=os.fsdecode(self.state_path))
        return fd

    def is_home(self, folder: int) -> bool:
        """Whether the open folder still is the Home."""
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(folder))
        except FileNotFoundError:
            return False

    def is_state(self, state: int) -> bool:
        """Whether the open folder still is this Home's working state."""
        try:
            return os.path.samestat(os.lstat(self.state_path), os.fstat(state))
        except FileNotFoundError:
            return False

    def move_state_beside(self, state: int) -> bool:
        """Let a working state in the Home lie beside it from now on, if it can; the lock is held.

        An exchange can be had only then.
        """
        if self.beside or not self.can_lie_beside or os.fstat(state).st_uid != os.geteuid():
            return False
        try:
            os.rename(self.state_path, self._beside_path)
        except OSError:
            return False
        return True

    def state_for_index(self) -> int | None:
        """Open the working state to remember hashes in; None where that cannot be had."""
        try:
            return self.open_state(make=True)
        except OSError:
            return None


class Lock:
    """The one lock of a Home. It lies on a file that is never exchanged (section 5)."""

    def __init__(self, state: int, shown: str) -> None:
        """Take it at once. Raises ``Refusal`` (home-busy), and ``OSError``."""
        self._fd = os.open(
            LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=state
        )
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise Refusal("home-busy", "wait until it is done", place=shown) from None
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give it back."""
        os.close(self._fd)


def read_move(state: int, name: bytes) -> dict[str, object] | None:
    """What is known of the move that the folder ``name`` of the working state was made by.

    ``move``, ``agent``, ``copy``, ``staged`` and ``run``; None where there is no such folder.
    Raises ``OSError``.
    """
    try:
        folder = os.open(name, OPEN_FOLDER, dir_fd=state)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise
    try:
        return read_json(folder, MOVE)
    finally:
        os.close(folder)


def read_json(folder: int, name: bytes) -> dict[str, object] | None:
    """An object that ``write_json`` wrote; None where it is missing or damaged.

    Raises ``OSError`` where it cannot be read: that it is there must not be forgotten.
    """
    try:
        fd = os.open(name, OPEN_FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    with os.fdopen(fd, "rb") as file:
        try:
            value = json.loads(file.read())
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def write_json(folder: int, name: bytes, value: dict[str, object]) -> None:
    """Put ``value`` in place of the file, whole and durable. Raises ``OSError``."""
    temporary = name + b".tmp"  # one at a time: the lock is held
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)
    fd = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
        dir_fd=folder,
    )
    try:
        write_all(fd, json.dumps(value).encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
