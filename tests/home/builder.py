"""Homes for tests: made from a dict, compared as a whole, and moved within this process."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from agentmove_tools.home import receiver
from agentmove_tools.home.have import holdings_of
from agentmove_tools.home.report import Report
from agentmove_tools.home.sender import Sender
from agentmove_tools.stream.have import parse_have, write_have
from agentmove_tools.stream.manifest import Manifest
from agentmove_tools.stream.paths import Phase
from agentmove_tools.stream.tar_reader import MoveReader
from agentmove_tools.stream.tar_writer import MoveWriter

MOVE: Final = "0123456789abcdef0123456789abcdef"
OTHER_MOVE: Final = "fedcba9876543210fedcba9876543210"
LONG_AGO: Final = 1_600_000_000  # seconds; what make_home writes is old unless it says otherwise


@dataclass(frozen=True)
class File:
    """A file with another mode or time than a plain one. ``mtime`` is in whole seconds."""

    content: bytes = b""
    mode: int = 0o644
    mtime: int = LONG_AGO


@dataclass(frozen=True)
class Folder:
    """A folder that may be empty."""

    mode: int = 0o755
    mtime: int = LONG_AGO


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: bytes


@dataclass(frozen=True)
class Fifo:
    """A named pipe, which never travels."""


Thing: TypeAlias = bytes | str | File | Folder | Link | Fifo
Name: TypeAlias = bytes | str
Tree: TypeAlias = Mapping[Name, Thing]
Events: TypeAlias = bytes | Sequence[object]
Snapshot: TypeAlias = dict[bytes, tuple[str, int, bytes]]


def as_bytes(name: Name) -> bytes:
    """A path or a text as UTF-8."""
    return name if isinstance(name, bytes) else name.encode()


def one_form(value: object) -> bytes:
    """A simple value in the one form."""
    return json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def event_lines(events: Events) -> bytes:
    """A conversation's file: each event a line, or the bytes as they are."""
    if isinstance(events, bytes):
        return events
    return b"".join(one_form(event) + b"\n" for event in events)


def put(root: Path | bytes, path: Name, thing: Thing) -> None:
    """Put one thing below ``root``; folders on the way are made, what is there is replaced."""
    above = root if isinstance(root, bytes) else os.fsencode(root)
    *folders, name = as_bytes(path).split(b"/")
    for folder in folders:
        above += b"/" + folder
        if not os.path.isdir(above):
            os.mkdir(above, 0o755)
            os.chmod(above, 0o755)
    full = above + b"/" + name
    if isinstance(thing, Folder):
        if not os.path.isdir(full):
            os.mkdir(full)
        os.chmod(full, thing.mode)
        os.utime(full, (thing.mtime, thing.mtime))
        return
    take_away(full)
    if isinstance(thing, Link):
        os.symlink(thing.target, full)
        return
    if isinstance(thing, Fifo):
        os.mkfifo(full)
        return
    file = thing if isinstance(thing, File) else File(as_bytes(thing))
    with open(full, "xb") as opened:
        opened.write(file.content)
    os.chmod(full, file.mode)
    os.utime(full, (file.mtime, file.mtime))


def take_away(path: Path | bytes) -> None:
    """Remove whatever is there, a folder with all that is in it."""
    full = path if isinstance(path, bytes) else os.fsencode(path)
    if os.path.isdir(full) and not os.path.islink(full):
        os.chmod(full, 0o700)
        for name in os.listdir(full):
            take_away(full + b"/" + name)
        os.rmdir(full)
    elif os.path.lexists(full):
        os.unlink(full)


