"""Reading a file that others may be writing, so that what is sent is what it really held (4a).

A small file is read once into memory, a large one into a nameless temporary file. The file's times
say whether it was written meanwhile; where they cannot (it was written just now), it is read again
a little later and the two readings must agree. During a switch the agent should be still, so any
change stops it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
import time
from typing import TYPE_CHECKING, Final, TypeAlias

from agentmove_tools.disk.folders import OPEN_FILE
from agentmove_tools.disk.system import write_all
from agentmove_tools.refusals import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST_READ: Final = 1 << 16
IN_MEMORY: Final = 4 << 20
_PIECE: Final = 1 << 20
_TRIES: Final = 5
_SECOND: Final = 1_000_000_000
# Two writes in one tick of the kernel's clock leave the same time.
_TICK: Final = 50_000_000


class Gone(Exception):
    """The file vanished, or something else took its place, while it was looked for."""


class Unsteady(Exception):
    """The file was written to during every try at reading it."""


class Pieces:
    """The first ``size`` bytes of an open file, which is closed when they are no longer needed."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size

    def __iter__(self) -> Iterator[memoryview]:
        """Pieces of up to 1 MiB, each good until the next; fewer bytes if it was cut meanwhile."""
        return _pieces(self._fd, self._size)

    def __del__(self) -> None:
        os.close(self._fd)


# A file's content at one time: its mode, mtime in whole seconds, size, digest, and the content.
Snapshot: TypeAlias = tuple[int, int, int, bytes, bytes | Pieces]


