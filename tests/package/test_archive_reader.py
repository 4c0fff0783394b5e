from __future__ import annotations

import io
import struct
import tracemalloc
import unicodedata
import zlib
from typing import Final

import pytest

from agentmove_tools.package.archive_reader import Archive, read_upload
from agentmove_tools.package.limits import MAX_ENTRIES, MAX_PATH, MAX_UNPACKED, MAX_UPLOAD
from agentmove_tools.refusals import Refusal
from tests.package.zips import (
    DEFLATED,
    DESCRIBED,
    DOS,
    ENCRYPTED,
    FILE_MODE,
    FOLDER_MODE,
    FULL_16,
    FULL_32,
    MACOS,
    RUN_MODE,
    STORED,
    UTF8,
    Fields,
    Read,
    Zipped,
    agent,
    archive,
    deflated,
    descriptor,
    field,
    package_of,
    read,
    unicode_path,
    zip64,
)
from tests.stream.tars import Chunked

TEXT: Final = b"a text, a text, a text"
PACKED: Final = deflated(TEXT)
SUM: Final = zlib.crc32(TEXT)
LENGTH: Final = len(TEXT)
COMPOSED: Final = "memory/й é.md"
DECOMPOSED: Final = unicodedata.normalize("NFD", COMPOSED)
IN_437: Final = "café.md".encode("cp437")
LARGE: Final = bytes(range(256)) * (5 << 12)  # 5 MiB: it is read in pieces

