"""The Move Streams that are measured on their way to a package, the same each time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from agentmove_tools.stream.manifest import Agent, Manifest
from agentmove_tools.stream.tar_writer import MoveWriter

_MTIME: Final = 1_600_000_000
_ZEROS: Final = bytes(1 << 20)

# path -> what makes its content's pieces: once for the hash, and once to be written
Contents = dict[str, Callable[[], Iterable[bytes]]]


def write_stream(path: Path, files: Contents, *, agent: str = "agent-1") -> None:
    """Write a switch with these files. Zeros take no room on the disk."""
    manifest = Manifest(
        phase="switch",
        move="0123456789abcdef0123456789abcdef",
        version="1",
        agent=Agent(agent, "Bench"),
        harness="default",
    )
    with path.open("wb") as file:
        writer = MoveWriter(_Sparse(file), manifest)
        for name in sorted(files, key=str.encode):
            seen = hashlib.sha256()
            size = 0
            for piece in files[name]():
                seen.update(piece)
                size += len(piece)
            place = name.encode()
            writer.file_chunks(place, 0o644, _MTIME, size, seen.digest(), files[name]())
        writer.end()
        file.truncate()


class _Sparse:
    """A file in which zeros are left out."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        if len(data) == len(_ZEROS) and data == _ZEROS:
            return self._file.seek(len(data), 1)
        return self._file.write(data)


def zeros(size: int) -> Iterator[bytes]:
    """So many zeros, a MiB at a time."""
    for done in range(0, size, len(_ZEROS)):
        yield _ZEROS[: size - done]
