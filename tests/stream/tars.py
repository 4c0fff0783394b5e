"""Tars made by hand, block by block, for what no writer of this project makes."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from typing import Final

from agentmove_tools.stream.paths import END_NAME, MANIFEST_NAME
from agentmove_tools.stream.tar_reader import MoveReader

USTAR: Final = b"ustar\x0000"
OLD_GNU: Final = b"ustar  \0"
BEFORE_POSIX: Final = bytes(8)

MANIFEST: Final = (
    b'{"format":4,"phase":"%b","move":"00112233445566778899aabbccddeeff","version":"0.1.0",'
    b'"agent":{"id":"a","name":"A"},"harness":"h"}'
)

# path, kind, permission bits, mtime, content or target
Read = tuple[bytes, str, int, int, bytes]


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def header(
    name: bytes,
    kind: bytes = b"0",
    size: int | bytes = 0,
    *,
    mode: bytes = b"0000644\0",
    uid: bytes = b"0000000\0",
    gid: bytes = b"0000000\0",
    mtime: int | bytes = 1_700_000_000,
    checksum: bytes | None = None,
    target: bytes = b"",
    magic: bytes = USTAR,
    tail: bytes = bytes(64) + b"0000000\0" * 2,
    prefix: bytes = b"",
) -> bytes:
    """One header block; each field may be given as its bytes."""
    start = name.ljust(100, b"\0") + mode + uid + gid
    start += size if isinstance(size, bytes) else b"%011o\0" % size
    start += mtime if isinstance(mtime, bytes) else b"%011o\0" % mtime
    end = kind + target.ljust(100, b"\0") + magic + tail + prefix.ljust(155, b"\0") + bytes(12)
    if checksum is None:
        checksum = b"%06o\0 " % (sum(start) + 8 * 32 + sum(end))
    block = start + checksum + end
    assert len(block) == 512
    return block


def record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    total = length + len(str(length))
    total = length + len(str(total))
    return b"%d %b=%b\n" % (total, key, value)


def extended(data: bytes, kind: bytes = b"x", name: bytes = b"PaxHeaders/x") -> bytes:
    """A PAX header (or another one with data), whatever its data is."""
    return header(name, kind, len(data)) + padded(data)


def pax(**records: bytes) -> bytes:
    """A PAX header; ``LNK_sha256`` stands for ``LNK.sha256``."""
    return extended(b"".join(record(k.replace("_", ".").encode(), v) for k, v in records.items()))


def hashed(content: bytes) -> bytes:
    """A PAX header with the content's hash."""
    return pax(LNK_sha256=digest(content))


def file(name: bytes, content: bytes = b"x") -> bytes:
    return hashed(content) + header(name, b"0", len(content)) + padded(content)


def folder(name: bytes) -> bytes:
    return header(name, b"5", mode=b"0000755\0")


def link(name: bytes, target: bytes) -> bytes:
    return header(name, b"2", target=target)


def manifest(phase: bytes = b"switch") -> bytes:
    return file(MANIFEST_NAME, MANIFEST % phase)


END: Final = file(END_NAME, b"")


def stream(*parts: bytes, phase: bytes = b"switch") -> bytes:
    """A stream of these entries."""
    return b"".join([manifest(phase), *parts, END, bytes(1024)])


class Chunked:
    """A source that gives at most as many bytes a call as it is told, the last count for ever."""

    def __init__(self, data: bytes, counts: Iterable[int] = ()) -> None:
        self._data = io.BytesIO(data)
        given = list(counts) or [1 << 20]
        self._counts = chain(given, repeat(given[-1]))

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        return self._data.readinto(memoryview(buffer)[: next(self._counts)])


def read(data: bytes, counts: Iterable[int] = (), *, any_links: bool = False) -> list[Read]:
    """All that is in a stream."""
    return list(read_some(MoveReader(Chunked(data, counts), any_links=any_links)))


def read_some(reader: MoveReader) -> Iterator[Read]:
    for entry in reader:
        what = reader.read() if entry.target is None else entry.target
        yield (entry.path, entry.kind, entry.mode, entry.mtime, what)
