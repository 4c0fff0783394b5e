"""Altered archives: each is refused, or read without harm.

``target`` is for any fuzzer. ``python -m tests.package.test_fuzz_archive [COUNT [SEED]]``, in the
checkout, makes COUNT mutants (a million, if none is said) from SEED on, and stops at the first that
is neither refused nor read rightly: its bytes are written to ``mutant.zip``.
"""

from __future__ import annotations

import io
import random
import struct
import sys
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.contents import Options, Package
from agentmove_tools.package.limits import MAX_UNPACKED
from agentmove_tools.package.names import Paths, check_path
from agentmove_tools.package.sources import ArchiveSource
from agentmove_tools.refusals import Refusal
from tests.package.zips import (
    DEFLATED,
    DESCRIBED,
    FULL_16,
    FULL_32,
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
    read,
    unicode_path,
    zip64,
)

TEXT: Final = b"a text, a text, a text"
SKILL: Final = b"---\nname: s\ndescription: d\n---\nbody\n"
EVENT: Final = b'{"id":"1","type":"user","ts":1,"data":{"text":"hello"}}\n'
IN_437: Final = "café.md".encode("cp437")
UNKNOWN: Final[Fields] = {"crc": 0, "compressed": 0, "size": 0}


# -- what is altered


def by_python(*, piped: bool) -> bytes:
    """An agent as Python packs it; ``piped``: to where it cannot seek."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return not piped

        def seek(self, offset: int, whence: int = 0, /) -> int:
            if piped:
                raise io.UnsupportedOperation
            return super().seek(offset, whence)

        def tell(self) -> int:
            if piped:
                raise io.UnsupportedOperation
            return super().tell()

    out = Pipe()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for path, content in {
            "SOUL.md": b"# A soul\n",
            "agent.config.json": b'{"id": "fuzz"}',
            "skills/s/SKILL.md": SKILL,
            "memory/й.md": TEXT,
        }.items():
            made.writestr(zipfile.ZipInfo(path), content)
    return out.getvalue()


def in_zip64() -> bytes:
    """An archive in which all is in 64 bits."""
    first = Zipped(b"first.md", b"first")
    full: Fields = {"compressed": FULL_32, "size": FULL_32}
    packed = deflated(TEXT)
    extra = zip64(len(TEXT), len(packed))
    second = Zipped(
        b"a.md",
        TEXT,
        method=DEFLATED,
        header={**full, "extra": extra},
        record={
            **full,
            "offset": FULL_32,
            "disk": FULL_16,
            "extra": zip64(len(TEXT), len(packed), len(first.local()), disk=0),
        },
    )
    end: Fields = {"here": FULL_16, "count": FULL_16, "size": FULL_32, "start": FULL_32}
    return archive(first, second, zip64_end={}, end=end)


def from_a_pipe() -> bytes:
    """An archive with descriptors of each kind."""
    parts = [
        Zipped(
            b"%d.md" % number,
            TEXT,
            method=method,
            flags=UTF8 | DESCRIBED,
            header=UNKNOWN,
            behind=descriptor(
                TEXT, deflated(TEXT) if method else TEXT, wide=number > 1, signed=bool(number % 2)
            ),
        )
        for number, method in enumerate((DEFLATED, STORED, DEFLATED, STORED))
    ]
    return archive(*parts)


SEEDS: Final[dict[str, bytes]] = {
    "an agent": archive(
        *agent(
            Zipped(b"skills/"),
            Zipped(b"skills/s/"),
            Zipped(b"skills/s/SKILL.md", SKILL, method=DEFLATED),
            Zipped(b"skills/s/run", b"#!/bin/sh\n", attributes=RUN_MODE),
            Zipped(b"data/sessions/telegram:u.jsonl", EVENT, method=DEFLATED),
        ),
        end={"comment": b"a comment"},
    ),
    "from a pipe": from_a_pipe(),
    "in Zip64": in_zip64(),
    "names and extra fields": archive(
        Zipped(IN_437, TEXT, flags=0, extra=unicode_path("café.md", IN_437)),
        Zipped("й.md".encode(), TEXT, flags=0, extra=field(0x5455, b"\3" + bytes(8)) + bytes(2)),
        Zipped("a/e\u0301.md".encode(), TEXT, record={"comment": b"a comment"}),
    ),
    "backslashes": archive(Zipped(b"memory\\a.md", TEXT), Zipped(b"b\\c\\", attributes=0x10)),
    "by Python": by_python(piped=False),
    "by Python, from a pipe": by_python(piped=True),
    "nothing": archive(),
}


# -- what must hold of any bytes


def target(data: bytes) -> list[Read] | None:
    """Read an archive wholly, and the package in it; None where it is refused.

    Raises whatever is no refusal, and ``AssertionError`` where what was read is not right.
    """
    try:
        found = read(data)
    except Refusal:
        return None
    paths = Paths()
    for path, is_folder, _, content in found:
        if path:
            check_path(path)
            paths.add(path, is_folder=is_folder)
        assert path == unicodedata.normalize("NFC", path)
        assert not (is_folder and content)
    assert sum(len(content) for _, _, _, content in found) <= MAX_UNPACKED
    check_python(data, [content for _, _, _, content in found])
    with suppress(Refusal):
        Package(ArchiveSource(Archive(data)), Options(external_id="fuzz")).check()
    return found


# what Python's reader may raise for an archive that it does not take
OTHERS_REFUSAL: Final = (
    *(zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OverflowError),
    *(EOFError, OSError, zlib.error, struct.error),
)


def check_python(data: bytes, contents: list[bytes]) -> None:
    """Where Python's reader takes the archive too, it reads the same contents."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as opened:
            others = [opened.read(info) for info in opened.infolist()]
    except OTHERS_REFUSAL:
        return
    assert others == contents


