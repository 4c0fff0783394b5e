"""A ZIP archive, read strictly (Agent package, section 2).

A ZIP says everything twice, and readers differ in which of the two they believe. Here the two must
agree, and every byte of the archive must belong to something: the entries lie one behind the other
from the first byte on, the directory follows, and the end record with its comment is the last.
"""

from __future__ import annotations

import errno
import stat
import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.accidents import hint_for, hint_of_damage
from agentmove_tools.package.limits import MAX_ENTRIES, MAX_UNPACKED, MAX_UPLOAD
from agentmove_tools.package.names import Paths, check_path, composed
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentmove_tools.streams import ByteSource

LOCAL: Final = b"PK\3\4"
DIRECTORY: Final = b"PK\1\2"
END: Final = b"PK\5\6"
_ZIP64_END: Final = b"PK\6\6"
_ZIP64_LOCATOR: Final = b"PK\6\7"
_DESCRIPTOR: Final = b"PK\7\x08"

_END_RECORD: Final = struct.Struct("<4s4H2LH")
_LOCATOR_RECORD: Final = struct.Struct("<4sLQL")
_ZIP64_RECORD: Final = struct.Struct("<4sQ2H2L4Q")
_DIRECTORY_RECORD: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL_RECORD: Final = struct.Struct("<4s5H3L2H")

_ENCRYPTED: Final = 0x2041  # encrypted, strongly encrypted, masked headers
_HAS_DESCRIPTOR: Final = 0x0008
_PATCHED: Final = 0x0020
_IS_UTF8: Final = 0x0800
_IN_BOTH: Final = _ENCRYPTED | _HAS_DESCRIPTOR | _PATCHED | _IS_UTF8  # flags that change the sense

_STORED: Final = 0
_DEFLATED: Final = 8
_METHODS: Final = {
    1: "Shrink",
    6: "Implode",
    9: "Deflate64",
    12: "bzip2",
    14: "LZMA",
    93: "Zstandard",
    95: "XZ",
    98: "PPMd",
    99: "AES",
}

_ZIP64: Final = 0x0001  # extra fields
_UNICODE_PATH: Final = 0x7075

_FULL_16: Final = 0xFFFF
_FULL_32: Final = 0xFFFFFFFF
LONGEST_END: Final = 22 + 0xFFFF  # bytes of an end record with its comment
_UNIX: Final = (3, 19)  # what made the entry: UNIX, and macOS
_DOS_FOLDER: Final = 0x10
_KIND: Final = 28  # where in the attributes the type of a UNIX mode begins
_FILE: Final = stat.S_IFREG >> 12
_FOLDER: Final = stat.S_IFDIR >> 12
_LINK: Final = stat.S_IFLNK >> 12

_PIECE: Final = 1 << 20  # bytes that are unpacked at once
_COMPRESSED_PIECE: Final = 1 << 16
_HEAD: Final = 4096


def read_upload(source: ByteSource) -> bytes:
    """All of ``source``, which must not be longer than an archive may be.

    Raises ``Refusal`` (package-upload-size), and what ``source`` raises.
    """
    data = bytearray()
    buffer = bytearray(1 << 18)
    view = memoryview(buffer)
    while (count := source.readinto(view)) != 0:
        if count is None:  # to take it for the end would lose what comes later
            raise BlockingIOError(errno.EAGAIN, "the input has no bytes yet and does not wait")
        data += view[:count]
        if len(data) > MAX_UPLOAD:
            head = bytes(data[:_HEAD])
            del data
            if not head.startswith(LOCAL):
                raise Refusal("package-not-zip", hint=hint_for(head, "package"))
            raise _too_long()
    view.release()
    return bytes(data)


class Entry(NamedTuple):
    """One entry of an archive.

    ``path``: with ``/`` between its parts, in Unicode's composed form. ``size``: bytes unpacked.
    ``executable``: a UNIX mode says so. The rest says where its bytes are.
    """

    path: str
    is_folder: bool
    size: int
    executable: bool
    method: int
    crc: int
    start: int
    end: int


class _Record(NamedTuple):
    """What the directory says of an entry."""

    raw_name: bytes
    name: str
    has_unicode_path: bool
    flags: int
    method: int
    crc: int
    compressed: int
    size: int
    made_by: int
    attributes: int
    offset: int


