from __future__ import annotations

import hashlib
import io
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.manifest import Agent, Manifest
from agentmove_tools.stream.paths import END_NAME, FILE, FOLDER, LINK
from agentmove_tools.stream.tar_reader import MoveReader
from agentmove_tools.stream.tar_writer import MoveWriter
from agentmove_tools.stream.verify import verify
from tests.stream.tars import (
    Chunked,
    Read,
    digest,
    extended,
    file,
    folder,
    header,
    link,
    manifest,
    padded,
    pax,
    read,
    stream,
)

untimed = settings(deadline=None)

# A few names, so that they meet; and any other, so that nothing is special about those.
names = st.sampled_from([b"a", b"b", b"a-", b"A", b"n" * 90, "é".encode(), b"..."]) | st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40
).filter(lambda name: name not in (".", "..")).map(str.encode)
tops = st.sampled_from([b"files", b"memory/vec", b"harness/skills/s", b"connections"])
paths = st.tuples(tops, st.lists(names, min_size=1, max_size=4)).map(
    lambda drawn: b"/".join([drawn[0], *drawn[1]])
)
modes = st.integers(0, 0o777)
times = st.integers(0, 8**11) | st.integers(-(2**40), 2**40)
contents = st.binary(max_size=80) | st.integers(500, 1600).map(lambda size: b"c" * size)
# A few short reads, or one, and then longer ones.
counts = st.tuples(st.lists(st.integers(1, 2000), max_size=20), st.integers(300, 20_000)).map(
    lambda drawn: [*drawn[0], drawn[1]]
)


@st.composite
def homes(draw: st.DrawFn) -> list[Read]:
    """What a stream may hold, sorted, with nothing under a file or a link."""
    found: dict[bytes, Read] = {}
    folders: set[bytes] = set()
    for path in sorted(draw(st.sets(paths, max_size=8))):
        parts = path.split(b"/")
        above = {b"/".join(parts[:n]) for n in range(1, len(parts))}
        if any(p in found and found[p][1] != FOLDER for p in above) or path in folders:
            continue
        folders |= above
        kind = draw(st.sampled_from([FILE, FILE, FOLDER, LINK]))
        if kind == LINK and path.startswith(b"connections"):
            kind = FOLDER
        mtime = draw(times)
        if kind == FILE:
            found[path] = (path, kind, draw(modes), mtime, draw(contents))
        elif kind == LINK:
            found[path] = (path, kind, 0o777, mtime, draw(names) + b"/x" * draw(st.integers(0, 70)))
        else:
            found[path] = (path, kind, draw(modes), mtime, b"")
            folders.add(path)
    return sorted(found.values())


def written(home: list[Read]) -> bytes:
    """Write a stream by this project's writer."""
    sink = io.BytesIO()
    writer = MoveWriter(sink, Manifest("switch", "0" * 32, "0.1.0", Agent("a", "A"), "h"))
    for path, kind, mode, mtime, what in home:
        if kind == FILE:
            writer.file(path, mode, mtime, what, hashlib.sha256(what).digest())
        elif kind == LINK:
            writer.link(path, what, mtime)
        else:
            writer.folder(path, mode, mtime)
    writer.end()
    return sink.getvalue()


@untimed
@given(homes(), counts)
def test_what_is_written_is_read(home: list[Read], reading: list[int]) -> None:
    """Whatever short reads come, and it passes as it is."""
    data = written(home)
    assert read(data, reading) == home
    out = io.BytesIO()
    verify(Chunked(data, reading), out)
    assert out.getvalue() == data


@untimed
@given(homes())
def test_it_is_written_the_same_again(home: list[Read]) -> None:
    """What was read gives the same bytes."""
    data = written(home)
    assert written(read(data)) == data


def assert_refused(data: bytes, changed: bytes, reading: list[int]) -> None:
    """Hold that ``changed`` is refused, and that its end does not pass."""
    out = io.BytesIO()
    try:
        verify(Chunked(changed, reading), out)
    except Refusal:
        pass
    else:
        raise AssertionError("it was taken")
    passed = out.getvalue()
    assert changed.startswith(passed)
    assert len(passed) <= data.rindex(END_NAME)
    assert END_NAME not in passed


