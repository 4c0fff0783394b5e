"""Folders by descriptor: every step is relative to an open folder, and no link is followed.

A path from a stream is never handed to the kernel whole: each folder on the way is opened with
``O_NOFOLLOW``, so a link that somebody puts there in the meantime leads nowhere.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import Final

from agentmove_tools.disk.system import copy_bytes
from agentmove_tools.refusals import MachineError

OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CREATE_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

UTF8_NAMES: Final = sys.getfilesystemencoding().lower() in ("utf-8", "utf8")
# What opening a folder says of what is none; a link is the one or the other by the system.
NO_FOLDER: Final = (errno.ENOTDIR, errno.ELOOP)

_MOST_OPEN: Final = 64
_STEP: Final = 32  # of a deep path, every so many folders are kept open


def name_bytes(name: str) -> bytes:
    """The bytes of a name as the file system holds them."""
    if UTF8_NAMES:
        return name.encode("utf-8", "surrogateescape")
    return os.fsencode(name)


def open_below(root: int, path: bytes) -> int:
    """Open the folder ``path`` below the open folder ``root``; no link on the way is followed.

    The caller closes the descriptor. Raises ``OSError``.
    """
    fd = os.dup(root)
    try:
        for name in path.split(b"/"):
            if name:
                below = os.open(name, OPEN_FOLDER, dir_fd=fd)
                os.close(fd)
                fd = below
    except BaseException:
        os.close(fd)
        raise
    return fd


def kind_at(fd: int, name: bytes) -> int | None:
    """The type bits of what is at ``name`` in the folder ``fd``, or None. Raises ``OSError``."""
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None


def names(fd: int) -> list[bytes]:
    """The names in the open folder, sorted by their bytes. Raises ``OSError``."""
    return sorted(name_bytes(name) for name in os.listdir(fd))


def remove(fd: int, name: bytes) -> None:
    """Remove what is at ``name``, a whole folder too; nothing there is fine.

    It keeps one descriptor and one list of names for each level, never a recursion, and follows
    no link. Raises ``OSError``.
    """
    try:
        os.unlink(name, dir_fd=fd)
        return
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM):
            raise
        if kind_at(fd, name) != stat.S_IFDIR:
            raise
    _remove_folder(fd, name)


def _remove_folder(fd: int, name: bytes) -> None:
    # A folder deeper than the descriptors reach is first moved up beside its ancestor, so that
    # the depth on the disk does not matter.
    stack: list[tuple[int, bytes]] = []
    number = 0
    try:
        _enter(stack, fd, name)
        while stack:
            here, own_name = stack[-1]
            above = stack[-2][0] if len(stack) > 1 else fd
            deeper = _empty_files(here)
            if deeper is None:
                os.close(here)
                stack.pop()
                os.rmdir(own_name, dir_fd=above)
            elif len(stack) >= _MOST_OPEN:
                number += 1
                moved = b".lnk-removing-%d-%d" % (os.getpid(), number)
                _make_movable(here, deeper)
                os.rename(deeper, moved, src_dir_fd=here, dst_dir_fd=stack[0][0])
                while len(stack) > 1:
                    os.close(stack.pop()[0])
            else:
                _enter(stack, here, deeper)
    finally:
        for descriptor, _ in stack:
            os.close(descriptor)


def _make_movable(fd: int, name: bytes) -> None:
    """A folder that its owner may not write cannot be moved out of its own."""
    if os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode & 0o700 != 0o700:
        os.chmod(name, 0o700, dir_fd=fd)


def _enter(stack: list[tuple[int, bytes]], fd: int, name: bytes) -> None:
    try:
        below = os.open(name, OPEN_FOLDER, dir_fd=fd)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=fd)
        below = os.open(name, OPEN_FOLDER, dir_fd=fd)
    stack.append((below, name))
    info = os.fstat(below)
    if info.st_dev != os.fstat(fd).st_dev:
        raise OSError(errno.EXDEV, "another file system is mounted here", name)
    if info.st_mode & 0o700 != 0o700:
        os.fchmod(below, 0o700)  # a folder of mode 0555 cannot be emptied by its owner


def _empty_files(fd: int) -> bytes | None:
    """Unlink all but folders; give the name of one folder that is left, or None."""
    folder = None
    with os.scandir(fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folder = name_bytes(entry.name)
            else:
                os.unlink(entry.name, dir_fd=fd)
    return folder


class Folders:
    """The folders below one root, opened or made as they are needed, the last ones kept open.

    Those that are made have ``mode``, less the umask, and belong to ``owner``, user and group.
    ``replace``: what is no folder gives way to one that is made.
    """

    def __init__(
        self,
        root: int,
        *,
        mode: int = 0o700,
        owner: tuple[int, int] | None = None,
        replace: bool = True,
    ) -> None:
        self._root = root
        self._mode = mode
        self._owner = owner
        self._replace = replace
        self._open: dict[bytes, int] = {}

    def get(self, path: bytes, *, make: bool) -> int:
        """The descriptor of the folder ``path`` ("" is the root); it stays this object's.

        With ``make``, folders on the way are made. Raises ``OSError``.
        """
        if not path:
            return self._root
        fd = self._open.get(path)
        if fd is not None:
            return fd
        parent, _, name = path.rpartition(b"/")
        above = self.get(parent, make=make) if parent.count(b"/") < _MOST_OPEN else None
        if above is None:
            above = self._deep(parent, make=make)
        fd = self._open_one(above, name, make=make)
        self._keep(path, fd)
        return fd

    def _deep(self, path: bytes, *, make: bool) -> int:
        """As ``get``, for a path so deep that its ancestors cannot all be kept open."""
        kept = self._open.get(path)
        if kept is not None:
            return kept
        above = path
        while above and above not in self._open:
            above = above.rpartition(b"/")[0]
        fd = os.dup(self._open.get(above, self._root))
        try:
            rest = path[len(above) :].strip(b"/").split(b"/")
            for level, name in enumerate(rest, 1):
                below = self._open_one(fd, name, make=make)
                os.close(fd)
                fd = below
                above = above + b"/" + name if above else name
                if level % _STEP == 0 and level < len(rest):
                    self._keep(above, os.dup(fd))
        except BaseException:
            os.close(fd)
            raise
        self._keep(path, fd)
        return fd

    def _keep(self, path: bytes, fd: int) -> None:
        if len(self._open) >= _MOST_OPEN:
            self._forget_first()
        self._open[path] = fd

    def _open_one(self, above: int, name: bytes, *, make: bool) -> int:
        try:
            return os.open(name, OPEN_FOLDER, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise
        except OSError as error:
            if not (make and self._replace and error.errno in NO_FOLDER):
                raise
            os.unlink(name, dir_fd=above)
        os.mkdir(name, self._mode, dir_fd=above)
        if self._owner is not None:
            os.chown(name, *self._owner, dir_fd=above, follow_symlinks=False)
        return os.open(name, OPEN_FOLDER, dir_fd=above)

    def _forget_first(self) -> None:
        first = next(iter(self._open))
        os.close(self._open.pop(first))

    def forget_below(self, path: bytes) -> None:
        """Close the folder ``path`` and all below it that are open: it is to be removed."""
        below = path + b"/"
        for known in [p for p in self._open if p == path or p.startswith(below)]:
            os.close(self._open.pop(known))

    def forget(self) -> None:
        """Close every folder but the root: what they name may have been moved."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()


