from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from agentmove_tools.package import (
    archive_reader,
    archive_writer,
    events,
    names,
)
from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.contents import Options
from agentmove_tools.package.pack import pack
from agentmove_tools.refusals import Refusal
from tests.package.packages import (
    AGENT,
    ALL,
    PLAIN,
    STRICT,
    contents,
    event,
    package_in,
    package_of,
    packed,
    put,
    refusal_at,
    told,
)

SKILL = b"---\nname: x\ndescription: d\n---\n"
FILES = {
    **AGENT,
    "USER.md": b"u" * 3000,
    "memory/\u00e9.md": "\u00e9".encode(),
    "memory/a-b.md": b"",
    "memory/a/b.md": bytes(range(1, 128)) * 9,
    "memory/a.md": b"1",
    "skills/x/SKILL.md": SKILL,
    "skills/x/run.sh": b"#!/bin/sh\n",
    "skills/x/data": bytes(range(256)) * 4,
    "data/secrets/shared.json": b'{"B":"value","A":"value"}',
    "data/secrets/u9.json": b'["C"]',
    "data/sessions/t:u.jsonl": b"\n".join(event(f"e{n}", n) for n in range(20)) + b"\n",
    "data/sessions/T:u.jsonl": event("a"),
}


@pytest.fixture
def agent(here: Path) -> Path:
    """Give a folder with a file of each kind, one of which can be run."""
    put(here / "agent", FILES)
    (here / "agent" / "skills/x/run.sh").chmod(0o755)
    return here / "agent"


def test_other_programs_read_a_package(agent: Path) -> None:
    """Its entries are sorted, with UNIX modes, UTF-8 names and the one time."""
    data = packed(agent)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        infos = archive.infolist()
        found = {info.filename: archive.read(info) for info in infos}
    paths = [info.filename.encode() for info in infos]
    assert paths == sorted(paths)
    assert {info.create_system for info in infos} == {3}
    assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
    assert all(info.flag_bits == 0x800 for info in infos)
    modes = {info.filename: info.external_attr >> 16 for info in infos}
    assert {path for path, mode in modes.items() if mode == 0o100755} == {"skills/x/run.sh"}
    assert {mode for path, mode in modes.items() if path != "skills/x/run.sh"} == {0o100644}
    assert found["data/secrets/shared.json"] == b'{"pendingKeys":["A","B"]}\n'
    assert found["data/secrets/user-u9.json"] == b'{"pendingKeys":["C"]}\n'
    assert {path for path in found if "sessions" in path} == {
        "data/sessions/t:u.jsonl",
        "data/sessions/%54:u.jsonl",
    }
    for path in ("SOUL.md", "USER.md", "memory/\u00e9.md", "skills/x/data"):
        assert found[path] == FILES[path]


def test_a_package_that_is_packed_again_is_the_same(agent: Path) -> None:
    """A package of a package is itself, byte for byte."""
    data = packed(agent, ALL)
    package = package_in(data, ALL)
    assert b"".join(pack(package)) == data
    assert b"".join(pack(package)) == data  # and a second time


def test_a_package_of_others_is_brought_into_the_one_form() -> None:
    """Whoever made it: sorted, its sessions in the one form, its secrets without values."""
    package = package_of({"MEMORY.md": b"m", "data/secrets/u.json": b'{"A":"v"}', "x": b""})
    data = b"".join(pack(package))
    assert [entry.path for entry in Archive(data).entries] == [
        *("MEMORY.md", "SOUL.md", "agent.config.json", "data/secrets/user-u.json"),
    ]
    assert b"".join(pack(package_in(data))) == data


def test_it_comes_in_pieces_when_all_was_checked(here: Path) -> None:
    """A fault in the last file of all leaves nothing to write."""
    put(here, {**AGENT, "skills/x/SKILL.md": SKILL[:-4]})
    assert refusal_at(here).code == "skill-front-matter"


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("SOUL.md", b"\0", ("field-nul", "SOUL.md", "agent.soul", 1)),
        ("USER.md", b"\n\xff", ("field-encoding", "USER.md", "agent.user", 2)),
        ("agent.config.json", b"[]", ("field-json", "agent.config.json", "agent.config", None)),
        (
            "agent.config.json",
            b"{}",
            ("agent-id", "agent.config.json", "agent.config.id", None),
        ),
        ("data/access.json", b"1", ("field-json", "data/access.json", "access.list", None)),
        (
            "data/secrets/u.json",
            b'{"A":"\\ud800"}',
            ("field-surrogate", "data/secrets/u.json", "secret.names", None),
        ),
        ("data/sessions/x.jsonl", b"", ("session-name", "data/sessions/x.jsonl", None, None)),
        ("data/sessions/a:b.jsonl", b"{", ("field-json", "data/sessions/a:b.jsonl", "message", 1)),
        (
            "data/sessions/a:%62.jsonl",
            event(type="x"),
            ("event-type", "data/sessions/a:%62.jsonl", "message.type", 1),
        ),
        ("memory/2026-02-30.md", b"", ("memory-date", "memory/2026-02-30.md", None, None)),
        ("data/usage.json", b"{", ("field-json", "data/usage.json", "usage", None)),
        ("browser-state/a.json", b"", ("field-json", "browser-state/a.json", "account", None)),
    ],
    ids=range(12),
)
def test_a_folder_is_refused_for_what_a_package_is(
    here: Path, path: str, content: bytes, expected: tuple[object, ...]
) -> None:
    """With the path that the file has in the folder."""
    put(here, {**AGENT, path: content})
    assert told(refusal_at(here, ALL)) == expected
    with pytest.raises(Refusal) as caught:
        package_of({path: content}, ALL).check()
    assert told(caught.value) == expected


