from __future__ import annotations

import io
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.paths import END_NAME, MANIFEST_NAME
from agentmove_tools.stream.tar_reader import MoveReader
from tests.stream.tars import (
    BEFORE_POSIX,
    END,
    MANIFEST,
    OLD_GNU,
    Chunked,
    Read,
    digest,
    extended,
    file,
    folder,
    hashed,
    header,
    link,
    manifest,
    padded,
    pax,
    read,
    record,
    stream,
)

TIME: Final = 1_700_000_000
X: Final = hashed(b"x")
HASH: Final = digest(b"x")
SUM: Final = b"%08x" % zlib.crc32(record(b"LNK.sha256", HASH))
LONG: Final = b"files/" + b"n" * 200
LARGE: Final = bytes(range(251)) * 12_000  # about 3 MB


def x_file(name: bytes = b"files/a", *, mode: int = 0o644, mtime: int = TIME) -> Read:
    """What is read of a file that holds an x."""
    return (name, "file", mode, mtime, b"x")


def block(**fields: bytes | int) -> bytes:
    """The header and content of the file ``files/a`` that holds an x."""
    return header(b"files/a", b"0", **{"size": 1, **fields}) + padded(b"x")  # type: ignore[arg-type] # each is of its kind


# -- what is taken

TAKEN: Final[dict[str, tuple[bytes, Read]]] = {
    "a size in base 256": (X + block(size=b"\x80" + bytes(10) + b"\x01"), x_file()),
    "a time in base 256": (
        X + block(mtime=b"\x80" + bytes(3) + (1 << 40).to_bytes(8, "big")),
        x_file(mtime=1 << 40),
    ),
    "a negative time in base 256": (X + block(mtime=b"\xff" * 11 + b"\xfb"), x_file(mtime=-5)),
    "an owner in base 256": (X + block(uid=b"\x80" + bytes(3) + b"\xff" * 4), x_file()),
    "an owner below zero": (X + block(uid=b"\xff" * 7 + b"\xfe"), x_file()),
    "no owner": (X + block(uid=bytes(8), gid=b" " * 8), x_file()),
    "numbers with spaces": (X + block(mode=b"   644 \0", size=b"          1 "), x_file()),
    "numbers without an end": (X + block(size=b"0" * 11 + b"1", mode=b"00000644"), x_file()),
    "a number that ends early": (X + block(mtime=b"17 \0\0\0\0\0\0\0\0\0"), x_file(mtime=15)),
    "a checksum of seven digits": (
        X + block(checksum=b"%07o\0" % (sum(block()[:512]) - sum(block()[148:156]) + 256)),
        x_file(),
    ),
    "a checksum with a space first": (
        X + block(checksum=b"%06o \0" % (sum(block()[:512]) - sum(block()[148:156]) + 256)),
        x_file(),
    ),
    "a type and more bits in the mode": (X + block(mode=b"0104755\0"), x_file(mode=0o755)),
    "the old type of a file": (X + header(b"files/a", b"\0", 1) + padded(b"x"), x_file()),
    "a header from before POSIX": (
        X + block(magic=BEFORE_POSIX, tail=bytes(80), prefix=b"none"),
        x_file(),
    ),
    "GNU's old header": (X + block(magic=OLD_GNU, prefix=b"14412345670\0"), x_file()),
    "no device": (X + block(tail=bytes(80)), x_file()),
    "a prefix": (
        X + header(b"c/a", b"0", 1, prefix=b"files/b") + padded(b"x"),
        x_file(b"files/b/c/a"),
    ),
    "a prefix and a name of full length": (
        X + header(b"n" * 100, b"0", 1, prefix=b"files/" + b"d" * 149) + padded(b"x"),
        x_file(b"files/" + b"d" * 149 + b"/" + b"n" * 100),
    ),
    "a long name": (
        X + extended(LONG + b"\0", b"L", b"././@LongLink") + block(),
        x_file(LONG),
    ),
    "a long name without its NUL": (X + extended(LONG, b"L") + block(), x_file(LONG)),
    "a long link": (
        extended(b"t" * 200 + b"\0", b"K") + link(b"files/l", b"t" * 100),
        (b"files/l", "link", 0o644, TIME, b"t" * 200),
    ),
    "a long link and a long name": (
        extended(b"t" * 200 + b"\0", b"K")
        + extended(LONG + b"\0", b"L")
        + link(b"files/l", b"t" * 100),
        (LONG, "link", 0o644, TIME, b"t" * 200),
    ),
    "a PAX path": (pax(LNK_sha256=HASH, path=LONG) + block(), x_file(LONG)),
    "a PAX path over a prefix": (
        pax(LNK_sha256=HASH, path=b"files/b") + block(prefix=b"../.."),
        x_file(b"files/b"),
    ),
    "a PAX path with a newline and an equals sign": (
        pax(LNK_sha256=HASH, path=b"files/a\n=b") + block(),
        x_file(b"files/a\n=b"),
    ),
    "a PAX path of a folder": (
        pax(path=LONG + b"/") + folder(b"files/x/"),
        (LONG, "folder", 0o755, TIME, b""),
    ),
    "a PAX link": (
        pax(linkpath=b"t" * 200) + link(b"files/l", b"other"),
        (b"files/l", "link", 0o644, TIME, b"t" * 200),
    ),
    "a PAX size": (pax(LNK_sha256=HASH, size=b"1") + block(), x_file()),
    "a PAX time": (pax(LNK_sha256=HASH, mtime=b"12") + block(), x_file(mtime=12)),
    "a fraction": (pax(LNK_sha256=HASH, mtime=b"12.999999") + block(), x_file(mtime=12)),
    "no fraction": (pax(LNK_sha256=HASH, mtime=b"12.") + block(), x_file(mtime=12)),
    "a time below zero": (pax(LNK_sha256=HASH, mtime=b"-12") + block(), x_file(mtime=-12)),
    "a fraction below zero": (pax(LNK_sha256=HASH, mtime=b"-12.5") + block(), x_file(mtime=-13)),
    "none below zero": (pax(LNK_sha256=HASH, mtime=b"-12.000") + block(), x_file(mtime=-12)),
    "a little below zero": (pax(LNK_sha256=HASH, mtime=b"-0.1") + block(), x_file(mtime=-1)),
    "other records": (
        pax(atime=b"nan", LNK_sha256=HASH, comment=b"\0\xff\n", uid=b"-", SCHILY_xattr=b"")
        + block(),
        x_file(),
    ),
    "a large PAX header": (
        pax(LNK_sha256=HASH, comment=b"c" * ((1 << 20) - 100)) + block(),
        x_file(),
    ),
    "an empty PAX header": (
        pax() + folder(b"files/d/"),
        (b"files/d", "folder", 0o755, TIME, b""),
    ),
    "a folder without a slash": (folder(b"files/d"), (b"files/d", "folder", 0o755, TIME, b"")),
    "a PAX header whose name has a good sum": (
        extended(
            record(b"LNK.sha256", HASH),
            name=b"PaxHeaders/LNK.crc32=%08x" % zlib.crc32(record(b"LNK.sha256", HASH)),
        )
        + block(),
        x_file(),
    ),
    "a name of four kilobytes": (
        pax(LNK_sha256=HASH, path=b"files/" + b"/".join([b"n" * 408] * 10)) + block(),
        x_file(b"files/" + b"/".join([b"n" * 408] * 10)),
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_other_writers_write_is_taken(name: str) -> None:
    """As they mean it."""
    data, what = TAKEN[name]
    assert read(stream(data)) == [what]
    assert read(stream(data, file(b"files/z")), [100]) == [what, x_file(b"files/z")]


def test_the_manifest_and_the_end_need_no_hash() -> None:
    """But it is no harm, and other headers may come before them too."""
    start = header(MANIFEST_NAME, b"\0", len(MANIFEST % b"copy")) + padded(MANIFEST % b"copy")
    assert read(start + folder(b"files/") + header(END_NAME)) == [
        (b"files", "folder", 0o755, TIME, b"")
    ]
    named = pax(path=MANIFEST_NAME) + header(b"x", size=len(MANIFEST % b"copy"))
    named += padded(MANIFEST % b"copy")
    assert read(named + extended(END_NAME + b"\0", b"L") + header(b"x")) == []


def test_zeros_after_the_end_are_taken_in_any_number() -> None:
    """None, a part of a block, and megabytes."""
    for zeros in (0, 1, 512, 3 << 20):
        assert read(manifest() + END + bytes(zeros)) == []


def test_folders_need_not_be_listed_and_may_be_later() -> None:
    """Once each."""
    data = stream(file(b"files/a/b/c"), folder(b"files/a/"), file(b"files/a/d"), folder(b"files/"))
    reader = MoveReader(io.BytesIO(data))
    kinds = [
        (entry.path, reader.kind_of(b"files"), reader.kind_of(b"files/a/b")) for entry in reader
    ]
    assert kinds == [
        (b"files/a/b/c", "implied", "implied"),
        (b"files/a", "implied", "implied"),
        (b"files/a/d", "implied", "implied"),
        (b"files", "folder", "implied"),
    ]


def test_what_was_in_the_stream_is_remembered() -> None:
    """Kinds and hashes by path, long ones too; nothing of what was not there."""
    long = b"files/" + b"n" * 4000
    data = stream(
        folder(b"files/d/"),
        link(b"files/d/l", b"a"),
        file(b"files/d/x", b"12"),
        pax(LNK_sha256=HASH, path=long) + block(),
    )
    reader = MoveReader(io.BytesIO(data))
    for _ in reader:
        pass
    assert [reader.kind_of(path) for path in (b"files/d", b"files/d/l", b"files/d/x", long)] == [
        "folder",
        "link",
        "file",
        "file",
    ]
    assert reader.digest_of(b"files/d/x") == bytes.fromhex(digest(b"12").decode())
    assert reader.digest_of(long) == bytes.fromhex(HASH.decode())
    for path in (b"files/d", b"files/d/l", b"files/none", b"files", END_NAME):
        assert reader.digest_of(path) is None
    assert reader.kind_of(b"files/none") is None
    assert reader.kind_of(END_NAME) is None
    assert reader.kind_of(MANIFEST_NAME) is None


def test_links_may_point_anywhere_where_that_was_asked_for() -> None:
    """The default is not to."""
    data = stream(link(b"files/l", b"/etc/passwd"))
    assert read(data, any_links=True) == [(b"files/l", "link", 0o644, TIME, b"/etc/passwd")]
    with pytest.raises(Refusal):
        read(data)


# -- what is refused

REFUSED: Final[list[tuple[str, bytes, str | None]]] = [
    # the header
    ("stream-tar", X + block(checksum=b"0012345\0"), None),
    ("stream-tar", X + block(checksum=b" " * 8), None),
    ("stream-tar", X + block(checksum=bytes(8)), None),
    ("stream-tar", X + block(size=b"0000000000x\0"), None),
    ("stream-tar", X + block(size=b"00000000008\0"), None),
    ("stream-tar", X + block(size=b"0000000009 \0"), None),
    ("stream-tar", X + block(size=b"-0000000001\0"), None),
    ("stream-tar", X + block(size=b"+0000000001\0"), None),
    ("stream-tar", X + block(size=b"0x00000001\0\0"), None),
    ("stream-tar", X + block(size=b"0000_000001\0"), None),
    ("stream-tar", X + block(size=b"1\x000000000001"), None),
    ("stream-tar", X + block(size=b"1 1         "), None),
    ("stream-tar", X + block(size=b"\t         1\0"), None),
    ("stream-tar", X + block(size=b"\xff" * 12), None),
    ("stream-tar", X + block(size=b"\x80" + b"\xff" * 11), None),
    ("stream-tar", X + block(size=b"\xbf" + b"\xff" * 11), None),
    ("stream-tar", X + block(mtime=b"0000000000x\0"), None),
    ("stream-tar", X + block(mtime=b"00000000009\0"), None),
    ("stream-tar", X + block(mtime=b"\x80" + b"\xff" * 11), None),
    ("stream-tar", X + block(mode=b"0000abc\0"), None),
    ("stream-tar", X + block(mode=b"\xff" * 8), None),
    ("stream-tar", X + block(uid=b"abcdefgh"), None),
    ("stream-tar", X + block(gid=b"0000008\0"), None),
    ("stream-tar", X + block(magic=b"ustar\x0001"), None),
    ("stream-tar", X + block(magic=b"ustar 00"), None),
    ("stream-tar", X + block(magic=b"notatar!"), None),
    ("stream-tar", X + block(tail=bytes(64) + b"x" * 16), None),
    ("stream-tar", X + header(b"files/a\0b", b"0", 1) + padded(b"x"), None),
    ("stream-tar", X + header(b"a", b"0", 1, prefix=b"files\0x") + padded(b"x"), None),
    ("stream-tar", header(b"files/l", b"2", target=b"a\0b"), None),
    # PAX headers
    ("stream-tar", X + X + block(), None),
    ("stream-tar", X + extended(b"files/b\0", b"L") + X + block(), None),
    ("stream-tar", extended(b"files/b\0", b"L") + X + block(), None),
    ("stream-tar", X + extended(b"files/b\0", b"L") * 2 + block(), None),
    ("stream-tar", extended(b"a\0", b"K") * 2 + link(b"files/l", b"x"), None),
    ("stream-tar", pax(LNK_sha256=HASH, path=b"files/b") + extended(LONG, b"L") + block(), None),
    ("stream-tar", pax(LNK_sha256=HASH, size=b"1") + extended(LONG, b"L") + block(), None),
    ("stream-tar", pax(linkpath=b"a") + extended(b"b", b"K") + link(b"files/l", b"x"), None),
    ("stream-tar", pax(linkpath=b"a") + extended(b"files/b", b"L") + link(b"files/l", b"x"), None),
    ("stream-tar", X + extended(b"", b"L") + block(), None),
    ("stream-tar", X + extended(b"\0", b"L") + block(), None),
    ("stream-tar", X + extended(b"files/b\0c\0", b"L") + block(), None),
    ("stream-tar", X + extended(b"files/b\0\0", b"L") + block(), None),
    ("stream-tar", X + extended(b"files/b", b"L").replace(b"b\0", b"bx", 1) + block(), None),
    ("stream-tar", X + header(b"x", b"L", (1 << 20) + 1) + bytes(1 << 21) + block(), None),
    ("stream-tar", header(b"x", b"x", (1 << 20) + 1) + bytes(1 << 21) + block(), None),
    ("stream-tar", extended(record(b"LNK.sha256", HASH) * 2) + block(), None),
    ("stream-tar", extended(record(b"a", b"b") * 2) + X + block(), None),
    ("stream-tar", extended(record(b"", b"b")) + block(), None),
    ("stream-tar", extended(record(b"LNK.sha256", HASH)[:-1]) + block(), None),
    ("stream-tar", extended(record(b"LNK.sha256", HASH) + b"\0") + block(), None),
    ("stream-tar", extended(b"79 LNK.sha256=" + HASH + b"\r") + block(), None),
    ("stream-tar", extended(b"079 LNK.sha256=" + HASH + b"\n") + block(), None),
    ("stream-tar", extended(b" 79 LNK.sha256=" + HASH + b"\n") + block(), None),
    ("stream-tar", extended(b"78 LNK.sha256=" + HASH + b"\n") + block(), None),
    ("stream-tar", extended(b"80 LNK.sha256=" + HASH + b"\n") + block(), None),
    ("stream-tar", extended(b"-9 LNK.sha256=" + HASH + b"\n") + block(), None),
    ("stream-tar", extended(b"79\tLNK.sha256=" + HASH + b"\n") + block(), None),
    ("stream-tar", extended(b"7 a\nb\n\n") + block(), None),
    ("stream-tar", extended(b"2 ") + block(), None),
    ("stream-tar", extended(b"3 \n") + block(), None),
    ("stream-tar", extended(b"0 ") + block(), None),
    ("stream-tar", extended(b"99999999 a=b\n") + block(), None),
    ("stream-tar", extended(b"9" * 5000) + block(), None),
    ("stream-tar", pax(LNK_sha256=HASH.upper()) + block(), None),
    ("stream-tar", pax(LNK_sha256=HASH[:-1] + b"g") + block(), None),
    ("stream-tar", pax(LNK_sha256=HASH[:-1]) + block(), None),
    ("stream-tar", pax(LNK_sha256=b"") + block(), None),
    ("stream-tar", X[:-1] + b"x" + block(), None),
    ("stream-tar", pax(LNK_sha256=HASH, path=b"files/a\0b") + block(), None),
    ("stream-tar", pax(linkpath=b"a\0") + link(b"files/l", b"x"), None),
    (
        "stream-tar",
        extended(record(b"LNK.sha256", HASH), name=b"PaxHeaders/LNK.crc32=00000000") + block(),
        None,
    ),
    ("stream-tar", pax(LNK_sha256=HASH, size=b"") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, size=b"01") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, size=b" 1") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, size=b"1.0") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, size=b"1\n") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, size=b"\xd9\xa1") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, size=b"9" * 5000) + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, size=b"2") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, size=b"0") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, size=b"1") + block(size=0), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, size=b"8589934592") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, mtime=b"") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, mtime=b"nan") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, mtime=b"1e5") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, mtime=b"+5") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, mtime=b".5") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, mtime=b"5\n") + block(), "files/a"),
    ("stream-tar", pax(LNK_sha256=HASH, mtime=b"9" * 5000) + block(), "files/a"),
    # zeros
    ("stream-tar", bytes(512) + file(b"files/a"), None),
    ("stream-tar", X + bytes(1024), None),
    ("stream-tar", extended(LONG, b"L") + bytes(1024), None),
    ("stream-cut", bytes(1024) + file(b"files/a"), None),
    # types
    ("entry-type", header(b"files/a", b"1", target=b"files/b"), "files/a"),
    ("entry-type", header(b"files/a", b"3"), "files/a"),
    ("entry-type", header(b"files/a", b"4"), "files/a"),
    ("entry-type", header(b"files/a", b"6"), "files/a"),
    ("entry-type", X + header(b"files/a", b"7", 1) + padded(b"x"), "files/a"),
    ("entry-type", X + header(b"files/a", b"S", 1) + padded(b"x"), "files/a"),
    ("entry-type", X + header(b"files/a", b"X", 1) + padded(b"x"), "files/a"),
    ("entry-type", X + header(b"files/a", b"\xff", 1) + padded(b"x"), "files/a"),
    ("entry-type", header(b"files/a", b"D"), "files/a"),
    ("entry-type", extended(record(b"comment", b"x"), b"g"), "PaxHeaders/x"),
    ("entry-type", X + extended(record(b"comment", b"x"), b"g") + block(), "PaxHeaders/x"),
    ("entry-type", pax(LNK_sha256=HASH, GNU_sparse_major=b"1") + block(), "files/a"),
    ("entry-type", pax(GNU_sparse_name=b"files/b") + folder(b"files/d/"), "files/d/"),
    # content
    ("stream-tar", header(b"files/l", b"2", 1, target=b"a") + padded(b"x"), "files/l"),
    ("stream-tar", header(b"files/d/", b"5", 1) + padded(b"x"), "files/d"),
    ("stream-tar", X + block()[:-1] + b"x", "files/a"),
    (
        "stream-tar",
        hashed(LARGE) + header(b"files/a", b"0", len(LARGE)) + padded(LARGE)[:-1] + b"x",
        "files/a",
    ),
    # paths
    ("entry-path", file(b"files/a/"), "files/a/"),
    ("entry-path", file(b"files//a"), "files//a"),
    ("entry-path", file(b"./files/a"), "./files/a"),
    ("entry-path", file(b"files/a") + file(b"files/."), "files/."),
    ("entry-path", file(b"files/a") + file(b"files/.."), "files/.."),
    ("entry-path", file(b"files/a") + file(b"files/"), "files/"),
    ("entry-path", folder(b"files//"), "files/"),
    ("entry-path", folder(b"/"), ""),
    ("entry-path", file(b""), ""),
    ("entry-path", file(b"files"), "files"),
    ("entry-path", file(b"files/a") + file(b"files/\xff"), "files/\\xff"),
    ("entry-path", file(b"files/\xed\xa0\x80"), "files/\\xed\\xa0\\x80"),
    ("entry-path", pax(LNK_sha256=HASH, path=b"") + block(), ""),
    ("entry-folder", file(b"agent.json"), "agent.json"),
    ("entry-folder", file(b"PaxHeaders/x"), "PaxHeaders/x"),
    ("entry-folder", manifest(), MANIFEST_NAME.decode()),
    ("schedule-place", file(b"schedule/paused", b""), "schedule/paused"),
    ("schedule-place", file(b"schedule/waiting/a.txt"), "schedule/waiting/a.txt"),
    ("entry-duplicate", file(b"files/a") * 2, "files/a"),
    ("entry-duplicate", folder(b"files/a") * 2, "files/a"),
    ("entry-duplicate", file(b"files/a") + folder(b"files/a"), "files/a"),
    ("entry-duplicate", link(b"files/a", b"b") + file(b"files/a"), "files/a"),
    ("entry-parent", file(b"files/a/b") + file(b"files/a"), "files/a"),
    ("entry-parent", folder(b"files/a") + link(b"files/a", b"b"), "files/a"),
    ("entry-parent", file(b"files/a") + file(b"files/a/b/c"), "files/a/b/c"),
    ("entry-parent", link(b"files/a", b"b") + folder(b"files/a/b"), "files/a/b"),
    ("entry-link", link(b"files/l", b""), "files/l"),
    ("entry-link", link(b"files/l", b"../../x"), "files/l"),
    ("entry-link", link(b"files/l", b"\xff"), "files/l"),
    ("entry-link", link(b"connections/l", b"a"), "connections/l"),
    # hashes
    ("hash-missing", block(), "files/a"),
    ("hash-missing", pax(LNK_sha1=b"x") + block(), "files/a"),
    ("hash-missing", folder(b"files/d") + block(), "files/a"),
    ("hash-mismatch", hashed(b"y") + block(), "files/a"),
    ("hash-mismatch", hashed(b"x") + header(b"files/a"), "files/a"),
    (
        "hash-mismatch",
        hashed(LARGE[:-1]) + header(b"files/a", b"0", len(LARGE)) + padded(LARGE),
        "files/a",
    ),
    ("hash-mismatch", hashed(b"x") + header(END_NAME), END_NAME.decode()),
    ("schedule-json", file(b"schedule/day.json", b"[1, 2]"), "schedule/day.json"),
    (
        "schedule-json",
        file(b"schedule/day.json", b"[" + b"1" * (16 << 20) + b"]"),
        "schedule/day.json",
    ),
    # the end
    ("stream-after-end", header(END_NAME, b"0", 1) + padded(b"x"), END_NAME.decode()),
    ("stream-after-end", folder(END_NAME + b"/"), END_NAME.decode()),
    ("stream-after-end", link(END_NAME, b"a"), END_NAME.decode()),
    ("stream-after-end", END + file(b"files/a"), None),
    ("stream-after-end", END + bytes(10_000) + b"\n", None),
]


