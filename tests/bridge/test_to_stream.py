from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from agentmove_tools.bridge.to_stream import PackageSource, write_stream
from agentmove_tools.package.contents import Options
from agentmove_tools.package.layout import PASSED_OVER
from agentmove_tools.package.pack import pack
from agentmove_tools.package.session_names import session_files
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.manifest import Agent, Manifest
from agentmove_tools.stream.paths import END_NAME
from agentmove_tools.stream.tar_reader import MoveReader
from tests.bridge.crossings import (
    CONFIG,
    ID,
    SOUL,
    archive,
    event,
    lost,
    manifest_in,
    streamed,
    to_stream,
)
from tests.home.builder import (
    MOVE,
    OTHER_MOVE,
    Bytes,
    entries_of,
    full_home,
    one_form,
    snapshot,
    stream_of,
    take,
)
from tests.package.packages import AGENT, ALL, DROP, PLAIN, package_of, zipped
from tests.package.zips import RUN_MODE, Zipped, agent
from tests.package.zips import archive as zip_of
from tests.stream.tars import Chunked, read_some

MINIMAL = {SOUL: AGENT["SOUL.md"], CONFIG: AGENT["agent.config.json"]}
THREAD = "harness/conversations/telegram:u42"
SESSION = "data/sessions/telegram:u42.jsonl"
MARK = b"a-value-of-a-secret"


def files_in(stream: bytes) -> dict[str, bytes]:
    """The entries of a stream, all of which must be files."""
    found = entries_of(stream)
    assert {kind for kind, _, _ in found.values()} <= {"file"}
    return {path.decode(): content for path, (_, _, content) in found.items()}


def config(**members: object) -> dict[str, bytes]:
    return {"agent.config.json": json.dumps(members).encode()}


# -- what crosses

ROWS: list[tuple[Mapping[str, bytes], Mapping[str, bytes]]] = [
    ({"SOUL.md": b"other"}, {SOUL: b"other"}),
    (
        {"skills/g/s/SKILL.md": b"x", "skills/g/s/a.bin": b"\0\xff"},
        {"harness/skills/g/s/SKILL.md": b"x", "harness/skills/g/s/a.bin": b"\0\xff"},
    ),
    ({"MEMORY.md": b"notes"}, {"memory/notes.md": b"notes"}),
    ({SESSION: event()}, {f"{THREAD}/events.jsonl": event()}),
    ({SESSION: b""}, {f"{THREAD}/events.jsonl": b""}),
    (
        {"data/sessions/thread:main.jsonl": event()},
        {"harness/conversations/main/events.jsonl": event()},
    ),
    (
        {"data/sessions/thread:thread:main.jsonl": event()},
        {"harness/conversations/thread:main/events.jsonl": event()},
    ),
    (
        {"data/sessions/a%3Ab:x%2Fy.jsonl": event()},
        {"harness/conversations/a%3Ab:x%2Fy/events.jsonl": event()},
    ),
    (
        {"data/sessions/%74elegram:u%252F.jsonl": event()},
        {"harness/conversations/telegram:u%252F/events.jsonl": event()},
    ),
    ({"USER.md": b"u"}, {"harness/package/USER.md": b"u"}),
    ({"HEARTBEAT.md": b"h"}, {"harness/package/HEARTBEAT.md": b"h"}),
    ({"memory/a/b.md": b"m"}, {"harness/package/memory/a/b.md": b"m"}),
    ({"data/access.json": b'{ "a":1}'}, {"harness/package/data/access.json": b'{ "a":1}'}),
    (
        {"data/secrets/agent.json": b'{"B":"a-value-of-a-secret","A":null}'},
        {"harness/package/data/secrets/agent.json": b'{"pendingKeys":["A","B"]}\n'},
    ),
    (
        {"data/secrets/shared.json": b'["A"]', "data/secrets/u.json": b'["B"]'},
        {
            "harness/package/data/secrets/shared.json": b'{"pendingKeys":["A"]}\n',
            "harness/package/data/secrets/user-u.json": b'{"pendingKeys":["B"]}\n',
        },
    ),
    ({"data/usage.json": b"1"}, {"harness/package/data/usage.json": b"1"}),
    ({"browser-state/p.json": b"1"}, {"harness/package/browser-state/p.json": b"1"}),
]


