"""One header block of a tar (Move Stream, section 2)."""

from __future__ import annotations

import re
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple
from zlib import adler32

BLOCK: Final = 512
ZERO_BLOCK: Final = bytes(BLOCK)

# name; mode, user and group; size; mtime; checksum; type, target and all after it
_FIELDS: Final = Struct("100s24s12s12s8s356s").unpack
_OCTAL: Final = re.compile(rb" *([0-7]+)[ \0]*|[ \0]*")
# The checksum does not cover its own field. Only the forms that tars write are taken: no two of
# them that differ in one byte mean the same number.
_CHECKSUM: Final = re.compile(rb"([0-7]{6})(?:\0 | \0)|([0-7]{7})\0")
_USTAR: Final = b"ustar\x0000"
_MAGICS: Final = (_USTAR, b"ustar  \0", bytes(8))  # POSIX, old GNU, and before either
_LARGEST: Final = 1 << 62


class Malformed(Exception):
    """What is malformed, in words; the reader adds where."""


class Header(NamedTuple):
    """A header block. ``kind`` is the type flag; ``name`` and ``target`` as they stand in it."""

    name: bytes
    kind: bytes
    mode: int
    size: int
    mtime: int
    target: bytes


class _Rest(NamedTuple):
    """What follows the checksum, and the sum of its bytes."""

    kind: bytes
    target: bytes
    prefix: bytes
    total: int


def parse_header(block: bytes) -> Header:
    """Read a block of 512 bytes.

    Sizes are in bytes, times in whole seconds since 1970, the mode is the permission bits. Raises
    ``Malformed``.
    """
    name, owner, size_field, time_field, sum_field, rest_field = _FIELDS(block)
    try:
        rest = _rest(rest_field)
        if _checksum(sum_field) != (adler32(block[:148]) & 0xFFFF) + rest.total:
            raise Malformed("the header's checksum is wrong")
        mode = _mode(owner)
        digits = size_field[:11]
        quick = size_field[11] == 0 and digits.isdigit()
        size = int(digits, 8) if quick else _number(size_field)
        digits = time_field[:11]
        quick = time_field[11] == 0 and digits.isdigit()
        mtime = int(digits, 8) if quick else _number(time_field)
    except Malformed:
        _check_sum(block)  # whatever else is wrong: a damaged header is damaged
        raise
    except ValueError:  # an 8 or a 9
        raise Malformed("a number is malformed") from None
    if size < 0:
        raise Malformed("a size is negative")
    name = name.rstrip(b"\0")
    if b"\0" in name:
        raise Malformed("there is a NUL in a name")
    if rest.prefix:
        name = rest.prefix + b"/" + name
    return Header(name, rest.kind, mode, size, mtime, rest.target)


def _sum_of(data: bytes) -> int:
    """The sum of up to 512 bytes.

    Of up to 256 it is the low half of their Adler-32, less the 1 that it starts with.
    """
    return (adler32(data[:256]) & 0xFFFF) + (adler32(data[256:]) & 0xFFFF) - 2


def _check_sum(block: bytes) -> None:
    total = _sum_of(block[:148]) + _sum_of(block[156:]) + 8 * 32
    if _checksum(block[148:156]) != total:
        raise Malformed("the header's checksum is wrong")


@lru_cache(maxsize=4096)
def _checksum(field: bytes) -> int:
    match = _CHECKSUM.fullmatch(field)
    if match is None:
        raise Malformed("the header's checksum is malformed")
    return int(match.group(match.lastindex or 0), 8)


def _number(field: bytes) -> int:
    """A number field: octal digits, or GNU's base 256. Raises ``Malformed``."""
    first = field[0]
    if first & 0x80:
        value = int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
        if first & 0x40:
            value -= 1 << (8 * len(field) - 1)
        if not -_LARGEST < value < _LARGEST:
            raise Malformed("a number is too large")
        return value
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise Malformed(f"a number is malformed: {field!r}")
    return int(match.group(1) or b"0", 8)


@lru_cache(maxsize=256)
def _mode(field: bytes) -> int:
    """The permission bits, of the mode, the user and the group."""
    mode = _number(field[:8])
    _number(field[8:16])
    _number(field[16:])
    if mode < 0:
        raise Malformed("a mode is negative")
    return mode & 0o777


@lru_cache(maxsize=256)
def _rest(field: bytes) -> _Rest:
    """The type, the target, the magic, the owner's names, the device and the prefix.

    All but the target is the same in most headers of a tar.
    """
    target = field[1:101].rstrip(b"\0")
    magic = field[101:109]
    prefix = b""
    if magic not in _MAGICS:
        raise Malformed(f"the magic is unknown: {magic!r}")
    if magic == _USTAR:  # the others use this room for other things
        _number(field[173:181])
        _number(field[181:189])
        prefix = field[189:344].rstrip(b"\0")
    if b"\0" in target or b"\0" in prefix:
        raise Malformed("there is a NUL in a name")
    # Spaces stand in the checksum's own place; a 1 is in the sum of what comes before it.
    return _Rest(field[:1], target, prefix, _sum_of(field) + 8 * 32 - 1)
