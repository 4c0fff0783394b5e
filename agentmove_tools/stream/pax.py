"""The records of a PAX extended header (Move Stream, section 2)."""

from __future__ import annotations

import re
from typing import Final
from zlib import crc32

from agentmove_tools.stream.tar_header import Malformed

MAX_PAX: Final = 1 << 20  # bytes of records before one entry

_SUM_NAME: Final = b"PaxHeaders/LNK.crc32="
_INTEGER: Final = re.compile(rb"0|[1-9][0-9]{0,18}")
_TIME: Final = re.compile(rb"(-?[0-9]{1,18})(\.[0-9]*)?")
_LENGTH: Final = re.compile(rb"([1-9][0-9]{0,6}) ")


def pax_name(records: bytes) -> bytes:
    """The name of a PAX header whose records are to be guarded.

    Nothing in a tar guards them: an altered path would be another path. To other readers the name
    means nothing; it stands in the header, which has a checksum.
    """
    return _SUM_NAME + b"%08x" % crc32(records)


def check_pax_name(name: bytes, records: bytes) -> bool:
    """Whether a PAX header's name guards its records. Raises ``Malformed`` when it does not fit."""
    if not name.startswith(_SUM_NAME):
        return False
    if name != pax_name(records):
        raise Malformed("the records of a PAX header were altered")
    return True


def parse_pax(data: bytes) -> dict[bytes, bytes]:
    """The records of a PAX header. Raises ``Malformed``."""
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        match = _LENGTH.match(data, at)
        if match is None:
            raise Malformed("a PAX record's length is malformed")
        end = at + int(match.group(1))
        key, equals, value = data[match.end() : end - 1].partition(b"=")
        if end > len(data) or end <= match.end() or data[end - 1] != 10 or not equals:
            raise Malformed("a PAX record's length is wrong")
        if not key:
            raise Malformed("a PAX record has no key")
        if key in records:
            shown = key[:80].decode("utf-8", "backslashreplace")
            raise Malformed(f"the PAX record {shown!r} comes twice")
        records[key] = value
        at = end
    for key in (b"path", b"linkpath"):
        if b"\0" in records.get(key, b""):
            raise Malformed("there is a NUL in a name")
    return records


def pax_size(value: bytes) -> int:
    """A PAX ``size``, in bytes. Raises ``Malformed``."""
    if _INTEGER.fullmatch(value) is None:
        raise Malformed(f"the PAX size is malformed: {value[:40]!r}")
    return int(value)


def pax_time(value: bytes) -> int:
    """A PAX time in whole seconds since 1970, rounded down. Raises ``Malformed``."""
    match = _TIME.fullmatch(value)
    if match is None:
        raise Malformed(f"the PAX mtime is malformed: {value[:40]!r}")
    seconds = int(match.group(1))
    fraction = match.group(2)
    if value.startswith(b"-") and fraction is not None and fraction.strip(b".0"):
        seconds -= 1
    return seconds
