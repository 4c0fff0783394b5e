"""One header block of a tar, and the records of a PAX header (Move Stream, section 2)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import adler32

BLOCK: Final = 512
ZERO_BLOCK: Final = bytes(BLOCK)

_OCTAL: Final = re.compile(rb" *([0-7]+)[ \0]*|[ \0]*")
_INTEGER: Final = re.compile(rb"(0|[1-9][0-9]{0,18})")
_TIME: Final = re.compile(rb"(-?[0-9]{1,18})(\.[0-9]*)?")
_LENGTH: Final = re.compile(rb"([1-9][0-9]{0,6}) ")
_MAGICS: Final = (b"ustar\x0000", b"ustar  \0", bytes(8))
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


@lru_cache(maxsize=4096)
def _number(field: bytes) -> int:
    """A number field: octal digits, or GNU's base 256. Raises ``Malformed``."""
    first = field[0]
    if first & 0x80:
        value = int.from_bytes(field, "big", signed=False) & ((1 << (8 * len(field) - 1)) - 1)
        if first & 0x40:
            value -= 1 << (8 * len(field) - 1)
        if not -_LARGEST < value < _LARGEST:
            msg = "a number is too large"
            raise Malformed(msg)
        return value
    match = _OCTAL.fullmatch(field)
    if match is None:
        msg = f"a number is malformed: {field!r}"
        raise Malformed(msg)
    return int(match.group(1) or b"0", 8)


@lru_cache(maxsize=256)
def _tail(tail: bytes) -> bytes:
    """What follows the link's target: magic, owner's names, device, prefix. Gives the prefix."""
    magic = tail[:8]
    if magic not in _MAGICS:
        msg = f"the magic is unknown: {magic!r}"
        raise Malformed(msg)
    if magic != _MAGICS[0]:
        # GNU's old format and the one before POSIX use this room for other things.
        return b""
    for field in (tail[72:80], tail[80:88]):
        _number(field)
    prefix = tail[88:243].rstrip(b"\0")
    if b"\0" in prefix:
        msg = "there is a NUL in a name"
        raise Malformed(msg)
    return prefix


@lru_cache(maxsize=256)
def _owner(field: bytes) -> None:
    _number(field[:8])
    _number(field[8:])


def parse_header(block: bytes) -> Header:
    """Read a block of 512 bytes. Raises ``Malformed``."""
    # Each sum of up to 256 bytes is the low half of its Adler-32, less the 1 that it starts with.
    total = (
        (adler32(block[:148]) & 0xFFFF)
        + (adler32(block[156:406]) & 0xFFFF)
        + (adler32(block[406:]) & 0xFFFF)
        + 253  # eight spaces in the checksum's place, less three ones
    )
    if _number(block[148:156]) != total:
        msg = "the header's checksum is wrong"
        raise Malformed(msg)
    mode = _number(block[100:108])
    _owner(block[108:124])
    size = _number(block[124:136])
    mtime = _number(block[136:148])
    if size < 0 or mode < 0:
        msg = "a number is negative"
        raise Malformed(msg)
    prefix = _tail(block[257:])
    name = block[:100].rstrip(b"\0")
    target = block[157:257].rstrip(b"\0")
    if b"\0" in name or b"\0" in target:
        msg = "there is a NUL in a name"
        raise Malformed(msg)
    if prefix:
        name = prefix + b"/" + name
    return Header(name, block[156:157], mode & 0o777, size, mtime, target)


def parse_pax(data: bytes) -> dict[bytes, bytes]:
    """The records of a PAX header. Raises ``Malformed``."""
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        match = _LENGTH.match(data, at)
        if match is None:
            msg = "a PAX record's length is malformed"
            raise Malformed(msg)
        end = at + int(match.group(1))
        key, equals, value = data[match.end() : end - 1].partition(b"=")
        if end > len(data) or end <= match.end() or data[end - 1 : end] != b"\n" or not equals:
            msg = "a PAX record's length is wrong"
            raise Malformed(msg)
        if not key or key in records:
            shown = key.decode("utf-8", "backslashreplace")
            msg = f"the PAX record {shown!r} comes twice" if key else "a PAX record has no key"
            raise Malformed(msg)
        records[key] = value
        at = end
    for key in (b"path", b"linkpath"):
        if b"\0" in records.get(key, b""):
            msg = "there is a NUL in a name"
            raise Malformed(msg)
    return records


def pax_size(value: bytes) -> int:
    """A PAX ``size``, in bytes. Raises ``Malformed``."""
    match = _INTEGER.fullmatch(value)
    if match is None:
        msg = f"the PAX size is malformed: {value[:40]!r}"
        raise Malformed(msg)
    return int(value)


def pax_time(value: bytes) -> int:
    """A PAX time in whole seconds, rounded down. Raises ``Malformed``."""
    match = _TIME.fullmatch(value)
    if match is None:
        msg = f"the PAX mtime is malformed: {value[:40]!r}"
        raise Malformed(msg)
    seconds = int(match.group(1))
    fraction = match.group(2)
    if value.startswith(b"-") and fraction is not None and fraction.strip(b".0"):
        seconds -= 1
    return seconds