@pytest.mark.parametrize(("files", "entries"), ROWS, ids=[f"row-{n}" for n in range(len(ROWS))])
def test_each_row_of_the_table(files: Mapping[str, bytes], entries: Mapping[str, bytes]) -> None:
    """What a package holds lies at its place in the stream, and nothing else does."""
    stream, crossing = streamed(files)
    assert files_in(stream) == {**MINIMAL, **entries}
    assert crossing.lost == []
    assert crossing.not_asked == []
    for counts in crossing.kinds.values():
        assert counts["in"] == counts["written"]
    assert sum(counts["in"] for counts in crossing.kinds.values()) == len(files_in(stream))
    assert MARK not in stream


@pytest.mark.parametrize(
    ("members", "agent", "harness"),
    [
        ({"id": "a"}, Agent("a", "a"), "default"),
        ({"id": "a", "name": ""}, Agent("a", "a"), "default"),
        ({"id": "a", "name": "Ada", "owner": "Olga"}, Agent("a", "Ada", "Olga"), "default"),
        ({"id": "a", "runtimeProfile": "p"}, Agent("a", "a"), "p"),
        ({"id": "a", "runtimeProfile": "p", "harness": "h"}, Agent("a", "a"), "h"),
        ({"id": "a", "harness": 1, "owner": 2}, Agent("a", "a"), "default"),
    ],
    ids=repr,
)
def test_the_manifest_says_who_it_is(
    members: dict[str, object], agent: Agent, harness: str
) -> None:
    """It is a switch for what a package speaks for, without a ``tree``; nothing else is in it."""
    stream, crossing = streamed(config(**members))
    made = manifest_in(stream)
    assert crossing.agent == agent
    assert made == Manifest(
        phase="switch",
        move=MOVE,
        version=made.version,
        agent=agent,
        harness=harness,
        collections=("instructions", "skills", "notes", "conversations"),
    )


def test_an_agent_without_an_id_is_told_one() -> None:
    """And with none it is refused."""
    files = config(name="Ada")
    stream, _ = streamed(files, Options(external_id="told"))
    assert manifest_in(stream).agent == Agent("told", "Ada")
    with pytest.raises(Refusal) as caught:
        streamed(files)
    assert caught.value.code == "agent-id"


def test_the_move_s_id() -> None:
    """A new one each time where none is given; the same package is the same bytes but for that."""
    data = zipped({**AGENT, SESSION: event()})
    assert to_stream(data)[0] == to_stream(data)[0]
    made = []
    for move in (None, None, OTHER_MOVE):
        sink = Bytes()
        write_stream(package_of({SESSION: event()}), sink, move=move)
        assert files_in(sink.getvalue()) == files_in(to_stream(data)[0])
        made.append(manifest_in(sink.getvalue()).move)
    assert len(set(made)) == 3
    assert made[2] == OTHER_MOVE


def test_narrowings_are_settings_of_threads() -> None:
    """With a conversation or without."""
    threads = {
        "telegram:u42": {"tools": ["b", "a"], "color": 1},
        "thread:silent": {"tools": []},
        "thread:u.jsonl": {"tools": ["x"]},
        "nobody": {"tools": ["x"]},
        "a:free": {},
    }
    stream, crossing = streamed({**config(id=ID, threads=threads), SESSION: event()})
    assert {path: text for path, text in files_in(stream).items() if "conversations" in path} == {
        f"{THREAD}/events.jsonl": event(),
        f"{THREAD}/thread.json": b'{"tools":["b","a"]}\n',
        "harness/conversations/silent/thread.json": b'{"tools":[]}\n',
        "harness/conversations/u.jsonl/thread.json": b'{"tools":["x"]}\n',
    }
    assert crossing.kinds["conversations"] == {"in": 4, "written": 4, "passed_over": 0}


def test_modes_and_times() -> None:
    """A file that can be run stays so; the time is the one in each package."""
    stream, _ = streamed({"skills/s/SKILL.md": b"x"})
    reader = MoveReader(Chunked(stream))
    assert {(mode, mtime) for _, _, mode, mtime, _ in read_some(reader)} == {(0o644, 315_532_800)}
    assert entries_of(stream_of_a_script())[b"harness/skills/s/run"] == (
        "file",
        0o755,
        b"#!/bin/sh\n",
    )


def stream_of_a_script() -> bytes:
    """The stream of a package with a file that can be run."""
    script = Zipped(b"skills/s/run", b"#!/bin/sh\n", attributes=RUN_MODE)
    return to_stream(zip_of(*agent(Zipped(b"skills/s/SKILL.md", b"x"), script)))[0]