class Archive:
    """An archive whose directory and headers have been checked; contents are as they are read.

    ``entries`` are in the directory's order. Making one raises ``Refusal``: package-not-zip,
    -damaged, -method, -encrypted, -upload-size, -entries, -unpacked-size, -path, -duplicate and
    -type.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) > MAX_UPLOAD:
            raise _too_long()
        self.data = data
        try:
            start, end, count = _find_directory(data)
            records = _read_directory(data, start, end, count)
            self.entries = self._check_entries(records, start)
        except Refusal as refusal:
            if refusal.code == "package-damaged":
                refusal.hint = _hint(data)
            raise

    # -- contents

    def pieces(self, entry: Entry) -> Iterable[bytes]:
        """The content, checked as it comes; a small one in one piece.

        It never comes to more than the entry's size, and so all of them not to more than was
        declared, which is within the limit. Raises ``Refusal`` (package-damaged).
        """
        if entry.size <= _PIECE:
            return (self._whole(entry),)
        return self._in_pieces(entry)

    def _whole(self, entry: Entry) -> bytes:
        data = self.data[entry.start : entry.end]
        if entry.method == _DEFLATED:
            unpacker = zlib.decompressobj(-15)
            try:
                # one byte more than declared, so that one that holds more is found out
                data = unpacker.decompress(data, entry.size + 1)
            except zlib.error:
                raise _damaged(entry.path, "its content cannot be unpacked") from None
            if len(data) != entry.size or not unpacker.eof or unpacker.unused_data:
                _check_end(entry, len(data), unpacker)
        if zlib.crc32(data) != entry.crc:
            raise _damaged(entry.path, "its checksum differs")
        return data

    def _in_pieces(self, entry: Entry) -> Iterator[bytes]:
        crc = 0
        for piece in self._inflated(entry) if entry.method == _DEFLATED else self._sliced(entry):
            crc = zlib.crc32(piece, crc)
            yield piece
        if crc != entry.crc:
            raise _damaged(entry.path, "its checksum differs")

    def _sliced(self, entry: Entry) -> Iterator[bytes]:
        for at in range(entry.start, entry.end, _PIECE):
            yield self.data[at : min(at + _PIECE, entry.end)]

    def _inflated(self, entry: Entry) -> Iterator[bytes]:
        unpacker = zlib.decompressobj(-15)
        size = 0
        at = entry.start
        try:
            while not unpacker.eof:
                fed = unpacker.unconsumed_tail
                if not fed:
                    fed = self.data[at : min(at + _COMPRESSED_PIECE, entry.end)]
                    at += len(fed)
                piece = unpacker.decompress(fed, min(_PIECE, entry.size - size + 1))
                size += len(piece)
                # with nothing fed, it may still hold what did not fit into the last piece
                if size > entry.size or not (fed or piece):
                    break
                if piece:
                    yield piece
        except zlib.error:
            raise _damaged(entry.path, "its content cannot be unpacked") from None
        _check_end(entry, size, unpacker, left=entry.end - at)

    # -- headers

    def _check_entries(self, records: list[_Record], directory: int) -> list[Entry]:
        paths = Paths()
        backslashes = not any("/" in record.name for record in records)
        total = 0
        root_seen = False
        entries: list[Entry] = []
        for record in records:
            total += record.size
            if total > MAX_UNPACKED:
                raise Refusal("package-unpacked-size", "so much is declared", path=_shown(record))
        for record, start, end in self._spans(records, directory):
            path, is_folder = _checked_path(record, backslashes=backslashes)
            if is_folder and record.size:
                raise _refusal("package-type", path, "a folder with content")
            if path:
                paths.add(path, is_folder=is_folder)
            elif root_seen:
                raise _refusal("package-duplicate", "./", "the folder itself")
            else:
                root_seen = True
            mode = record.attributes >> 16
            executable = not is_folder and mode & 0o111 != 0
            if executable and record.made_by not in _UNIX and not stat.S_ISREG(mode):
                executable = False
            entry = Entry(
                path, is_folder, record.size, executable, record.method, record.crc, start, end
            )
            if is_folder:
                self._whole(entry)
            entries.append(entry)
        return entries

    def _spans(self, records: list[_Record], directory: int) -> Iterator[tuple[_Record, int, int]]:
        """Each record with where its content starts and ends, in the directory's order."""
        spans: dict[int, tuple[int, int]] = {}
        ordered = sorted(records, key=lambda record: record.offset)
        ends = [*(record.offset for record in ordered), directory][1:]
        if not ordered and directory:
            raise _damaged_whole("bytes come before the directory")
        if ordered and ordered[0].offset:
            raise _damaged_whole(f"{ordered[0].offset} bytes come before the first entry", 0)
        for record, following in zip(ordered, ends, strict=True):
            start = self._check_local(record, following)
            spans[record.offset] = (start, start + record.compressed)
        for record in records:
            yield record, *spans[record.offset]

    def _check_local(self, record: _Record, following: int) -> int:
        """Hold the local header against the directory; give where the content starts."""
        data = self.data
        at = record.offset
        if at + _LOCAL_RECORD.size > following:
            raise _damaged(record.name, "it overlaps what follows it, or is cut")
        if data[at : at + 4] != LOCAL:
            raise _damaged(record.name, "there is no header where the directory says")
        header: tuple[int, ...] = _LOCAL_RECORD.unpack_from(data, at)
        _, _, flags, method, _, _, crc, compressed, size, name_length, extra_length = header
        name_at = at + _LOCAL_RECORD.size
        start = name_at + name_length + extra_length
        end = start + record.compressed
        if end > following:
            raise _damaged(record.name, "it overlaps what follows it, or is cut")
        raw_name = data[name_at : name_at + name_length]
        fields: dict[int, bytes] = {}
        if extra_length:
            fields = _extra_fields(data[name_at + name_length : start], record.name)
            if _FULL_32 in (size, compressed):
                size, compressed = _zip64_sizes(fields, record.name, size, compressed)
        differs = raw_name != record.raw_name
        if record.has_unicode_path or _UNICODE_PATH in fields:
            differs = differs or _name_of(raw_name, flags, fields) != record.name
        if differs:
            raise _damaged(record.name, "its name differs between the directory and its header")
        if method != record.method or (flags ^ record.flags) & _IN_BOTH:
            raise _damaged(record.name, "its header and the directory differ")
        if flags & _HAS_DESCRIPTOR:
            # before the content its sizes may not be known yet; what is said must be right
            said = crc in (0, record.crc) and compressed in (0, record.compressed)
            if not said or size not in (0, record.size):
                raise _damaged(record.name, "its header and the directory differ")
            self._check_descriptor(record, end, following)
        elif (crc, compressed, size) != (record.crc, record.compressed, record.size):
            raise _damaged(record.name, "its header and the directory differ")
        elif end != following:
            raise _damaged_whole(f"{following - end} bytes that belong to nothing", end)
        return start

    def _check_descriptor(self, record: _Record, at: int, following: int) -> None:
        found = self.data[at:following]
        for layout in ("<3L", "<L2Q"):
            wanted = struct.pack(layout, record.crc, record.compressed, record.size)
            if found in (wanted, _DESCRIPTOR + wanted):
                return
        raise _damaged(record.name, "what follows its content is no right data descriptor")


