"""What the tests of the bridge share: streams of a few entries, and both ways across."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import pytest

from agentmove_tools.bridge.crossing import Crossing
from agentmove_tools.bridge.to_package import Crossed, package_of
from agentmove_tools.bridge.to_stream import write_stream
from agentmove_tools.package.contents import Options
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.manifest import Agent, Manifest
from agentmove_tools.stream.paths import Phase
from agentmove_tools.stream.tar_reader import MoveReader
from agentmove_tools.stream.tar_writer import MoveWriter
from tests.home.builder import LONG_AGO, MOVE, Bytes, File, Folder, Link, one_form
from tests.package.packages import AGENT, ALL, contents, package_in, zipped

Thing: TypeAlias = bytes | File | Folder | Link
Tree: TypeAlias = Mapping[str, Thing]

ID: Final = "agent-of-tests"
SOUL: Final = "harness/instructions.md"
CONFIG: Final = "harness/package/agent.config.json"
# What ``tests.package.packages.AGENT`` is in a stream.
MINIMAL: Final[Tree] = {SOUL: AGENT["SOUL.md"], CONFIG: AGENT["agent.config.json"]}


def manifest(phase: Phase = "switch", **fields: object) -> Manifest:
    """The manifest of the smallest agent."""
    agent = Agent(ID, ID)
    made = Manifest(phase=phase, move=MOVE, version="9", agent=agent, harness="default")
    return replace(made, **fields)  # type: ignore[arg-type]


def sent(tree: Tree, made: Manifest | None = None) -> bytes:
    """A stream of exactly these things."""
    sink = Bytes()
    writer = MoveWriter(sink, made or manifest(), any_links=True)
    for path, thing in sorted((path.encode(), thing) for path, thing in tree.items()):
        if isinstance(thing, Folder):
            writer.folder(path, thing.mode, thing.mtime)
        elif isinstance(thing, Link):
            writer.link(path, thing.target, LONG_AGO)
        else:
            file = thing if isinstance(thing, File) else File(thing)
            digest = hashlib.sha256(file.content).digest()
            writer.file(path, file.mode, file.mtime, file.content, digest)
    writer.end()
    return sink.getvalue()


def to_package(
    stream: bytes, options: Options = ALL, *, strict: bool = False, skip_events: bool = False
) -> Crossed:
    """What becomes of a stream."""
    reader = MoveReader(io.BytesIO(stream))
    return package_of(reader, options._replace(strict=strict), skip_events=skip_events)


def crossed(
    tree: Tree,
    made: Manifest | None = None,
    options: Options = ALL,
    *,
    strict: bool = False,
    skip_events: bool = False,
) -> Crossed:
    """What becomes of the smallest agent with these things."""
    stream = sent({**MINIMAL, **tree}, made)
    return to_package(stream, options, strict=strict, skip_events=skip_events)


def refused(
    tree: Tree,
    made: Manifest | None = None,
    options: Options = ALL,
    *,
    strict: bool = False,
    skip_events: bool = False,
) -> Refusal:
    """Why there is no package of the smallest agent with these things."""
    with pytest.raises(Refusal) as caught:
        crossed(tree, made, options, strict=strict, skip_events=skip_events)
    return caught.value


def packaged(made: Crossed) -> dict[str, bytes]:
    """The files in the archive that came out."""
    return contents(package_in(b"".join(made.pieces), ALL))


def archive(stream: bytes) -> bytes:
    """The package of a stream."""
    return b"".join(to_package(stream).pieces)


def lost(crossing: Crossing) -> list[tuple[str, str]]:
    """What has no place at the other side, and why, in the order that it is told in."""
    return [(path.decode("utf-8", "backslashreplace"), why) for path, why in crossing.lost]


def to_stream(data: bytes, options: Options = ALL) -> tuple[bytes, Crossing]:
    """What becomes of an archive."""
    sink = Bytes()
    package = package_in(data, options._replace(strict=False))
    crossing = write_stream(package, sink, move=MOVE, strict=options.strict)
    return sink.getvalue(), crossing


def streamed(files: Mapping[str, bytes], options: Options = ALL) -> tuple[bytes, Crossing]:
    """What becomes of the smallest agent's archive with these files."""
    return to_stream(zipped({**AGENT, **files}), options)


def manifest_in(stream: bytes) -> Manifest:
    """A stream's manifest."""
    return MoveReader(io.BytesIO(stream)).manifest


def event(event_id: str = "e1", **more: object) -> bytes:
    """The line of an event in the one form, a good one unless ``more`` says otherwise."""
    return one_form({"id": event_id, "type": "user", "ts": 1, "data": {}, **more}) + b"\n"
