"""What passes between a store and a Move Stream, whatever the store is (sections 1 and 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agentmove_tools.home.layout import is_held
from agentmove_tools.home.tree import TreeDigest
from agentmove_tools.refusals import MachineError
from agentmove_tools.stream.paths import COLLECTIONS, FILE, FOLDER
from agentmove_tools.stream.tar_writer import MoveWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentmove_tools.home.contract import CollectionReceiver, MoveSource, Record
    from agentmove_tools.stream.manifest import Manifest
    from agentmove_tools.stream.tar_reader import MoveReader
    from agentmove_tools.streams import ByteSink

_AT_ONCE: Final = 1 << 20  # bytes of a content that is handed over in one piece


def hand_over(reader: MoveReader, receiver: CollectionReceiver) -> None:
    """Give every entry of a stream to a receiver.

    A small content comes as a tuple of one piece. Raises what either raises.
    """
    for entry in reader:
        if entry.kind is not FILE:
            receiver.receive(entry, ())
        elif entry.size <= _AT_ONCE:
            receiver.receive(entry, (reader.read(),))
        else:
            receiver.receive(entry, reader.chunks())


def records_of(
    source: MoveSource, manifest: Manifest, held: Mapping[bytes, bytes]
) -> Iterator[Record]:
    """All the records of a phase, sorted by path bytes. Raises as the source does."""
    if manifest.phase == "files":
        yield from source.files(held)
        return
    collections = COLLECTIONS if manifest.collections is None else manifest.collections
    if manifest.phase == "switch":
        yield from source.connections()
    yield from source.files(held)
    if "conversations" in collections:
        yield from source.records("conversations", held)
    if "instructions" in collections:
        yield from source.records("instructions")
    yield from source.package()
    if "skills" in collections:
        yield from source.records("skills")
    yield from source.memory(held, notes="notes" in collections)
    if manifest.phase == "switch" and "jobs" in collections:
        yield from source.records("jobs")


class Sending:
    """Writes records as a stream, and holds them against the manifest's ``tree``."""

    def __init__(self, sink: ByteSink, manifest: Manifest, *, any_links: bool) -> None:
        self._writer = MoveWriter(sink, manifest, any_links=any_links)
        self._promised = manifest.tree
        self._tree = TreeDigest()

    def add(self, record: Record) -> None:
        """Write one record. Raises ``Refusal``, ``MachineError`` and ``OSError``."""
        path = record.path
        if record.kind is FILE:
            if self._promised is not None and is_held(path):
                self._tree.file(path, record.mode, record.digest)
            content = record.content
            if content is None:
                return
            if isinstance(content, bytes):
                self._writer.file(path, record.mode, record.mtime, content, record.digest)
            else:
                self._writer.file_chunks(
                    path, record.mode, record.mtime, record.size, record.digest, content
                )
        elif record.kind == FOLDER:
            self._writer.folder(path, record.mode, record.mtime)
        else:
            if self._promised is not None and is_held(path):
                self._tree.link(path, record.target)
            self._writer.link(path, record.target, record.mtime)

    def end(self) -> None:
        """Write the end, unless the Home is not what the manifest says."""
        if self._promised is not None and self._tree.hexdigest() != self._promised:
            msg = (
                "the Home is not what the manifest says (tree): it changed since, or --have or "
                "--exclude is another; stop the agent and make the manifest again"
            )
            raise MachineError(msg)
        self._writer.end()
