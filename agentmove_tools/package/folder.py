"""An agent's folder as the source of a package (Agent package, section 1)."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from agentmove_tools.disk.folders import OPEN_FILE, Folders
from agentmove_tools.disk.walk import inode_in, mode_in, size_in, walk
from agentmove_tools.package.layout import ON_REQUEST, is_leftover, is_of_package, may_hold
from agentmove_tools.package.names import composed
from agentmove_tools.package.sources import Item
from agentmove_tools.refusals import MachineError, Refusal
from agentmove_tools.stream.paths import FILE, FOLDER, LINK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentmove_tools.package.layout import Part

# The folder in which an unpacking stages what it will put into the folder.
WORKPLACE: Final = ".agentfy-unpack"

_PIECE: Final = 1 << 20


def open_folder(folder: bytes) -> int:
    """Open an agent's folder, which may be reached through a link. Raises ``OSError``."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class FolderSource:
    """The files of the open folder ``root``, read when their content is asked for.

    No link is followed. A folder that a package has no place for is not looked into. Files of these
    ``identities`` (device and inode number) are left out: the output, where it is written into the
    folder. ``wanted``: which of ``ON_REQUEST`` are looked for.
    """

    is_folder = True

    def __init__(
        self,
        root: int,
        *,
        identities: frozenset[tuple[int, int]] = frozenset(),
        wanted: frozenset[Part] = frozenset(ON_REQUEST),
    ) -> None:
        self._root = root
        self._wanted = wanted
        self._identities = identities
        self._inodes = {inode for _, inode in identities}
        self._folders = Folders(root)
        self._passed_over: list[str] = []
        self.raw_paths: dict[str, bytes] = {}  # path -> its bytes, where they are not its UTF-8

    def items(self) -> list[Item]:
        """The files below the folder.

        Raises ``Refusal`` (package-type, package-path) where something else lies in the place of
        one, ``MachineError`` where a folder is gone before it is read, and ``OSError``.
        """
        items: list[Item] = []
        skipped: set[bytes] = set()
        found: set[bytes] = set()
        listed: set[bytes] = set()
        for raw, kind, folder, name in walk(
            self._root,
            b"",
            signs=True,
            leave_out=skipped.__contains__,
            any_names=True,
            entered=lambda folder: listed.add(folder.path),
        ):
            path = _decoded(raw)
            if kind == FOLDER:
                if may_hold(path):
                    found.add(raw)
                else:
                    skipped.add(raw)
                    if not is_leftover(path + "/") and path != WORKPLACE:
                        self._passed_over.append(path + "/")
            elif kind == FILE:
                sign = folder.signs.get(name)
                if sign is None or self._is_output(sign, folder.fd, name):
                    continue
                if path.encode("utf-8", "surrogateescape") != raw:
                    self.raw_paths[path] = raw
                executable = mode_in(sign) & 0o111 != 0
                items.append(Item(path, executable, size_in(sign), _Content(self, raw)))
            elif is_of_package(path, self._wanted):
                why = "it is a symbolic link: put what it leads to in its place"
                if kind != LINK:
                    why = "it is a device, a socket or the like: remove it"
                raise Refusal("package-type", why, path=raw)
            else:
                self._passed_over.append(path)
        for raw in sorted(found - listed):
            msg = "this folder was moved or removed while the agent was read: run it again"
            raise MachineError(msg, path=raw.decode("utf-8", "backslashreplace"))
        return items

    def passed_over(self) -> list[str]:
        """Folders and other things that a package has no place for."""
        return self._passed_over

    def read(self, path: bytes) -> Iterable[bytes]:
        """The content of a file, a small one in one piece. Raises ``OSError`` and ``Refusal``."""
        fd = self._open_file(path)
        try:
            size = os.fstat(fd).st_size
            if size <= _PIECE:
                start = os.read(fd, size + 1)
                if len(start) == size:
                    return (start,)
        finally:
            os.close(fd)
        return self._pieces(path)  # it is large, or grew or shrank meanwhile

    def _pieces(self, path: bytes) -> Iterator[bytes]:
        fd = self._open_file(path)
        try:
            while piece := os.read(fd, _PIECE):
                yield piece
        finally:
            os.close(fd)

    def _open_file(self, path: bytes) -> int:
        above, _, name = path.rpartition(b"/")
        try:
            fd = os.open(name, OPEN_FILE, dir_fd=self._folders.get(above, make=False))
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise Refusal("package-type", "it is no file any more", path=path)
        return fd

    def close(self) -> None:
        """Close the folders that were kept open; ``root`` is the caller's."""
        self._folders.forget()

    def _is_output(self, sign: bytes, folder: int, name: bytes) -> bool:
        if inode_in(sign) not in self._inodes:
            return False
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return (info.st_dev, info.st_ino) in self._identities


class _Content:
    """A file's content, whenever it is asked for."""

    __slots__ = ("_path", "_source")

    def __init__(self, source: FolderSource, path: bytes) -> None:
        self._source = source
        self._path = path

    def __call__(self) -> Iterable[bytes]:
        return self._source.read(self._path)


def _decoded(path: bytes) -> str:
    """The path, composed. Raises ``Refusal`` (package-path) for one that a package should hold."""
    try:
        return composed(path.decode())
    except UnicodeDecodeError:
        shown = path.decode("utf-8", "surrogateescape")
        if is_of_package(shown):
            raise Refusal("package-path", "its name is not UTF-8: rename it", path=path) from None
        return shown