@pytest.mark.parametrize(("code", "bad", "path"), REFUSED, ids=range(len(REFUSED)))
@pytest.mark.parametrize("count", [1 << 20, 1000])
def test_it_is_refused_and_named(code: str, bad: bytes, path: str | None, count: int) -> None:
    """With its code; by its path where that is known, and the byte where it is in any case."""
    with pytest.raises(Refusal) as caught:
        read(stream(bad, file(b"files/z")), [count])
    refusal = caught.value
    assert refusal.code == code
    assert refusal.details.get("path") == path
    offset = refusal.details["offset"]
    assert isinstance(offset, int)
    assert offset >= len(manifest())
    if not path:
        assert refusal.place == f"byte {offset}"
    else:
        assert refusal.place == path


def test_the_byte_is_where_the_entry_starts() -> None:
    """With the headers before it; counted from the stream's start."""
    before = manifest() + file(b"files/large", LARGE) + file(b"files/b")
    with pytest.raises(Refusal) as caught:
        read(before + X + extended(b"files/../c", b"L") + block() + END)
    assert caught.value.details["offset"] == len(before)
    zeros = bytes(3_000_000)
    with pytest.raises(Refusal) as caught:
        read(manifest() + END + zeros + b"x")
    assert caught.value.details["offset"] == len(manifest() + END + zeros)