def _find_directory(data: bytes) -> tuple[int, int, int]:
    """Where the directory starts and ends, and the count of its records."""
    at = _find_end(data)
    _, disk, first_disk, here, count, size, start, _ = _END_RECORD.unpack_from(data, at)
    end = at
    locator = at - _LOCATOR_RECORD.size
    if locator >= 0 and data[locator : locator + 4] == _ZIP64_LOCATOR:
        end, disks, counts, sizes, starts = _read_zip64_end(data, locator)
        for short, long, full in (
            (disk, disks[0], _FULL_16),
            (first_disk, disks[1], _FULL_16),
            (here, counts[0], _FULL_16),
            (count, counts[1], _FULL_16),
            (size, sizes, _FULL_32),
            (start, starts, _FULL_32),
        ):
            if short not in (full, long):
                raise _damaged_whole("its two end records differ")
        disk, first_disk = disks
        here, count = counts
        size, start = sizes, starts
    if disk != 0 or first_disk != 0 or here != count:
        raise _damaged_whole("it is one part of an archive in several")
    if start + size != end:
        if start + size < end:
            why = "bytes come before the first entry, or after the directory"
            raise _damaged_whole(f"{end - start - size} {why}")
        raise _damaged_whole("the directory is not where the end record says: it is cut")
    if count > MAX_ENTRIES:
        raise Refusal("package-entries", f"there are {count} entries")
    return start, end, count


def ends_in(data: bytes) -> list[int]:
    """Where a reader may see an end record: it and its comment would be the last bytes.

    ``data``: the archive, or its last ``LONGEST_END`` bytes at least.
    """
    found: list[int] = []
    at = len(data)
    while (at := data.rfind(END, max(0, len(data) - LONGEST_END), at)) >= 0:
        comment = at + _END_RECORD.size
        length = int.from_bytes(data[comment - 2 : comment], "little")
        if comment + length == len(data):
            found.append(at)
    return found


