"""A Home as a sender reads it: the ``file`` store's source side (Move Stream, sections 1, 4a)."""

from __future__ import annotations

import heapq
import os
import stat
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from agentmove_tools.disk.folders import NO_FOLDER, kind_at, names, open_below
from agentmove_tools.disk.walk import OTHER, checked_name, mode_in, sign_of, walk
from agentmove_tools.home.contract import NOTHING_HELD, Record
from agentmove_tools.home.conversations import one_form_of
from agentmove_tools.home.layout import (
    AGENT_FILE,
    CONNECTIONS,
    CONVERSATIONS,
    DAY,
    EVENTS,
    FILES,
    HARNESS,
    HARNESS_PARTS,
    INSTRUCTIONS,
    MEMORY,
    MOVED,
    NOTES,
    PACKAGE,
    PAUSED,
    PLACES,
    SCHEDULE,
    SKILLS,
    THREAD,
    WORKING_STATE,
)
from agentmove_tools.home.snapshot import Gone, Unsteady
from agentmove_tools.refusals import MachineError, Refusal
from agentmove_tools.stream.paths import FILE, FOLDER, LINK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentmove_tools.disk.walk import Folder, Found
    from agentmove_tools.home.exclude import Exclusion
    from agentmove_tools.home.index import Index
    from agentmove_tools.home.snapshot import SnapshotReader
    from agentmove_tools.stream.paths import Collection

_SECOND: Final = 1_000_000_000
_SCHEDULE_PARTS: Final = (*PLACES, DAY, PAUSED.rpartition(b"/")[2])
_by_path: Final = attrgetter("path")


