"""Conversations as both ends compare and append them, and files in the one form (sections 5, 7)."""

from __future__ import annotations

import hashlib
import os
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from agentmove_tools.canonical import canonical, canonical_lines
from agentmove_tools.disk.system import write_all
from agentmove_tools.home.digests import FdSource
from agentmove_tools.home.snapshot import IN_MEMORY, Pieces
from agentmove_tools.refusals import MachineError, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentmove_tools.home.contract import Record
    from agentmove_tools.home.snapshot import SnapshotReader

_BATCH: Final = 1 << 18

Relation: TypeAlias = Literal["same", "theirs is longer", "own is longer", "diverged"]


class Comparison(NamedTuple):
    """How two ends of a conversation stand to each other.

    ``common``: how many events both have, from the first on. ``theirs``: how many the sender has.
    """

    relation: Relation
    common: int
    theirs: int


class _Reader:
    """Pieces of bytes as a source, hashed as they are read."""

    def __init__(self, pieces: Iterable[bytes | memoryview]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")
        self.hash = hashlib.sha256()

    def readinto(self, buffer: memoryview | bytearray) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
            self.hash.update(self._rest)
        count = min(len(self._rest), len(buffer))
        memoryview(buffer)[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


class _Spool:
    """Bytes that are kept: in memory while they are few, then in a temporary file."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._fd: int | None = None
        self._hash = hashlib.sha256()
        self.size = 0

    def add(self, data: bytes) -> None:
        self._pieces.append(data)
        self._waiting += len(data)
        self.size += len(data)
        if self._fd is not None and self._waiting > _BATCH:
            self._flush()
        elif self._waiting > IN_MEMORY:
            self._fd = self._reader.temporary()
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._pieces)
        self._hash.update(data)
        if self._fd is not None:
            write_all(self._fd, data)
        self._pieces.clear()
        self._waiting = 0

    def content(self) -> tuple[bytes, bytes | Pieces]:
        """The digest, and all the bytes."""
        if self._fd is None:
            data = b"".join(self._pieces)
            return hashlib.sha256(data).digest(), data
        self._flush()
        return self._hash.digest(), Pieces(self._fd, self.size)


def one_form_of(
    record: Record,
    reader: SnapshotReader,
    *,
    lines: bool,
    still: bool,
    say: Callable[[bytes, str], None],
) -> None:
    """Put a record's content into the one form (section 7).

    ``lines``: it is a conversation, an event a line. A last event that is still being written (no
    newline yet) is left for later in a copy, and said; where the agent is ``still``, it is taken
    when it is whole. Raises ``Refusal`` (canon-json, of a job schedule-json), ``MachineError`` and
    ``OSError``.
    """
    content = record.content
    if content is None:
        return
    if not lines:
        whole = content if isinstance(content, bytes) else b"".join(bytes(p) for p in content)
        try:
            text = canonical(whole)
        except Refusal as refusal:
            raise Refusal("schedule-json", refusal.why, path=record.path) from None
        record.content = text
        record.size = len(text)
        record.digest = hashlib.sha256(text).digest()
        return
    source = _Reader([content] if isinstance(content, bytes) else content)
    spool = _Spool(reader)
    for _, event, ended in canonical_lines(source, path=record.path, drop_unended=not still):
        if ended or still:
            spool.add(event + b"\n")
        else:
            say(record.path, "its last event is still being written: it is left for the switch")
    if source.hash.digest() != record.digest:
        msg = "it changed during a switch: stop the agent first"
        raise MachineError(msg, path=record.path.decode("utf-8", "backslashreplace"))
    record.digest, record.content = spool.content()
    record.size = spool.size


def compare(own: int | None, theirs: int, path: bytes) -> Comparison:
    """Compare two conversations, event for event, in the one form.

    ``own`` and ``theirs`` are open files, ``own`` None where there is none; ``path`` is for
    errors. Raises ``Refusal`` (canon-json), naming the line, and ``OSError``.
    """
    relation: Relation = "same"
    common = 0
    count = 0
    mine_all = _own_events(own, path) if own is not None else iter(())
    for mine, other in zip_longest(mine_all, _events(theirs, path)):
        if other is not None:
            count += 1
        if relation != "same":
            continue  # what is left is counted, and checked
        if mine == other:
            common += 1
        elif mine is None:
            relation = "theirs is longer"
        elif other is None:
            relation = "own is longer"
        else:
            relation = "diverged"
    return Comparison(relation, common, count)


def _events(fd: int, path: bytes) -> Iterator[bytes]:
    for _, event, _ in canonical_lines(FdSource(fd), path=path):
        yield event


def _own_events(fd: int, path: bytes) -> Iterator[bytes]:
    try:
        yield from _events(fd, path)
    except Refusal as refusal:
        line = refusal.details.get("line")
        raise Refusal(
            "canon-json",
            f"{refusal.why}; it is the receiving Home's own, and not of the stream: mend the line",
            path=path,
            place=f"line {line}",
            line=line,
        ) from None


def events_after(fd: int, skipped: int, path: bytes) -> Iterator[bytes]:
    """The events of an open file in the one form, each with its newline, but the first ones."""
    for number, event in enumerate(_events(fd, path)):
        if number >= skipped:
            yield event + b"\n"


def appended(own: int, theirs: int, common: int, path: bytes) -> Iterator[bytes]:
    """An end's own conversation as its bytes are, and after it the events that it lacks."""
    last = b"\n"
    while piece := os.read(own, _BATCH):
        yield piece
        last = piece[-1:]
    if last != b"\n":
        yield b"\n"
    yield from events_after(theirs, common, path)