# -- what does not


@pytest.mark.parametrize(
    ("path", "why", "kind"),
    [
        ("AGENTS.md", "a package has no place for it", "other"),
        ("skills/loose", "a package has no place for it", "other"),
        ("memory/a.txt", "a package has no place for it", "other"),
        ("data/memory.sqlite", PASSED_OVER["derived"], "other"),
        ("skills/.DS_Store", PASSED_OVER["leftover"], "other"),
        ("__MACOSX/x", PASSED_OVER["leftover"], "other"),
    ],
)
def test_what_has_no_place_is_told(path: str, why: str, kind: str) -> None:
    """By path and reason, and it is counted."""
    stream, crossing = streamed({path: b"x"})
    assert files_in(stream) == MINIMAL
    assert lost(crossing) == [(path, why)]
    assert crossing.kinds[kind] == {"in": 1, "written": 0, "passed_over": 1}
    assert crossing.to_json()["left_out"] == [{"path": path, "reason": why}]
    sink = Bytes()
    with pytest.raises(Refusal) as caught:
        write_stream(package_of({path: b"x"}, ALL), sink, strict=True)
    assert (caught.value.code, caught.value.details["paths"]) == ("bridge-loss", [path])
    assert sink.getvalue() == b""


def test_what_goes_only_where_it_is_asked_for() -> None:
    """It is told, and no loss."""
    files = {"data/usage.json": b"1", "browser-state/p.json": b"1"}
    stream, crossing = streamed(files, PLAIN)
    assert files_in(stream) == MINIMAL
    assert crossing.lost == []
    assert [tuple(each) for each in crossing.not_asked] == [
        (b"browser-state/p.json", "only with --with browser-state"),
        (b"data/usage.json", "only with --with usage"),
    ]
    assert sum(counts["passed_over"] for counts in crossing.kinds.values()) == 2


def test_an_event_that_comes_again_counts_once() -> None:
    """As in each package that is written."""
    stream, crossing = streamed({SESSION: event("a") + event("b") + event("a")})
    assert files_in(stream)[f"{THREAD}/events.jsonl"] == event("a") + event("b")
    assert crossing.events == {"in": 3, "written": 2, "repeats": 1, "skipped": 0}
    why = "an event comes again, equal: a package has each once"
    assert lost(crossing) == [(SESSION, why)]
    with pytest.raises(Refusal) as caught:
        to_stream(zipped({**AGENT, SESSION: event("a") * 2}), Options(strict=True))
    assert caught.value.code == "bridge-loss"


def test_a_loss_has_the_archive_s_own_path() -> None:
    """Also of a session whose name is written in another way."""
    path = "data/sessions/a:%3A.jsonl"
    _, crossing = streamed({path: event() * 2})
    assert [found for found, _ in lost(crossing)] == [path]


@pytest.mark.parametrize(
    ("files", "options", "code"),
    [
        ({"data/secrets/agent.json": b'{"A":"x"}'}, Options(strict=True), "field-json"),
        ({SESSION: b"{"}, ALL, "field-json"),
        ({"MEMORY.md": b"\0"}, ALL, "field-nul"),
        ({"data/sessions/nobody.jsonl": b""}, ALL, "session-name"),
        ({f"data/sessions/a:{'x' * 4060}.jsonl": event()}, ALL, "entry-path"),
        ({"data/sessions/a:%00.jsonl": event()}, ALL, "field-nul"),
        (config(id=""), ALL, "agent-id"),
        (config(id="a", name="\ud800"), ALL, "field-surrogate"),
    ],
    ids=[f"refusal-{number}" for number in range(8)],
)
def test_a_stream_of_a_bad_package_has_no_end(
    files: Mapping[str, bytes], options: Options, code: str
) -> None:
    """It is refused, and what was written by then nobody takes for a stream."""
    sink = Bytes()
    with pytest.raises(Refusal) as caught:
        write_stream(package_of(files, options), sink, move=MOVE, strict=options.strict)
    assert caught.value.code == code
    assert END_NAME not in sink.getvalue()


def test_a_torn_line_can_be_left_out() -> None:
    """As it can in each reading of a package."""
    stream, _ = streamed({SESSION: event("a") + b'{"id"'}, DROP)
    assert files_in(stream)[f"{THREAD}/events.jsonl"] == event("a")


