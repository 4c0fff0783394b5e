"""A ZIP archive, written so that every unpacker reads it, and always the same (section 3).

Of one content there is one archive: entries come sorted, each has the one time and one of two
modes, and nothing in it depends on the machine but zlib itself.
"""

from __future__ import annotations

import stat
import struct
import zlib
from itertools import chain
from typing import TYPE_CHECKING, Final

from agentmove_tools.package.archive_reader import LONGEST_END, ends_in
from agentmove_tools.package.limits import MAX_ENTRIES, MAX_UNPACKED, MAX_UPLOAD
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_DIRECTORY: Final = struct.Struct("<4s6H3L5H2L")
_END: Final = struct.Struct("<4s4H2LH")

_MADE_BY: Final = 3 << 8 | 20  # UNIX, by version 2.0 of the format
_NEEDED: Final = 20
_IS_UTF8: Final = 0x0800
_STORED: Final = 0
_DEFLATED: Final = 8
_TIME: Final = 0
_DATE: Final = 1 << 5 | 1  # 1980-01-01, the first day that a ZIP knows
PLAIN_MODE: Final = 0o644
EXECUTABLE_MODE: Final = 0o755

_LEVEL: Final = 6
_HELD: Final = 1 << 20  # bytes of a content that is packed whole
_LARGEST_WINDOW: Final = 15
_SMALLEST_WINDOW: Final = 9
_MOST_MEMORY: Final = 8


class ArchiveWriter:
    """Builds one archive in memory, within the limits of one that is read.

    ``add`` is called in the order of the paths' bytes.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._directory: list[bytes] = []
        self._at = 0
        self._directory_size = 0
        self._unpacked = 0

    def add(self, path: str, content: Iterable[bytes], *, executable: bool = False) -> None:
        """Add a file. ``path`` has been checked.

        Raises ``Refusal`` (package-entries, package-upload-size, package-unpacked-size), and what
        ``content`` raises; then the archive is of no use any more.
        """
        if len(self._directory) >= MAX_ENTRIES:
            why = f"leave files out: the folder holds more than {MAX_ENTRIES} for a package"
            raise Refusal("package-entries", why)
        name = path.encode()
        method, packed, size, crc = self._packed(name, content)
        packed_size = sum(map(len, packed))
        common = (_IS_UTF8, method, _TIME, _DATE, crc, packed_size, size, len(name), 0)
        mode = stat.S_IFREG | (EXECUTABLE_MODE if executable else PLAIN_MODE)
        self._pieces += (_LOCAL.pack(b"PK\3\4", _NEEDED, *common), name, *packed)
        self._directory.append(
            _DIRECTORY.pack(b"PK\1\2", _MADE_BY, _NEEDED, *common, 0, 0, 0, mode << 16, self._at)
            + name
        )
        self._at += _LOCAL.size + len(name) + packed_size
        self._directory_size += _DIRECTORY.size + len(name)
        self._check_size(0)

    def _packed(self, name: bytes, content: Iterable[bytes]) -> tuple[int, list[bytes], int, int]:
        """The method, the packed content, the size in bytes before, and the CRC.

        How it is packed depends on the content alone, not on the pieces that it comes in.
        """
        pieces = iter(content)
        held: list[bytes] = []
        size = 0
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            self._count(len(piece), name)
            if size > _HELD:
                return self._packed_in_pieces(name, held, pieces)
        whole = held[0] if len(held) == 1 else b"".join(held)
        packer = _packer(size)
        packed = packer.compress(whole) + packer.flush()
        crc = zlib.crc32(whole)
        if len(packed) < size:
            return _DEFLATED, [packed], size, crc
        return _STORED, [whole], size, crc

    def _packed_in_pieces(
        self, name: bytes, held: list[bytes], rest: Iterator[bytes]
    ) -> tuple[int, list[bytes], int, int]:
        """As ``_packed``, for a content that is not held: it is deflated, whatever it is."""
        packer = _packer(_HELD)
        packed: list[bytes] = []
        size = crc = packed_size = 0
        counted = len(held)
        for number, piece in enumerate(chain(held, rest)):
            if number >= counted:
                self._count(len(piece), name)
            else:
                held[number] = b""
            size += len(piece)
            crc = zlib.crc32(piece, crc)
            packed.append(packer.compress(piece))
            packed_size += len(packed[-1])
            self._check_size(packed_size)
        packed.append(packer.flush())
        return _DEFLATED, packed, size, crc

    def _count(self, size: int, name: bytes) -> None:
        self._unpacked += size
        if self._unpacked > MAX_UNPACKED:
            raise Refusal("package-unpacked-size", path=name)

    def _check_size(self, more: int) -> None:
        if self._at + more + self._directory_size + _END.size > MAX_UPLOAD:
            raise Refusal("package-upload-size", "leave out what the agent does not need")

    def finish(self) -> list[bytes]:
        """The whole archive, in pieces."""
        count = len(self._directory)
        pieces = [*self._pieces, *self._directory]
        last = _last(pieces, LONGEST_END)
        comment = b""
        while True:
            end = _END.pack(
                b"PK\5\6", 0, 0, count, count, self._directory_size, self._at, len(comment)
            )
            # What is in the package may itself look like an end, at one distance from the real one.
            if len(ends_in(last + end + comment)) == 1:
                return [*pieces, end + comment]
            comment += b" "


def _last(pieces: list[bytes], size: int) -> bytes:
    """The last so many bytes, or all."""
    held: list[bytes] = []
    for piece in reversed(pieces):
        held.append(piece)
        size -= len(piece)
        if size <= 0:
            break
    return b"".join(reversed(held))


def _packer(size: int) -> zlib._Compress:
    """A compressor that is no larger than the content needs: setting it up is most of its time."""
    window = min(max((size - 1).bit_length(), _SMALLEST_WINDOW), _LARGEST_WINDOW)
    memory = min(max(window - 6, 1), _MOST_MEMORY)
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, -window, memory)