# -- mutants

SIGNATURES: Final = (b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\x07\x08")
NUMBERS: Final = (0, 1, 2, 3, 7, 8, 9, 20, 22, 30, 46, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000)
LARGE_NUMBERS: Final = (0xFFFF, 1 << 16, 1 << 20, 1 << 27, 1 << 31, FULL_32, 1 << 32, 1 << 63)
Mutation = Callable[[random.Random, bytearray], None]


def alter_bits(draw: random.Random, data: bytearray) -> None:
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def alter_byte(draw: random.Random, data: bytearray) -> None:
    data[draw.randrange(len(data))] = draw.randrange(256)


def alter_number(draw: random.Random, data: bytearray) -> None:
    """Put a number that is at an edge of something in any place, in 2, 4 or 8 bytes."""
    size = draw.choice((2, 2, 4, 4, 8))
    number = draw.choice((*NUMBERS, *LARGE_NUMBERS, len(data), draw.randrange(len(data))))
    at = draw.randrange(len(data))
    data[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")


def step_number(draw: random.Random, data: bytearray) -> None:
    """Add a little to a number, or take it away."""
    size = draw.choice((2, 4))
    at = draw.randrange(max(1, len(data) - size))
    number = int.from_bytes(data[at : at + size], "little") + draw.choice((-2, -1, 1, 2, 22, 46))
    data[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")


def put_signature(draw: random.Random, data: bytearray) -> None:
    at = draw.randrange(len(data))
    data[at : at + 4] = draw.choice(SIGNATURES)


def insert(draw: random.Random, data: bytearray) -> None:
    at = draw.randrange(len(data) + 1)
    data[at:at] = draw.choice((bytes(1), draw.randbytes(3), bytes(22), draw.choice(SIGNATURES)))


def cut_out(draw: random.Random, data: bytearray) -> None:
    at = draw.randrange(len(data))
    del data[at : at + draw.choice((1, 2, 4, 12, 16, 46, 100))]


def cut_off(draw: random.Random, data: bytearray) -> None:
    del data[draw.randrange(len(data)) :]


def repeat(draw: random.Random, data: bytearray) -> None:
    """Put a piece in again, beside itself or anywhere."""
    start = draw.randrange(len(data))
    end = start + draw.choice((1, 4, 12, 22, 46, 60, 200))
    at = draw.choice((start, end, draw.randrange(len(data))))
    data[at:at] = data[start:end]


def from_another(draw: random.Random, data: bytearray) -> None:
    """Put a piece of another archive over a piece, or in."""
    other = draw.choice(ALL_SEEDS)
    start = draw.randrange(len(other))
    piece = other[start : start + draw.choice((4, 16, 30, 46, 100))]
    at = draw.randrange(len(data))
    data[at : at + draw.choice((0, len(piece)))] = piece


MUTATIONS: Final[Sequence[Mutation]] = (
    *(alter_bits, alter_bits, alter_byte, alter_number, alter_number, step_number, step_number),
    *(put_signature, insert, cut_out, cut_off, repeat, from_another),
)
ALL_SEEDS: Final = tuple(SEEDS.values())


def mutant_of_bytes(draw: random.Random) -> bytes:
    """One of the seeds, altered in one to four places, whatever lies there."""
    data = bytearray(draw.choice(ALL_SEEDS))
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 4))):
        draw.choice(MUTATIONS)(draw, data)
        if not data:
            break
    return bytes(data)