class SnapshotReader:
    """Reads the files of one Home.

    ``still``: the agent must not run (a switch), so a change raises ``MachineError``.
    ``spool``: the open folder that temporary files go to, or None for the system's.
    ``own``: device and inode of files that are the program's own, such as its output.
    """

    def __init__(
        self, *, still: bool, spool: int | None, own: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        self._still = still
        self._spool = spool
        self._own = own

    def is_own(self, folder: int, name: bytes) -> bool:
        """Whether the file is the program's own, such as its output. Raises ``OSError``."""
        if not self._own:
            return False
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (info.st_dev, info.st_ino) in self._own

    def read(
        self,
        folder: int,
        name: bytes,
        path: bytes,
        known: Callable[[bytes, os.stat_result], bytes | None] | None = None,
    ) -> Snapshot | None:
        """Read the file ``name`` of the open folder; None when it is the program's own.

        ``path`` is for errors. ``known`` may give the digest of a file that is large, so that it
        need be read only once in a switch. Raises ``Gone``, ``Unsteady``, ``MachineError`` (it
        cannot be read, or changed in a switch).
        """
        try:
            fd = os.open(name, OPEN_FILE, dir_fd=folder)
        except OSError as error:
            raise self._cannot(error, path) from error
        kept = False
        try:
            before = time.time_ns() - _TICK
            data = os.read(fd, FIRST_READ)
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise self._gone(path)
            if self._own and (info.st_dev, info.st_ino) in self._own:
                return None
            if info.st_size == len(data) < FIRST_READ and info.st_ctime_ns < before:
                digest = hashlib.sha256(data).digest()
                return info.st_mode & 0o777, info.st_mtime_ns // _SECOND, len(data), digest, data
            snapshot, kept = self._read_longer(fd, path, known)
            return snapshot
        except OSError as error:
            raise self._cannot(error, path) from error
        finally:
            if not kept:
                os.close(fd)

    def _cannot(self, error: OSError, path: bytes) -> Exception:
        if error.errno in _NO_FILE:
            return self._gone(path)
        shown = path.decode("utf-8", "backslashreplace")
        return MachineError(f"it cannot be read: {os.strerror(error.errno or 0)}", path=shown)

    def _gone(self, path: bytes) -> Exception:
        if not self._still:
            return Gone()
        msg = "it vanished during a switch: stop the agent first"
        return MachineError(msg, path=path.decode("utf-8", "backslashreplace"))

    def _read_longer(
        self, fd: int, path: bytes, known: Callable[[bytes, os.stat_result], bytes | None] | None
    ) -> tuple[Snapshot, bool]:
        for _ in range(_TRIES):
            before = time.time_ns() - _TICK
            info = os.fstat(fd)
            size = info.st_size
            if self._still and size > IN_MEMORY:
                digest = known(path, info) if known is not None else None
                if digest is None:
                    digest = _hash_first(fd, size)
                if digest is not None:
                    # Read again as it is sent; the writer stops when it then differs.
                    return _snapshot(info, digest, Pieces(fd, size)), True
            else:
                snapshot = self._take(fd, info)
                if snapshot is not None and self._settled(fd, info, before, snapshot[3]):
                    return snapshot, False
            if self._still:
                msg = "it changed during a switch: stop the agent first"
                raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))
        raise Unsteady

    def _take(self, fd: int, info: os.stat_result) -> Snapshot | None:
        """The first ``st_size`` bytes; None when there are fewer now."""
        size = info.st_size
        if size <= IN_MEMORY:
            os.lseek(fd, 0, os.SEEK_SET)
            content = b"".join(bytes(piece) for piece in _pieces(fd, size))
            if len(content) != size:
                return None
            return _snapshot(info, hashlib.sha256(content).digest(), content)
        spool = self.temporary()
        try:
            digest = hashlib.sha256()
            count = 0
            for piece in _pieces(fd, size):
                digest.update(piece)
                write_all(spool, piece)
                count += len(piece)
        except BaseException:
            os.close(spool)
            raise
        if count != size:
            os.close(spool)
            return None
        return _snapshot(info, digest.digest(), Pieces(spool, size))

    def _settled(self, fd: int, info: os.stat_result, before: int, digest: bytes) -> bool:
        """Whether the file held what was just read of it, all of it at one time."""
        after = os.fstat(fd)
        if _times(after) == _times(info):
            if after.st_ctime_ns < before:
                return True
            # It was written just now, and a write may be under way: it is looked at again later.
            wait = after.st_ctime_ns + _TICK - time.time_ns()
            time.sleep(min(max(wait, 0), _TICK) / _SECOND)
            after = os.fstat(fd)
        if _times(after) == _times(info):
            pass
        elif self._still or after.st_size <= info.st_size:
            return False
        # A file that only grows still held what was read of it.
        return _hash_first(fd, info.st_size) == digest

    def temporary(self) -> int:
        """A nameless temporary file, which the caller closes. Raises ``OSError``."""
        if self._spool is not None:
            flag = getattr(os, "O_TMPFILE", None)
            if flag is not None:
                try:
                    return os.open(b".", os.O_RDWR | os.O_CLOEXEC | flag, 0o600, dir_fd=self._spool)
                except OSError:
                    pass  # a file system without it: the system's folder will do
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


# It is gone, or a link, a socket, a folder or a FIFO took its place.
_NO_FILE: Final = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENXIO,
    errno.EISDIR,
    errno.EAGAIN,
)


def _times(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _snapshot(info: os.stat_result, digest: bytes, content: bytes | Pieces) -> Snapshot:
    return info.st_mode & 0o777, info.st_mtime_ns // _SECOND, info.st_size, digest, content


def _pieces(fd: int, size: int) -> Iterator[memoryview]:
    """The file's first ``size`` bytes, fewer where it is shorter now."""
    buffer = bytearray(min(_PIECE, size))
    view = memoryview(buffer)
    place = 0
    while place < size:
        count = os.preadv(fd, [view[: size - place]], place)
        if not count:
            return
        yield view[:count]
        place += count


def _hash_first(fd: int, size: int) -> bytes | None:
    """The digest of the file's first ``size`` bytes; None where there are fewer."""
    digest = hashlib.sha256()
    count = 0
    for piece in _pieces(fd, size):
        digest.update(piece)
        count += len(piece)
    return digest.digest() if count == size else None