def make_home(
    folder: Path,
    agent_id: str = "a1",
    *,
    name: str = "Ada",
    owner: str | None = None,
    fields: Mapping[str, object] | None = None,
    files: Tree | None = None,
    memory: Tree | None = None,
    notes: Thing | None = None,
    instructions: Thing | None = None,
    skills: Tree | None = None,
    package: Tree | None = None,
    conversations: Mapping[str, Events] | None = None,
    threads: Mapping[str, object] | None = None,
    connections: Tree | None = None,
    jobs: Mapping[str, object] | None = None,
    day: object = None,
    paused: bool = False,
    other: Tree | None = None,
) -> Path:
    """Make a Home of its parts, and give its folder.

    Trees are by path below their own folder, ``jobs`` by ``place/id``, ``other`` by path in the
    Home. ``conversations`` holds events, ``threads`` settings, both by thread. Jobs are written
    with white space, as an agent may; ``fields`` are more members of ``agent.json``.
    """
    folder.mkdir(parents=True)
    agent = {"id": agent_id, "name": name, "harness": "claude", **(fields or {})}
    if owner is not None:
        agent["owner"] = owner
    put(folder, "agent.json", json.dumps(agent))
    for top, tree in (
        ("files", files),
        ("memory", memory),
        ("harness/skills", skills),
        ("harness/package", package),
        ("connections", connections),
    ):
        if tree is not None:
            put(folder, top, Folder())
            for path, thing in tree.items():
                put(folder, as_bytes(top) + b"/" + as_bytes(path), thing)
    for path, single in (("memory/notes.md", notes), ("harness/instructions.md", instructions)):
        if single is not None:
            put(folder, path, single)
    for thread, events in (conversations or {}).items():
        put(folder, f"harness/conversations/{thread}/events.jsonl", event_lines(events))
    for thread, settings in (threads or {}).items():
        put(folder, f"harness/conversations/{thread}/thread.json", json.dumps(settings))
    for place_and_id, job in (jobs or {}).items():
        text = job if isinstance(job, bytes | str) else json.dumps(job, indent=1)
        put(folder, f"schedule/{place_and_id}.json", text)
    if day is not None:
        put(folder, "schedule/day.json", json.dumps(day))
    if paused:
        put(folder, "schedule/paused", b"")
    for path, thing in (other or {}).items():
        put(folder, path, thing)
    return folder


def full_home(folder: Path, agent_id: str = "a1", *, paused: bool = True) -> Path:
    """A Home that has something of each kind that travels, and of what does not."""
    return make_home(
        folder,
        agent_id,
        owner="Olga",
        fields={"color": "blue"},
        files={
            "a.txt": "alpha",
            "run.sh": File(b"#!/bin/sh\n", 0o755),
            "deep/er/b.bin": bytes(range(256)),
            "empty": Folder(),
            "spaced name\nand line": "odd",
            "link": Link(b"deep/er"),
        },
        memory={"engine/index.db": b"\0" * 1000, "engine/current": Link(b"index.db")},
        notes="# notes\n",
        instructions="be kind\n",
        skills={"cook/SKILL.md": "---\nname: cook\n---\n", "cook/salt": Link(b"SKILL.md")},
        package={"extra.txt": "from a package"},
        conversations={
            "main": [{"n": 1, "text": "hello"}, {"n": 2, "text": "world"}],
            "side": [{"n": 1}],
        },
        threads={"main": {"tools": ["read"]}, "silent": {"tools": []}},
        connections={"mail.json": File(b'{"token":"t"}', 0o600)},
        jobs={"waiting/j1": {"id": "j1", "at": 1.50}, "firing/j2": {"id": "j2"}},
        day=["2026-01-01", 3],
        paused=paused,
        other={"logs/today.log": "log", ".env": File(b"X=1", 0o600), "harness/other/x": "x"},
    )


def snapshot(folder: Path, *, working_state: bool = False) -> Snapshot:
    """All that lies in a folder: path -> kind, mode, and content or target.

    The mode of a link is 0. A working state in it is left out unless asked for.
    """
    found: Snapshot = {}
    root = os.fsencode(folder)

    def look(path: bytes) -> None:
        for name in sorted(os.listdir(root + b"/" + path if path else root)):
            below = path + b"/" + name if path else name
            if name == b".lnk-move" and not working_state:
                continue
            full = root + b"/" + below
            info = os.lstat(full)
            mode = stat.S_IMODE(info.st_mode)
            if stat.S_ISDIR(info.st_mode):
                found[below] = ("folder", mode, b"")
                look(below)
            elif stat.S_ISLNK(info.st_mode):
                found[below] = ("link", 0, os.readlink(full))
            elif stat.S_ISREG(info.st_mode):
                with open(full, "rb") as file:
                    found[below] = ("file", mode, file.read())
            else:
                found[below] = ("other", mode, b"")

    look(b"")
    return found


def times(folder: Path) -> dict[bytes, tuple[int, int, int]]:
    """The inode, mtime and ctime (ns) of all that lies in a folder, and of itself."""
    found: dict[bytes, tuple[int, int, int]] = {}
    for above, folders, files in os.walk(os.fsencode(folder)):
        for name in (b"", *folders, *files):
            path = os.path.join(above, name)
            info = os.lstat(path)
            found[path] = (info.st_ino, info.st_mtime_ns, info.st_ctime_ns)
    return found


