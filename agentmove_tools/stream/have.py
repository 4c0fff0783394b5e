"""``have``: what a receiver holds, as JSON (Move Stream, section 4).

It may have a million entries, so neither side holds its text.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from agentmove_tools.refusals import Refusal, UsageError
from agentmove_tools.stream.paths import check_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentmove_tools.streams import ByteSink, ByteSource

_PIECE: Final = 1 << 18
_LONGEST_ENTRY: Final = 1 << 16

_SPACE: Final = rb"[ \t\n\r]*"
_ENTRY: Final = re.compile(
    _SPACE
    + rb'"([^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+)"'
    + _SPACE
    + rb':[ \t\n\r]*"([0-9a-f]{64})"'
    + _SPACE
    + rb"([,}])",
)
_SPACES: Final = b" \t\n\r"
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')


def parse_have(source: ByteSource) -> dict[bytes, bytes]:
    """Read ``{"<path>": "<sha256>"}``; the digests as 32 bytes.

    Raises ``UsageError`` for anything else: it is what an option names, not the input.
    """
    held: dict[bytes, bytes] = {}
    buffer = bytearray(_PIECE)
    view = memoryview(buffer)
    text = b""
    state = "start"  # then "first", "next" once there was an entry, and "end"
    while count := source.readinto(view):
        text += view[:count]
        at = 0
        if state == "start":
            text = text.lstrip(_SPACES)
            if not text:
                continue
            if not text.startswith(b"{"):
                raise _wrong(text)
            at = 1
            state = "first"
        while state in ("first", "next") and (match := _ENTRY.match(text, at)):
            path, digest, after = match.groups()
            held[_path(path)] = bytes.fromhex(digest.decode())
            at = match.end()
            state = "next" if after == b"," else "end"
        text = text[at:]
        if state == "first" and text.lstrip(_SPACES).startswith(b"}"):
            text = text.lstrip(_SPACES)[1:]
            state = "end"
        if (state == "end" and text.strip(_SPACES)) or len(text) > _LONGEST_ENTRY + _PIECE:
            raise _wrong(text)
    if state != "end":
        raise _wrong(text)
    return held


def _path(escaped: bytes) -> bytes:
    path = escaped
    try:
        if b"\\" in escaped:
            path = json.loads(b'"' + escaped + b'"').encode()
        check_plain(path)
    except (ValueError, Refusal):
        raise _wrong(escaped) from None
    return path


def _wrong(text: bytes) -> UsageError:
    seen = text.lstrip()[:40].decode("utf-8", "backslashreplace")
    where = (
        f"at {seen!r}"
        if seen
        else "it ends too early: look whether lnk-have at the other end failed"
    )
    return UsageError(f"this is not what lnk-have prints: {where}")


def render_rows(folder: bytes, names: Sequence[bytes], digests: bytes | bytearray) -> bytes:
    """The members of ``have`` for some files of a folder, commas between them.

    ``digests`` holds 32 bytes for each of ``names``.
    """
    hexes = digests.hex()
    start = f'"{_escaped(folder.decode())}/'
    rows = []
    at = 0
    for name in names:
        text = name.decode()
        if not _PLAIN.fullmatch(text):
            text = _escaped(text)
        rows.append(f'{start}{text}":"{hexes[at : at + 64]}"')
        at += 64
    return ",".join(rows).encode()


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def write_have(rows: Iterable[bytes], sink: ByteSink) -> None:
    """Write members as ``render_rows`` gives them as the one object that ``parse_have`` reads.

    Raises what ``sink`` and ``rows`` raise.
    """
    pieces = [b"{"]
    size = 0
    between = b""
    for text in rows:
        if text:
            pieces += (between, text)
            size += len(text)
            between = b","
        if size > _PIECE:
            sink.write(b"".join(pieces))
            pieces.clear()
            size = 0
    pieces.append(b"}\n")
    sink.write(b"".join(pieces))
