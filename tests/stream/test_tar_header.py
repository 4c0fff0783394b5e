from __future__ import annotations

import tarfile
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmove_tools.stream.tar_header import BLOCK, ZERO_BLOCK, Header, Malformed, parse_header
from tests.stream.tars import BEFORE_POSIX, OLD_GNU, USTAR, header

untimed = settings(deadline=None)

BLOCKS = {
    "ustar": header(b"files/a", b"0", 1234),
    "old GNU": header(b"files/a", b"0", 1234, magic=OLD_GNU),
    "before POSIX": header(b"files/a", b"\0", 1234, magic=BEFORE_POSIX, tail=bytes(80)),
    "a link": header(b"files/l", b"2", target=b"a" * 100),
    "a prefix": header(b"a" * 100, b"5", prefix=b"b" * 155),
    "base 256": header(
        b"files/a", b"0", b"\x80" + (1 << 40).to_bytes(11, "big"), mtime=b"\xff" * 12
    ),
    "spaces": header(b"files/a", b"0", b"       1234 ", mode=b"   644 \0", uid=b" " * 8),
    "full of ones": header(b"\xff" * 100, b"0", 8**11 - 1, target=b"\xff" * 100),
    "a PAX header": header(b"PaxHeaders/lnk", b"x", 79),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_every_altered_byte_is_malformed(name: str) -> None:
    """Whatever it is altered to: what still parses is never another header, nor the same."""
    block = BLOCKS[name]
    parse_header(block)
    for at in range(BLOCK):
        for value in {0, 1, 32, 48, 55, 127, 128, 255, block[at] ^ 1, block[at] ^ 128}:
            if value == block[at]:
                continue
            with pytest.raises(Malformed):
                parse_header(block[:at] + bytes([value]) + block[at + 1 :])


def test_what_is_malformed_is_told_first_by_the_checksum() -> None:
    """A damaged block is a damaged block, whatever its numbers look like."""
    block = header(b"files/a", b"0", b"0000000000x\0")
    with pytest.raises(Malformed, match="number"):
        parse_header(block)
    with pytest.raises(Malformed, match="checksum"):
        parse_header(b"g" + block[1:])
    with pytest.raises(Malformed):
        parse_header(ZERO_BLOCK)


def text(size: int) -> st.SearchStrategy[str]:
    """Names that fit into a field of the header, as Python's writer cuts none of them."""
    return st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=size)


@untimed
@given(
    name=text(100).filter(lambda name: not name.endswith("/")),
    target=text(100),
    kind=st.sampled_from([tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE]),
    mode=st.integers(0, 0o7777),
    size=st.integers(0, 8**11 - 1) | st.integers(0, 2**61),
    mtime=st.integers(0, 8**11 - 1) | st.integers(-(2**61), 2**61),
    owner=st.integers(0, 2**40),
    form=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT]),
)
def test_what_python_writes_is_read(
    name: str,
    target: str,
    kind: bytes,
    mode: int,
    size: int,
    mtime: int,
    owner: int,
    form: Literal[0, 1],
) -> None:
    """Numbers of any size and sign, as far as the form has room for them."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode, member.size = kind, target, mode, size
    member.mtime, member.uid, member.gid = mtime, owner, owner
    try:
        block = member.tobuf(form)
    except ValueError:  # no room in this form
        assert form == tarfile.USTAR_FORMAT
        return
    assert len(block) == BLOCK
    expected = Header(name.encode(), kind, mode & 0o777, size, mtime, target.encode())
    assert parse_header(block) == expected


@untimed
@given(
    st.binary(min_size=100, max_size=100),
    st.binary(min_size=24, max_size=24),
    st.binary(min_size=12, max_size=12),
    st.binary(min_size=12, max_size=12),
    st.sampled_from([USTAR, OLD_GNU, BEFORE_POSIX]),
)
def test_any_bytes_are_a_header_or_malformed(
    name: bytes, owner: bytes, size: bytes, mtime: bytes, magic: bytes
) -> None:
    """Nothing else is raised, and what is taken is in its bounds."""
    block = header(
        name, b"0", size, mode=owner[:8], uid=owner[8:16], gid=owner[16:], mtime=mtime, magic=magic
    )
    try:
        found = parse_header(block)
    except Malformed:
        return
    assert 0 <= found.size < 1 << 62
    assert abs(found.mtime) < 1 << 62
    assert 0 <= found.mode <= 0o777
    assert b"\0" not in found.name