ORDERED: Final = [
    ("stream-tar", header(b"../x", b"6", 1, checksum=b"0000000\0")),
    ("stream-tar", extended(record(b"a", b"b") * 2) + header(b"../x", b"6", 1)),
    ("entry-type", header(b"../x", b"6", 1) + padded(b"x")),
    ("stream-tar", header(b"../x/", b"5", 1) + padded(b"x")),
    ("entry-path", file(b"logs/../x", b"y")),
    ("entry-folder", link(b"logs/x", b"/")),
    ("schedule-place", file(b"schedule/later/day.json", b"y")),
    ("entry-parent", file(b"files/a/b") + link(b"files/a", b"/")),
    ("entry-duplicate", file(b"files/a") + link(b"files/a", b"/")),
    ("entry-parent", file(b"files/a") + header(b"files/a/b", size=1) + padded(b"x")),
    ("hash-mismatch", X + header(b"schedule/day.json", size=1) + padded(b"y")),
]


@pytest.mark.parametrize(("code", "bad"), ORDERED, ids=range(len(ORDERED)))
def test_of_several_faults_the_first_in_order_counts(code: str, bad: bytes) -> None:
    """Header, PAX header, type, content, path, folder, place, parent, link, hash, form."""
    with pytest.raises(Refusal) as caught:
        read(stream(bad))
    assert caught.value.code == code