def copy_file(
    source_fd: int, source: bytes, target_fd: int, target: bytes, *, mode: int | None = None
) -> None:
    """Copy a file with its mtime, sharing blocks where the file system can.

    It gets ``mode``, or the file's own where that is None, and the owner where the process may
    give files away. The target must not be there. Raises ``OSError``.
    """
    reading = os.open(source, OPEN_FILE, dir_fd=source_fd)
    try:
        info = os.fstat(reading)
        writing = os.open(target, CREATE_FILE, 0o600, dir_fd=target_fd)
        try:
            copy_bytes(reading, writing)
            if os.geteuid() == 0:
                os.fchown(writing, info.st_uid, info.st_gid)
            os.fchmod(writing, stat.S_IMODE(info.st_mode) if mode is None else mode)
            os.utime(writing, ns=(info.st_atime_ns, info.st_mtime_ns))
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def link_file(source_fd: int, source: bytes, target_fd: int, target: bytes) -> bool:
    """Hard-link what is at ``source``; false where the file system will not. Raises ``OSError``."""
    try:
        os.link(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS):
            return False
        raise
    return True


def check_is_folder(root: int, path: bytes) -> None:
    """Raise ``MachineError`` where something that is no folder lies at ``path``."""
    above, _, name = path.rpartition(b"/")
    try:
        fd = open_below(root, above)
    except FileNotFoundError:
        return
    try:
        if kind_at(fd, name) not in (None, stat.S_IFDIR):
            msg = "it must be a folder: links are not followed, and would be lost"
            raise MachineError(msg, path=path.decode("utf-8", "backslashreplace"))
    finally:
        os.close(fd)


def check_no_links(root: int, path: bytes) -> None:
    """Raise ``MachineError`` where a link lies directly in the folder ``path``."""
    try:
        fd = open_below(root, path)
    except FileNotFoundError:
        return
    try:
        for name in names(fd):
            if kind_at(fd, name) == stat.S_IFLNK:
                msg = "it must be a folder: links are not followed, and would be lost"
                shown = (path + b"/" + name).decode("utf-8", "backslashreplace")
                raise MachineError(msg, path=shown)
    finally:
        os.close(fd)
