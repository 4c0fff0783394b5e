"""ZIP archives made by hand, field by field, for what no writer makes, and a small good agent."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.contents import Options, Package
from agentmove_tools.package.layout import ON_REQUEST
from agentmove_tools.package.sources import ArchiveSource

STORED: Final = 0
DEFLATED: Final = 8

ENCRYPTED: Final = 0x0001
DESCRIBED: Final = 0x0008  # a data descriptor follows
UTF8: Final = 0x0800

DOS: Final = 0 << 8 | 20
UNIX: Final = 3 << 8 | 20
MACOS: Final = 19 << 8 | 20

FULL_16: Final = 0xFFFF
FULL_32: Final = 0xFFFFFFFF

FILE_MODE: Final = 0o100644 << 16
RUN_MODE: Final = 0o100755 << 16
FOLDER_MODE: Final = 0o040755 << 16 | 0x10

SOUL: Final = b"# A soul\n"
CONFIG: Final = b'{"id": "agent-of-tests"}\n'

Fields = Mapping[str, int | bytes]
# path, whether it is a folder, whether it can be run, content
Read = tuple[str, bool, bool, bytes]


def deflated(content: bytes, level: int = 6) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


def field(number: int, data: bytes) -> bytes:
    """One extra field."""
    return struct.pack("<2H", number, len(data)) + data


def zip64(*values: int, disk: int | None = None) -> bytes:
    """The extra field with sizes and an offset of 64 bits, in the order that they are given."""
    data = struct.pack(f"<{len(values)}Q", *values)
    return field(0x0001, data if disk is None else data + struct.pack("<L", disk))


def unicode_path(path: str, raw: bytes, *, crc: int | None = None, version: int = 1) -> bytes:
    """The extra field with the name in Unicode, for an entry whose name is ``raw``."""
    crc = zlib.crc32(raw) if crc is None else crc
    return field(0x7075, struct.pack("<BL", version, crc) + path.encode())


def descriptor(
    content: bytes,
    packed: bytes | None = None,
    *,
    signed: bool = True,
    wide: bool = False,
    crc: int | None = None,
) -> bytes:
    """A data descriptor; ``wide``: its sizes are of 64 bits."""
    crc = zlib.crc32(content) if crc is None else crc
    sizes = (len(content if packed is None else packed), len(content))
    return (b"PK\x07\x08" if signed else b"") + struct.pack("<L2Q" if wide else "<3L", crc, *sizes)


class Zipped:
    """An entry: its header with the content behind it, and its record in the directory.

    ``packed`` is what stands for the content, where that is not what ``method`` makes of it.
    ``behind`` follows the content, as a descriptor does. Each field of the header and of the record
    can be given another value, by name.
    """

    def __init__(
        self,
        name: bytes,
        content: bytes = b"",
        *,
        method: int = STORED,
        flags: int = UTF8,
        made_by: int = UNIX,
        attributes: int | None = None,
        extra: bytes = b"",
        packed: bytes | None = None,
        behind: bytes = b"",
        header: Fields | None = None,
        record: Fields | None = None,
    ) -> None:
        if packed is None:
            packed = deflated(content) if method == DEFLATED else content
        if attributes is None:
            attributes = FOLDER_MODE if name.endswith(b"/") else FILE_MODE
        common: dict[str, int | bytes] = {
            "needed": 20,
            "flags": flags,
            "method": method,
            "time": 0,
            "date": 33,
            "crc": zlib.crc32(content),
            "compressed": len(packed),
            "size": len(content),
            "name": name,
            "extra": extra,
        }
        self.packed = packed
        self.behind = behind
        self.header: Fields = {"signature": b"PK\3\4", **common, **(header or {})}
        self.record: Fields = {
            "signature": b"PK\1\2",
            "made_by": made_by,
            **common,
            "comment": b"",
            "disk": 0,
            "internal": 0,
            "attributes": attributes,
            **(record or {}),
        }

    def local(self) -> bytes:
        """The header, the content, and what follows it."""
        return laid_out("<4s5H3L2H", _HEADER, self.header) + self.packed + self.behind

    def in_directory(self, offset: int) -> bytes:
        """The record of the entry whose header is at ``offset``."""
        return laid_out("<4s6H3L5H2L", _RECORD, {"offset": offset, **self.record})


_HEADER: Final = (
    *("signature", "needed", "flags", "method", "time", "date", "crc", "compressed", "size"),
    *("#name", "#extra"),
)
_RECORD: Final = (
    *("signature", "made_by", "needed", "flags", "method", "time", "date"),
    *("crc", "compressed", "size", "#name", "#extra", "#comment"),
    *("disk", "internal", "attributes", "offset"),
)
_END: Final = ("signature", "disk", "first_disk", "here", "count", "size", "start", "#comment")
_ZIP64_END: Final = (
    *("signature", "length", "made_by", "needed", "disk", "first_disk"),
    *("here", "count", "size", "start"),
)
_LOCATOR: Final = ("signature", "disk", "at", "disks")


def laid_out(layout: str, names: Iterable[str], values: Fields) -> bytes:
    """A record of these values. ``#name`` stands for a length, and what is so long follows.

    A length that is given under ``#name`` is written as it is given.
    """
    given: list[int | bytes] = []
    following = b""
    for name in names:
        if name.startswith("#"):
            data = values[name[1:]]
            assert isinstance(data, bytes)
            given.append(values.get(name, len(data)))
            following += data
        else:
            given.append(values[name])
    return struct.pack(layout, *given) + following


def archive(
    *parts: Zipped | bytes,
    order: Iterable[int] | None = None,
    tail: bytes = b"",
    end: Fields | None = None,
    zip64_end: Fields | None = None,
    zip64_more: bytes = b"",
    locator: Fields | None = None,
    suffix: bytes = b"",
) -> bytes:
    """An archive of these entries; bytes among them belong to nothing, and all else knows of them.

    ``order``: the records of the directory, by the entries' numbers. ``tail`` follows the
    directory. With ``zip64_end`` or ``locator`` there are two end records, the longer one with
    ``zip64_more`` at its end.
    """
    data = bytearray()
    records: list[bytes] = []
    for part in parts:
        if isinstance(part, Zipped):
            records.append(part.in_directory(len(data)))
            data += part.local()
        else:
            data += part
    if order is not None:
        records = [records[number] for number in order]
    start = len(data)
    data += b"".join(records)
    size = len(data) - start
    data += tail
    common: dict[str, int | bytes] = {
        "disk": 0,
        "first_disk": 0,
        "here": len(records),
        "count": len(records),
        "size": size,
        "start": start,
    }
    if zip64_end is not None or locator is not None:
        at = len(data)
        length = 44 + len(zip64_more)
        head: Fields = {"signature": b"PK\6\6", "length": length, "made_by": UNIX, "needed": 45}
        values = {**head, **common, **(zip64_end or {})}
        data += laid_out("<4sQ2H2L4Q", _ZIP64_END, values) + zip64_more
        where: Fields = {"signature": b"PK\6\7", "disk": 0, "at": at, "disks": 1}
        data += laid_out("<4sLQL", _LOCATOR, {**where, **(locator or {})})
    last: Fields = {"signature": b"PK\5\6", **common, "comment": b"", **(end or {})}
    return bytes(data) + laid_out("<4s4H2LH", _END, last) + suffix


# -- agents


def agent(*more: Zipped | bytes) -> tuple[Zipped | bytes, ...]:
    """The entries of the smallest good agent, and more."""
    return (Zipped(b"SOUL.md", SOUL), Zipped(b"agent.config.json", CONFIG), *more)


def zipped(files: Mapping[str, bytes], *, method: int = DEFLATED) -> bytes:
    """An archive of these files and, where a path ends in a slash, folders."""
    return archive(
        *(
            Zipped(path.encode(), content, method=STORED if path.endswith("/") else method)
            for path, content in files.items()
        )
    )


MINIMAL: Final[Mapping[str, bytes]] = {"SOUL.md": SOUL, "agent.config.json": CONFIG}


def read(data: bytes) -> list[Read]:
    """All that is in an archive, in the directory's order."""
    opened = Archive(data)
    return [
        (entry.path, entry.is_folder, entry.executable, b"".join(opened.pieces(entry)))
        for entry in opened.entries
    ]


def package_of(
    data: bytes,
    *,
    drop_torn_line: bool = False,
    strict: bool = False,
    external_id: str | None = None,
) -> Package:
    """The package in an archive, with all that goes only where it is asked for."""
    options = Options(drop_torn_line, strict, external_id, frozenset(ON_REQUEST))
    return Package(ArchiveSource(Archive(data)), options)
