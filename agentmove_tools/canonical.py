"""The one form of a JSON value, and of a text of many (Move Stream, section 7).

Two senders must hash the same event the same.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from agentmove_tools import large_json
from agentmove_tools.json_values import refusal, value_and_form
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentmove_tools.streams import ByteSource

MAX_LINE: Final = 64 << 20  # bytes of one line
_PIECE: Final = 1 << 18


def canonical(text: bytes) -> bytes:
    """The one form of a text that holds one JSON value, with white space around it or none.

    Raises ``Refusal`` (canon-json), whose ``why`` says what was seen.
    """
    if len(text) > large_json.LARGE:
        return large_json.form(text)
    return value_and_form(text)[1]


def is_canonical(text: bytes) -> bool:
    """Whether the text is a value in the one form."""
    try:
        return canonical(text) == text
    except Refusal:
        return False


def canonical_lines(
    source: ByteSource, *, path: bytes | None = None, drop_unended: bool = False
) -> Iterator[tuple[int, bytes, bool]]:
    r"""The one form of each line of ``source``: its number from 1, the form, whether it had a \n.

    Only a \n ends a line. A last line without one is a value like the others; with
    ``drop_unended`` it is not looked into and comes as ``b""``. Raises ``Refusal`` (canon-json)
    naming ``path`` and the line, and what ``source`` raises.
    """
    for number, (line, ended) in enumerate(_lines(source, path), 1):
        if not ended and drop_unended:
            yield number, b"", False
            return
        try:
            form = canonical(line)
        except Refusal as refused:
            raise refusal(refused.why, path=path, line=number) from None
        yield number, form, ended


def hash_lines(source: ByteSource) -> bytes:
    r"""The SHA-256 of the one form of every line of ``source``, each ended by a \n.

    Raises ``Refusal`` (canon-json).
    """
    from agentmove_tools.line_hash import (  # noqa: PLC0415 (3 ms, which a package's reader saves)
        LineHash,
    )

    lines = LineHash()
    for _, form, _ in canonical_lines(source):
        lines.add(form)
    return lines.digest()


def _lines(source: ByteSource, path: bytes | None) -> Iterator[tuple[bytes, bool]]:
    buffer = bytearray(_PIECE)
    view = memoryview(buffer)
    pieces: list[bytes] = []  # of a line whose end has not come yet
    size = 0
    number = 0
    while (count := source.readinto(view)) != 0:
        if count is None:  # to take it for the end would lose what comes later
            raise BlockingIOError(errno.EAGAIN, "the input has no bytes yet and does not wait")
        lines = bytes(view[:count]).split(b"\n")
        pieces.append(lines[0])
        size += len(lines[0])
        if size > MAX_LINE:
            raise refusal("it is longer than 64 MiB", path=path, line=number + 1)
        if len(lines) > 1:
            yield b"".join(pieces), True
            number += len(lines) - 1
            for line in lines[1:-1]:
                yield line, True
            pieces = [lines[-1]]
            size = len(lines[-1])
    last = b"".join(pieces)
    if last:
        yield last, False