# -- limits


Limit = tuple[str, tuple[object, ...], str, Callable[[bytes], int]]

LIMITS: dict[str, Limit] = {
    "upload": (
        "MAX_UPLOAD",
        (archive_reader, archive_writer),
        "package-upload-size",
        len,
    ),
    "entries": (
        "MAX_ENTRIES",
        (archive_reader, archive_writer),
        "package-entries",
        lambda data: len(Archive(data).entries),
    ),
    "unpacked": (
        "MAX_UNPACKED",
        (archive_reader, archive_writer),
        "package-unpacked-size",
        lambda data: sum(entry.size for entry in Archive(data).entries),
    ),
    "folders": ("MAX_FOLDERS", (names,), "package-entries", lambda _: 7),
    "events": ("MAX_EVENTS", (events,), "package-entries", lambda _: 21),
    "path": ("MAX_PATH", (names,), "package-path", lambda _: len("data/sessions/%54:u.jsonl")),
}


@pytest.mark.parametrize("name", LIMITS)
def test_at_each_limit_a_package_is_made_that_can_be_read(
    agent: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One past it none is made: whatever is packed is taken."""
    limit, modules, code, measured = LIMITS[name]
    most = measured(packed(agent))
    for module in modules:
        monkeypatch.setattr(module, limit, most)
    package_in(packed(agent)).check()
    for less in (1, 2, most // 2):
        for module in modules:
            monkeypatch.setattr(module, limit, most - less)
        assert refusal_at(agent).code == code


def test_a_limit_of_one_session_file_or_secret(here: Path) -> None:
    """Those on one file hold for a folder as for a package."""
    put(here, {**AGENT, "data/secrets/agent.json": b"[" + b" " * (1 << 20) + b"]"})
    assert refusal_at(here).why == "it is longer than 1 MiB"
    put(here, {"data/secrets/agent.json": b"[]", "data/access.json": b" " * ((10 << 20) + 1)})
    assert refusal_at(here).why == "it is longer than 10 MiB"


def test_what_is_left_out_does_not_count(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder may hold more than a package."""
    expected = packed(agent)
    put(agent, {f"memory/{number}.txt": b"x" * 1000 for number in range(50)})
    put(agent, {f"notes/{number}/x": b"x" for number in range(50)})
    put(agent, {"data/memory.sqlite": b"x" * 100_000})
    for module in (archive_reader, archive_writer):
        monkeypatch.setattr(module, "MAX_ENTRIES", len(Archive(expected).entries))
        monkeypatch.setattr(module, "MAX_UPLOAD", len(expected))
    monkeypatch.setattr(names, "MAX_FOLDERS", 7)
    assert packed(agent) == expected


def test_a_large_file_is_packed_and_read(here: Path) -> None:
    """One that is over a MiB is never held whole; its pieces do not show in the bytes."""
    rows = b"".join(b"%d\n" % number for number in range(400_000))
    put(here, {**AGENT, "MEMORY.md": rows, "skills/x/SKILL.md": SKILL, "skills/x/a": rows[::-1]})
    data = packed(here)
    assert len(data) < len(rows)
    assert contents(package_in(data))["MEMORY.md"] == rows
    assert b"".join(pack(package_in(data))) == data
    entry = next(each for each in Archive(data).entries if each.path == "MEMORY.md")
    assert entry.crc == zlib.crc32(rows)


# -- options


def test_what_is_asked_for_goes_too(agent: Path) -> None:
    """Usage and cookies, each alone or both; nothing else changes."""
    put(agent, {"data/usage.json": b"{}", "browser-state/main.json": b"[]"})
    plain = {entry.path for entry in Archive(packed(agent)).entries}
    usage = {entry.path for entry in Archive(packed(agent, asked("usage"))).entries}
    state = {entry.path for entry in Archive(packed(agent, asked("browser-state"))).entries}
    both = {entry.path for entry in Archive(packed(agent, ALL)).entries}
    assert usage - plain == {"data/usage.json"}
    assert state - plain == {"browser-state/main.json"}
    assert both == usage | state
    assert packed(agent, STRICT) == packed(agent, PLAIN)


def asked(part: str) -> Options:
    return Options(wanted=frozenset(each for each in ALL.wanted if each == part))


def test_a_line_cut_short_is_left_out_when_told(here: Path) -> None:
    """The package is the one of the whole lines."""
    put(here / "a", {**AGENT, "data/sessions/t:u.jsonl": event() + b'\n{"id":'})
    put(here / "b", {**AGENT, "data/sessions/t:u.jsonl": event() + b"\n"})
    assert refusal_at(here / "a").hint == "--drop-torn-line leaves it out"
    assert packed(here / "a", Options(drop_torn_line=True)) == packed(here / "b")