def _find_end(data: bytes) -> int:
    found = ends_in(data)
    if len(found) == 1:
        return found[0]
    if found:
        raise _damaged_whole("it has two ends, and readers differ in which they take")
    if data.startswith((LOCAL, END)) or END in data[-LONGEST_END:]:
        why = "there is no end record at its end: it was cut, or something follows it"
        raise _damaged_whole(why)
    raise Refusal("package-not-zip", hint=hint_for(data[:_HEAD], "package"))


def _read_zip64_end(
    data: bytes, locator: int
) -> tuple[int, tuple[int, int], tuple[int, int], int, int]:
    _, disk, at, disks = _LOCATOR_RECORD.unpack_from(data, locator)
    if disk != 0 or disks not in (0, 1) or at + _ZIP64_RECORD.size > locator:
        raise _damaged_whole("its Zip64 end record is not where it says")
    signature, length, _, _, own_disk, first_disk, here, count, size, start = (
        _ZIP64_RECORD.unpack_from(data, at)
    )
    if signature != _ZIP64_END or at + 12 + length != locator:
        raise _damaged_whole("its Zip64 end record is not where it says")
    return at, (own_disk, first_disk), (here, count), size, start


def _read_directory(data: bytes, at: int, end: int, count: int) -> list[_Record]:
    records: list[_Record] = []
    while at < end:
        if len(records) >= count:
            if len(records) >= MAX_ENTRIES:
                raise Refusal("package-entries")
            raise _damaged_whole("the directory holds more entries than the end record says")
        record, at = _read_record(data, at, end)
        records.append(record)
    if len(records) != count:
        raise _damaged_whole("the directory holds fewer entries than the end record says")
    return records


def _read_record(data: bytes, at: int, end: int) -> tuple[_Record, int]:
    name_at = at + _DIRECTORY_RECORD.size
    if name_at > end or data[at : at + 4] != DIRECTORY:
        raise _damaged_whole("the directory cannot be read", at)
    (
        _,
        made_by,
        _,
        flags,
        method,
        _,
        _,
        crc,
        compressed,
        size,
        name_length,
        extra_length,
        comment_length,
        disk,
        _,
        attributes,
        offset,
    ) = _DIRECTORY_RECORD.unpack_from(data, at)
    extra_at = name_at + name_length
    following = extra_at + extra_length + comment_length
    if following > end:
        raise _damaged_whole("the directory is cut", at)
    raw_name = data[name_at:extra_at]
    fields: dict[int, bytes] = {}
    if extra_length:
        fields = _extra_fields(
            data[extra_at : extra_at + extra_length], raw_name.decode("utf-8", "replace")
        )
    name = _name_of(raw_name, flags, fields)
    if method not in (_STORED, _DEFLATED) or flags & _PATCHED:
        called = f"{_METHODS.get(method, 'a method')} ({method})"
        if flags & _PATCHED:
            called = "a patch of another file"
        why = f"{called}: pack it again with zip, which deflates"
        raise _refusal("package-method", name, why)
    if flags & _ENCRYPTED:
        raise _refusal("package-encrypted", name, "pack it without a password")
    if disk == _FULL_16 or _FULL_32 in (size, compressed, offset):
        size, compressed, offset, disk = _zip64_record(fields, name, size, compressed, offset, disk)
    if disk != 0:
        raise _damaged(name, "it lies in another part of the archive")
    if method == _STORED and compressed != size:
        raise _damaged(name, "it is stored, and its two sizes differ")
    record = _Record(
        raw_name,
        name,
        _UNICODE_PATH in fields,
        flags,
        method,
        crc,
        compressed,
        size,
        made_by >> 8,
        attributes,
        offset,
    )
    return record, following


def _extra_fields(extra: bytes, name: str) -> dict[int, bytes]:
    """The extra fields by number. Some writers pad the end with up to three zeros."""
    fields: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(extra):
        number = int.from_bytes(extra[at : at + 2], "little")
        length = int.from_bytes(extra[at + 2 : at + 4], "little")
        at += 4
        if at + length > len(extra):
            raise _damaged(name, "its extra fields are cut")
        if number in (_ZIP64, _UNICODE_PATH) and number in fields:
            raise _damaged(name, "it has one extra field twice")
        fields[number] = extra[at : at + length]
        at += length
    if extra[at:].strip(b"\0"):
        raise _damaged(name, "its extra fields are cut")
    return fields


