"""Hashing what a Home holds, with two threads, and only what the index does not know."""

from __future__ import annotations

import hashlib
import os
import queue
import stat
import threading
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.disk.folders import OPEN_FILE, open_below
from agentmove_tools.disk.walk import size_in, walk_folders
from agentmove_tools.home.index import DIGEST, UNKNOWN
from agentmove_tools.home.layout import (
    CONVERSATIONS,
    EVENTS,
    MEMORY,
    NOTES,
    outside_conversations,
)
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentmove_tools.disk.walk import Folder
    from agentmove_tools.home.index import Index, IndexWriter, Place

_SMALL: Final = 1 << 16
_PIECE: Final = 1 << 18
_LARGE: Final = 1 << 18  # from here on a second thread is worth its handing over
_FOLDERS_AHEAD: Final = 64


class FdSource:
    """An open file as a source of bytes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def readinto(self, buffer: memoryview | bytearray) -> int:
        """Fill the buffer's start. Raises ``OSError``."""
        return os.readv(self._fd, [buffer])


def hash_bytes(fd: int) -> bytes:
    """The SHA-256 of what is left of the open file. Raises ``OSError``."""
    data = os.read(fd, _SMALL)
    if len(data) < _SMALL:
        rest = os.read(fd, _SMALL)
        if not rest:
            return hashlib.sha256(data).digest()
        data += rest
    digest = hashlib.sha256(data)
    buffer = bytearray(_PIECE)
    view = memoryview(buffer)
    while count := os.readv(fd, [buffer]):
        digest.update(view[:count])
    return digest.digest()


def hash_events(fd: int) -> bytes:
    """The SHA-256 of a conversation's one form (section 7). Raises ``Refusal`` (canon-json)."""
    from agentmove_tools.canonical import hash_lines  # noqa: PLC0415 - slow to import

    return hash_lines(FdSource(fd))


def hash_file(
    folder: int, name: bytes, hasher: Callable[[int], bytes] = hash_bytes
) -> bytes | None:
    """The digest of a file; None where it is gone, is no file any more, or cannot be read."""
    try:
        fd = os.open(name, OPEN_FILE, dir_fd=folder)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return hasher(fd)
    except (OSError, Refusal):
        return None
    finally:
        os.close(fd)


class TwoThreads:
    """Runs jobs in this thread and one more, in no particular order.

    Hashing lets other threads run meanwhile, so two hash twice as fast as one. ``finish`` runs
    what is left here too, waits, and raises what a job raised.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def add(self, job: Callable[[], None]) -> None:
        """Add a job."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._run(job)

    def _run(self, job: Callable[[], None]) -> None:
        try:
            if self._error is None:
                job()
        except BaseException as error:  # noqa: BLE001 - it is raised again by finish
            self._error = error

    def finish(self) -> None:
        """Do what is left and wait for the other thread."""
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is not None:
                self._run(job)
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error


class _Waiting(NamedTuple):
    """A folder whose large files are being hashed; ``blocks`` when nothing in it has changed."""

    folder: Folder
    digests: bytearray
    blocks: list[Place] | None


class Refresh:
    """Brings the index of one tree up to date and gives every digest in it.

    ``files/``, ``memory/`` and ``harness/conversations/`` below the open folder ``root`` are
    looked through. A file that cannot be read is left out, and named in ``unreadable``.
    """

    def __init__(
        self,
        root: int,
        index: Index,
        writer: IndexWriter,
        *,
        leave_out: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._root = root
        self._index = index
        self._writer = writer
        self._leave_out = leave_out
        self.unreadable: list[bytes] = []

    def folders(self, *tops: bytes) -> Iterator[tuple[Folder, bytearray, Iterator[bytes]]]:
        """Each folder at and below ``tops``: the digests of its files, their rows of ``have``.

        Raises ``OSError``, and ``Refusal`` (home-path).
        """
        for top in tops:
            try:
                fd = open_below(self._root, top)
            except (FileNotFoundError, NotADirectoryError):
                continue
            try:
                yield from self._tree(fd, top)
            finally:
                os.close(fd)

    def _tree(self, fd: int, top: bytes) -> Iterator[tuple[Folder, bytearray, Iterator[bytes]]]:
        events = top == CONVERSATIONS
        hasher = hash_events if events else hash_bytes
        threads = TwoThreads()
        waiting: list[_Waiting] = []
        for folder in walk_folders(
            fd, top, leave_out=outside_conversations if events else self._leave_out
        ):
            self._narrow(folder, events=events)
            digests, blocks = self._index.compare(folder)
            if blocks is None and UNKNOWN in digests:
                self._hash(folder, digests, hasher, threads)
            waiting.append(_Waiting(folder, digests, blocks))
            if len(waiting) >= _FOLDERS_AHEAD:
                threads.finish()
                yield from self._done(waiting)
                waiting.clear()
        threads.finish()
        yield from self._done(waiting)

    def _narrow(self, folder: Folder, *, events: bool) -> None:
        if events:
            folder.files = [name for name in folder.files if name == EVENTS]
            return
        if folder.path == MEMORY:
            folder.files = [name for name in folder.files if b"memory/" + name != NOTES]
        leave_out = self._leave_out
        if leave_out is not None:
            prefix = folder.path + b"/"
            folder.files = [name for name in folder.files if not leave_out(prefix + name)]

    def _hash(
        self,
        folder: Folder,
        digests: bytearray,
        hasher: Callable[[int], bytes],
        threads: TwoThreads,
    ) -> None:
        for at, name in enumerate(folder.files):
            place = slice(at * DIGEST, (at + 1) * DIGEST)
            if digests[place] != UNKNOWN:
                continue
            try:
                fd = os.open(name, OPEN_FILE, dir_fd=folder.fd)
            except FileNotFoundError:
                continue
            except OSError:
                self.unreadable.append(folder.path + b"/" + name)
                continue
            job = partial(self._hash_one, fd, folder.path + b"/" + name, digests, place, hasher)
            if size_in(folder.signs[name]) > _LARGE:
                threads.add(job)
            else:
                job()

    def _hash_one(
        self,
        fd: int,
        path: bytes,
        digests: bytearray,
        place: slice,
        hasher: Callable[[int], bytes],
    ) -> None:
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                digests[place] = hasher(fd)
        except (OSError, Refusal):
            self.unreadable.append(path)
        finally:
            os.close(fd)

    def _done(self, waiting: list[_Waiting]) -> Iterator[tuple[Folder, bytearray, Iterator[bytes]]]:
        for folder, digests, blocks in waiting:
            if blocks is None:
                rows = self._writer.add(folder, digests)
            else:
                rows = self._writer.copy(folder, self._index, blocks)
            yield folder, digests, rows
            for _ in rows:
                pass  # what the caller did not take is added all the same
