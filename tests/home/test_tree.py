from __future__ import annotations

import hashlib

from agentmove_tools.home.tree import TreeDigest


def test_the_records() -> None:
    """As the specification has them, nothing escaped; of nothing it is the hash of nothing."""
    tree = TreeDigest()
    assert tree.hexdigest() == hashlib.sha256().hexdigest()
    tree.file(b"files/a\nb", 0o7, bytes(31) + b"\xab")
    tree.link(b"files/l", b"../\xc3\xbc")
    expected = b"f 007 " + b"00" * 31 + b"ab files/a\nb\0" + b"l files/l\0../\xc3\xbc\0"
    assert tree.hexdigest() == hashlib.sha256(expected).hexdigest()


def test_many() -> None:
    """More of them than are kept waiting."""
    tree = TreeDigest()
    expected = hashlib.sha256()
    for number in range(5000):
        tree.link(b"files/%d" % number, b"x")
        expected.update(b"l files/%d\0x\0" % number)
    assert tree.hexdigest() == expected.hexdigest()
