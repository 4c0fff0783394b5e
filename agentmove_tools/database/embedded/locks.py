"""Locks on files: the kernel gives back what a killed process held.

A lock belongs to the open file, so a child that inherits the descriptor goes on to hold it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MODE: Final = 0o600
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_FIRST_PAUSE: Final = 0.01  # seconds
_LONGEST_PAUSE: Final = 0.1
_LONGER: Final = 1.5
_LONG: Final = 2.0  # seconds: a wait of which the user is told


class Patience:
    """Waits in small steps; once, when that gets long, ``waiting`` is told for what."""

    def __init__(self, waiting: Callable[[str], None] | None) -> None:
        self._waiting = waiting
        self._began = time.monotonic()
        self._pause = _FIRST_PAUSE

    @property
    def step(self) -> float:
        """How many seconds the next wait is: ever more, up to a tenth."""
        step = self._pause
        self._pause = min(step * _LONGER, _LONGEST_PAUSE)
        return step

    def tell(self, what: str) -> None:
        """Tell what is waited for, if it has been long and nothing was told yet."""
        if self._waiting is not None and time.monotonic() - self._began >= _LONG:
            waiting, self._waiting = self._waiting, None
            waiting(what)

    def wait(self, what: str) -> None:
        """Wait for ``what`` for a step."""
        self.tell(what)
        time.sleep(self.step)


def open_lock(path: str) -> int:
    """Open a lock file, made when missing, whatever the umask is. Raises ``OSError``."""
    try:
        fd = os.open(path, _FLAGS, _MODE)
    except PermissionError:
        # made under a umask that left nothing, by a process that was killed before it said so
        info = os.lstat(path)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            raise
        os.chmod(path, _MODE)
        fd = os.open(path, _FLAGS, _MODE)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) != _MODE:
            os.fchmod(fd, _MODE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def lock(fd: int, *, shared: bool = False) -> bool:
    """Take the lock of an open file if it is free; say whether it was. Raises ``OSError``."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def unlock(fd: int) -> None:
    """Give a lock back. Raises ``OSError``."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def take(path: str, patience: Patience, what: str, *, shared: bool = False) -> int:
    """Take a lock, however long that takes; ``what`` says what is waited for.

    Gives the open file, whose closing gives the lock back. Raises ``OSError``.
    """
    while True:
        fd = open_lock(path)
        try:
            while not lock(fd, shared=shared):
                patience.wait(what)
            if _is_at(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # the data folder was removed and made again meanwhile


def try_take(path: str) -> int | None:
    """Take a lock for this process alone; None if it is not free. Raises ``OSError``."""
    fd = open_lock(path)
    try:
        if lock(fd) and _is_at(fd, path):
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def is_held(path: str, *, by_any: bool = False) -> bool:
    """Say whether a process holds the lock alone, or, with ``by_any``, shares it; makes nothing.

    Raises ``OSError``.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        return not lock(fd, shared=not by_any)
    finally:
        os.close(fd)


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
