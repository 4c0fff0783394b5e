"""The digest of all that lies under ``files/`` and ``memory/`` (``tree``, section 3)."""

from __future__ import annotations

import hashlib


class TreeDigest:
    """Takes files and links, sorted by path bytes, and gives the manifest's ``tree``."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._pieces: list[bytes] = []

    def file(self, path: bytes, mode: int, digest: bytes) -> None:
        """Add a file: its permission bits, and its SHA-256 as 32 bytes."""
        self._pieces.append(b"f %03o %b %b\0" % (mode, digest.hex().encode(), path))
        if len(self._pieces) >= 1024:
            self._flush()

    def link(self, path: bytes, target: bytes) -> None:
        """Add a symbolic link."""
        self._pieces.append(b"l %b\0%b\0" % (path, target))

    def _flush(self) -> None:
        self._hash.update(b"".join(self._pieces))
        self._pieces.clear()

    def hexdigest(self) -> str:
        """The digest, 64 lower-case hex digits."""
        self._flush()
        return self._hash.hexdigest()
