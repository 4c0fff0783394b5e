from __future__ import annotations

import hashlib

import pytest

from agentmove_tools import line_hash
from agentmove_tools.line_hash import LineHash

LINES = [b"", b"a", b"", b"bb" * 10, b"c", b"\xff\0", b""]


@pytest.mark.parametrize("at_once", [0, 1, 10, 1 << 18])
@pytest.mark.parametrize("count", range(len(LINES) + 1))
def test_it_is_the_hash_of_the_lines_and_their_ends(
    monkeypatch: pytest.MonkeyPatch, count: int, at_once: int
) -> None:
    """However many are hashed at once; after what came before; and it may be asked on the way."""
    monkeypatch.setattr(line_hash, "_AT_ONCE", at_once)
    lines, after = LineHash(), LineHash(hashlib.sha256(b"before\n"))
    text = b""
    for line in LINES[:count]:
        lines.add(line)
        after.add(line)
        text += line + b"\n"
        assert after.digest() == hashlib.sha256(b"before\n" + text).digest()
    assert lines.digest() == hashlib.sha256(text).digest()
