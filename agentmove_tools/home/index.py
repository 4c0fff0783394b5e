"""The index of hashes: what makes a second ``lnk-have`` cheap (Move Stream, section 4).

One file in the working state, made new by each run and put in place by a rename. It holds a block
for each folder: the names of its files, what says that a file has not changed (``Folder.signs``),
the SHA-256 of each, and the rows of ``have`` that say all this, as text. A block is read when its
folder is come to, so memory does not grow with the Home; one that still holds is copied as it is.

A file that was changed so shortly before it was hashed that a later change could leave the same
times ("racy") goes in without a sign, and is hashed again by the next run.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import tempfile
import zlib
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from agentmove_tools.disk.folders import OPEN_FILE
from agentmove_tools.disk.system import write_all
from agentmove_tools.stream.have import render_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentmove_tools.disk.walk import Folder

SIGN: Final = 36
DIGEST: Final = 32
UNKNOWN: Final = bytes(DIGEST)
_NO_SIGN: Final = bytes(SIGN)
_MAGIC: Final = b"lnk-index-2\n"
# Bytes of the folder's path, of the names, of the rows; how many files; crc32 of what follows.
_BLOCK: Final = struct.Struct("<IIIII")
_TAIL: Final = struct.Struct("<QII")  # where the table starts, its bytes, its crc32
_ROW: Final = struct.Struct("<QI")  # where a block starts, its bytes
_BLOCK_FILES: Final = 4096
_AT_ONCE: Final = 1 << 20

# A clock of a file system may stand still for this long: a tick, or two seconds on one that keeps
# whole seconds only (its times then end in nine zeros).
_FINE: Final = 50_000_000
_COARSE: Final = 2_000_000_000
_SECOND: Final = 1_000_000_000


Place: TypeAlias = tuple[int, int]  # where a block starts in the file, and its bytes


class Block(NamedTuple):
    """Some of a folder's files as the index has them."""

    names: list[bytes]
    signs: bytes
    digests: bytes


class Index:
    """An index that was written before; one that is missing or damaged knows nothing."""

    def __init__(self, folder: int | None, name: bytes) -> None:
        """Open the index ``name`` in the open folder ``folder``."""
        self._fd: int | None = None
        self._blocks: dict[bytes, list[Place]] = {}
        if folder is None:
            return
        try:
            fd = os.open(name, OPEN_FILE, dir_fd=folder)
        except OSError:
            return
        if stat.S_ISREG(os.fstat(fd).st_mode):
            self.adopt(fd)
        else:
            os.close(fd)

    def adopt(self, fd: int) -> None:
        """Read from the open file ``fd`` from now on, and close it in the end."""
        self.close()
        self._fd = fd
        try:
            self._blocks = _read_table(fd)
        except (ValueError, OSError, struct.error):
            self._blocks = {}

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        self._blocks = {}

    def resolve(self, folder: Folder) -> bytearray:
        """The digests of ``folder.files`` in order, 32 bytes each; zeros where none is known."""
        return self.compare(folder)[0]

    def compare(self, folder: Folder) -> tuple[bytearray, list[Place] | None]:
        """As ``resolve``, and where the folder's blocks are, if nothing at all changed in it."""
        names = folder.files
        digests = bytearray(DIGEST * len(names))
        signs = folder.signs
        place = 0
        same = True
        places = self._blocks.get(folder.path, [])
        for start, length in places:
            block = self._block(folder.path, start, length)
            if block is None:
                same = False
                continue
            count = len(block.names)
            # Most folders have not changed: then one comparison stands for all their files.
            if names[place : place + count] == block.names and block.signs == b"".join(
                map(signs.__getitem__, block.names)
            ):
                digests[place * DIGEST : (place + count) * DIGEST] = block.digests
                place += count
                continue
            same = False
            old = {name: at for at, name in enumerate(block.names)}
            first = bisect_left(names, block.names[0], place)
            place = bisect_right(names, block.names[-1], first)
            for here in range(first, place):
                at = old.get(names[here])
                if at is not None and (
                    block.signs[at * SIGN : (at + 1) * SIGN] == signs[names[here]]
                ):
                    digests[here * DIGEST : (here + 1) * DIGEST] = block.digests[
                        at * DIGEST : (at + 1) * DIGEST
                    ]
        return digests, places if same and place == len(names) else None

    def stored(self, place: Place) -> tuple[bytes, bytes]:
        """A block that ``compare`` gave as it is stored, and its rows of ``have``."""
        if self._fd is None:
            msg = "the index is closed"
            raise ValueError(msg)
        data = os.pread(self._fd, place[1], place[0])
        rows_length = _BLOCK.unpack_from(data)[2]
        return data, data[len(data) - rows_length :]

    def lookup(self, path: bytes, name: bytes, sign: bytes) -> bytes | None:
        """The digest of the one file ``name`` in the folder ``path``, if its sign still fits."""
        for start, length in self._blocks.get(path, ()):
            block = self._block(path, start, length)
            if block is not None and name in block.names:
                at = block.names.index(name)
                if block.signs[at * SIGN : (at + 1) * SIGN] == sign:
                    return block.digests[at * DIGEST : (at + 1) * DIGEST]
        return None

    def _block(self, path: bytes, start: int, length: int) -> Block | None:
        if self._fd is None:
            return None
        data = os.pread(self._fd, length, start)
        if len(data) < _BLOCK.size:
            return None
        path_length, names_length, rows_length, count, crc = _BLOCK.unpack_from(data)
        names_at = _BLOCK.size + path_length
        signs_at = names_at + names_length
        digests_at = signs_at + count * SIGN
        rows_at = digests_at + count * DIGEST
        if (
            zlib.crc32(data[_BLOCK.size :]) != crc
            or data[_BLOCK.size : names_at] != path
            or len(data) != rows_at + rows_length
        ):
            return None
        names = data[names_at:signs_at].split(b"\0")
        if len(names) != count:
            return None
        return Block(names, data[signs_at:digests_at], data[digests_at:rows_at])


