"""What the library reads bytes from and writes bytes to."""

from __future__ import annotations

from typing import Protocol


class ByteSource(Protocol):
    """A source of bytes, such as an unbuffered file or ``io.BytesIO``."""

    def readinto(self, buffer: memoryview | bytearray, /) -> int | None:
        """Fill the buffer's start; give the count of bytes, 0 at the end. May be short."""


class ByteSink(Protocol):
    """A sink of bytes that writes all of what it is given, or raises."""

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        """Write all of ``data``; give its length in bytes."""
