from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from agentmove_tools.bridge.identity import tools_in
from agentmove_tools.home.layout import part_of
from tests.bridge.crossings import archive, lost, to_package, to_stream
from tests.conftest import MEMORY
from tests.home.builder import (
    MOVE,
    OTHER_MOVE,
    Snapshot,
    entries_of,
    make_home,
    put,
    snapshot,
    stream_of,
    take,
)
from tests.package.packages import ALL, package_in, packed
from tests.property.agents import Maker, makers
from tests.property.homes import Chance, Parts, bring, chances

few = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@contextmanager
def folder() -> Iterator[Path]:
    # In memory where that can be had: every switch syncs its file system.
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


@few
@given(makers)
def test_a_package_comes_back(maker: Maker) -> None:
    """Package, stream, package: byte for byte, and nothing is lost on the way."""
    agent = maker.with_threads(maker.agent())
    with folder() as here:
        data = packed(agent.put(here / "agent"), ALL)
    stream, crossing = to_stream(data)
    assert all("cannot be told" in each.why for each in crossing.lost)  # keys of no chat
    made = to_package(stream, strict=True)
    assert made.crossing.lost == []
    assert b"".join(made.pieces) == data
    assert made.crossing.events == crossing.events
    assert made.crossing.kinds == crossing.kinds
    assert b"a-value-of-a-secret" not in stream


@few
@given(makers)
def test_a_package_comes_back_through_a_home(maker: Maker) -> None:
    """Package, stream, Home, stream, package: the same, where the Home can hold the names."""
    agent = maker.with_threads(maker.agent())
    with folder() as here:
        data = packed(agent.put(here / "agent"), ALL)
        home = here / "home"
        take(home, to_stream(data)[0])
        put(home, "schedule/paused", b"")
        assert archive(stream_of(home, "switch")) == data


# -- from a Home, and back


def made(where: Path, content: Parts) -> Path:
    """A Home of these parts, whose schedule is paused."""
    make_home(where, paused=True, owner="Otto", fields={"color": "blue"})
    bring(where, {}, content.things())
    return where


def agent_in(home: Snapshot, unsaid: str) -> dict[str, object]:
    """The members of ``agent.json`` that a first Home has, but those that are told as lost."""
    agent: dict[str, object] = json.loads(home[b"agent.json"][2])
    return {name: agent.get(name) for name in _MEMBERS if name not in unsaid}


_MEMBERS = ("id", "name", "owner", "harness", "color")


def mapped(home: Snapshot) -> dict[str, object]:
    """All of a Home that has a place in a package, but for its configuration and secrets."""
    found: dict[str, object] = {}
    skills = {path.removesuffix(b"/SKILL.md") for path in home if path.endswith(b"/SKILL.md")} - {
        b"harness/skills"
    }
    for path, (kind, mode, content) in home.items():
        name = path.decode()
        part = part_of(path)
        if kind != "file":
            continue
        if part in ("instructions", "notes"):
            found[name] = content
        elif part == "skills" and b"/".join(path.split(b"/")[:3]) in skills:
            found[name] = (bool(mode & 0o111), content)
        elif part == "conversations" and name.endswith("/events.jsonl"):
            found[name] = [json.loads(line) for line in content.splitlines()]
        elif part == "conversations" and tools_in(content, name)[0] is not None:
            found[name] = tools_in(content, name)[0]
        elif name.startswith(_KEPT):
            found[name] = content
    return found


_KEPT = ("harness/package/USER.md", "harness/package/memory/", "harness/package/data/access.json")
_OWN = (b"files/", b"memory/", b"schedule/", b"connections/")


def own(home: Snapshot) -> Snapshot:
    """What no package holds, and each Home keeps: files, links, folders, jobs, connections."""
    return {
        path: thing
        for path, thing in home.items()
        # the folders at the top are made as they are needed
        if path.startswith(_OWN) and path not in (b"schedule/paused", b"memory/notes.md")
    }


@few
@given(chances)
def test_a_home_comes_back(chance: Chance) -> None:
    """Home, stream, package, stream: to the same Home, and to where there is none.

    All that has a place in a package is equal at both, and what has none is as it was in the
    first, or was told.
    """
    with folder() as here:
        home = made(here / "home", chance.agent_parts())
        before = snapshot(home)
        stream = stream_of(home, "switch", move=MOVE)
        crossed = to_package(stream)
        data = b"".join(crossed.pieces)
        back, crossing = to_stream(data)
        assert crossing.lost == []
        entries = entries_of(stream)
        told = {path for path, _ in lost(crossed.crossing)}
        unsaid = " ".join(why for path, why in lost(crossed.crossing) if path == "lnk-move-4.json")
        for path, (kind, _, _) in entries.items():
            if part_of(path) in ("files", "memory", "jobs") and kind != "folder":
                assert path.decode() in told
        for other in (home, here / "other"):
            take(other, back)
            after = snapshot(other)
            assert mapped(after) == mapped(before)
            put(other, "schedule/paused", b"")
            assert archive(stream_of(other, "switch", move=OTHER_MOVE)) == data
        assert own(snapshot(home)) == own(before)
        assert agent_in(snapshot(home), unsaid) == agent_in(before, unsaid)
        assert agent_in(snapshot(here / "other"), unsaid + "color") == agent_in(
            before, unsaid + "color"
        )


@few
@given(chances)
def test_a_stream_of_a_package_is_the_same_each_time(chance: Chance) -> None:
    """A stream's package, and the stream of that, are the same bytes each time."""
    with folder() as here:
        stream = stream_of(made(here / "home", chance.agent_parts()), "copy", move=MOVE)
    data = archive(stream)
    assert archive(stream) == data
    package_in(data, ALL).check()
    again = to_stream(data)[0]
    assert to_stream(data)[0] == again
    assert archive(again) == data
