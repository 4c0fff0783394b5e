from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from agentmove_tools.disk.stage import Stage
from agentmove_tools.home.assemble import Assembly
from agentmove_tools.home.contract import (
    NOTHING_HELD,
    CollectionReceiver,
    CollectionSource,
    Record,
)
from agentmove_tools.home.exclude import Exclusion
from agentmove_tools.home.index import Index
from agentmove_tools.home.receiver import FileReceiver, Options
from agentmove_tools.home.report import Report
from agentmove_tools.home.snapshot import SnapshotReader
from agentmove_tools.home.source import FileSource
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.manifest import Agent, Manifest
from agentmove_tools.stream.paths import COLLECTIONS, FILE, Collection
from agentmove_tools.stream.tar_reader import Entry, MoveReader
from agentmove_tools.stream.tar_writer import MoveWriter
from tests.home.builder import MOVE, Bytes, Said, full_home, make_home, snapshot, stream_of, take

PREFIXES: dict[Collection, bytes] = {
    "conversations": b"harness/conversations/",
    "instructions": b"harness/instructions.md",
    "skills": b"harness/skills/",
    "notes": b"memory/notes.md",
    "jobs": b"schedule/",
}


class MemoryStore:
    """A store that is no folder: a dict of contents by path."""

    def __init__(self, contents: Mapping[bytes, bytes]) -> None:
        self.contents = dict(contents)
        self._received: dict[bytes, bytes] = {}

    def records(
        self, collection: Collection, held: Mapping[bytes, bytes] = NOTHING_HELD
    ) -> Iterator[Record]:
        for path in sorted(self.contents):
            if path.startswith(PREFIXES[collection]):
                content = self.contents[path]
                digest = hashlib.sha256(content).digest()
                record = Record(path, FILE, 0o644, 0, size=len(content), digest=digest)
                record.content = None if held.get(path) == digest else content
                yield record

    def receive(self, entry: Entry, content: Iterable[bytes | memoryview]) -> None:
        whole = b"".join(bytes(piece) for piece in content)
        if entry.kind == FILE:
            self._received[entry.path] = whole

    def complete(self, collections: Iterable[Collection]) -> None:
        new = dict(self.contents)
        for collection in collections:
            prefix = PREFIXES[collection]
            came = {p: c for p, c in self._received.items() if p.startswith(prefix)}
            if collection == "conversations":
                for path, content in came.items():
                    own = new.get(path, b"")
                    if not content.startswith(own) and not own.startswith(content):
                        raise Refusal("conversation-diverged", path=path)
                    new[path] = max(content, own, key=len)
            else:
                new = {p: c for p, c in new.items() if not p.startswith(prefix)} | came
        self.contents = new


CONTENTS = {
    b"harness/conversations/t/events.jsonl": b'{"n":1}\n{"n":2}\n',
    b"harness/instructions.md": b"be kind",
    b"harness/skills/s/SKILL.md": b"a skill",
    b"memory/notes.md": b"notes",
    b"schedule/day.json": b'["d",1]',
    b"schedule/waiting/j.json": b'{"id":"j"}',
}


def sent(source: CollectionSource, collections: tuple[Collection, ...]) -> bytes:
    """A stream of what any source gives, in the order of a stream."""
    made = Manifest(
        phase="switch",
        move=MOVE,
        version="1",
        agent=Agent("a1", "Ada"),
        harness="claude",
        collections=collections,
    )
    sink = Bytes()
    writer = MoveWriter(sink, made)
    records = [record for name in collections for record in source.records(name, NOTHING_HELD)]
    for record in sorted(records, key=lambda record: record.path):
        if record.kind == "folder":
            writer.folder(record.path, record.mode, record.mtime)
        elif record.kind == "link":
            writer.link(record.path, record.target, record.mtime)
        elif isinstance(record.content, bytes):
            writer.file(record.path, record.mode, record.mtime, record.content, record.digest)
    writer.end()
    return sink.getvalue()


def received(store: CollectionReceiver, stream: bytes) -> None:
    """What any receiver makes of a stream's collections."""
    reader = MoveReader(io.BytesIO(stream))
    for entry in reader:
        if entry.path.startswith(tuple(PREFIXES.values())):
            store.receive(entry, reader.chunks() if entry.kind == FILE else ())
    store.complete(reader.manifest.collections or COLLECTIONS)