@untimed
@given(homes(), st.data(), counts)
def test_every_altered_byte_is_found(
    home: list[Read], data: st.DataObject, reading: list[int]
) -> None:
    """Wherever it is: in headers, in the records before them, in content, in what fills blocks."""
    whole = written(home)
    changed = bytearray(whole)
    block = data.draw(st.integers(0, len(whole) // 512 - 1))
    place = 512 * block + data.draw(st.integers(0, 511) | st.integers(0, 160))
    changed[place] ^= data.draw(st.integers(1, 255) | st.sampled_from([0x10, 0x20]))
    assert_refused(whole, bytes(changed), reading)


@untimed
@given(homes(), st.data(), counts)
def test_every_cut_is_found(home: list[Read], data: st.DataObject, reading: list[int]) -> None:
    """Anywhere before the end's header is whole."""
    whole = written(home)
    end = whole.rindex(END_NAME) + 512
    cut = data.draw(st.integers(0, end - 1) | st.integers(0, end // 512 - 1).map(lambda n: n * 512))
    assert_refused(whole, whole[:cut], reading)


@untimed
@given(homes(), st.data(), counts)
def test_blocks_that_are_lost_repeated_or_moved_are_found(
    home: list[Read], data: st.DataObject, reading: list[int]
) -> None:
    """One alone, wherever it is, but for what nothing in a tar tells.

    Whole entries may change places, which changes nothing; so may the headers of two that are
    alike but for their names, modes and times: a hash does not say whose content it is.
    """
    whole = written(home)
    end = (whole.rindex(END_NAME) + 512) // 512
    blocks = [whole[at : at + 512] for at in range(0, len(whole), 512)]
    one = data.draw(st.integers(0, end - 1))
    how = data.draw(st.sampled_from(["lose", "repeat", "exchange"]))
    changed = list(blocks)
    if how == "exchange":
        other = data.draw(st.integers(0, end - 1))
        if blocks[one] == blocks[other]:
            return
        changed[one], changed[other] = changed[other], changed[one]
    elif how == "lose":
        if starts_alone(blocks[one]):
            return
        del changed[one]
    else:
        changed.insert(one, blocks[one])
    joined = b"".join(changed)
    if how == "exchange" and is_good(joined):
        found = read(joined)
        assert sorted(path for path, *_ in found) == [path for path, *_ in home]
        assert sorted(what for *_, what in found) == sorted(what for *_, what in home)
    else:
        assert_refused(whole, joined, reading)


def is_good(data: bytes) -> bool:
    """Whether a stream is taken."""
    return outcome(data, [1 << 20])[0] == ""


def starts_alone(block: bytes) -> bool:
    """Whether a block is a folder's or link's whole entry; one less is another good stream."""
    return block[156:157] in (b"2", b"5") and block[257:262] == b"ustar"


# -- other writers


@st.composite
def headers_of_a_file(draw: st.DrawFn) -> tuple[bytes, Read]:
    """Draw a file as some tar may write it, and what it is."""
    name = b"files/" + draw(st.sampled_from([b"a", b"b/c", b"n" * 120, "é".encode()]))
    content = draw(st.binary(max_size=20))
    mtime = draw(st.integers(0, 8**11 - 1))
    records = {"LNK_sha256": digest(content)}
    records.update(draw(st.dictionaries(st.sampled_from(["atime", "comment"]), st.binary())))
    field = draw(st.sampled_from(["plain", "spaces", "base256"]))
    size: bytes | int = len(content)
    if field == "spaces":
        size = b"%11o " % len(content)
    elif field == "base256":
        size = b"\x80" + len(content).to_bytes(11, "big")
    before = b""
    short = name
    how = draw(st.sampled_from(["name", "pax", "gnu"]))
    if how == "gnu" or (how == "name" and len(name) > 100):
        before, short = extended(name + b"\0", b"L", b"././@LongLink"), name[:100]
    elif how == "pax":
        records["path"], short = name, b"whatever"
        if draw(st.booleans()):
            records["mtime"] = b"%d.25" % mtime
    head = header(short, draw(st.sampled_from([b"0", b"\0"])), size, mtime=mtime)
    data = pax(**records) + before + head + padded(content)
    return data, (name, FILE, 0o644, mtime, content)


@untimed
@given(headers_of_a_file(), counts)
def test_files_of_other_writers_are_read(drawn: tuple[bytes, Read], reading: list[int]) -> None:
    """In every form of names and numbers that is taken."""
    data, what = drawn
    assert read(stream(data, file(b"files/z")), reading)[0] == what


PIECES: Final = [
    manifest(),
    *(b"".join([file(b"files/a"), bytes(1024)])[at : at + 512] for at in range(0, 2560, 512)),
    folder(b"files/"),
    link(b"files/l", b"a"),
    link(b"files/l", b"/"),
    header(END_NAME),
    extended(b"files/n\0", b"L"),
    extended(b"12 path=files/"),
    pax(size=b"3"),
    header(b"files/b", size=700),
    b"x",
]


@untimed
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=600), max_size=8), counts)
def test_anything_else_is_refused(parts: list[bytes], reading: list[int]) -> None:
    """No bytes bring an error that is not a refusal, and any reading gives the same one."""
    for start in (b"", manifest()):
        data = start + b"".join(parts)
        assert outcome(data, reading) == outcome(data, [1 << 20])


def outcome(data: bytes, reading: list[int]) -> tuple[str, object, list[bytes]]:
    """Give a refusal's code and details, and the paths before it; of a good stream, no code."""
    paths = []
    try:
        for entry in MoveReader(Chunked(data, reading)):
            paths.append(entry.path)  # noqa: PERF401 - what came before a refusal counts
    except Refusal as refusal:
        return refusal.code, refusal.details, paths
    return "", None, paths