def test_no_value_of_a_secret_crosses() -> None:
    """Not into the stream or the report, though the archive has it."""
    text = json.dumps({"A": MARK.decode(), "pendingKeys": ["B"]}).encode()
    stream, crossing = streamed({"data/secrets/agent.json": text, "data/secrets/u.json": text})
    assert MARK not in stream
    assert MARK.decode() not in json.dumps(crossing.to_json())
    for bad in (text[:-1], text.replace(b'["B"]', b"[1]"), b'["%b' % MARK):
        with pytest.raises(Refusal) as caught:
            streamed({"data/secrets/agent.json": bad})
        refusal = caught.value
        assert MARK.decode() not in repr((refusal.message, refusal.details, refusal.hint))


def test_no_connection_is_written() -> None:
    """An empty credential would take the place of a real one."""
    stream, _ = streamed({"data/secrets/agent.json": b'["mail"]'})
    assert not [path for path in files_in(stream) if path.startswith("connections")]


# -- names


@pytest.mark.parametrize("name", ["Bob", "e\u0301", "x\\y", "a/b", "\u202e", "-rf", "..", "%2F"])
def test_chats_of_odd_names(name: str) -> None:
    """Each has a thread of its own, beside those that some disks take for the same."""
    chats = {("t", each) for each in (name, name.lower(), name.upper(), "\u00e9", "bob")}
    files = {f"data/sessions/{path}": event(repr(c)) for c, path in session_files(chats).items()}
    stream, _ = streamed(files)
    paths = [path for path in files_in(stream) if path.endswith("/events.jsonl")]
    assert len(paths) == len(chats)
    assert archive(stream) == b"".join(pack(package_of(files, ALL)))


# -- the store


def test_a_package_is_a_source_of_collections() -> None:
    """What the other end holds comes without content; there are no jobs, no files."""
    package = package_of({SESSION: event(), "MEMORY.md": b"n"}, PLAIN)
    package.begin()
    source = PackageSource(package)
    (record,) = source.records("conversations")
    path = record.path
    assert record.content == event()
    (again,) = PackageSource(package).records("conversations", {path: record.digest})
    assert (again.path, again.content, again.digest) == (path, None, record.digest)
    (other,) = PackageSource(package).records("conversations", {path: bytes(32)})
    assert other.content == event()
    assert paths_of(source.records("instructions")) == [SOUL]
    assert paths_of(source.memory({}, notes=True)) == ["memory/notes.md"]
    nothing: tuple[Iterable[object], ...] = (
        source.memory({}, notes=False),
        source.records("jobs"),
        source.files({}),
        source.connections(),
    )
    assert [list(each) for each in nothing] == [[], [], [], []]


def paths_of(records: Iterator[object]) -> list[str]:
    return [getattr(record, "path", b"").decode() for record in records]


# -- the Home that it reaches


def test_a_home_keeps_what_no_package_holds(here: Path) -> None:
    """Its files, links, jobs, connections, folders, and memory engine are as they were."""
    home = full_home(here / "home")
    for thread in ("main", "side"):
        lines = (home / f"harness/conversations/{thread}/events.jsonl").read_bytes().count(b"\n")
        text = b"".join(event(f"{thread}{number}") for number in range(lines))
        (home / f"harness/conversations/{thread}/events.jsonl").write_bytes(text)
    before = snapshot(home)
    stream, _ = to_stream(archive(stream_of(home, "switch")))
    take(home, stream)
    after = snapshot(home)
    lost_there = {b"harness/package/extra.txt", b"harness/skills/cook/salt"}
    for path, thing in before.items():
        if path in lost_there or path == b"schedule/paused":  # no switch leaves that one
            assert path not in after
        elif path.endswith(b"thread.json"):
            value = json.loads(thing[2])
            assert after[path][2] == one_form(value) + b"\n"
        elif path == b"agent.json":
            old, new = json.loads(thing[2]), json.loads(after[path][2])
            assert {name: new[name] for name in old} == old
        elif path == b"connections":
            assert after[path] == ("folder", 0o700, b"")  # as after every switch
        else:
            assert after[path] == thing, path
    assert set(after) - set(before) == {
        b"harness/package/agent.config.json",
        b"harness/package/data",
        b"harness/package/data/secrets",
        b"harness/package/data/secrets/agent.json",
    }
    assert MARK not in stream