NAMES: Final = (
    *(b"a.md", b"A.md", b"b/", b"b/a.md", b"b", b"./", b"./a.md", b"../a", b"/a", b"C:/a", b"c:"),
    *(b"", b"/", b".", b"..", b"b\\a.md", b"b\\", b"\\", b"a\0", b"\xff", IN_437, b"._x"),
    *("é.md".encode(), "e\u0301.md".encode(), b"__MACOSX/._a", b"SOUL.md", b"agent.config.json"),
)
MODES: Final = (0, 0x10, 0o644, 0o100644, 0o100755, 0o040755, 0o120777, 0o010644, 0o177777)
SIZES: Final = (0, 1, len(TEXT) - 1, len(TEXT) + 1, 1 << 20, MAX_UNPACKED, FULL_32, 1 << 31)
_ALTERED: Final[dict[str, Sequence[int]]] = {
    "flags": (0, UTF8, DESCRIBED, UTF8 | DESCRIBED, 1, 0x20, 0x40, 0x2000, 6),
    "method": (0, 8, 9, 12, 99),
    "crc": (0, 1),
    "compressed": SIZES,
    "size": SIZES,
    "#name": (0, 1, 3, 5, 40, FULL_16),
    "#extra": (0, 1, 4, 8, 40, FULL_16),
}
_IN_RECORD: Final[dict[str, Sequence[int]]] = {
    **_ALTERED,
    "#comment": (0, 1, 46, FULL_16),
    "disk": (0, 1, FULL_16),
    "offset": (0, 1, 30, 60, 100, FULL_32),
}
_IN_END: Final[dict[str, Sequence[int]]] = {
    "disk": (0, 1, FULL_16),
    "first_disk": (0, 1, FULL_16),
    "here": (0, 1, 2, 20_001, FULL_16),
    "count": (0, 1, 2, 20_001, FULL_16),
    "size": (0, 46, 100, FULL_32),
    "start": (0, 30, 100, FULL_32),
}
_IN_ZIP64_END: Final[dict[str, Sequence[int]]] = {
    **{name: (*values, 1 << 60) for name, values in _IN_END.items() if "disk" not in name},
    "length": (0, 43, 45, 1 << 60),
}


def altered(draw: random.Random, fields: dict[str, Sequence[int]]) -> dict[str, int | bytes]:
    """One of the fields with another value, or, more often, none."""
    if draw.randrange(5):
        return {}
    name = draw.choice(sorted(fields))
    return {name: draw.choice(fields[name])}


def any_extra(draw: random.Random, name: bytes, content: bytes, packed: bytes) -> bytes:
    """Extra fields, right ones and others."""
    return b"".join(
        draw.choice(
            (
                *(b"", b"", b"", bytes(3), field(0x5455, b"x")),
                *(zip64(len(content), len(packed)), zip64(len(content)), zip64(0, 0)),
                *(zip64(draw.choice(SIZES), disk=0), field(1, b"x" * draw.randrange(30))),
                *(unicode_path("u.md", name), unicode_path("../u", name), field(0x7075, b"\1")),
            )
        )
        for _ in range(draw.choice((0, 0, 0, 1, 2)))
    )


def any_entry(draw: random.Random) -> Zipped:
    """An entry that is right in most, and altered in one or two fields."""
    name = draw.choice(NAMES) if draw.randrange(5) == 0 else b"%d.md" % draw.randrange(9)
    content = b"" if name.endswith((b"/", b"\\")) else draw.choice((b"", b"x", TEXT, TEXT * 99))
    method = draw.choice((STORED, DEFLATED))
    packed = deflated(content) if method == DEFLATED else content
    is_described = draw.randrange(3) == 0
    extra = any_extra(draw, name, content, packed)
    header: dict[str, int | bytes] = dict(UNKNOWN) if is_described else {}
    record: dict[str, int | bytes] = {}
    if draw.randrange(4) == 0:
        header["extra"] = any_extra(draw, name, content, packed)
    if draw.randrange(6) == 0:
        both = altered(draw, _ALTERED)
        header |= both
        record |= both
    header |= altered(draw, _ALTERED)
    record |= altered(draw, _IN_RECORD)
    behind = b""
    if is_described:
        crc = zlib.crc32(content) if draw.randrange(5) else 0
        signed, wide = draw.random() < 0.5, draw.random() < 0.3
        behind = descriptor(content, packed, signed=signed, wide=wide, crc=crc)
    attributes = None if draw.randrange(3) else draw.choice(MODES) << draw.choice((16, 16, 0))
    return Zipped(
        name,
        content,
        method=method,
        flags=(UTF8 if draw.randrange(3) else 0) | (DESCRIBED if is_described else 0),
        made_by=draw.choice((0, 3, 3, 19)) << 8,
        attributes=attributes if attributes is None else attributes % (1 << 32),
        extra=extra,
        packed=packed if draw.randrange(8) else packed + b"x",
        behind=behind,
        header=header,
        record=record,
    )