FIRST: Final = [
    ("stream-not-move", b""),
    ("stream-not-move", b"x"),
    ("stream-not-move", bytes(512)),
    ("stream-not-move", bytes(10240)),
    ("stream-not-move", b"x" * 10240),
    ("stream-not-move", file(b"files/a") + manifest()),
    ("stream-not-move", folder(MANIFEST_NAME) + manifest()),
    ("stream-not-move", header(MANIFEST_NAME, b"2", target=b"x") + manifest()),
    ("stream-not-move", extended(record(b"comment", b"x"), b"g") + manifest()),
    ("stream-not-move", b"\n" + manifest()),
    ("stream-not-move", file(b"./" + MANIFEST_NAME, MANIFEST % b"copy")),
    ("stream-format", file(b"lnk-move-3.json")),
    ("stream-format", file(b"lnk-move-40.json")),
    ("stream-not-move", file(b"lnk-move-x.json")),
    ("stream-not-move", file(b"lnk-move-.json")),
    ("stream-tar", header(MANIFEST_NAME, size=(64 << 20) + 1)),
    ("stream-cut", header(MANIFEST_NAME, size=64 << 20)),
    ("stream-tar", file(MANIFEST_NAME, MANIFEST % b"copy")[:-1] + b"x"),
    ("stream-tar", X + X + manifest()),
    ("entry-type", pax(GNU_sparse_major=b"1") + header(MANIFEST_NAME)),
    ("hash-mismatch", X + header(MANIFEST_NAME)),
    ("manifest-json", file(MANIFEST_NAME, b"{")),
    ("manifest-json", file(MANIFEST_NAME, b"")),
    ("manifest-field", file(MANIFEST_NAME, MANIFEST % b"move")),
]