# a block of a kind that there is not comes behind the first half
_PACKER: Final = zlib.compressobj(6, zlib.DEFLATED, -15)
BROKEN: Final = (
    _PACKER.compress(LARGE[: len(LARGE) // 2]) + _PACKER.flush(zlib.Z_FULL_FLUSH) + b"\xff" * 20
)

FIRST: Final = Zipped(b"first.md", b"first")
LAST: Final = Zipped(b"last.md", b"last", method=DEFLATED)


def entry(name: bytes = b"a.md", **how: object) -> Zipped:
    return Zipped(name, **{"content": TEXT, **how})  # type: ignore[arg-type] # each is of its kind


def one(name: bytes = b"a.md", **how: object) -> bytes:
    """An archive of one entry that is read right but for ``how``."""
    return archive(entry(name, **how))


def between(*parts: Zipped | bytes) -> bytes:
    """An archive of these among two good entries."""
    return archive(FIRST, *parts, LAST)


def a_file(path: str = "a.md", content: bytes = TEXT, *, executable: bool = False) -> Read:
    return (path, False, executable, content)


def a_folder(path: str) -> Read:
    return (path, True, False, b"")


def with_descriptor(
    *, method: int = DEFLATED, header: Fields | None = None, wide: bool = False, signed: bool = True
) -> bytes:
    """An archive from a pipe: what the header does not know yet comes behind the content."""
    packed = PACKED if method == DEFLATED else TEXT
    unknown: Fields = {"crc": 0, "compressed": 0, "size": 0}
    return between(
        entry(
            method=method,
            flags=UTF8 | DESCRIBED,
            header={**unknown, **(header or {})},
            behind=descriptor(TEXT, packed, wide=wide, signed=signed),
        )
    )


def described(behind: bytes, **header: int) -> bytes:
    return between(
        entry(
            method=DEFLATED,
            flags=UTF8 | DESCRIBED,
            header={"crc": 0, "compressed": 0, "size": 0, **header},
            behind=behind,
        )
    )


def in_zip64(header_extra: bytes, record_extra: bytes, **record: int) -> bytes:
    """An entry whose header has both sizes in 64 bits, and whose record has what is given."""
    full = {"compressed": FULL_32, "size": FULL_32}
    return between(
        entry(
            header={**full, "extra": header_extra},
            record={**(record or full), "extra": record_extra},
        )
    )


BOTH_SIZES: Final = zip64(LENGTH, LENGTH)
OFFSET: Final = len(FIRST.local())
AMONG: Final = [a_file("first.md", b"first"), a_file(), a_file("last.md", b"last")]

# -- what is taken

TAKEN: Final[dict[str, tuple[bytes, list[Read]]]] = {
    "nothing": (archive(), []),
    "stored": (one(), [a_file()]),
    "deflated": (one(method=DEFLATED), [a_file()]),
    "an empty file": (one(content=b""), [a_file(content=b"")]),
    "an empty file, deflated": (one(content=b"", method=DEFLATED), [a_file(content=b"")]),
    "a large one": (one(content=LARGE), [a_file(content=LARGE)]),
    "a large one, deflated": (one(content=LARGE, method=DEFLATED), [a_file(content=LARGE)]),
    "deflated, and no smaller": (one(method=DEFLATED, packed=deflated(TEXT, 0)), [a_file()]),
    "a large one after 100 KB of empty blocks": (
        one(content=LARGE, method=DEFLATED, packed=b"\0\0\0\xff\xff" * 20_000 + deflated(LARGE)),
        [a_file(content=LARGE)],
    ),
    "several": (between(entry()), AMONG),
    "a directory in another order": (
        archive(FIRST, entry(), LAST, order=(2, 0, 1)),
        [AMONG[2], AMONG[0], AMONG[1]],
    ),
    # folders and modes
    "a folder": (one(b"memory/", content=b""), [a_folder("memory")]),
    "a deflated folder": (
        one(b"memory/", content=b"", method=DEFLATED, attributes=FOLDER_MODE),
        [a_folder("memory")],
    ),
    "a folder that only its slash tells": (
        one(b"memory/", content=b"", attributes=0),
        [a_folder("memory")],
    ),
    "the folder that was packed": (
        archive(Zipped(b"./"), entry(b"./a.md"), entry(b"./b/c.md")),
        [a_folder(""), a_file(), a_file("b/c.md")],
    ),
    "a folder after what lies in it": (
        archive(entry(b"b/c/a.md"), Zipped(b"b/"), Zipped(b"b/c/")),
        [a_file("b/c/a.md"), a_folder("b"), a_folder("b/c")],
    ),
    "one that can be run": (one(attributes=RUN_MODE), [a_file(executable=True)]),
    "one that its owner can run": (
        one(attributes=0o100700 << 16),
        [a_file(executable=True)],
    ),
    "one that macOS can run": (
        one(attributes=RUN_MODE, made_by=MACOS),
        [a_file(executable=True)],
    ),
    "a UNIX mode without a type": (one(attributes=0o755 << 16), [a_file(executable=True)]),
    "bits of another system": (one(attributes=0o755 << 16, made_by=DOS), [a_file()]),
    "a UNIX mode in an archive of another system": (
        one(attributes=RUN_MODE, made_by=DOS),
        [a_file(executable=True)],
    ),
    "more bits in the mode": (one(attributes=0o107644 << 16), [a_file()]),
    "attributes of DOS": (one(made_by=DOS, attributes=0x27), [a_file()]),
    # what does not matter
    "a time, versions, and internal attributes": (
        one(
            header={"time": 0xBF7D, "date": 0xFF9F, "needed": 10},
            record={"time": 1, "date": 2, "needed": 63, "internal": 1},
        ),
        [a_file()],
    ),
    "flags of the deflater": (one(method=DEFLATED, flags=UTF8 | 0x0006), [a_file()]),
    "a flag of the deflater in one place": (
        one(method=DEFLATED, header={"flags": UTF8 | 0x0002}),
        [a_file()],
    ),
    "a comment": (archive(entry(), end={"comment": b"a comment"}), [a_file()]),
    "the longest comment": (archive(entry(), end={"comment": b"c" * 0xFFFF}), [a_file()]),
    "a comment with an end's signature": (
        archive(entry(), end={"comment": b"PK\5\6" + bytes(20)}),
        [a_file()],
    ),
    "a content with an end's signature": (
        one(content=b"PK\5\6" + bytes(40)),
        [a_file(content=b"PK\5\6" + bytes(40))],
    ),
    "an archive in an archive": (one(content=one()), [a_file(content=one())]),
    "an entry's comment": (one(record={"comment": b"\xff\0 comment"}), [a_file()]),
    # extra fields
    "extra fields": (
        one(
            header={"extra": field(0x5455, b"\3" + bytes(8)) + field(0x7875, bytes(11))},
            record={"extra": field(0x5455, b"\3" + bytes(4))},
        ),
        [a_file()],
    ),
    "an extra field twice": (one(extra=field(0x5455, b"\0") * 2), [a_file()]),
    "extra fields with padding": (
        one(header={"extra": field(0x5455, b"\0") + bytes(3)}, record={"extra": bytes(1)}),
        [a_file()],
    ),
    "only padding": (one(header={"extra": bytes(2)}), [a_file()]),
    "padding of an alignment": (one(header={"extra": bytes(4001)}), [a_file()]),
    "a Zip64 field that is not needed": (one(extra=zip64(1, 2, 3)), [a_file()]),
    # names
    "a name with the UTF-8 flag": (one(COMPOSED.encode()), [a_file(COMPOSED)]),
    "a name of UTF-8 without the flag": (one(COMPOSED.encode(), flags=0), [a_file(COMPOSED)]),
    "a decomposed name": (one(DECOMPOSED.encode(), flags=0), [a_file(COMPOSED)]),
    "a Unicode path": (
        one(IN_437, flags=0, extra=unicode_path("café.md", IN_437)),
        [a_file("café.md")],
    ),
    "a decomposed Unicode path": (
        one(IN_437, flags=0, extra=unicode_path("cafe\u0301.md", IN_437)),
        [a_file("café.md")],
    ),
    "a Unicode path with the flag": (
        one("б.md".encode(), extra=unicode_path("c.md", "б.md".encode())),
        [a_file("б.md")],
    ),
    "a Unicode path of another name": (
        one("б.md".encode(), flags=0, extra=unicode_path("c.md", b"c.md")),
        [a_file("б.md")],
    ),
    "a Unicode path of another version": (
        one(b"b.md", flags=0, extra=unicode_path("c.md", b"b.md", version=2)),
        [a_file("b.md")],
    ),
    "a Unicode path that is cut": (
        one(b"b.md", flags=0, extra=field(0x7075, b"\1")),
        [a_file("b.md")],
    ),
    "backslashes, and no slash": (
        archive(entry(b"memory\\a.md"), entry(b"b.md"), Zipped(b"skills\\x\\", attributes=0)),
        [a_file("memory/a.md"), a_file("b.md"), a_folder("skills/x")],
    ),
    "backslashes after the folder itself": (
        archive(Zipped(b".\\", attributes=0x10, made_by=DOS), entry(b".\\b\\a.md")),
        [a_folder(""), a_file("b/a.md")],
    ),
    "names that look odd": (
        archive(
            entry(b"..."), entry(b"..a"), entry(b"ab:c"), entry(b" "), entry(b"~"), entry(b"-r")
        ),
        [a_file(name) for name in ("...", "..a", "ab:c", " ", "~", "-r")],
    ),
    "the longest path": (
        one(b"p/" * 2047 + b"pp"),
        [a_file("p/" * 2047 + "pp")],
    ),
    # descriptors
    "a descriptor": (with_descriptor(), AMONG),
    "a descriptor without its signature": (with_descriptor(signed=False), AMONG),
    "a descriptor of 64 bits": (with_descriptor(wide=True), AMONG),
    "one of 64 bits without its signature": (with_descriptor(wide=True, signed=False), AMONG),
    "a descriptor of a stored entry": (with_descriptor(method=STORED), AMONG),
    "a descriptor, and the header knows it all": (
        with_descriptor(header={"crc": SUM, "compressed": len(PACKED), "size": LENGTH}),
        AMONG,
    ),
    "a descriptor, and the header knows one size": (
        with_descriptor(header={"size": LENGTH}),
        AMONG,
    ),
    "a descriptor, and sizes of 64 bits": (
        with_descriptor(
            header={"compressed": FULL_32, "size": FULL_32, "extra": zip64(0, 0)}, wide=True
        ),
        AMONG,
    ),
    "a descriptor of an empty file": (
        between(
            entry(
                content=b"",
                method=DEFLATED,
                flags=DESCRIBED,
                behind=descriptor(b"", deflated(b"")),
            )
        ),
        [AMONG[0], a_file(content=b""), AMONG[2]],
    ),
    "a descriptor of a folder": (
        between(Zipped(b"f/", flags=DESCRIBED, behind=descriptor(b""))),
        [AMONG[0], a_folder("f"), AMONG[2]],
    ),
    # Zip64
    "both sizes in 64 bits": (in_zip64(BOTH_SIZES, BOTH_SIZES), AMONG),
    "sizes in 64 bits in the header only": (
        in_zip64(BOTH_SIZES, b"", compressed=LENGTH, size=LENGTH),
        AMONG,
    ),
    "a size in 64 bits in the directory only": (
        between(entry(record={"size": FULL_32, "extra": zip64(LENGTH)})),
        AMONG,
    ),
    "the packed size in 64 bits": (
        between(entry(record={"compressed": FULL_32, "extra": zip64(LENGTH)})),
        AMONG,
    ),
    "an offset in 64 bits": (
        between(entry(record={"offset": FULL_32, "extra": zip64(OFFSET)})),
        AMONG,
    ),
    "a disk in 32 bits": (
        between(entry(record={"disk": FULL_16, "extra": zip64(disk=0)})),
        AMONG,
    ),
    "all of it in Zip64": (
        between(
            entry(
                record={
                    "size": FULL_32,
                    "compressed": FULL_32,
                    "offset": FULL_32,
                    "disk": FULL_16,
                    "extra": field(0x5455, b"\0") + zip64(LENGTH, LENGTH, OFFSET, disk=0),
                }
            )
        ),
        AMONG,
    ),
    "a Zip64 end record": (archive(entry(), zip64_end={}), [a_file()]),
    "a Zip64 end record that all is read from": (
        archive(
            entry(),
            zip64_end={},
            end={
                "disk": FULL_16,
                "first_disk": FULL_16,
                "here": FULL_16,
                "count": FULL_16,
                "size": FULL_32,
                "start": FULL_32,
            },
        ),
        [a_file()],
    ),
    "a Zip64 end record that tells more": (
        archive(entry(), zip64_end={}, zip64_more=field(0x5455, b"more")),
        [a_file()],
    ),
    "a Zip64 locator that counts no disks": (
        archive(entry(), zip64_end={}, locator={"disks": 0}),
        [a_file()],
    ),
    "a Zip64 end record and a comment": (
        archive(entry(), zip64_end={}, end={"comment": b"a comment"}),
        [a_file()],
    ),
}


@pytest.mark.parametrize("more", [0, 1, 9, 20, 150, 257, 300, 1031, 3999])
@pytest.mark.parametrize("byte", [b"\0", b" "], ids=["zeros", "blanks"])
def test_a_content_that_packs_very_well_is_read_to_its_end(more: int, byte: bytes) -> None:
    """All of its packed bytes are taken in before all that they unpack to has come out."""
    for mebibytes in (1, 2):
        content = byte * ((mebibytes << 20) + more)
        data = archive(Zipped(b"a", content, method=DEFLATED))
        assert read(data) == [("a", False, False, content)]


@pytest.mark.parametrize("name", TAKEN)
def test_it_is_taken(name: str) -> None:
    """Each of these is read: its paths, in the directory's order, and its contents."""
    data, expected = TAKEN[name]
    assert read(data) == expected


# -- what is refused

DAMAGED: Final = "package-damaged"
DIFFERS: Final = "header and the directory differ"
OVERLAP: Final = "overlaps"
NO_ZIP: Final = "package-not-zip"
PATH: Final = "package-path"
TYPE: Final = "package-type"
TWICE: Final = "package-duplicate"

# archive, code, path, words of the message
REFUSED: Final[dict[str, tuple[bytes, str, str | None, str]]] = {
    # no ZIP
    "no bytes": (b"", NO_ZIP, None, ""),
    "text": (b"# A soul\n", NO_ZIP, None, ""),
    "gzip": (b"\x1f\x8b\x08" + bytes(40), NO_ZIP, None, ""),
    "two letters": (b"PK", NO_ZIP, None, ""),
    "a lone signature": (b"PK\5\6", DAMAGED, None, "no end record"),
    # the end
    "a cut end": (one()[:-1], DAMAGED, None, "no end record"),
    "no end": (one()[:-22], DAMAGED, None, "no end record"),
    "a cut comment": (
        archive(entry(), end={"comment": b"comment"})[:-1],
        DAMAGED,
        None,
        "no end record",
    ),
    "a byte after the end": (archive(entry(), suffix=b"\0"), DAMAGED, None, "something follows it"),
    "another archive after it": (
        archive(entry(), suffix=one(b"b.md")),
        DAMAGED,
        None,
        "",
    ),
    "two ends": (
        archive(entry(), end={"comment": struct.pack("<4s4H2LH", b"PK\5\6", *[0] * 7)}),
        DAMAGED,
        None,
        "two ends",
    ),
    "two ends of nothing": (archive(end={"comment": archive()}), DAMAGED, None, "two ends"),
    "a whole archive as its comment": (
        archive(entry(), end={"comment": archive()}),
        DAMAGED,
        None,
        "two ends",
    ),
    "another disk": (archive(entry(), end={"disk": 1}), DAMAGED, None, "in several"),
    "a directory on another disk": (
        archive(entry(), end={"first_disk": 1}),
        DAMAGED,
        None,
        "in several",
    ),
    "entries on another disk": (archive(entry(), end={"here": 0}), DAMAGED, None, "in several"),
    "a count of one less": (
        archive(entry(), LAST, end={"count": 1, "here": 1}),
        DAMAGED,
        None,
        "more entries",
    ),
    "a count that went round": (
        archive(entry(), end={"count": 0, "here": 0}),
        DAMAGED,
        None,
        "more entries",
    ),
    "a count of one more": (
        archive(entry(), end={"count": 2, "here": 2}),
        DAMAGED,
        None,
        "fewer entries",
    ),
    "a directory that starts late": (
        archive(entry(), end={"start": 2000}),
        DAMAGED,
        None,
        "not where the end record says",
    ),
    "a directory that starts early": (
        archive(entry(), end={"start": 0}),
        DAMAGED,
        None,
        "bytes come before the first entry",
    ),
    "a long directory": (archive(entry(), end={"size": 1 << 31}), DAMAGED, None, "it is cut"),
    "a short directory": (archive(entry(), end={"size": 2}), DAMAGED, None, "after the directory"),
    "bytes behind the directory": (archive(entry(), tail=b"x"), DAMAGED, None, "1 bytes"),
    "bytes in the directory": (
        archive(entry(), tail=b"x", end={"size": len(one()) - 22 - len(entry().local()) + 1}),
        DAMAGED,
        None,
        "more entries",
    ),
    "a directory that is part of an entry": (
        archive(entry(content=entry().in_directory(0)), order=(), end={"here": 1, "count": 1}),
        DAMAGED,
        None,
        "fewer entries",
    ),
    # Zip64 ends
    "a locator of nothing": (
        archive(entry(), zip64_end={}, locator={"at": 0}),
        DAMAGED,
        None,
        "Zip64 end record is not where",
    ),
    "a locator of what is far behind": (
        archive(entry(), zip64_end={}, locator={"at": 1 << 60}),
        DAMAGED,
        None,
        "Zip64 end record is not where",
    ),
    "a locator to another disk": (
        archive(entry(), zip64_end={}, locator={"disk": 1}),
        DAMAGED,
        None,
        "Zip64 end record is not where",
    ),
    "a locator of two disks": (
        archive(entry(), zip64_end={}, locator={"disks": 2}),
        DAMAGED,
        None,
        "Zip64 end record is not where",
    ),
    "a Zip64 end record that is none": (
        archive(entry(), zip64_end={"signature": b"PK\6\5"}),
        DAMAGED,
        None,
        "Zip64 end record is not where",
    ),
    "a Zip64 end record that is longer": (
        archive(entry(), zip64_end={"length": 45}),
        DAMAGED,
        None,
        "Zip64 end record is not where",
    ),
    "a Zip64 end record that is shorter": (
        archive(entry(), zip64_end={"length": 43}),
        DAMAGED,
        None,
        "Zip64 end record is not where",
    ),
    "a Zip64 end record of another disk": (
        archive(entry(), zip64_end={"disk": 1}, end={"disk": FULL_16}),
        DAMAGED,
        None,
        "in several",
    ),
    **{
        f"two end records that differ in {name}": (
            archive(entry(), zip64_end={name: 5}),
            DAMAGED,
            None,
            "two end records differ",
        )
        for name in ("disk", "first_disk", "here", "count", "size", "start")
    },
    "a full end record without the other": (
        archive(entry(), end={"size": FULL_32, "start": FULL_32}),
        DAMAGED,
        None,
        "not where the end record says",
    ),
    "bytes before the Zip64 end record": (
        archive(entry(), tail=b"x", zip64_end={}),
        DAMAGED,
        None,
        "after the directory",
    ),
    # the directory
    "a record that is none": (
        one(record={"signature": b"PK\1\3"}),
        DAMAGED,
        None,
        "directory cannot be read",
    ),
    "a cut record": (one(record={"#name": 100}), DAMAGED, None, "directory is cut"),
    "a comment that is cut": (one(record={"#comment": 1}), DAMAGED, None, "directory is cut"),
    "less than a record": (
        archive(entry(), order=(), tail=bytes(20), end={"size": 20, "count": 1, "here": 1}),
        DAMAGED,
        None,
        "directory cannot be read",
    ),
    "extra fields that are cut": (
        one(record={"extra": struct.pack("<2H", 0x5455, 9) + b"\0"}),
        DAMAGED,
        "a.md",
        "extra fields are cut",
    ),
    "extra fields with another end": (
        one(record={"extra": b"\0\0\1"}),
        DAMAGED,
        "a.md",
        "extra fields are cut",
    ),
    "extra fields of the header that are cut": (
        one(header={"extra": struct.pack("<2H", 0x5455, 9) + b"\0"}),
        DAMAGED,
        "a.md",
        "extra fields are cut",
    ),
    "Zip64 twice": (
        one(record={"extra": zip64(1) + zip64(2)}),
        DAMAGED,
        "a.md",
        "one extra field twice",
    ),
    "a Unicode path twice": (
        one(extra=unicode_path("b.md", b"a.md") * 2),
        DAMAGED,
        "a.md",
        "one extra field twice",
    ),
    "an entry on another disk": (
        one(record={"disk": 1}),
        DAMAGED,
        "a.md",
        "another part of the archive",
    ),
    "an entry on another disk, in Zip64": (
        one(record={"disk": FULL_16, "extra": zip64(disk=1)}),
        DAMAGED,
        "a.md",
        "another part of the archive",
    ),
    # sizes in 64 bits
    **{
        f"no Zip64 field for {name}": (
            one(record={name: full}),
            DAMAGED,
            "a.md",
            "Zip64 sizes are cut",
        )
        for name, full in (
            ("size", FULL_32),
            ("compressed", FULL_32),
            ("offset", FULL_32),
            ("disk", FULL_16),
        )
    },
    "a Zip64 field that is cut": (
        one(record={"size": FULL_32, "compressed": FULL_32, "extra": zip64(LENGTH)}),
        DAMAGED,
        "a.md",
        "Zip64 sizes are cut",
    ),
    "a Zip64 field of the header that is cut": (
        one(header={"size": FULL_32, "compressed": FULL_32, "extra": zip64(LENGTH)}),
        DAMAGED,
        "a.md",
        "Zip64 sizes are cut",
    ),
    "no Zip64 field in the header": (one(header={"size": FULL_32}), DAMAGED, "a.md", DIFFERS),
    "another size in Zip64": (
        in_zip64(zip64(LENGTH + 1, LENGTH), BOTH_SIZES),
        DAMAGED,
        "a.md",
        DIFFERS,
    ),
    "an offset in Zip64 that is far": (
        one(record={"offset": FULL_32, "extra": zip64(1 << 63)}),
        DAMAGED,
        None,
        "bytes come before the first entry",
    ),
    # methods and encryption
    **{
        f"method {number}": (
            one(method=number, packed=TEXT),
            "package-method",
            "a.md",
            f"{called} ({number})",
        )
        for number, called in (
            (1, "Shrink"),
            (2, "a method"),
            (6, "Implode"),
            (9, "Deflate64"),
            (12, "bzip2"),
            (14, "LZMA"),
            (20, "a method"),
            (93, "Zstandard"),
            (95, "XZ"),
            (98, "PPMd"),
            (99, "AES"),
            (0xFFFF, "a method"),
        )
    },
    "patched data": (one(flags=UTF8 | 0x0020), "package-method", "a.md", ""),
    "encrypted": (one(flags=UTF8 | ENCRYPTED), "package-encrypted", "a.md", ""),
    "strongly encrypted": (one(flags=UTF8 | 0x0041), "package-encrypted", "a.md", ""),
    "only strongly encrypted": (one(flags=UTF8 | 0x0040), "package-encrypted", "a.md", ""),
    "masked headers": (one(flags=UTF8 | 0x2000), "package-encrypted", "a.md", ""),
    "an encrypted folder": (
        one(b"f/", content=b"", flags=ENCRYPTED),
        "package-encrypted",
        "f/",
        "",
    ),
    # the header and the directory
    "a name that differs": (
        one(header={"name": b"b.md"}),
        DAMAGED,
        "a.md",
        "name differs",
    ),
    "a name that differs in its case": (
        one(header={"name": b"A.md"}),
        DAMAGED,
        "a.md",
        "name differs",
    ),
    "a name that differs in its Unicode form": (
        one(COMPOSED.encode(), header={"name": DECOMPOSED.encode()}),
        DAMAGED,
        COMPOSED,
        "name differs",
    ),
    "a name that is longer in the header": (
        one(header={"name": b"a.md.bak"}),
        DAMAGED,
        "a.md",
        "name differs",
    ),
    "a name that only a Unicode path of the directory changes": (
        one(flags=0, record={"extra": unicode_path("b.md", b"a.md")}),
        DAMAGED,
        "b.md",
        "name differs",
    ),
    "a name that only a Unicode path of the header changes": (
        one(flags=0, header={"extra": unicode_path("b.md", b"a.md")}),
        DAMAGED,
        "a.md",
        "name differs",
    ),
    "two Unicode paths": (
        one(
            flags=0,
            header={"extra": unicode_path("b.md", b"a.md")},
            record={"extra": unicode_path("c.md", b"a.md")},
        ),
        DAMAGED,
        "c.md",
        "name differs",
    ),
    "a method that differs": (
        one(method=DEFLATED, header={"method": STORED}),
        DAMAGED,
        "a.md",
        DIFFERS,
    ),
    "a method that is unknown in the header": (
        one(header={"method": 12}),
        DAMAGED,
        "a.md",
        DIFFERS,
    ),
    **{
        f"the flag {flag:#06x} in the header only": (
            one(header={"flags": UTF8 | flag}),
            DAMAGED,
            "a.md",
            DIFFERS,
        )
        for flag in (0x0001, 0x0008, 0x0020, 0x0040, 0x2000)
    },
    "the UTF-8 flag in the header only": (one(record={"flags": 0}), DAMAGED, "a.md", DIFFERS),
    "the UTF-8 flag in the directory only": (one(header={"flags": 0}), DAMAGED, "a.md", DIFFERS),
    "a descriptor that only the directory knows of": (
        one(record={"flags": UTF8 | DESCRIBED}, behind=descriptor(TEXT)),
        DAMAGED,
        "a.md",
        DIFFERS,
    ),
    **{
        f"a {name} that differs": (one(header={name: 1}), DAMAGED, "a.md", DIFFERS)
        for name in ("crc", "compressed", "size")
    },
    "no sizes in the header": (one(header={"compressed": 0, "size": 0}), DAMAGED, "a.md", DIFFERS),
    "no header": (
        one(header={"signature": b"PK\3\5"}),
        DAMAGED,
        "a.md",
        "no header where",
    ),
    # where entries lie
    "bytes before": (b"x" + one(), DAMAGED, None, "1 bytes come before the first entry"),
    "a program before": (
        b"#!/bin/sh\nexit\n" + one(),
        DAMAGED,
        None,
        "bytes come before the first entry",
    ),
    "bytes before, which the directory knows of": (
        archive(b"12345", entry()),
        DAMAGED,
        None,
        "5 bytes come before the first entry",
    ),
    "bytes between": (
        archive(FIRST, b"123", LAST),
        DAMAGED,
        None,
        "3 bytes that belong to nothing",
    ),
    "bytes before the directory": (
        archive(FIRST, LAST, b"123"),
        DAMAGED,
        None,
        "3 bytes that belong to nothing",
    ),
    "an entry that the directory leaves out": (
        archive(FIRST, entry(), LAST, order=(0, 2)),
        DAMAGED,
        None,
        "belong to nothing",
    ),
    "a first entry that the directory leaves out": (
        archive(FIRST, LAST, order=(1,)),
        DAMAGED,
        None,
        "come before the first entry",
    ),
    "a last entry that the directory leaves out": (
        archive(FIRST, LAST, order=(0,)),
        DAMAGED,
        None,
        "belong to nothing",
    ),
    "all entries left out": (
        archive(FIRST, LAST, order=()),
        DAMAGED,
        None,
        "bytes come before the directory",
    ),
    "a signature of a descriptor between": (
        archive(FIRST, b"PK\x07\x08", LAST),
        DAMAGED,
        None,
        "4 bytes that belong to nothing",
    ),
    "two records of one entry": (
        archive(FIRST, LAST, order=(0, 1, 0)),
        DAMAGED,
        "first.md",
        OVERLAP,
    ),
    "two names of one entry": (
        archive(FIRST, entry(record={"offset": 0})),
        DAMAGED,
        "first.md",
        OVERLAP,
    ),
    "an entry in another's content": (
        archive(entry(content=FIRST.local()), Zipped(b"first.md", b"first", record={"offset": 34})),
        DAMAGED,
        "a.md",
        OVERLAP,
    ),
    "an entry that runs into the next": (
        archive(
            entry(header={"compressed": LENGTH + 1}, record={"compressed": LENGTH + 1}, method=8),
            LAST,
        ),
        DAMAGED,
        "a.md",
        OVERLAP,
    ),
    "an entry that runs into the directory": (
        one(method=DEFLATED, header={"compressed": 99}, record={"compressed": 99}),
        DAMAGED,
        "a.md",
        OVERLAP,
    ),
    "a header's name that runs into the next": (
        archive(entry(header={"#name": 60_000}), LAST),
        DAMAGED,
        "a.md",
        OVERLAP,
    ),
    "a header that is cut by the next": (
        archive(entry(content=b"", name=b""), Zipped(b"b", record={"offset": 29})),
        DAMAGED,
        "",
        OVERLAP,
    ),
    "an offset in the directory": (
        one(record={"offset": 60}),
        DAMAGED,
        None,
        "60 bytes come before the first entry",
    ),
    "an offset behind the end": (
        archive(FIRST, entry(record={"offset": FULL_32 - 1})),
        DAMAGED,
        None,
        "belong to nothing",
    ),
    # sizes and checksums
    "a wrong checksum": (
        one(header={"crc": 1}, record={"crc": 1}),
        DAMAGED,
        "a.md",
        "its checksum differs",
    ),
    "a wrong checksum of a deflated one": (
        one(method=DEFLATED, header={"crc": 1}, record={"crc": 1}),
        DAMAGED,
        "a.md",
        "its checksum differs",
    ),
    "a wrong checksum of a large one": (
        one(content=LARGE, header={"crc": 1}, record={"crc": 1}),
        DAMAGED,
        "a.md",
        "its checksum differs",
    ),
    "a wrong checksum of a large deflated one": (
        one(content=LARGE, method=DEFLATED, header={"crc": 1}, record={"crc": 1}),
        DAMAGED,
        "a.md",
        "its checksum differs",
    ),
    "a wrong checksum of nothing": (
        one(content=b"", header={"crc": 1}, record={"crc": 1}),
        DAMAGED,
        "a.md",
        "its checksum differs",
    ),
    "a wrong checksum of a folder": (
        one(b"f/", content=b"", header={"crc": 1}, record={"crc": 1}),
        DAMAGED,
        "f",
        "its checksum differs",
    ),
    "a stored one of two sizes": (
        one(header={"size": LENGTH + 1}, record={"size": LENGTH + 1}),
        DAMAGED,
        "a.md",
        "its two sizes differ",
    ),
    "one that declares less": (
        one(method=DEFLATED, header={"size": 3}, record={"size": 3}),
        DAMAGED,
        "a.md",
        "more than the 3 bytes it declares",
    ),
    "one that declares nothing": (
        one(method=DEFLATED, header={"size": 0}, record={"size": 0}),
        DAMAGED,
        "a.md",
        "more than the 0 bytes it declares",
    ),
    "one that declares more": (
        one(method=DEFLATED, header={"size": 99}, record={"size": 99}),
        DAMAGED,
        "a.md",
        "declares 99",
    ),
    "a large one that declares less": (
        one(content=LARGE, method=DEFLATED, header={"size": 3 << 20}, record={"size": 3 << 20}),
        DAMAGED,
        "a.md",
        f"more than the {3 << 20} bytes it declares",
    ),
    "a large one that declares one byte less": (
        one(
            content=LARGE,
            method=DEFLATED,
            header={"size": len(LARGE) - 1},
            record={"size": len(LARGE) - 1},
        ),
        DAMAGED,
        "a.md",
        f"more than the {len(LARGE) - 1} bytes it declares",
    ),
    "a large one that declares one byte more": (
        one(
            content=LARGE,
            method=DEFLATED,
            header={"size": len(LARGE) + 1},
            record={"size": len(LARGE) + 1},
        ),
        DAMAGED,
        "a.md",
        f"declares {len(LARGE) + 1}",
    ),
    "a small one that declares much": (
        one(method=DEFLATED, header={"size": 9 << 20}, record={"size": 9 << 20}),
        DAMAGED,
        "a.md",
        f"declares {9 << 20}",
    ),
    "what is no deflated content": (
        one(method=DEFLATED, packed=b"\xff" * 20),
        DAMAGED,
        "a.md",
        "cannot be unpacked",
    ),
    "what is no deflated content, a large one": (
        one(content=LARGE, method=DEFLATED, packed=BROKEN),
        DAMAGED,
        "a.md",
        "cannot be unpacked",
    ),
    "a content that is cut": (
        one(method=DEFLATED, packed=PACKED[:-1]),
        DAMAGED,
        "a.md",
        "its content is cut",
    ),
    "a large content that is cut": (
        one(content=LARGE, method=DEFLATED, packed=deflated(LARGE)[:-1]),
        DAMAGED,
        "a.md",
        "its content is cut",
    ),
    "no content": (one(method=DEFLATED, packed=b""), DAMAGED, "a.md", "its content is cut"),
    "no content of a large one": (
        one(content=LARGE, method=DEFLATED, packed=b""),
        DAMAGED,
        "a.md",
        "its content is cut",
    ),
    "more after the content": (
        one(method=DEFLATED, packed=PACKED + b"x"),
        DAMAGED,
        "a.md",
        "something follows",
    ),
    "more after a large content": (
        one(content=LARGE, method=DEFLATED, packed=deflated(LARGE) + b"x"),
        DAMAGED,
        "a.md",
        "something follows",
    ),
    "much after a large content": (
        one(content=LARGE, method=DEFLATED, packed=deflated(LARGE) + bytes(200_000)),
        DAMAGED,
        "a.md",
        "something follows",
    ),
    "a content twice": (
        one(method=DEFLATED, packed=PACKED * 2),
        DAMAGED,
        "a.md",
        "something follows",
    ),
    "a folder's content": (
        one(b"f/", content=b"", method=DEFLATED, packed=PACKED),
        DAMAGED,
        "f",
        "more than the 0 bytes",
    ),
    # descriptors
    "no descriptor": (described(b""), DAMAGED, "a.md", "no right data descriptor"),
    "a cut descriptor": (
        described(descriptor(TEXT, PACKED)[:-1]),
        DAMAGED,
        "a.md",
        "no right data descriptor",
    ),
    "a descriptor and a byte": (
        described(descriptor(TEXT, PACKED) + b"\0"),
        DAMAGED,
        "a.md",
        "no right data descriptor",
    ),
    "two descriptors": (
        described(descriptor(TEXT, PACKED) * 2),
        DAMAGED,
        "a.md",
        "no right data descriptor",
    ),
    "a descriptor with another checksum": (
        described(descriptor(TEXT, PACKED, crc=1)),
        DAMAGED,
        "a.md",
        "no right data descriptor",
    ),
    "a descriptor with another size": (
        described(descriptor(TEXT + b"x", PACKED, crc=SUM)),
        DAMAGED,
        "a.md",
        "no right data descriptor",
    ),
    "a descriptor with another packed size": (
        described(descriptor(TEXT, PACKED + b"x")),
        DAMAGED,
        "a.md",
        "no right data descriptor",
    ),
    "a descriptor that no flag tells of": (
        between(entry(behind=descriptor(TEXT))),
        DAMAGED,
        None,
        "16 bytes that belong to nothing",
    ),
    **{
        f"a descriptor, and another {name} in the header": (
            described(descriptor(TEXT, PACKED), **{name: 1}),
            DAMAGED,
            "a.md",
            DIFFERS,
        )
        for name in ("crc", "compressed", "size")
    },
    "a descriptor, and no Zip64 field": (
        described(descriptor(TEXT, PACKED), compressed=FULL_32, size=FULL_32),
        DAMAGED,
        "a.md",
        DIFFERS,
    ),
    # names
    "a name that is not UTF-8": (one(IN_437, flags=0), PATH, r"caf\x82.md", "not UTF-8"),
    "a name that is not UTF-8, with the flag": (one(IN_437), PATH, r"caf\x82.md", "not UTF-8"),
    "a Unicode path that is not UTF-8": (
        one(
            IN_437,
            flags=0,
            extra=field(0x7075, b"\1" + zlib.crc32(IN_437).to_bytes(4, "little") + b"\xff"),
        ),
        PATH,
        r"\xff",
        "not UTF-8",
    ),
    "a Unicode path with a wrong checksum": (
        one(IN_437, flags=0, extra=unicode_path("café.md", IN_437, crc=1)),
        PATH,
        r"caf\x82.md",
        "not UTF-8",
    ),
    "a surrogate": (one(b"\xed\xa0\x80.md"), PATH, r"\xed\xa0\x80.md", "not UTF-8"),
    "a name that is longer than it need be": (
        one(b"\xc0\xafetc"),
        PATH,
        r"\xc0\xafetc",
        "not UTF-8",
    ),
    "a Unicode path that leaves the folder": (
        one(IN_437, flags=0, extra=unicode_path("../a.md", IN_437)),
        PATH,
        "../a.md",
        "..",
    ),
    "no name": (one(b""), PATH, "", "empty"),
    "a slash": (one(b"/", content=b""), PATH, "/", "absolute"),
    "two slashes": (one(b"//", content=b""), PATH, "/", "absolute"),
    "an absolute path": (one(b"/etc/passwd"), PATH, "/etc/passwd", "absolute"),
    "an absolute path after a dot": (one(b".//etc/passwd"), PATH, "/etc/passwd", "absolute"),
    "an empty part": (one(b"a//b"), PATH, "a//b", "empty"),
    "an empty part at the end": (one(b"a//", content=b""), PATH, "a/", "empty"),
    "a dot": (one(b"."), PATH, ".", "a part of it is ."),
    "a dot within": (one(b"a/./b"), PATH, "a/./b", "a part of it is ."),
    "a dot at the end": (one(b"a/."), PATH, "a/.", "a part of it is ."),
    "two dots": (one(b".."), PATH, "..", "a part of it is .."),
    "two dots of a folder": (one(b"../", content=b""), PATH, "..", "a part of it is .."),
    "two dots first": (one(b"../a.md"), PATH, "../a.md", "a part of it is .."),
    "two dots after a dot": (one(b"./../a.md"), PATH, "../a.md", "a part of it is .."),
    "two dots within": (one(b"b/../a.md"), PATH, "b/../a.md", "a part of it is .."),
    "two dots last": (one(b"b/.."), PATH, "b/..", "a part of it is .."),
    "a drive": (one(b"C:/a.md"), PATH, "C:/a.md", "drive"),
    "a drive's own folder": (one(b"c:a.md"), PATH, "c:a.md", "drive"),
    "a drive after a dot": (one(b"./c:a.md"), PATH, "c:a.md", "drive"),
    "a drive with backslashes": (one(b"C:\\a.md"), PATH, "C:/a.md", "drive"),
    "a share": (one(b"\\\\host\\a.md"), PATH, "//host/a.md", "absolute"),
    "backslashes that climb": (one(b"b\\..\\..\\a.md"), PATH, "b/../../a.md", "a part of it is .."),
    "a backslash beside a slash": (
        archive(entry(b"memory/a.md"), entry(b"b\\c.md")),
        PATH,
        "b\\c.md",
        "it holds a \\",
    ),
    "a backslash and a slash": (one(b"a/b\\c.md"), PATH, "a/b\\c.md", "it holds a \\"),
    "a backslash beside the slash of a folder": (
        archive(entry(b"b\\c.md"), Zipped(b"memory/")),
        PATH,
        "b\\c.md",
        "it holds a \\",
    ),
    "a NUL": (one(b"a\0.md"), PATH, "a\0.md", "NUL"),
    "a NUL last": (one(b"a.md\0"), PATH, "a.md\0", "NUL"),
    "a path that is too long": (
        one(b"p" * (MAX_PATH + 1)),
        PATH,
        "p" * (MAX_PATH + 1),
        "4096 bytes",
    ),
    "a path whose bytes are too many": (
        one("й".encode() * (MAX_PATH // 2) + b"p"),
        PATH,
        "й" * (MAX_PATH // 2) + "p",
        "4096 bytes",
    ),
    # kinds
    "a link": (one(attributes=0o120777 << 16), TYPE, "a.md", "symbolic link"),
    "a link that another system made": (
        one(attributes=0o120777 << 16, made_by=DOS),
        TYPE,
        "a.md",
        "symbolic link",
    ),
    "a link to a folder": (
        one(b"f/", content=b"", attributes=0o120777 << 16),
        TYPE,
        "f",
        "symbolic link",
    ),
    **{
        f"a {what}": (one(attributes=(kind | 0o644) << 16), TYPE, "a.md", "a device or the like")
        for what, kind in (
            ("pipe", 0o010000),
            ("character device", 0o020000),
            ("block device", 0o060000),
            ("socket", 0o140000),
            ("kind of none", 0o170000),
        )
    },
    "a folder with content": (one(b"f/"), TYPE, "f", "a folder with content"),
    "a folder of a mode with content": (
        one(b"f", attributes=FOLDER_MODE),
        TYPE,
        "f",
        "does not end as one's",
    ),
    "a folder of DOS with content": (
        one(b"f", attributes=0x10, made_by=DOS),
        TYPE,
        "f",
        "does not end as one's",
    ),
    "an empty folder of a mode, without a slash": (
        one(b"f", content=b"", attributes=0o040755 << 16),
        TYPE,
        "f",
        "does not end as one's",
    ),
    "an empty folder of DOS, without a slash": (
        one(b"f", content=b"", made_by=DOS, attributes=0x10),
        TYPE,
        "f",
        "does not end as one's",
    ),
    "a file with a slash": (
        one(b"f/", content=b"", attributes=FILE_MODE),
        TYPE,
        "f",
        "a file whose name",
    ),
    # paths that meet
    "a path twice": (archive(entry(), entry()), TWICE, "a.md", ""),
    "a path twice, once after a dot": (archive(entry(), entry(b"./a.md")), TWICE, "a.md", ""),
    "a folder twice": (archive(Zipped(b"f/"), Zipped(b"f/")), TWICE, "f", ""),
    "the folder itself twice": (archive(Zipped(b"./"), Zipped(b"./")), TWICE, "./", ""),
    "a folder twice, once after what is in it": (
        archive(Zipped(b"f/"), entry(b"f/a.md"), Zipped(b"f/")),
        TWICE,
        "f",
        "",
    ),
    "another case": (archive(entry(), entry(b"A.MD")), TWICE, "A.MD", "'a.md' is there too"),
    "another case of a folder": (
        archive(entry(b"f/a.md"), entry(b"F/b.md")),
        TWICE,
        "F/b.md",
        "'f' is there too",
    ),
    "another case of a folder that is named": (
        archive(Zipped(b"f/"), Zipped(b"F/")),
        TWICE,
        "F",
        "'f' is there too",
    ),
    "another case of a file and a folder": (
        archive(entry(b"f"), entry(b"F/b.md")),
        TWICE,
        "F/b.md",
        "'f' is there too",
    ),
    "another case beyond ASCII": (
        archive(entry("Й.md".encode()), entry("й.md".encode())),
        TWICE,
        "й.md",
        "'Й.md' is there too",
    ),
    "another Unicode form": (
        archive(entry(COMPOSED.encode()), entry(DECOMPOSED.encode())),
        TWICE,
        COMPOSED,
        "",
    ),
    "another Unicode form and case": (
        archive(entry("É.md".encode()), entry("e\u0301.md".encode())),
        TWICE,
        "é.md",
        "",
    ),
    "another case of more letters": (
        archive(entry(b"STRASSE"), entry("straße".encode())),
        TWICE,
        "straße",
        "",
    ),
    "a sign that stands for a letter": (
        archive(entry(b"k"), entry("\u212a".encode())),
        TWICE,
        "K",
        "",
    ),
    "a path twice by a separator": (archive(entry(b"f\\a"), entry(b"f\\A")), TWICE, "f/A", ""),
    "a path twice by a Unicode path": (
        archive(entry("é".encode()), entry(b"\x82", flags=0, extra=unicode_path("é", b"\x82"))),
        TWICE,
        "é",
        "",
    ),
    "a file, and something in it": (
        archive(entry(b"memory"), entry(b"memory/a.md")),
        TYPE,
        "memory/a.md",
        "'memory' is a file",
    ),
    "something in a folder, and a file of its path": (
        archive(entry(b"memory/a.md"), entry(b"memory")),
        TYPE,
        "memory",
        "a file and a folder",
    ),
    "a file, and a folder of its path": (
        archive(entry(b"memory"), Zipped(b"memory/")),
        TYPE,
        "memory",
        "'memory' is a file",
    ),
    "a folder, and a file of its path": (
        archive(Zipped(b"memory/"), entry(b"memory")),
        TYPE,
        "memory",
        "a file and a folder",
    ),
    "a file, and something deep in it": (
        archive(entry(b"a/b"), entry(b"a/b/c/d/e")),
        TYPE,
        "a/b/c/d/e",
        "'b' is a file",
    ),
}


def refused(data: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        read(data)
    return caught.value


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    """Each of these is refused: with its code, the path where it is of one entry, and the words."""
    data, code, path, words = REFUSED[name]
    refusal = refused(data)
    assert (refusal.code, refusal.details.get("path")) == (code, path)
    assert words in refusal.message


# -- limits


def filled(size: int) -> bytes:
    """An archive of exactly ``size`` bytes."""
    around = len(one(b"a.md", content=b""))
    return one(content=bytes(size - around))


def test_an_archive_of_25_mib_is_read() -> None:
    """And not one that is a byte longer, whatever it is: its size is looked at first."""
    data = filled(MAX_UPLOAD)
    assert len(data) == MAX_UPLOAD
    ((_, _, _, content),) = read(read_upload(io.BytesIO(data)))
    assert len(content) > MAX_UPLOAD - 200
    for longer in (filled(MAX_UPLOAD + 1), bytes(MAX_UPLOAD + 1)):
        assert refused(longer).code == "package-upload-size"


@pytest.mark.parametrize("counts", [(1 << 20,), (1,), (7, 1, 30)], ids=str)
def test_an_upload_comes_in_any_pieces(counts: tuple[int, ...]) -> None:
    """All of it is read, to its end."""
    data = between(entry())
    assert read_upload(Chunked(data, counts)) == data


class Endless:
    """A source without an end, whose first bytes are ``start``; it counts what was taken."""

    def __init__(self, start: bytes) -> None:
        self.start = start
        self.given = 0

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        view = memoryview(buffer)
        view[: len(self.start)] = self.start
        self.start = b""
        self.given += len(view)
        return len(view)


def test_an_upload_without_an_end_is_refused() -> None:
    """Soon after 25 MiB; and for what it is, where it does not start as a ZIP does."""
    for start, code in ((b"PK\3\4", "package-upload-size"), (b"SQLite", "package-not-zip")):
        source = Endless(start)
        with pytest.raises(Refusal) as caught:
            read_upload(source)
        assert caught.value.code == code
        assert MAX_UPLOAD < source.given <= MAX_UPLOAD + (1 << 20)


def many(number: int, *more: Zipped, **end: int) -> bytes:
    """An archive of so many empty files and folders, and more."""
    files = (Zipped(b"f%d" % n if n % 2 else b"d%d/" % n) for n in range(number))
    return archive(*files, *more, end=end)


def test_20_000_entries_are_read() -> None:
    """And not one more, folders counted; nor where the end record says fewer."""
    data = many(MAX_ENTRIES)
    assert len(Archive(data).entries) == MAX_ENTRIES
    one_more = many(MAX_ENTRIES, FIRST)
    assert refused(one_more).code == "package-entries"
    said_less = many(MAX_ENTRIES, FIRST, here=MAX_ENTRIES, count=MAX_ENTRIES)
    assert refused(said_less).code == "package-entries"


def test_a_count_of_entries_is_believed_before_they_are_read() -> None:
    """A count over the limit is refused by itself, in 16 bits and in 64."""
    short = archive(entry(), end={"here": MAX_ENTRIES + 1, "count": MAX_ENTRIES + 1})
    assert refused(short).code == "package-entries"
    end: Fields = {"here": 1 << 60, "count": 1 << 60}
    full: Fields = {"here": FULL_16, "count": FULL_16}
    assert refused(archive(entry(), zip64_end=end, end=full)).code == "package-entries"


def test_folders_that_are_not_named_are_counted() -> None:
    """A few entries cannot make more than 20 000 folders by long paths."""
    deep = [b"%d/" % n + b"d/" * 1999 + b"f" for n in range(11)]
    assert len(read(archive(*map(Zipped, deep[:10])))) == 10
    refusal = refused(archive(*map(Zipped, deep)))
    assert refusal.code == "package-entries"
    assert refusal.details["path"] == deep[10].decode()


def declaring(*sizes: int) -> bytes:
    """An archive whose small entries declare such sizes."""
    fields: list[Fields] = [{"size": size} for size in sizes]
    return archive(
        *(
            entry(b"%d.md" % number, method=DEFLATED, header=size, record=size)
            for number, size in enumerate(fields)
        )
    )


@pytest.mark.parametrize(
    "sizes",
    [(MAX_UNPACKED + 1,), (MAX_UNPACKED // 2, MAX_UNPACKED // 2, 1), (1 << 31,) * 3],
    ids=str,
)
def test_more_than_128_mib_declared_are_refused(sizes: tuple[int, ...]) -> None:
    """In one entry or in all together, before anything is unpacked or even looked for."""
    assert refused(declaring(*sizes)).code == "package-unpacked-size"


def test_more_than_128_mib_declared_in_64_bits_are_refused() -> None:
    """As those in 32 bits."""
    huge: Fields = {"size": FULL_32, "compressed": FULL_32}
    extra = zip64(1 << 62, len(PACKED))
    data = one(method=DEFLATED, extra=extra, header=huge, record=huge)
    assert refused(data).code == "package-unpacked-size"


@pytest.mark.parametrize(
    "sizes", [(MAX_UNPACKED,), (MAX_UNPACKED // 2, MAX_UNPACKED // 2)], ids=str
)
def test_128_mib_may_be_declared(sizes: tuple[int, ...]) -> None:
    """In one entry or in all together; whether it is true is seen when it is unpacked."""
    assert len(Archive(declaring(*sizes)).entries) == len(sizes)


def zeros(size: int) -> bytes:
    """So many zeros, deflated, without their being held."""
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    piece = bytes(1 << 20)
    whole = b"".join(packer.compress(piece) for _ in range(size >> 20))
    return whole + packer.flush()


def test_128_mib_are_unpacked() -> None:
    """In pieces, so that no more of it is held than a piece."""
    packed = zeros(MAX_UNPACKED)
    crc = 0
    for _ in range(MAX_UNPACKED >> 20):
        crc = zlib.crc32(bytes(1 << 20), crc)
    fields: Fields = {"size": MAX_UNPACKED, "crc": crc}
    opened = Archive(one(method=DEFLATED, packed=packed, header=fields, record=fields))
    sizes = [len(piece) for piece in opened.pieces(opened.entries[0])]
    assert sum(sizes) == MAX_UNPACKED
    assert max(sizes) <= 1 << 20


@pytest.mark.parametrize("declared", [0, 9, 1 << 20, 3 << 20, MAX_UNPACKED])
def test_more_than_is_declared_is_never_put_out(declared: int) -> None:
    """The unpacking stops a byte behind it; memory is for a piece, whatever would come."""
    fields: Fields = {"size": declared}
    data = one(method=DEFLATED, packed=zeros(200 << 20), header=fields, record=fields)
    opened = Archive(data)
    put_out: list[int] = []
    tracemalloc.start()
    try:
        with pytest.raises(Refusal) as caught:
            put_out.extend(map(len, opened.pieces(opened.entries[0])))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == "package-damaged"
    assert f"more than the {declared} bytes" in caught.value.message
    assert sum(put_out) <= declared
    assert peak < 6 << 20


def test_a_bomb_of_entries_that_overlap_is_refused() -> None:
    """Many names of one large content, declared as small, are not unpacked at all."""
    kernel = zeros(100 << 20)
    fields: Fields = {"size": 0, "offset": 0}
    data = archive(
        *(Zipped(b"%d" % n, method=DEFLATED, packed=kernel, record=fields) for n in range(2)),
    )
    refusal = refused(data)
    assert refusal.code == "package-damaged"
    assert "overlaps" in refusal.message


# -- what a refusal tells


def test_a_refusal_says_where() -> None:
    """The byte in the archive, where the fault is of no entry."""
    assert refused(REFUSED["bytes between"][0]).place == f"byte {len(FIRST.local())}"
    assert refused(REFUSED["a cut record"][0]).place == f"byte {len(entry().local())}"


def test_line_ends_that_were_rewritten_are_told() -> None:
    """As by a terminal: that is most likely what damaged it."""
    text = bytes(range(1, 200)) * 8
    rewritten = one(content=text).replace(b"\n", b"\r\n")
    refusal = refused(rewritten)
    assert refusal.code == "package-damaged"
    assert refusal.hint is not None
    assert "line ends were rewritten" in refusal.hint


def test_text_before_an_archive_is_told() -> None:
    """As of a login banner."""
    refusal = refused(b"Welcome!\n" + one())
    assert refusal.code == "package-damaged"
    assert refusal.hint is not None
    assert "9 bytes of text come first" in refusal.hint


# -- pieces


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_a_content_can_be_read_again(method: int, size: int) -> None:
    """Each time whole, in pieces of at most 1 MiB, and a small one in one piece."""
    content = bytes(range(251)) * (size // 251 + 1)
    content = content[:size]
    opened = Archive(one(content=content, method=method))
    for _ in range(2):
        pieces = list(opened.pieces(opened.entries[0]))
        assert b"".join(pieces) == content
        assert max(map(len, pieces)) <= 1 << 20
        assert len(pieces) == 1 or size > 1 << 20


def test_what_is_packed_badly_is_read_in_pieces() -> None:
    """Also where it takes more bytes packed than unpacked."""
    opened = Archive(one(content=LARGE, method=DEFLATED, packed=deflated(LARGE, 0)))
    pieces = list(opened.pieces(opened.entries[0]))
    assert b"".join(pieces) == LARGE
    assert max(map(len, pieces)) <= 1 << 20


# -- agents in an archive


def test_the_smallest_agent_is_taken() -> None:
    """A soul and a configuration are all that there must be."""
    package = package_of(archive(*agent()))
    package.check()
    assert [file.path for file in package.files] == ["SOUL.md", "agent.config.json"]
    assert package.found.config.id == "agent-of-tests"