def mutant_of_fields(draw: random.Random) -> bytes:
    """An archive put together of fields that are right, and some that are not."""
    parts: list[Zipped | bytes] = [any_entry(draw) for _ in range(draw.choice((1, 1, 2, 2, 3)))]
    if draw.randrange(12) == 0:
        parts.insert(draw.randrange(len(parts) + 1), draw.choice((b"x", *ALL_SEEDS)))
    count = sum(isinstance(part, Zipped) for part in parts)
    order = draw.choices(range(count), k=count) if draw.randrange(12) == 0 else None
    zip64_end = altered(draw, _IN_ZIP64_END) if draw.randrange(4) == 0 else None
    end: dict[str, int | bytes] = altered(draw, _IN_END) if draw.randrange(4) == 0 else {}
    if draw.randrange(8) == 0:
        end["comment"] = draw.choice((b"c", b"PK\5\6" + bytes(9), draw.choice(ALL_SEEDS)))
    tail = b"" if draw.randrange(12) else b"x"
    try:
        return archive(*parts, order=order, tail=tail, end=end, zip64_end=zip64_end)
    except struct.error:  # a number that its field has no room for
        return b""


def mutants(count: int, seed: int) -> tuple[int, int]:
    """Try so many mutants, half of each sort; give how many were refused, and how many read.

    One that fails is written to ``mutant.zip`` where this runs as a program.
    """
    refused = taken = 0
    for number in range(seed, seed + count):
        draw = random.Random(number)
        data = (mutant_of_fields if number % 2 else mutant_of_bytes)(draw)
        try:
            found = target(data)
        except Exception:
            print(f"mutant {number}: {data!r}")
            if __name__ == "__main__":
                Path("mutant.zip").write_bytes(data)
            raise
        refused += found is None
        taken += found is not None
    return refused, taken


# -- tests


@pytest.mark.parametrize("name", SEEDS)
def test_a_seed_is_read(name: str) -> None:
    """What is altered below is right before."""
    assert target(SEEDS[name]) is not None


@pytest.mark.parametrize("seed", range(0, 64_000, 8_000))
def test_a_mutant_is_refused_or_read(seed: int) -> None:
    """Nothing else comes of it; and there are enough of both that the test is worth something."""
    refused, taken = mutants(8_000, seed)
    assert refused > 3_000
    assert taken > 500


SMALL: Final[dict[str, bytes]] = {
    "stored and deflated": archive(
        Zipped(b"a.md", TEXT), Zipped(b"b/"), Zipped(b"b/c", TEXT, method=DEFLATED, flags=0)
    ),
    "descriptors": archive(
        *(
            Zipped(
                name,
                TEXT,
                method=DEFLATED,
                flags=DESCRIBED,
                header=UNKNOWN,
                behind=descriptor(TEXT, deflated(TEXT), wide=wide),
            )
            for name, wide in ((b"a", False), (b"b", True))
        )
    ),
    "Zip64": in_zip64(),
    "extra fields": archive(
        Zipped(b"\x82", b"x", flags=0, extra=unicode_path("é", b"\x82") + field(0x5455, b"x")),
        end={"comment": b"comment"},
    ),
}
ALTERATIONS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 255)


def without_modes(found: list[Read]) -> list[tuple[str, bool, bytes]]:
    """What was read but for which of it can be run: nothing in an archive guards that."""
    return [(path, is_folder, content) for path, is_folder, _, content in found]


@pytest.mark.parametrize("name", SMALL)
def test_an_altered_byte_is_found_or_does_not_matter(name: str) -> None:
    """Each byte, with each of its bits turned, and all: refused, or what is read is the same."""
    data = SMALL[name]
    expected = target(data)
    assert expected is not None
    refused = 0
    for at in range(len(data)):
        for alteration in ALTERATIONS:
            changed = bytearray(data)
            changed[at] ^= alteration
            found = target(bytes(changed))
            refused += found is None
            if found is not None:
                assert without_modes(found) == without_modes(expected), (at, alteration)
    assert refused > len(data) * len(ALTERATIONS) // 2


@pytest.mark.parametrize("name", SMALL)
def test_a_cut_archive_is_refused(name: str) -> None:
    """Wherever it ends, and wherever it begins."""
    data = SMALL[name]
    for at in range(len(data)):
        assert target(data[:at]) is None
        if at:
            assert target(data[at:]) is None


@pytest.mark.parametrize("name", SMALL)
def test_a_byte_more_or_less_is_found(name: str) -> None:
    """One left out or put in anywhere is refused, or what is read is the same."""
    data = SMALL[name]
    expected = target(data)
    for at in range(len(data) + 1):
        for changed in (
            data[:at] + data[at + 1 :],
            *(data[:at] + x + data[at:] for x in (b"\0", b"P")),
        ):
            found = target(changed)
            assert found is None or found == expected


if __name__ == "__main__":
    COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    print("refused {}, read {}".format(*mutants(COUNT, SEED)))