@pytest.mark.parametrize(("code", "start"), FIRST, ids=range(len(FIRST)))
def test_the_first_entry_is_a_manifest(code: str, start: bytes) -> None:
    """Or nothing of it is read further."""
    with pytest.raises(Refusal) as caught:
        MoveReader(io.BytesIO(start))
    assert caught.value.code == code


HINTS: Final = [
    (b"", "nothing came"),
    (b"Last login: today\n" + manifest(), "18 bytes of text come first"),
    (b"\x1f\x8b\x08" + bytes(600), "gzip -d"),
    (b"LNKSEAL1" + bytes(600), "lnk-unseal"),
    (MANIFEST % b"copy", "lnk-tar-create"),
    (manifest().replace(b"\n", b"\r\n"), "ssh -T"),
    (file(b"files/a"), "lnk-tar-create"),
]


@pytest.mark.parametrize(("data", "hint"), HINTS, ids=range(len(HINTS)))
def test_a_known_accident_gets_a_hint(data: bytes, hint: str) -> None:
    """What it looks like, and what to do."""
    with pytest.raises(Refusal) as caught:
        MoveReader(io.BytesIO(data))
    assert caught.value.hint is not None
    assert hint in caught.value.hint


WHOLE: Final = stream(
    folder(b"files/"),
    file(b"files/a", b"a" * 700),
    X + extended(LONG + b"\0", b"L") + block(),
    pax(LNK_sha256=HASH, path=b"files/\xc3\xa9") + block(),
    file(b"files/z"),
)