def file_source(home: int) -> FileSource:
    return FileSource(
        home,
        SnapshotReader(still=True, spool=None),
        still=True,
        index=Index(None, b""),
        exclude=Exclusion(()),
        say=Said(),
    )


def test_the_folder_is_a_store(here: Path) -> None:
    """Both of its sides are what the contract says; a type checker holds the signatures."""
    home = os.open(full_home(here / "home"), os.O_RDONLY)
    stage = Stage(home)
    reader = MoveReader(io.BytesIO(sent(MemoryStore({}), ())))
    report = Report(reader.manifest)
    source: CollectionSource = file_source(home)
    store: CollectionReceiver = FileReceiver(stage, reader, home, report, Options())
    assert callable(source.records)
    assert callable(store.receive)
    assert isinstance(store, FileReceiver)
    assert isinstance(store.assembly, Assembly)
    stage.close()
    os.close(home)


def test_records_are_sorted_and_complete(here: Path) -> None:
    """Each collection comes in path order, in the one form, with its digests."""
    home = os.open(full_home(here / "home"), os.O_RDONLY)
    source = file_source(home)
    found = {name: list(source.records(name)) for name in COLLECTIONS}
    os.close(home)
    for name, records in found.items():
        paths = [record.path for record in records]
        assert paths == sorted(paths)
        assert all(path.startswith(PREFIXES[name]) for path in paths)
        for record in records:
            if record.kind == FILE:
                assert isinstance(record.content, bytes)
                assert hashlib.sha256(record.content).digest() == record.digest
                assert len(record.content) == record.size
    assert [record.path for record in found["jobs"]] == [
        b"schedule/day.json", b"schedule/firing/j2.json", b"schedule/waiting/j1.json"
    ]  # fmt: skip
    assert len(found["conversations"]) == 4


def test_what_is_held_comes_without_content(here: Path) -> None:
    """From either store."""
    home = os.open(make_home(here / "home", conversations={"t": [1]}), os.O_RDONLY)
    path = b"harness/conversations/t/events.jsonl"
    held = {path: hashlib.sha256(b"1\n").digest()}
    for source in (file_source(home), MemoryStore({path: b"1\n"})):
        (record,) = source.records("conversations", held)
        assert (record.path, record.content, record.digest) == (path, None, held[path])
    os.close(home)


def test_from_memory_to_a_folder(here: Path) -> None:
    """A store that is no folder is sent, and becomes one."""
    take(here / "home", sent(MemoryStore(CONTENTS), COLLECTIONS))
    found = snapshot(here / "home")
    assert {path: found[path][2] for path in CONTENTS} == CONTENTS


def test_from_a_folder_to_memory(here: Path) -> None:
    """And the other way round, by the same contract."""
    take(here / "home", sent(MemoryStore(CONTENTS), COLLECTIONS))
    (here / "home" / "schedule" / "paused").touch()
    store = MemoryStore({b"harness/skills/old/SKILL.md": b"old"})
    received(store, stream_of(here / "home", "switch"))
    assert store.contents == CONTENTS


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_one_collection_alone(here: Path, collection: Collection) -> None:
    """The others stay as they are, in either store."""
    home = full_home(here / "home")
    before = snapshot(home)
    stream = sent(MemoryStore(CONTENTS), (collection,))
    if collection == "conversations":
        new = MemoryStore({b"harness/conversations/new/events.jsonl": b"1\n"})
        stream = sent(new, (collection,))
    take(home, stream)
    after = snapshot(home)
    mine = PREFIXES[collection]
    for path, thing in before.items():
        if thing[0] != "folder" and path not in (b"agent.json", b"schedule/paused"):
            assert path.startswith(mine) or after[path] == thing
    store = MemoryStore({b"memory/notes.md": b"own", b"harness/instructions.md": b"own"})
    received(store, stream)
    for path in (b"memory/notes.md", b"harness/instructions.md"):
        assert store.contents[path] == (CONTENTS[path] if path.startswith(mine) else b"own")


def test_a_store_that_refuses(here: Path) -> None:
    """Then nothing has changed in it."""
    store = MemoryStore({b"harness/conversations/t/events.jsonl": b'{"n":9}\n'})
    with pytest.raises(Refusal):
        received(store, sent(MemoryStore(CONTENTS), COLLECTIONS))
    assert store.contents == {b"harness/conversations/t/events.jsonl": b'{"n":9}\n'}
