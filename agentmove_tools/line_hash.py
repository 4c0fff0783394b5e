"""The hash of many short lines, which is quicker over many at once."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hashlib import _Hash

_AT_ONCE: Final = 1 << 18  # bytes


class LineHash:
    r"""The SHA-256 of lines, each ended by a \n. ``start`` is of what comes before them."""

    def __init__(self, start: _Hash | None = None) -> None:
        self._hash = sha256() if start is None else start
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, line: bytes) -> None:
        """Take one line, without its end."""
        self._lines.append(line)
        self._size += len(line)
        if self._size > _AT_ONCE:
            self._flush()

    def digest(self) -> bytes:
        """The 32 bytes of the hash of all lines so far."""
        self._flush()
        return self._hash.digest()

    def _flush(self) -> None:
        if self._lines:
            self._hash.update(b"\n".join(self._lines) + b"\n")
            self._lines.clear()
            self._size = 0
