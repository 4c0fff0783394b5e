from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

import pytest

from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.archive_writer import ArchiveWriter
from agentmove_tools.package.limits import MAX_ENTRIES, MAX_UNPACKED, MAX_UPLOAD
from agentmove_tools.package.pack import pack
from agentmove_tools.refusals import Refusal
from tests.package.zips import (
    CONFIG,
    DEFLATED,
    RUN_MODE,
    SOUL,
    STORED,
    Zipped,
    archive,
    package_of,
    read,
)

TEXT: Final = b"a text, a text, a text"
MIB: Final = 1 << 20


def noise(size: int, seed: int = 1) -> bytes:
    """So many bytes that cannot be deflated, always the same."""
    return random.Random(seed).randbytes(size)


def written(files: dict[str, bytes | Iterable[bytes]], *, runs: Iterable[str] = ()) -> bytes:
    writer = ArchiveWriter()
    for path, content in files.items():
        pieces = (content,) if isinstance(content, bytes) else content
        writer.add(path, pieces, executable=path in runs)
    return b"".join(writer.finish())


def infos(data: bytes) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        assert opened.testzip() is None
        return opened.infolist()


# -- what is written


def test_each_byte_is_as_it_must_be() -> None:
    """An archive of three files is the one that is made by hand: stored where that is shorter."""
    by_hand = archive(
        Zipped(b"SOUL.md", b"short"),
        Zipped("skills/й/SKILL.md".encode(), TEXT, method=DEFLATED, packed=_packed(TEXT)),
        Zipped("skills/й/run".encode(), b"", attributes=RUN_MODE),
    )
    files: dict[str, bytes | Iterable[bytes]] = {
        "SOUL.md": b"short",
        "skills/й/SKILL.md": TEXT,
        "skills/й/run": b"",
    }
    assert written(files, runs=["skills/й/run"]) == by_hand