class FileSource:
    """Reads a Home's collections, and its ``files/``, ``memory/`` and ``connections/``.

    ``say`` is told what is left out and why; ``index`` knows the digests of files that have not
    changed since. Every method raises ``OSError``, ``Refusal`` (home-path, canon-json) and
    ``MachineError`` (a file that cannot be read; in a switch, one that changes).
    """

    def __init__(
        self,
        home: int,
        reader: SnapshotReader,
        *,
        still: bool,
        index: Index,
        exclude: Exclusion,
        say: Callable[[bytes, str], None],
    ) -> None:
        self._home = home
        self._reader = reader
        self._still = still
        self._index = index
        self._exclude = exclude
        self._say = say

    def records(
        self, collection: Collection, held: Mapping[bytes, bytes] = NOTHING_HELD
    ) -> Iterator[Record]:
        """The records of one collection (``CollectionSource``)."""
        if collection == "instructions":
            return self._single(INSTRUCTIONS)
        if collection == "notes":
            return self._single(NOTES)
        if collection == "skills":
            return self._below(SKILLS, NOTHING_HELD)
        if collection == "jobs":
            return self._jobs()
        return self._conversations(held)

    def package(self) -> Iterator[Record]:
        """What came with an agent package and has no other place in a Home."""
        return self._below(PACKAGE, NOTHING_HELD)

    def connections(self) -> Iterator[Record]:
        """The credentials, which travel only in a switch."""
        for name in self._names(CONNECTIONS):
            yield from self._single(CONNECTIONS + b"/" + checked_name(CONNECTIONS, name))

    def files(self, held: Mapping[bytes, bytes]) -> Iterator[Record]:
        """All that lies under ``files/``, itself first."""
        return self._tree(FILES, held, self._exclude or None)

    def memory(self, held: Mapping[bytes, bytes], *, notes: bool) -> Iterator[Record]:
        """All that lies under ``memory/``, itself first, the notes among it where asked for."""
        tree = self._tree(MEMORY, held, NOTES.__eq__)
        if not notes:
            return tree
        return heapq.merge(tree, self.records("notes"), key=_by_path)

    def not_sent(self) -> list[bytes]:
        """What else the Home holds, by path: none of it is part of a move."""
        known = (*MOVED, AGENT_FILE, WORKING_STATE)
        found = [
            name
            for name in names(self._home)
            if name not in known and not self._reader.is_own(self._home, name)
        ]
        found += self._others(HARNESS, HARNESS_PARTS)
        found += self._others(SCHEDULE, _SCHEDULE_PARTS)
        return found

    def _others(self, folder: bytes, known: tuple[bytes, ...]) -> list[bytes]:
        return [folder + b"/" + name for name in self._names(folder) if name not in known]

    def _names(self, folder: bytes) -> list[bytes]:
        """The names in a folder of the Home, sorted; none where it is not there."""
        fd = self._open(folder)
        if fd is None:
            return []
        try:
            return names(fd)
        finally:
            os.close(fd)

    def _open(self, path: bytes) -> int | None:
        """Open a folder of the Home; None where it is not there.

        What is there and is no folder stops the sender: what lies behind a link would be lost.
        """
        try:
            return open_below(self._home, path)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = f"it cannot be read: {error.strerror}"
            if error.errno in NO_FOLDER:
                why = "it, or what it lies in, is no folder; links are not followed"
            raise MachineError(why, path=path.decode("utf-8", "backslashreplace")) from error

    # -- trees

    def _tree(
        self, top: bytes, held: Mapping[bytes, bytes], leave_out: Callable[[bytes], bool] | None
    ) -> Iterator[Record]:
        try:
            info = os.stat(top, dir_fd=self._home, follow_symlinks=False)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(info.st_mode):
            msg = "it must be a folder"
            raise MachineError(msg, path=top.decode())
        yield Record(top, FOLDER, info.st_mode & 0o777, info.st_mtime_ns // _SECOND)
        yield from self._below(top, held, leave_out)

    def _below(
        self,
        top: bytes,
        held: Mapping[bytes, bytes],
        leave_out: Callable[[bytes], bool] | None = None,
    ) -> Iterator[Record]:
        root = self._open(top)
        if root is None:
            return
        try:
            for found in walk(
                root,
                top,
                signs=bool(held),
                leave_out=leave_out,
                entered=self._look_up if held else None,
            ):
                record = self._record(found, held)
                if record is not None:
                    yield record
        finally:
            os.close(root)

    def _look_up(self, folder: Folder) -> None:
        folder.digests = bytes(self._index.resolve(folder))

    def _record(self, found: Found, held: Mapping[bytes, bytes]) -> Record | None:
        path, kind, folder, name = found
        if kind is not FILE:
            return self._no_file(folder.fd, name, path, kind)
        theirs = held.get(path) if held else None
        if theirs is not None and folder.digest(name) == theirs:
            return Record(path, FILE, mode_in(folder.signs[name]), 0, digest=theirs)
        return self._file(folder.fd, name, path, theirs)

    def _no_file(self, folder: int, name: bytes, path: bytes, kind: str) -> Record | None:
        if kind == OTHER:
            self._say(path, "left out: a socket, FIFO or device")
            return None
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            mtime = info.st_mtime_ns // _SECOND
            if kind == LINK:
                return Record(path, LINK, 0o777, mtime, target=os.readlink(name, dir_fd=folder))
        except OSError as error:
            self._vanished(path, error)
            return None
        return Record(path, FOLDER, info.st_mode & 0o777, mtime)

    def _vanished(self, path: bytes, error: OSError) -> None:
        if self._still:
            msg = "it vanished during a switch: stop the agent first"
            raise MachineError(msg, path=path.decode("utf-8", "backslashreplace")) from error
        self._say(path, "left out: it vanished meanwhile")

    def _file(
        self, folder: int, name: bytes, path: bytes, theirs: bytes | None = None
    ) -> Record | None:
        try:
            snapshot = self._reader.read(folder, name, path, self._known)
        except Gone:
            self._say(path, "left out: it vanished meanwhile")
            return None
        except Unsteady:
            self._say(path, "left out: it is written to all the time")
            return None
        if snapshot is None:
            return None
        mode, mtime, size, digest, content = snapshot
        if digest == theirs:
            return Record(path, FILE, mode, mtime, size, digest)
        return Record(path, FILE, mode, mtime, size, digest, b"", content)

    def _known(self, path: bytes, info: os.stat_result) -> bytes | None:
        """The digest of a file as the index has it, for what the file is now."""
        above, _, name = path.rpartition(b"/")
        return self._index.lookup(above, name, sign_of(info))

    # -- single files

    def _single(self, path: bytes) -> Iterator[Record]:
        """The one file at ``path``, where it is there; a link is handed over as one."""
        above, _, name = path.rpartition(b"/")
        fd = self._open(above)
        if fd is None:
            return
        try:
            kind = kind_at(fd, name)
            record = None
            if kind == stat.S_IFREG:
                record = self._file(fd, name, path)
            elif kind == stat.S_IFLNK:
                record = self._no_file(fd, name, path, LINK)
            elif kind is not None:
                self._say(path, "left out: it must be a file")
            if record is not None:
                yield record
        finally:
            os.close(fd)

    def _jobs(self) -> Iterator[Record]:
        yield from self._in_one_form(SCHEDULE + b"/" + DAY)
        for place in PLACES:
            folder = SCHEDULE + b"/" + place
            for name in self._names(folder):
                if checked_name(folder, name).endswith(b".json"):
                    yield from self._in_one_form(folder + b"/" + name)
                else:
                    self._say(folder + b"/" + name, "not sent: a job is a .json file")

    def _in_one_form(self, path: bytes) -> Iterator[Record]:
        for record in self._single(path):
            if record.kind == FILE:
                one_form_of(record, self._reader, lines=False, still=self._still, say=self._say)
            yield record

    def _conversations(self, held: Mapping[bytes, bytes]) -> Iterator[Record]:
        threads = [CONVERSATIONS + b"/" + name for name in self._names(CONVERSATIONS)]
        for thread in sorted(threads, key=lambda path: path + b"/"):
            if self._kind(thread) != stat.S_IFDIR:
                self._say(thread, "not sent: a conversation is a folder")
                continue
            checked_name(CONVERSATIONS, thread.rpartition(b"/")[2])
            events = thread + b"/" + EVENTS
            theirs = held.get(events)
            record = self._unchanged(thread, theirs) if theirs is not None else None
            if record is not None:
                yield record
            else:
                yield from self._events(events, theirs)
            yield from self._single(thread + b"/" + THREAD)
            for other in self._others(thread, (EVENTS, THREAD)):
                self._say(other, "not sent: it is no part of a conversation")

    def _kind(self, path: bytes) -> int | None:
        above, _, name = path.rpartition(b"/")
        fd = self._open(above)
        if fd is None:
            return None
        try:
            return kind_at(fd, name)
        finally:
            os.close(fd)

    def _unchanged(self, thread: bytes, theirs: bytes) -> Record | None:
        """The conversation without its content, if the index knows that the other end has it."""
        fd = self._open(thread)
        if fd is None:
            return None
        try:
            info = os.stat(EVENTS, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        finally:
            os.close(fd)
        if self._index.lookup(thread, EVENTS, sign_of(info)) != theirs:
            return None
        return Record(thread + b"/" + EVENTS, FILE, info.st_mode & 0o777, 0, digest=theirs)

    def _events(self, path: bytes, theirs: bytes | None) -> Iterator[Record]:
        for record in self._single(path):
            if record.kind == FILE:
                one_form_of(record, self._reader, lines=True, still=self._still, say=self._say)
                if record.digest == theirs:
                    record.content = None
            yield record


def has_jobs(home: int) -> bool:
    """Whether the open Home has a scheduled job in any place. Raises ``OSError``."""
    for place in PLACES:
        try:
            fd = open_below(home, SCHEDULE + b"/" + place)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            if any(name.endswith(b".json") for name in names(fd)):
                return True
        finally:
            os.close(fd)
    return False


def check_paused(home: int, shown: str) -> None:
    """Refuse a switch of a Home whose jobs could fire meanwhile (section 6).

    Raises ``Refusal`` (schedule-running) and ``OSError``.
    """
    if has_jobs(home):
        try:
            os.stat(PAUSED, dir_fd=home, follow_symlinks=False)
        except FileNotFoundError:
            raise Refusal(
                "schedule-running",
                "pause it at both ends first: touch schedule/paused",
                place=shown,
            ) from None
