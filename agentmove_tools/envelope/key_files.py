"""Files that hold one key: ``#`` comments, blank lines and the key (Move Stream, section 8)."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from agentmove_tools.envelope.keys import Identity, Recipient, parse_identity, parse_recipient
from agentmove_tools.refusals import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE_LIMIT: Final = 65536  # bytes; a key file is a few lines
_Key = TypeVar("_Key", Identity, Recipient)


class KeyFile(NamedTuple):
    """What a key file holds, and whether the group or others may read it."""

    content: bytes
    is_exposed: bool


def load(path: Path) -> KeyFile:
    """Read a key file, a little more than ``FILE_LIMIT`` at most. Raises ``OSError``."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        # A pipe, such as a shell's <(...), has no mode of its own that tells anything.
        is_exposed = stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o077)
        return KeyFile(file.read(FILE_LIMIT + 1), is_exposed)


def read_recipient(content: bytes, name: str | None = None) -> Recipient:
    """Read the text of a recipient file.

    ``name`` is what errors call the file. Raises ``UsageError``, which names the line.
    """
    return _read(content, name, "recipient", parse_recipient)


def read_identity(content: bytes, name: str | None = None) -> Identity:
    """Read the text of an identity file.

    ``name`` is what errors call the file. Raises ``UsageError``, which names the line and shows
    nothing of it.
    """
    return _read(content, name, "identity", parse_identity)


def _read(content: bytes, name: str | None, what: str, parse: Callable[[str], _Key]) -> _Key:
    line: int | None = None
    try:
        line, text = _only_line(content, what)
        return parse(text)
    except UsageError as error:
        message = error.message if line is None else f"line {line}: {error.message}"
        raise UsageError(message, **{"path": name, "line": line, **error.details}) from None


def _only_line(content: bytes, what: str) -> tuple[int, str]:
    """Find the one line that is neither blank nor a comment: its number from 1, and its text."""
    if len(content) > FILE_LIMIT:
        raise UsageError(f"this is over {FILE_LIMIT} bytes long, and so no {what} file")
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UsageError(
            f"this {what} is in UTF-16", hint="PowerShell's > rewrote it: copy it again"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"this is not text, and so no {what} file") from None
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1)]
    kept = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not kept:
        raise UsageError(f"there is no {what} in it")
    if len(kept) > 1:
        number = kept[1][0]
        raise UsageError(f"line {number}: a second one: a file holds one {what}", line=number)
    return kept[0]