def test_a_cut_is_found_wherever_it_is() -> None:
    """Before the end's own header is whole; at a block's edge too."""
    end = WHOLE.rindex(END_NAME) + 512
    assert read(WHOLE[:end])
    cuts = {*range(263, end, 37), *range(512, end, 512), *range(511, end, 512), end - 1}
    for cut in sorted(cuts):
        with pytest.raises(Refusal) as caught:
            read(WHOLE[:cut])
        assert caught.value.code == "stream-cut"
        assert caught.value.details["offset"] == cut


def test_a_cut_in_a_large_file_is_found() -> None:
    """The byte is where the input ended."""
    data = manifest() + file(b"files/large", LARGE)
    for cut in (len(data) - 1, len(data) - 513, len(data) // 2):
        with pytest.raises(Refusal) as caught:
            read(data[:cut])
        assert caught.value.code == "stream-cut"
        assert caught.value.details["offset"] == cut


@pytest.mark.parametrize("zeros", [1, 511, 512, 513, 1023, 1024, 1025, 10240])
def test_zeros_without_the_end_are_a_cut(zeros: int) -> None:
    """One zero block and the end of the input, or more."""
    with pytest.raises(Refusal) as caught:
        read(manifest() + file(b"files/a") + bytes(zeros))
    assert caught.value.code == "stream-cut"


# -- content


def opened(data: bytes, counts: Iterable[int] = ()) -> MoveReader:
    return MoveReader(Chunked(data, counts))


FILES: Final = {
    b"files/0": b"",
    b"files/1": b"1" * 511,
    b"files/2": b"2" * 512,
    b"files/3": LARGE[: 1 << 20],
    b"files/4": LARGE,
    b"files/5": b"5",
    b"schedule/day.json": b"[1,2]",
}
ALL_FILES: Final = stream(*(file(name, content) for name, content in FILES.items()))


@pytest.mark.parametrize("count", [1 << 20, 65536, 1000])
def test_content_comes_whole_or_in_pieces(count: int) -> None:
    """The same; each piece is good until the next, and at most 1 MiB."""
    reader = opened(ALL_FILES, [count])
    assert {entry.path: reader.read() for entry in reader} == FILES
    reader = opened(ALL_FILES, [count])
    got = {}
    for entry in reader:
        pieces = []
        for piece in reader.chunks():
            assert len(piece) <= 1 << 20
            pieces.append(bytes(piece))
        got[entry.path] = b"".join(pieces)
    assert got == FILES


def test_content_comes_once() -> None:
    """A second time there is nothing, and for a folder there never is."""
    reader = opened(stream(folder(b"files/"), file(b"files/a"), file(b"files/l", LARGE)))
    for entry in reader:
        assert len(reader.read()) == entry.size
        assert reader.read() == b""
        assert list(reader.chunks()) == []


@pytest.mark.parametrize("take", ["read", "one", "none"])
def test_content_that_is_left_is_checked_all_the_same(take: str) -> None:
    """Whether all of it was read, a piece or none."""

    def take_all(data: bytes) -> None:
        reader = opened(data)
        for entry in reader:
            seen.append(entry.path)
            if take == "read":
                reader.read()
            elif take == "one":
                next(reader.chunks())

    seen: list[bytes] = []
    good = file(b"files/a", LARGE)
    take_all(stream(good, file(b"files/b"), file(b"files/c", LARGE)))
    assert seen == [b"files/a", b"files/b", b"files/c"]
    seen = []
    with pytest.raises(Refusal) as caught:
        take_all(stream(good[:2_000_000] + b"!" + good[2_000_001:], file(b"files/b")))
    assert caught.value.code == "hash-mismatch"
    assert seen == [b"files/a"]


def test_the_hash_is_checked_when_the_last_piece_was_given() -> None:
    """A receiver that wrote the pieces learns of it before anything else."""
    data = stream(hashed(b"x") + header(b"files/a", b"0", len(LARGE)) + padded(LARGE))
    reader = opened(data)
    next(iter(reader))
    got: list[bytes] = []
    with pytest.raises(Refusal) as caught:
        got.extend(map(bytes, reader.chunks()))
    assert caught.value.code == "hash-mismatch"
    assert b"".join(got) == LARGE


def test_an_entry_says_what_it_is() -> None:
    """A size for files only; hashes as 32 bytes; a target for links only."""
    reader = opened(
        stream(pax(LNK_sha256=HASH) + folder(b"files/"), file(b"files/a"), link(b"files/l", b"a"))
    )
    got = [(e.path, e.size, e.sha256, e.target) for e in reader]
    assert got == [
        (b"files", 0, None, None),
        (b"files/a", 1, bytes.fromhex(HASH.decode()), None),
        (b"files/l", 0, None, b"a"),
    ]


def test_a_size_that_only_a_record_can_hold_is_taken() -> None:
    """From 8 GiB on, where the header's own is 0; here the content is cut short."""
    large = pax(LNK_sha256=HASH, size=b"8589934592") + header(b"files/a") + LARGE
    reader = opened(manifest() + large)
    entry = next(iter(reader))
    assert entry.size == 8 << 30
    with pytest.raises(Refusal) as caught:
        for _ in reader.chunks():
            pass
    assert caught.value.code == "stream-cut"


# -- limits, and what is not the stream's fault


def test_limits_are_exact() -> None:
    """As many bytes and entries as were said are taken."""
    assert len(list(MoveReader(io.BytesIO(WHOLE), max_bytes=len(WHOLE), max_entries=5))) == 5
    assert len(list(MoveReader(io.BytesIO(WHOLE), max_entries=1000))) == 5
    assert list(MoveReader(io.BytesIO(stream()), max_entries=0)) == []
    for size, entries in ((len(WHOLE) - 1, None), (None, 4)):
        with pytest.raises(Refusal) as caught:
            list(MoveReader(io.BytesIO(WHOLE), max_bytes=size, max_entries=entries))
        assert caught.value.code == "stream-tar"
        assert "--max-" in caught.value.message


def test_a_large_size_takes_no_memory() -> None:
    """A header can say anything; only what comes is held."""
    import tracemalloc

    data = manifest() + X + header(b"files/a", b"0", (1 << 33) - 1) + bytes(1 << 16)
    tracemalloc.start()
    try:
        with pytest.raises(Refusal):
            read(data[: len(manifest())] + header(b"x", b"x", 1 << 20) + bytes(100))
        with pytest.raises(Refusal):
            for _ in MoveReader(io.BytesIO(data)):
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20


def test_a_source_that_fails_says_so_itself() -> None:
    """What it raises comes out as it is, out of a large file too."""

    class Failing:
        def __init__(self, data: bytes) -> None:
            self._data = io.BytesIO(data)

        def readinto(self, buffer: memoryview | bytearray, /) -> int:
            count = self._data.readinto(buffer)
            if not count:
                raise OSError(5, "Input/output error")
            return count

    large = manifest() + file(b"files/large", LARGE)
    for data in (b"", manifest(), WHOLE[:-1024], large[:1_000_000], large[:2_000_000]):
        with pytest.raises(OSError, match="Input/output"):
            for _ in MoveReader(Failing(data)):
                pass


def test_a_record_that_renames_the_end(vectors: Path) -> None:
    """A header that says it is the end and a record that says otherwise are for two readers."""
    stream = (vectors / "stream" / "good-names.tar").read_bytes()
    at = stream.index(b"files/-rf")
    pax = stream.rindex(b"ustar", 0, at) - 257
    header = bytearray(stream[pax + 1024 : pax + 1536])
    header[:100] = b"lnk-move-4.end".ljust(100, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    altered = stream[: pax + 1024] + bytes(header) + stream[pax + 1536 :]
    with pytest.raises(Refusal) as refused:
        list(MoveReader(io.BytesIO(altered)))
    assert refused.value.code == "stream-tar"
