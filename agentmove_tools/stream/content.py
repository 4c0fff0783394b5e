"""The content of one file in a stream: taken, hashed, and held against what was promised."""

from __future__ import annotations

import queue
import threading
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.tar_header import BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentmove_tools.stream.input import Input

LARGE: Final = 1 << 20  # bytes; from here on a second thread hashes
_PIECE: Final = 1 << 19
_PIECES: Final = 4
_SCHEDULE: Final = b"schedule/"


def is_small(path: bytes, size: int) -> bool:
    """Whether a file's content is taken whole, with nothing but its hash to check."""
    return size < LARGE and not path.startswith(_SCHEDULE)


class ContentReader:
    """The content of a file that is large, or that has a form to be checked.

    ``digest`` is what its SHA-256 must be, ``at`` the byte where its entry starts. ``read``,
    ``pieces`` and ``finish`` are ways to take it all; ``finish`` may follow a ``pieces`` that was
    left early. Each raises ``Refusal``: hash-mismatch, stream-cut, stream-tar, schedule-json.
    """

    def __init__(self, input_: Input, path: bytes, size: int, digest: bytes, at: int) -> None:
        self._input = input_
        self._path = path
        self._size = size
        self._digest = digest
        self._at = at
        self._running: Iterator[memoryview | bytes] | None = None

    def read(self) -> bytes:
        """All of it."""
        if self._path.startswith(_SCHEDULE):
            return self._read_scheduled()
        content = self._input.take(self._size)
        if sha256(content).digest() != self._digest:
            raise self._mismatch()
        self._skip_padding()
        return content

    def _read_scheduled(self) -> bytes:
        from agentmove_tools.stream.schedule import (  # noqa: PLC0415 - few streams have any
            check_schedule_file,
            check_schedule_size,
        )

        try:
            check_schedule_size(self._path, self._size)
            content = self._input.take(self._size)
            if sha256(content).digest() != self._digest:
                raise self._mismatch()
            check_schedule_file(self._path, content)
        except Refusal as refusal:
            refusal.details.setdefault("offset", self._at)
            raise
        self._skip_padding()
        return content

    def pieces(self) -> Iterator[memoryview | bytes]:
        """All of it in pieces, each good until the next."""
        if self._running is None:
            scheduled = self._path.startswith(_SCHEDULE)
            self._running = self._whole() if scheduled else self._large()
        return self._running

    def finish(self) -> None:
        """Check what nobody has read."""
        for _ in self.pieces():
            pass

    def _whole(self) -> Iterator[memoryview | bytes]:
        yield self.read()

    def _large(self) -> Iterator[memoryview | bytes]:
        hashing = _Hashing()
        try:
            left = self._size
            first = self._input.rest(left)
            if first:
                left -= len(first)
                hashing.add(first)
                yield first
            while left:
                room = hashing.room()
                count = self._input.read_direct(memoryview(room)[: min(left, _PIECE)])
                if not count:
                    raise self._input.cut()
                left -= count
                piece = memoryview(room)[:count]
                hashing.add(piece, room)
                self._input.pass_direct(piece)
                yield piece
        finally:
            digest = hashing.end()
        if digest != self._digest:
            raise self._mismatch()
        self._skip_padding()

    def _skip_padding(self) -> None:
        padding = -self._size % BLOCK
        if padding and self._input.take(padding).strip(b"\0"):
            raise Refusal(
                "stream-tar",
                "what fills a block up is not zeros",
                path=self._path,
                offset=self._at,
            )

    def _mismatch(self) -> Refusal:
        return Refusal("hash-mismatch", "send it again", path=self._path, offset=self._at)


class _Hashing:
    """Hashes pieces in a thread of its own, while the next one is read and the last one written."""

    def __init__(self) -> None:
        self._hash = sha256()
        self._jobs: queue.SimpleQueue[tuple[memoryview | bytes, bytearray | None] | None] = (
            queue.SimpleQueue()
        )
        self._free: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
        for _ in range(_PIECES):
            self._free.put(bytearray(_PIECE))
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            piece, room = job
            self._hash.update(piece)
            if room is not None:
                self._free.put(room)

    def room(self) -> bytearray:
        """A buffer that nothing is being hashed from."""
        return self._free.get()

    def add(self, piece: memoryview | bytes, room: bytearray | None = None) -> None:
        """Hash a piece, and free its buffer."""
        self._jobs.put((piece, room))

    def end(self) -> bytes:
        """The digest of all pieces."""
        self._jobs.put(None)
        self._thread.join()
        return self._hash.digest()
