"""Folders as they are read: sorted by path bytes, one at a time, no link followed."""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, TypeAlias

from agentmove_tools.disk.folders import NO_FOLDER, OPEN_FOLDER, UTF8_NAMES, name_bytes
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.paths import FILE, FOLDER, LINK, MAX_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OTHER: Final = "other"  # a socket, FIFO or device: never opened, never sent

_MOST_OPEN: Final = 64
_KEPT_OPEN: Final = 32
_SLASH: Final = 0x2F
_LONGEST_NAME: Final = 1024
_SECOND: Final = 1_000_000_000
_MOST: Final = 1 << 63
_pack_sign = struct.Struct("<QqqQI").pack  # size, mtime and ctime in ns, inode, mode


def sign_of(info: os.stat_result) -> bytes:
    """What says that a file has not changed since: as long as this stays, so does the file."""
    times = info.st_mtime_ns, info.st_ctime_ns
    try:
        return _pack_sign(info.st_size, *times, info.st_ino, info.st_mode & 0xFFFFFFFF)
    except struct.error:
        # A time past the year 2262 has more nanoseconds than fit: the seconds stand for it.
        mtime, ctime = (time if -_MOST < time < _MOST else time // _SECOND for time in times)
        return _pack_sign(info.st_size, mtime, ctime, info.st_ino, info.st_mode & 0xFFFFFFFF)


def mode_in(sign: bytes) -> int:
    """The permission bits in a sign."""
    return int.from_bytes(sign[32:34], "little") & 0o777


def inode_in(sign: bytes) -> int:
    """The inode number in a sign."""
    return int.from_bytes(sign[24:32], "little")


def size_in(sign: bytes) -> int:
    """The size in a sign, in bytes."""
    return int.from_bytes(sign[:8], "little")


class Folder:
    """One folder that is being read.

    ``kinds`` holds what is in it and is no regular file, ``files`` the names of those that are,
    and ``signs``, where asked for, their ``sign_of``. ``digests`` is for whoever knows some: 32
    bytes for each of ``files``, zeros where it is not known.
    """

    __slots__ = ("_fd", "above", "digests", "files", "kinds", "name", "path", "signs")

    def __init__(self, above: Folder | None, name: bytes, path: bytes, fd: int | None) -> None:
        self.above = above
        self.name = name
        self.path = path
        self.kinds: dict[bytes, str] = {}
        self.files: list[bytes] = []
        self.signs: dict[bytes, bytes] = {}
        self.digests = b""
        self._fd = fd

    @property
    def fd(self) -> int:
        """The open folder; opened again where it had to be closed. Raises ``OSError``."""
        if self._fd is None:
            self._reopen()
        return self._fd if self._fd is not None else -1

    def _reopen(self) -> None:
        """Open the folder from the nearest one above that is; the last ones on the way stay open.

        There may be more on the way than a process may have open, or than calls may nest.
        """
        closed = [self]
        while closed[-1].above is not None and closed[-1].above._fd is None:  # noqa: SLF001
            closed.append(closed[-1].above)
        above = closed[-1].above
        if above is None or above._fd is None:  # noqa: SLF001
            msg = "the walk's root is closed"
            raise ValueError(msg)
        fd = os.dup(above._fd)  # noqa: SLF001
        try:
            while closed:
                folder = closed.pop()
                below = os.open(folder.name, OPEN_FOLDER, dir_fd=fd)
                os.close(fd)
                fd = below
                if closed and len(closed) < _KEPT_OPEN:
                    folder._fd = os.dup(fd)  # noqa: SLF001
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def close(self) -> None:
        """Close the descriptor; ``fd`` opens it again. The root's is its caller's."""
        if self._fd is not None and self.above is not None:
            os.close(self._fd)
            self._fd = None

    def read(self, *, signs: bool, any_names: bool = False) -> None:
        """List the folder. Raises ``OSError``, and ``Refusal`` (home-path) unless ``any_names``."""
        files = self.files
        all_signs = self.signs
        kinds = self.kinds
        # Only a long path needs the length of each name looked at.
        plain = UTF8_NAMES and not any_names and len(self.path) < MAX_PATH - _LONGEST_NAME
        with os.scandir(self.fd) as entries:
            for entry in entries:
                called = entry.name
                try:
                    name = called.encode() if plain else self._name(called, any_names=any_names)
                except UnicodeEncodeError:
                    name = self._name(called, any_names=any_names)
                if entry.is_file(follow_symlinks=False):
                    if not signs:
                        files.append(name)
                        continue
                    try:
                        info = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    try:
                        all_signs[name] = _pack_sign(
                            info.st_size,
                            info.st_mtime_ns,
                            info.st_ctime_ns,
                            info.st_ino,
                            info.st_mode & 0xFFFFFFFF,
                        )
                    except struct.error:
                        all_signs[name] = sign_of(info)
                elif entry.is_symlink():
                    kinds[name] = LINK
                elif entry.is_dir(follow_symlinks=False):
                    kinds[name] = FOLDER
                else:
                    kinds[name] = OTHER
        if signs:
            files.extend(all_signs)
        files.sort()

    def _name(self, name: str, *, any_names: bool) -> bytes:
        raw = name_bytes(name)
        return raw if any_names else checked_name(self.path, raw)

    def digest(self, name: bytes) -> bytes | None:
        """The digest of the file ``name``, where it is known."""
        at = bisect_left(self.files, name) * 32
        digest = self.digests[at : at + 32]
        return digest if digest.strip(b"\0") else None

    def order(self) -> list[bytes]:
        """The names in the order of full paths; a folder's contents stand as its name with a /."""
        keys = list(self.files)
        for name, kind in self.kinds.items():
            keys.append(name)
            if kind == FOLDER:
                keys.append(name + b"/")
        keys.sort()
        return keys


def checked_name(folder: bytes, raw: bytes) -> bytes:
    """The name, if a stream can hold it. Raises ``Refusal`` (home-path)."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise Refusal("home-path", "rename it", path=folder + b"/" + raw) from None
    if len(folder) + len(raw) >= MAX_PATH:
        raise Refusal("home-path", "shorten it", path=folder + b"/" + raw)
    return raw


# What a walk finds: its path, its kind, the folder it is in, and what it is called there.
Found: TypeAlias = tuple[bytes, str, Folder, bytes]


def walk(
    root: int,
    top: bytes,
    *,
    signs: bool = False,
    leave_out: Callable[[bytes], bool] | None = None,
    entered: Callable[[Folder], None] | None = None,
    any_names: bool = False,
) -> Iterator[Found]:
    """All that is in the open folder ``root``, whose path in the stream is ``top``.

    Sorted by the bytes of full paths, so a folder comes before what is in it (Move Stream,
    section 2). ``leave_out`` is asked of each path, and nothing below one that it names is read;
    ``entered`` is called with each folder once it is listed. A folder that vanishes meanwhile is
    taken as empty. Raises ``OSError``, and ``Refusal`` (home-path) unless ``any_names``.
    """
    folder = Folder(None, b"", top, root)
    folder.read(signs=signs, any_names=any_names)
    if entered is not None:
        entered(folder)
    stack: list[tuple[Folder, Iterator[bytes]]] = [(folder, iter(folder.order()))]
    try:
        while stack:
            folder, keys = stack[-1]
            prefix = folder.path + b"/" if folder.path else b""
            kinds = folder.kinds
            below = None
            for key in keys:
                if key[-1] == _SLASH:
                    below = key[:-1]
                    if kinds.get(below) != FOLDER or (
                        leave_out is not None and leave_out(prefix + below)
                    ):
                        continue
                    break
                path = prefix + key
                if leave_out is not None and leave_out(path):
                    continue
                yield path, kinds.get(key, FILE), folder, key
            else:
                stack.pop()
                folder.close()
                continue
            child = Folder(folder, below, prefix + below, None)
            if not _read(child, signs=signs, any_names=any_names):
                continue
            if entered is not None:
                entered(child)
            stack.append((child, iter(child.order())))
            if len(stack) > _MOST_OPEN:
                stack[-_MOST_OPEN][0].close()
    finally:
        for folder, _ in stack:
            folder.close()


def walk_folders(
    root: int, top: bytes, *, leave_out: Callable[[bytes], bool] | None = None
) -> Iterator[Folder]:
    """The folders at and below the open folder ``root``, each with its files and their signs.

    A folder's descriptor is open until the next one is asked for. Each comes before what is in it.
    Raises as ``walk`` does.
    """
    folder = Folder(None, b"", top, root)
    folder.read(signs=True)
    stack: list[tuple[Folder, Iterator[bytes]]] = [(folder, _below(folder))]
    yield folder
    try:
        while stack:
            folder, below = stack[-1]
            name = next(below, None)
            if name is None:
                stack.pop()
                folder.close()
                continue
            path = folder.path + b"/" + name if folder.path else name
            if leave_out is not None and leave_out(path):
                continue
            child = Folder(folder, name, path, None)
            if not _read(child, signs=True):
                continue
            stack.append((child, _below(child)))
            if len(stack) > _MOST_OPEN:
                stack[-_MOST_OPEN][0].close()
            yield child
    finally:
        for folder, _ in stack:
            folder.close()


def _read(folder: Folder, *, signs: bool, any_names: bool = False) -> bool:
    """List a folder; false where it is gone, or something else took its place."""
    try:
        folder.read(signs=signs, any_names=any_names)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in NO_FOLDER:
            return False
        # The system names only the last part of the path, or nothing.
        raise OSError(error.errno, error.strerror, folder.path) from None
    return True


def _below(folder: Folder) -> Iterator[bytes]:
    return iter(sorted(name for name, kind in folder.kinds.items() if kind == FOLDER))