def _zip64_record(
    fields: dict[int, bytes], name: str, size: int, compressed: int, offset: int, disk: int
) -> tuple[int, int, int, int]:
    field = fields.get(_ZIP64, b"")
    at = 0
    values: list[int] = []
    for value, full, length in (
        (size, _FULL_32, 8),
        (compressed, _FULL_32, 8),
        (offset, _FULL_32, 8),
        (disk, _FULL_16, 4),
    ):
        if value != full:
            values.append(value)
            continue
        if at + length > len(field):
            raise _damaged(name, "its Zip64 sizes are cut")
        values.append(int.from_bytes(field[at : at + length], "little"))
        at += length
    return values[0], values[1], values[2], values[3]


def _zip64_sizes(
    fields: dict[int, bytes], name: str, size: int, compressed: int
) -> tuple[int, int]:
    size, compressed, _, _ = _zip64_record(fields, name, size, compressed, 0, 0)
    return size, compressed


def _name_of(raw: bytes, flags: int, fields: dict[int, bytes]) -> str:
    """The name, decoded and composed. Raises ``Refusal`` (package-path)."""
    if raw.isascii() and _UNICODE_PATH not in fields:
        return raw.decode("ascii")
    if not flags & _IS_UTF8:
        field = fields.get(_UNICODE_PATH, b"")
        if field[:1] == b"\1" and field[1:5] == zlib.crc32(raw).to_bytes(4, "little"):
            raw = field[5:]
    try:
        return composed(raw.decode())
    except UnicodeDecodeError:
        why = "its name is not UTF-8: pack it again with a tool that writes UTF-8 names"
        raise Refusal("package-path", why, path=raw) from None


def _checked_path(record: _Record, *, backslashes: bool) -> tuple[str, bool]:
    """The plain path, and whether it is a folder's; "" is the folder that was packed itself."""
    name = record.name
    if backslashes and "\\" in name:
        name = name.replace("\\", "/")
    is_folder = name.endswith("/")
    path = name[:-1] if is_folder else name
    if name == "./":
        path = ""
    while path.startswith("./"):
        path = path[2:]
    if path or not is_folder:
        check_path(path)
    elif name == "/":
        check_path(name)
    kind = record.attributes >> _KIND
    if kind == _FILE and not is_folder:
        return path, False
    if kind not in (0, _FILE, _FOLDER):
        what = "a symbolic link" if kind == _LINK else "a device or the like"
        raise _refusal("package-type", path, what)
    if not is_folder and (kind == _FOLDER or record.attributes & _DOS_FOLDER):
        raise _refusal("package-type", path, "a folder whose name does not end as one's")
    if is_folder and kind == _FILE:
        raise _refusal("package-type", path, "a file whose name ends as a folder's")
    return path, is_folder


def _check_end(entry: Entry, size: int, unpacker: zlib._Decompress, *, left: int = 0) -> None:
    """See that the content ended where both its sizes say."""
    if size > entry.size:
        raise _damaged(entry.path, f"it unpacks to more than the {entry.size} bytes it declares")
    if not unpacker.eof:
        raise _damaged(entry.path, "its content is cut")
    if size < entry.size:
        raise _damaged(entry.path, f"it unpacks to {size} bytes and declares {entry.size}")
    if unpacker.unused_data or left:
        raise _damaged(entry.path, "something follows its content")


def _hint(data: bytes) -> str | None:
    """Tell of an accident that may have damaged the archive."""
    at = data.rfind(END)
    if at >= 0 and len(data) - at >= _END_RECORD.size:
        *_, size, start, comment = _END_RECORD.unpack_from(data, at)
        behind = data[at + _END_RECORD.size + comment :]
        if behind and not behind.strip(b"\0"):
            return (
                "zeros follow it, as when bsdtar writes into a pipe: let it write a file, -f FILE"
            )
        if at - size - start < 0:
            return None  # it was cut at its front, and nothing was put there
    if data.startswith(LOCAL):
        return hint_of_damage(data)
    return hint_for(data[:_HEAD], "package")


def _too_long() -> Refusal:
    return Refusal("package-upload-size", "leave out what the agent does not need")


def _shown(record: _Record) -> bytes:
    return record.name.encode("utf-8", "surrogateescape")


def _refusal(code: str, name: str, why: str) -> Refusal:
    return Refusal(code, why, path=name.encode("utf-8", "surrogateescape"))


def _damaged(name: str, why: str) -> Refusal:
    return _refusal("package-damaged", name, why)


def _damaged_whole(why: str, at: int | None = None) -> Refusal:
    return Refusal("package-damaged", why, place=None if at is None else f"byte {at}")