def _packed(content: bytes) -> bytes:
    """The content as a small one is deflated."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -9, 3)
    return packer.compress(content) + packer.flush()


def test_nothing_of_the_machine_is_in_it() -> None:
    """The UNIX marker, one time, two modes, the UTF-8 flag, no extra fields, no comments."""
    data = written({"SOUL.md": SOUL, "b/é.md": b"", "b/run": noise(99)}, runs=["b/run"])
    found = infos(data)
    assert [info.filename for info in found] == ["SOUL.md", "b/é.md", "b/run"]
    for info in found:
        assert info.create_system == 3
        assert info.create_version == info.extract_version == 20
        assert info.date_time == (1980, 1, 1, 0, 0, 0)
        assert info.flag_bits == 0x0800
        assert (info.extra, info.comment, info.internal_attr, info.volume) == (b"", b"", 0, 0)
        mode = 0o100755 if info.filename == "b/run" else 0o100644
        assert info.external_attr == mode << 16
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        assert opened.comment == b""


def test_entries_of_a_package_are_sorted() -> None:
    """By the bytes of their paths, however they came; folders are not written."""
    paths = [
        *("skills/a/SKILL.md", "skills/a-b/SKILL.md", "skills/a/\U0001f600", "skills/a/\uffee"),
        *("memory/b.md", "memory/B/a.md", "MEMORY.md", "skills/a.b/SKILL.md", "memory/й.md"),
    ]
    entries = [Zipped(path.encode(), TEXT) for path in paths]
    entries += [Zipped(b"SOUL.md", SOUL), Zipped(b"memory/"), Zipped(b"agent.config.json", CONFIG)]
    data = b"".join(pack(package_of(archive(*entries))))
    names = [info.filename.encode() for info in infos(data)]
    assert names == sorted([*(p.encode() for p in paths), b"SOUL.md", b"agent.config.json"])
    for seed in range(5):
        random.Random(seed).shuffle(entries)
        assert b"".join(pack(package_of(archive(*entries)))) == data


@pytest.mark.parametrize(
    ("content", "method"),
    [
        (b"", STORED),
        (b"x", STORED),
        (noise(1000), STORED),
        (noise(MIB), STORED),
        (b"x" * 100, DEFLATED),
        (b"text " * 100_000, DEFLATED),
        (noise(MIB + 1), DEFLATED),  # it is not held whole, so it is not known to be no smaller
    ],
    ids=lambda value: str(len(value)) if isinstance(value, bytes) else None,
)
def test_a_content_is_deflated_where_that_is_shorter(content: bytes, method: int) -> None:
    """A small one that would not be is stored; either way it comes back."""
    data = written({"a": content})
    (info,) = infos(data)
    assert info.compress_type == method
    assert read(data) == [("a", False, False, content)]


SPLITS: Final = [1, 2, 1000, MIB - 1, MIB, MIB + 1, 3 * MIB]


def cut(content: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


@pytest.mark.parametrize("size", SPLITS)
@pytest.mark.parametrize(
    "content",
    [
        noise(4000),
        b"text " * 800,
        noise(MIB),
        b"text " * (MIB // 5),
        noise(MIB + 1),
        noise(9) * MIB,
    ],
    ids=["noise", "text", "1 MiB of noise", "1 MiB of text", "more noise", "9 MiB"],
)
def test_how_a_content_comes_makes_no_difference(content: bytes, size: int) -> None:
    """The same bytes are written, whatever pieces it comes in, empty ones too."""
    if size < 1000 and len(content) > 4000:
        size *= 1009  # single bytes would take long
    whole = written({"a": content, "b": TEXT})
    assert written({"a": cut(content, size), "b": TEXT}) == whole
    with_empty = (piece for part in cut(content, size) for piece in (b"", part, b""))
    assert written({"a": with_empty, "b": iter([TEXT])}) == whole


def test_no_content_is_no_piece_or_an_empty_one() -> None:
    """The same bytes are written for both."""
    nothing: tuple[bytes, ...] = ()
    assert written({"a": nothing}) == written({"a": b""}) == written({"a": (b"", b"")})


def test_an_archive_of_nothing_is_an_end_record() -> None:
    """And it is read as one without entries."""
    assert written({}) == archive()
    assert read(written({})) == []


@pytest.mark.parametrize("seed", range(40))
def test_what_is_written_is_read(seed: int) -> None:
    """Paths, contents of any size and which of them can be run, by ours and by Python's reader."""
    draw = random.Random(seed)
    names = ["a", "b b", "-c", "...", "é", "\U0001f600", "n" * 250, "й\u0301", "PK\5\6", "'\"\n"]
    paths = sorted(
        {
            "/".join(["skills", "s", *draw.sample(names, draw.randint(1, 3)), str(n)])
            for n in range(9)
        },
        key=str.encode,
    )
    files: dict[str, bytes | Iterable[bytes]] = {}
    for path in paths:
        size = draw.choice([0, 1, 5, 300, 5000, 70_000])
        files[path] = draw.choice([bytes(size), draw.randbytes(size), b"PK\5\6" * (size // 4)])
    runs = draw.sample(paths, 3)
    data = written(files, runs=runs)
    assert read(data) == [(path, False, path in runs, files[path]) for path in paths]
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        assert {name: opened.read(name) for name in opened.namelist()} == files


def test_a_content_that_looks_like_an_end_is_read() -> None:
    """An asset that holds what fits as an end record does not make the package one with two."""
    behind = 46 + len("a") + 22
    content = noise(50) + b"PK\5\6" + noise(16, 2) + struct.pack("<H", behind)
    data = written({"a": content})
    end = data.rindex(b"PK\5\6")
    assert data[end + 20 :] == b"\1\0 "  # a comment, so that only one of the two fits
    assert data[:end].endswith(struct.pack("<H", behind) + data[end - 47 : end])
    assert read(data) == [("a", False, False, content)]


# -- limits


def test_20_000_entries_are_written() -> None:
    """And not one more."""
    writer = ArchiveWriter()
    for number in range(MAX_ENTRIES):
        writer.add(f"{number:05}", (b"",))
    assert len(Archive(b"".join(writer.finish())).entries) == MAX_ENTRIES
    with pytest.raises(Refusal) as caught:
        writer.add("one more", (b"",))
    assert caught.value.code == "package-entries"


def test_25_mib_are_written() -> None:
    """And not a byte more; what a directory and the end take is counted."""
    pieces = [noise(MIB, seed) for seed in range(25)]
    parts: dict[str, bytes | Iterable[bytes]] = {}
    for number, piece in enumerate(pieces):
        parts[f"{number:02}"] = piece
    around = 25 * (30 + 46 + 2 * 2) + 22
    parts["24"] = pieces[24][: MIB - around]
    data = written(parts)
    assert len(data) == MAX_UPLOAD
    assert len(Archive(data).entries) == 25
    parts["24"] = pieces[24][: MIB - around + 1]
    with pytest.raises(Refusal) as caught:
        written(parts)
    assert caught.value.code == "package-upload-size"


class Counted:
    """Pieces for ever; it counts those that were taken."""

    def __init__(self, piece: bytes) -> None:
        self.piece = piece
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.taken += 1
            yield self.piece


def test_a_content_that_is_too_long_packed_is_not_read_to_its_end() -> None:
    """It is refused soon after 25 MiB are full."""
    pieces = Counted(noise(MIB))
    with pytest.raises(Refusal) as caught:
        written({"a": pieces})
    assert caught.value.code == "package-upload-size"
    assert pieces.taken <= 27


def test_128_mib_are_packed() -> None:
    """And not a byte more, in one file or in all, whatever it packs to; the refusal names it."""
    zeros = bytes(MIB)

    def half(more: bytes = b"") -> Iterator[bytes]:
        for _ in range(MAX_UNPACKED // MIB // 2):
            yield zeros
        yield more

    data = written({"a": half(), "b": half()})
    assert sum(entry.size for entry in Archive(data).entries) == MAX_UNPACKED
    with pytest.raises(Refusal) as caught:
        written({"a": half(), "b": half(b"x")})
    assert caught.value.code == "package-unpacked-size"
    assert caught.value.details["path"] == "b"
    pieces = Counted(zeros)
    with pytest.raises(Refusal) as caught:
        written({"a": pieces})
    assert caught.value.code == "package-unpacked-size"
    assert pieces.taken == MAX_UNPACKED // MIB + 1
