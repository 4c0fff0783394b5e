from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from agentmove_tools.accidents import Expected, hint_for, hint_of_damage
from agentmove_tools.envelope.keys import Identity
from tests.envelope.streams import sealed

SEALED = sealed(bytes(5000), Identity(bytes(32)).recipient)[:4096]


def header(name: bytes) -> bytes:
    """Give as much of a tar header as tells that it is one."""
    return (name.ljust(257, b"\0") + b"ustar\x0000").ljust(512, b"\0")


HASH = b"79 LNK.sha256=" + b"ab" * 32 + b"\n"
MOVE = header(b"PaxHeaders/x") + HASH.ljust(512, b"\0") + header(b"lnk-move-4.json")
ZIP = b"PK\x03\x04\x14\0\n" + bytes(20) + b"SOUL.md\n"
TAR = header(b"notes.txt") + b"hello\n"


@pytest.mark.parametrize(
    ("head", "expected", "hint"),
    [
        (b"", "sealed", "nothing came"),
        (b"", "move", "nothing came"),
        (b"Welcome!\n" + SEALED, "sealed", "9 bytes of text come first: a login banner?"),
        (b"x" + SEALED, "sealed", "1 byte of text come"),
        (b"\0\1\2" + SEALED, "sealed", "3 bytes of something else"),
        (b"\x80" + SEALED, "sealed", "1 byte of something else"),
        (b"\x1b[1mHi\x1b[0m\r\n" + SEALED, "sealed", "12 bytes of text"),
        (b"Welcome!\n" + MOVE, "move", "9 bytes of text come first: a login banner?"),
        (b"Welcome!\n" + SEALED, "move", "lnk-unseal"),
        (SEALED, "move", "it is sealed: put lnk-unseal"),
        (MOVE, "sealed", "a Move Stream that is not sealed"),
        (TAR, "sealed", "a plain tar"),
        (TAR, "move", "lnk-tar-create did not make"),
        (MOVE.replace(b"\n", b"\r\n"), "move", "ssh -T"),
        (SEALED[:8] + b"a\r\nb\r\n", "sealed", "ssh -T"),
        ("LNKSEAL1".encode("utf-16"), "sealed", "PowerShell"),
        (b"\xfe\xff\0L", "move", "PowerShell"),
        (b"\xef\xbb\xbfLNKSEAL1", "sealed", "PowerShell"),
        (SEALED[:8] + b"\xef\xbf\xbd" * 10, "sealed", "UTF-8"),
        (gzip.compress(MOVE, mtime=0), "move", "gzip -d"),
        (gzip.compress(SEALED, mtime=0), "sealed", "gzip -d"),
        (b"\x28\xb5\x2f\xfd\x04", "move", "zstd"),
        (b"\xfd7zXZ\x00\x00", "move", "xz"),
        (b"BZh9", "move", "bzip2"),
        (ZIP, "move", "such as an agent package: agentfy-unpack makes a Move Stream of that"),
        (ZIP, "sealed", "such as an agent package: agentfy-verify reads that"),
        (b"age-encryption.org/v1\n", "sealed", "age -d"),
        (b"-----BEGIN AGE ENCRYPTED FILE-----\n", "sealed", "age -d"),
        (b"TE5LU0VBTDEAAABQ", "sealed", "base64 -d"),
        (b'{"format": 4, "phase": "copy"}', "move", "manifest"),
        (b'{"files/a": "00"}', "move", "JSON"),
        (b'{"files/a": "00"}', "sealed", "JSON"),
        (b"", "package", "nothing came"),
        (b"Welcome!\n" + ZIP, "package", "9 bytes of text come first: a login banner?"),
        (SEALED, "package", "it is sealed"),
        (MOVE, "package", "it is a Move Stream: agentfy-pack makes an agent package of it"),
        (TAR, "package", "a tar: unpack it"),
        (gzip.compress(ZIP, mtime=0), "package", "gzip -d"),
        (b'{"id": "agent-1"}', "package", "it is JSON"),
        (ZIP.replace(b"\n", b"\r\n"), "package", "ssh -T"),
        (b"PK\x03\x04".decode().encode("utf-16"), "package", "PowerShell"),
        (ZIP[:8] + b"\xef\xbf\xbd" * 10, "package", "UTF-8"),
    ],
)
def test_a_known_accident_gets_its_hint(head: bytes, expected: Expected, hint: str) -> None:
    """What most likely happened, for what was expected."""
    told = hint_for(head, expected)
    assert told is not None
    assert hint in told


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (SEALED, "sealed"),
        (MOVE, "move"),
        (b"hello", "sealed"),
        (b"hello", "move"),
        (bytes(4096), "sealed"),
        (b"one line\r\n", "move"),
        (ZIP, "package"),
        (b"hello", "package"),
    ],
)
def test_what_is_not_known_gets_none(head: bytes, expected: Expected) -> None:
    """A wrong hint is worse than none."""
    assert hint_for(head, expected) is None


def test_an_identity_is_told_and_not_shown() -> None:
    """The hint shows nothing of what came."""
    secret = Identity(bytes(32)).to_file()
    told = hint_for(secret.encode(), "sealed")
    assert told is not None
    assert "identity file" in told
    assert secret[-30:-1] not in told


def test_the_vectors_streams_are_told(vectors: Path) -> None:
    """Tars of other writers have their first header elsewhere."""
    found = 0
    for file in sorted((vectors / "stream").glob("good-*.tar")):
        head = file.read_bytes()[:4096]
        told = hint_for(head, "sealed")
        assert told is not None
        assert "not sealed" in told
        told = hint_for(b"motd\n" + head, "move")
        assert told is not None
        assert told.startswith("5 bytes of text")
        found += 1
    assert found > 5


def test_random_bytes_are_no_damage() -> None:
    """A line feed that happens to follow a carriage return is not enough."""
    assert hint_of_damage(b"\r\n") is None
    assert hint_of_damage(b"\r\n and \n and \r\n") is None
    assert hint_of_damage(bytes(range(256)) * 16) is None
