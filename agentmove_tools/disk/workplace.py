"""A folder to stage in, on the same file system as what it is for, and one process's at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Final, Self

from agentmove_tools.disk.folders import OPEN_FOLDER, names, remove
from agentmove_tools.disk.system import mounts_below
from agentmove_tools.refusals import MachineError

if TYPE_CHECKING:
    from types import TracebackType

TREE: Final = b"tree"  # what a Stage writes below; its unfinished file lies beside it


class Workplace:
    """The folder ``name`` in the open folder ``parent``, locked; a context manager.

    What a killed process left in it is removed; ``left`` are the names of that. At the end the
    folder goes. ``tree`` is the open folder that is staged in, of mode ``mode`` less the umask.
    Raises ``MachineError`` where another process is at work in it (``busy`` says so), and
    ``OSError``.
    """

    def __init__(self, parent: int, name: bytes, *, busy: str, mode: int = 0o777) -> None:
        self._parent = parent
        self._name = name
        self.fd = _locked(parent, name, busy)
        try:
            if mounts_below(self.fd):
                msg = "a file system is mounted in it: unmount that, or what it holds would be lost"
                raise MachineError(msg, path=name.decode("utf-8", "backslashreplace"))
            self.left = names(self.fd)
            for left in self.left:
                remove(self.fd, left)
            os.mkdir(TREE, mode, dir_fd=self.fd)
            self.tree = os.open(TREE, OPEN_FOLDER, dir_fd=self.fd)
        except BaseException:
            os.close(self.fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self.tree)
        try:
            # What cannot be removed now, such as on a disk that fails, is by the next run.
            with contextlib.suppress(OSError):
                for left in names(self.fd):
                    remove(self.fd, left)
                os.rmdir(self._name, dir_fd=self._parent)
        finally:
            os.close(self.fd)


def _locked(parent: int, name: bytes, busy: str) -> int:
    """The open folder, made where it is not there, and locked."""
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        try:
            fd = os.open(name, OPEN_FOLDER, dir_fd=parent)
        except FileNotFoundError:
            continue  # another process was done with it just now
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            own = os.fstat(fd)
            with contextlib.suppress(FileNotFoundError):
                there = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino):
                    return fd
        except BlockingIOError:
            os.close(fd)
            raise MachineError(busy) from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
