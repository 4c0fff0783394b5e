"""The staged tree: where entries are written as they arrive, before any of it is in place.

It has the layout of the folder that it is for. In a Home's working state (Move Stream, section 5) a
file that was cut short stays under its path too: ``lnk-have`` says what a file really holds, so it
is sent again.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final, Protocol

from agentmove_tools.disk.folders import CREATE_FILE, Folders, copy_file, remove
from agentmove_tools.disk.system import write_all
from agentmove_tools.stream.paths import FILE, FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PLAIN_MODE: Final = 0o644
_BILLION: Final = 1_000_000_000
# A file that is being put together lies beside the tree, so that no half of it is ever staged.
_NEW_FILE: Final = b"../new.tmp"
_IN_THE_WAY: Final = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)


class Staged(Protocol):
    """What a ``Stage`` has to know of an entry."""

    @property
    def path(self) -> bytes:
        """Plain, from the tree on."""

    @property
    def kind(self) -> str:
        """FILE, FOLDER or LINK."""

    @property
    def mode(self) -> int:
        """Permission bits."""

    @property
    def mtime(self) -> int | None:
        """Seconds since 1970; None for the time of writing."""

    @property
    def size(self) -> int:
        """Bytes of content."""

    @property
    def target(self) -> bytes | None:
        """Where a link leads."""


class Stage:
    """Writes entries below the open folder ``tree``.

    ``owner`` is the user and group that files are given to, None for the process's own.
    ``leave_empty`` is asked of each path; the content of a file that it names is checked, not
    stored. ``fresh``: nothing was in the tree before. ``folder_mode``: of folders that are made,
    less the umask.
    """

    def __init__(
        self,
        tree: int,
        *,
        owner: tuple[int, int] | None = None,
        leave_empty: Callable[[bytes], bool] | None = None,
        fresh: bool = False,
        folder_mode: int = 0o700,
    ) -> None:
        self.tree = tree
        self._owner = owner
        self._leave_empty = leave_empty
        self.fresh = fresh
        self.folders = Folders(tree, mode=folder_mode)
        self.folder_times: dict[bytes, tuple[int, int]] = {}  # path -> mode, mtime in seconds
        self.modes: dict[bytes, int] = {}  # of files that were put here, where it is not 644
        self.bytes_written = 0
        umask = os.umask(0o077)
        os.umask(umask)
        self.default_folder_mode = 0o777 & ~umask
        self._created_mode_mask = ~umask

    def put(
        self, entry: Staged, content: Iterable[bytes | memoryview], *, mode: int | None = None
    ) -> None:
        """Write one entry whole; what is at its path gives way.

        A file is given ``mode``, or its own where that is None. Raises ``OSError``, and what
        ``content`` raises when it is not what the stream says.
        """
        if entry.kind == FOLDER:
            self._put_folder(entry)
            return
        if entry.kind == FILE:
            self._put_file(entry, content, entry.mode if mode is None else mode)
        else:
            self._put_link(entry)

    def _put_file(self, entry: Staged, content: Iterable[bytes | memoryview], mode: int) -> None:
        if mode != PLAIN_MODE:
            self.modes[entry.path] = mode
        if not self.fresh and not isinstance(content, tuple):
            # Its hash is known only at its end; what was staged before stands until then.
            self.write(entry.path, content, mode, mtime=entry.mtime)
            self.bytes_written += entry.size
            return
        fd = self._create(entry.path, mode)
        try:
            if self._leave_empty is not None and self._leave_empty(entry.path):
                for _ in content:
                    pass
            else:
                for piece in content:
                    write_all(fd, piece)
            self.bytes_written += entry.size
            if entry.mtime is not None:
                mtime = entry.mtime * _BILLION
                os.utime(fd, ns=(mtime, mtime))
        except BaseException:
            # A file that is not what the stream says does not stay under its name.
            with contextlib.suppress(OSError):
                self._clear(entry.path)
            raise
        finally:
            os.close(fd)

    def _put_link(self, entry: Staged) -> None:
        above, _, name = entry.path.rpartition(b"/")
        target = entry.target or b""
        folder = self.folders.get(above, make=True)
        try:
            os.symlink(target, name, dir_fd=folder)
        except FileExistsError:
            self._clear(entry.path)
            os.symlink(target, name, dir_fd=folder)
        if entry.mtime is not None:
            with contextlib.suppress(NotImplementedError):
                times = (entry.mtime * _BILLION, entry.mtime * _BILLION)
                os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)
        if self._owner is not None:
            os.chown(name, *self._owner, dir_fd=folder, follow_symlinks=False)

    def _clear(self, path: bytes) -> None:
        """Remove what is at the path, a whole folder too."""
        above, _, name = path.rpartition(b"/")
        self.folders.forget_below(path)
        remove(self.folders.get(above, make=True), name)

    def _put_folder(self, entry: Staged) -> None:
        self.folders.get(entry.path, make=True)
        if entry.mtime is not None:
            self.folder_times[entry.path] = (entry.mode, entry.mtime)

    def _create(self, path: bytes, mode: int) -> int:
        above, _, name = path.rpartition(b"/")
        folder = self.folders.get(above, make=True)
        try:
            fd = os.open(name, CREATE_FILE, mode, dir_fd=folder)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            self._clear(path)
            fd = os.open(name, CREATE_FILE, mode, dir_fd=folder)
        try:
            if mode & self._created_mode_mask != mode:
                os.fchmod(fd, mode)
            if self._owner is not None:
                os.fchown(fd, *self._owner)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def write(
        self,
        path: bytes,
        content: Iterable[bytes | memoryview],
        mode: int,
        *,
        mtime: int | None = None,
    ) -> None:
        """Write a file that is at its path only once it is whole; ``mtime`` in seconds.

        Raises ``OSError``, and what ``content`` raises.
        """
        fd = self._new_file()
        try:
            for piece in content:
                write_all(fd, piece)
            os.fchmod(fd, mode)
            if self._owner is not None:
                os.fchown(fd, *self._owner)
            if mtime is not None:
                os.utime(fd, ns=(mtime * _BILLION, mtime * _BILLION))
        except BaseException:
            self.drop_unfinished()
            raise
        finally:
            os.close(fd)
        above, _, name = path.rpartition(b"/")
        folder = self.folders.get(above, make=True)
        try:
            os.rename(_NEW_FILE, name, src_dir_fd=self.tree, dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            self._clear(path)
            os.rename(_NEW_FILE, name, src_dir_fd=self.tree, dst_dir_fd=folder)

    def copy(self, folder: int, name: bytes, path: bytes, *, mode: int | None = None) -> None:
        """Copy the file ``name`` of an open folder to ``path``, where it is once it is whole.

        It gets ``mode``, or the file's own where that is None, its mtime, and its owner where the
        process may give files away. A file there is replaced. Raises ``OSError``.
        """
        self.drop_unfinished()
        copy_file(folder, name, self.tree, _NEW_FILE, mode=mode)
        above, _, own = path.rpartition(b"/")
        target = self.folders.get(above, make=True)
        os.rename(_NEW_FILE, own, src_dir_fd=self.tree, dst_dir_fd=target)

    def drop_unfinished(self) -> None:
        """Remove a file that was never finished, such as a killed process leaves."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_NEW_FILE, dir_fd=self.tree)

    def _new_file(self) -> int:
        self.drop_unfinished()
        return os.open(_NEW_FILE, CREATE_FILE, 0o600, dir_fd=self.tree)

    def close(self) -> None:
        """Close the folders that were kept open; ``tree`` is the caller's."""
        self.folders.forget()