def travelling(found: Snapshot) -> Snapshot:
    """What of a Home's snapshot is equal at both ends after a switch.

    Events and jobs are in the one form, ``schedule/paused``, ``agent.json`` and what is not of a
    move are left out. Folders count below ``files/`` and ``memory/`` only.
    """
    kept: Snapshot = {}
    for path, (kind, mode, content) in found.items():
        top = path.partition(b"/")[0]
        if top not in (b"files", b"memory", b"harness", b"connections", b"schedule"):
            continue
        if path == b"schedule/paused" or path.startswith(b"harness/other"):
            continue
        if kind == "other" or (kind == "folder" and top not in (b"files", b"memory")):
            continue
        if path.endswith(b"/events.jsonl") and path.startswith(b"harness/conversations/"):
            lines = content.split(b"\n")
            events = [one_form(json.loads(line)) for line in lines if line]
            kept[path] = (kind, mode, b"".join(event + b"\n" for event in events))
        elif top == b"schedule":
            kept[path] = (kind, mode, one_form(json.loads(content)))
        elif top == b"connections":
            kept[path] = (kind, 0o600, content)
        else:
            kept[path] = (kind, mode, content)
    return kept


class Said(list[tuple[bytes, str]]):
    """What a sender left out: path and reason."""

    def __call__(self, path: bytes, reason: str) -> None:
        self.append((path, reason))

    def of(self, path: Name) -> list[str]:
        """The reasons for one path."""
        return [reason for said, reason in self if said == as_bytes(path)]


def have_of(home: Path) -> dict[bytes, bytes]:
    """What ``lnk-have`` says of a Home."""
    sink = Bytes()
    write_have(holdings_of(os.fsencode(home), lambda _: None), sink)
    return parse_have(io.BytesIO(sink.getvalue()))


def manifest_of(
    home: Path,
    phase: Phase,
    *,
    move: str = MOVE,
    have: Mapping[bytes, bytes] | None = None,
    exclude: Sequence[str] = (),
) -> Manifest:
    """What ``lnk-manifest`` makes of a Home."""
    with Sender(os.fsencode(home), exclude=exclude, say=Said()) as sender:
        return sender.manifest(phase, move=move, have=have)


def stream_of(
    home: Path,
    phase: Phase | None = None,
    *,
    manifest: Manifest | None = None,
    move: str = MOVE,
    have: Mapping[bytes, bytes] | None = None,
    exclude: Sequence[str] = (),
    any_links: bool = False,
    say: Said | None = None,
    own: frozenset[tuple[int, int]] = frozenset(),
) -> bytes:
    """The Move Stream of a Home, for ``manifest`` or a new one of ``phase``."""
    sink = Bytes()
    with Sender(
        os.fsencode(home), exclude=exclude, say=Said() if say is None else say, own=own
    ) as sender:
        if manifest is None:
            assert phase is not None
            manifest = sender.manifest(phase, move=move, have=have)
        sender.send(sink, manifest, have=have, any_links=any_links)
    return sink.getvalue()


def take(
    home: Path, stream: bytes, options: receiver.Options | None = None, *, any_links: bool = False
) -> Report:
    """What ``lnk-tar-apply`` does with a stream."""
    reader = MoveReader(io.BytesIO(stream), any_links=any_links)
    return receiver.receive(os.fsencode(home), reader, options or receiver.Options())


def move(
    sender: Path,
    receiver_home: Path,
    phase: Phase,
    *,
    move_id: str = MOVE,
    with_have: bool = True,
    exclude: Sequence[str] = (),
    any_links: bool = False,
    options: receiver.Options | None = None,
) -> Report:
    """Move one Home to another place by one phase, and give the receiver's report."""
    have = have_of(receiver_home) if with_have else None
    stream = stream_of(sender, phase, move=move_id, have=have, exclude=exclude, any_links=any_links)
    return take(receiver_home, stream, options, any_links=any_links)


def entries_of(stream: bytes, *, any_links: bool = False) -> dict[bytes, tuple[str, int, bytes]]:
    """The entries of a stream, which must be a good one: path -> kind, mode, content or target."""
    reader = MoveReader(io.BytesIO(stream), any_links=any_links)
    found: dict[bytes, tuple[str, int, bytes]] = {}
    for entry in reader:
        if entry.kind == "file":
            content = b"".join(bytes(piece) for piece in reader.chunks())
            found[entry.path] = (entry.kind, entry.mode, content)
        else:
            found[entry.path] = (entry.kind, entry.mode, entry.target or b"")
    return found


class Bytes(io.BytesIO):
    """A sink in memory."""


def made_stream(
    manifest: Manifest, entries: Iterable[tuple[bytes, bytes | Link | Folder]]
) -> bytes:
    """A stream of these entries, which must be sorted by path."""
    sink = Bytes()
    writer = MoveWriter(sink, manifest, any_links=True)
    for path, thing in entries:
        if isinstance(thing, bytes):
            writer.file(path, 0o644, LONG_AGO, thing, hashlib.sha256(thing).digest())
        elif isinstance(thing, Link):
            writer.link(path, thing.target, LONG_AGO)
        else:
            writer.folder(path, thing.mode, thing.mtime)
    writer.end()
    return sink.getvalue()