def _read_table(fd: int) -> dict[bytes, list[Place]]:
    size = os.fstat(fd).st_size
    if size < len(_MAGIC) + _TAIL.size or os.pread(fd, len(_MAGIC), 0) != _MAGIC:
        msg = "no index"
        raise ValueError(msg)
    start, length, crc = _TAIL.unpack(os.pread(fd, _TAIL.size, size - _TAIL.size))
    if start + length + _TAIL.size != size:
        msg = "a damaged index"
        raise ValueError(msg)
    table = os.pread(fd, length, start)
    if len(table) != length or zlib.crc32(table) != crc:
        msg = "a damaged index"
        raise ValueError(msg)
    blocks: dict[bytes, list[Place]] = {}
    at = 0
    while at < length:
        block_at, block_length = _ROW.unpack_from(table, at)
        at += _ROW.size
        end = table.index(b"\0", at)
        blocks.setdefault(table[at:end], []).append((block_at, block_length))
        at = end + 1
    return blocks


class IndexWriter:
    """Writes a new index; ``keep`` puts it in place of the one before."""

    def __init__(self, folder: int | None, name: bytes) -> None:
        """Begin in the open folder ``folder``, or in a nameless file where there is none."""
        self._folder = folder
        self._name = name
        self._temporary = b""
        if folder is None:
            self._fd = _nameless()
        else:
            self._temporary = name + b".%d.tmp" % os.getpid()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=folder)
            self._fd = os.open(
                self._temporary,
                os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
                dir_fd=folder,
            )
        try:
            os.write(self._fd, _MAGIC)
        except BaseException:
            self.drop()
            raise
        # The file system's own clock, which need not be this machine's.
        self._now = os.fstat(self._fd).st_mtime_ns
        self._size = len(_MAGIC)
        self._table: list[bytes] = []
        self._pieces: list[bytes] = []
        self._waiting = 0

    def add(self, folder: Folder, digests: bytearray) -> Iterator[bytes]:
        """Add the files of ``folder`` whose digest is known; the rest is left out.

        Gives their rows of ``have``, and has added all when they were all taken.
        """
        names = folder.files
        for first in range(0, len(names), _BLOCK_FILES):
            block = names[first : first + _BLOCK_FILES]
            known = digests[first * DIGEST : (first + len(block)) * DIGEST]
            if UNKNOWN in known:
                block, known = _known_only(block, known)
                if not block:
                    continue
            text = render_rows(folder.path, block, known)
            signs = b"".join(map(self._sign, map(folder.signs.__getitem__, block)))
            joined = b"\0".join(block)
            body = b"".join((folder.path, joined, signs, known, text))
            head = _BLOCK.pack(
                len(folder.path), len(joined), len(text), len(block), zlib.crc32(body)
            )
            self._put(folder.path, head + body)
            yield text

    def copy(self, folder: Folder, old: Index, places: list[Place]) -> Iterator[bytes]:
        """Add a folder in which nothing has changed since the ``old`` index; as ``add``."""
        for place in places:
            data, rows = old.stored(place)
            self._put(folder.path, data)
            yield rows

    def _put(self, path: bytes, data: bytes) -> None:
        self._table.append(_ROW.pack(self._size, len(data)) + path + b"\0")
        self._pieces.append(data)
        self._waiting += len(data)
        self._size += len(data)
        if self._waiting > _AT_ONCE:
            self._flush()

    def _sign(self, sign: bytes) -> bytes:
        mtime, ctime = _times(sign)
        newest = max(mtime, ctime)
        slack = _COARSE if mtime % _SECOND == 0 and ctime % _SECOND == 0 else _FINE
        return sign if newest < self._now - slack else _NO_SIGN

    def _flush(self) -> None:
        data = memoryview(b"".join(self._pieces))
        self._pieces.clear()
        self._waiting = 0
        start = os.lseek(self._fd, 0, os.SEEK_CUR)
        try:
            write_all(self._fd, data)
        except OSError:
            if self._folder is None:
                raise
            self._forget()
            write_all(self._fd, data[os.lseek(self._fd, 0, os.SEEK_CUR) - start :])

    def _forget(self) -> None:
        """Go on in a nameless file: without room to remember, this run still knows it all."""
        fd = _nameless()
        os.lseek(self._fd, 0, os.SEEK_SET)
        while piece := os.read(self._fd, 1 << 18):
            write_all(fd, piece)
        self.drop()
        self._fd, self._folder = fd, None

    def keep(self) -> int:
        """Finish the index and put it in place; its open file is the caller's.

        Raises ``OSError``.
        """
        table = b"".join(self._table)
        self._pieces += (table, _TAIL.pack(self._size, len(table), zlib.crc32(table)))
        self._flush()
        if self._folder is not None:
            # A receiver that begins meanwhile may have taken it for a killed one's.
            with contextlib.suppress(FileNotFoundError):
                os.rename(
                    self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder
                )
            self._temporary = b""
        return self._fd

    def drop(self) -> None:
        """Leave the index before as it is."""
        os.close(self._fd)
        if self._temporary and self._folder is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._folder)


def _nameless() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


_times = struct.Struct("<8xqq12x").unpack


def _known_only(names: list[bytes], digests: bytearray) -> tuple[list[bytes], bytearray]:
    kept: list[bytes] = []
    known = bytearray()
    for at, name in enumerate(names):
        digest = digests[at * DIGEST : (at + 1) * DIGEST]
        if digest != UNKNOWN:
            kept.append(name)
            known += digest
    return kept, known
