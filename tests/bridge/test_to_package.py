from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from itertools import repeat
from pathlib import Path

import pytest

from agentmove_tools.bridge import to_package as to_package_module
from agentmove_tools.bridge.to_package import package_of
from agentmove_tools.package.layout import PASSED_OVER
from agentmove_tools.package.limits import MAX_ENTRIES, MAX_EVENTS, MAX_JSON, MAX_UNPACKED
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.manifest import Agent, Manifest
from agentmove_tools.stream.paths import END_NAME
from agentmove_tools.stream.tar_reader import MoveReader
from tests.bridge.crossings import (
    CONFIG,
    ID,
    MINIMAL,
    SOUL,
    Thing,
    Tree,
    crossed,
    event,
    lost,
    manifest,
    packaged,
    refused,
    sent,
    to_package,
)
from tests.home.builder import File, Folder, Link, full_home, one_form, stream_of
from tests.package.packages import AGENT, ALL, DROP, PLAIN, package_in, warnings_of
from tests.stream import tars

FILES = "a package holds none of the agent's own files"
MEMORY = "a package holds no index of a memory engine"
JOBS = "a package holds no schedule"
NOWHERE = "it has no place in a Home"
LINKS = "a package holds no symbolic links"
FOLDERS = "a package holds no empty folders"
NO_SKILL = "it lies in no folder with a SKILL.md, and is of no skill"
NOT_THERE = "a package has no place for it, or another one"
SETTINGS = "of a thread's settings, a package holds a list of tools' names, and nothing else"
CONNECTION = "a connection is a .json file with a name"
COMPOSED = "its name is put into Unicode's composed form"
UNKNOWN_SECRETS = "a {} carries no connections: the names of these secrets are not known"

EVENTS = "harness/conversations/telegram:u42/events.jsonl"
SETTING = "harness/conversations/telegram:u42/thread.json"
SESSION = "data/sessions/telegram:u42.jsonl"
SKILL: Tree = {"harness/skills/s/SKILL.md": b"a skill"}
MARK = b"a-value-of-a-secret"


def secrets(*names: str) -> bytes:
    return one_form({"pendingKeys": sorted(names)}) + b"\n"


# -- what crosses


@pytest.mark.parametrize(
    ("tree", "files"),
    [
        ({SOUL: b"# Other\n"}, {"SOUL.md": b"# Other\n"}),
        (
            {"harness/skills/g/s/SKILL.md": b"x", "harness/skills/g/s/a/b.bin": b"\0\xff"},
            {"skills/g/s/SKILL.md": b"x", "skills/g/s/a/b.bin": b"\0\xff"},
        ),
        ({"memory/notes.md": b"notes"}, {"MEMORY.md": b"notes"}),
        ({EVENTS: event()}, {SESSION: event()}),
        ({EVENTS: b""}, {SESSION: b""}),
        (
            {"harness/conversations/main/events.jsonl": event()},
            {"data/sessions/thread:main.jsonl": event()},
        ),
        (
            {"harness/conversations/thread:main/events.jsonl": event()},
            {"data/sessions/thread:thread:main.jsonl": event()},
        ),
        (
            {"harness/conversations/a%3Ab:x%2Fy/events.jsonl": event()},
            {"data/sessions/a%3Ab:x%2Fy.jsonl": event()},
        ),
        ({"connections/mail.json": MARK}, {"data/secrets/agent.json": secrets("mail")}),
        (
            {"connections/pendingKeys.json": b""},
            {"data/secrets/agent.json": secrets("pendingKeys")},
        ),
        (
            {
                "connections/mail.json": MARK,
                "connections/a.b.json": b"",
                "harness/package/data/secrets/agent.json": b'["mail","other"]',
            },
            {"data/secrets/agent.json": secrets("a.b", "mail", "other")},
        ),
        ({"harness/package/USER.md": b"u"}, {"USER.md": b"u"}),
        ({"harness/package/HEARTBEAT.md": b"h"}, {"HEARTBEAT.md": b"h"}),
        ({"harness/package/memory/a/b.md": b"m"}, {"memory/a/b.md": b"m"}),
        ({"harness/package/data/access.json": b'{ "a":1}'}, {"data/access.json": b'{ "a":1}'}),
        (
            {"harness/package/data/secrets/user-u.json": b'["A"]'},
            {"data/secrets/user-u.json": secrets("A")},
        ),
        ({"harness/package/data/usage.json": b"1"}, {"data/usage.json": b"1"}),
        ({"harness/package/browser-state/p.json": b"1"}, {"browser-state/p.json": b"1"}),
    ],
    ids=[f"row-{number}" for number in range(18)],
)
def test_each_row_of_the_table(tree: Tree, files: Mapping[str, bytes]) -> None:
    """What a stream brings lies at its place in the package, and nothing else does."""
    made = crossed(tree, strict=True)
    assert packaged(made) == {**AGENT, **files}
    assert lost(made.crossing) == []
    for counts in made.crossing.kinds.values():
        assert counts["in"] == counts["written"]
    assert MARK not in b"".join(made.pieces)


def config_of(tree: Tree, made: Manifest | None = None) -> object:
    """The configuration in the package of a stream."""
    return json.loads(packaged(to_package(sent({SOUL: b"", **tree}, made)))["agent.config.json"])


def test_the_manifest_makes_a_configuration() -> None:
    """Where the stream brings none; an agent without a name is named by its ID."""
    made = manifest(agent=Agent("a1", "Ada", "Olga"), harness="claude")
    expected = {"id": "a1", "name": "Ada", "harness": "claude", "owner": "Olga"}
    assert config_of({}, made) == expected
    assert config_of({}, manifest(agent=Agent("a1", ""))) == {"id": "a1"}
    assert config_of({}, manifest(agent=Agent("a1", "a1"))) == {"id": "a1"}


def test_the_configuration_is_the_one_that_came() -> None:
    """Its whole text; the manifest wins only where they differ."""
    text = b'{"x" : 1.50,\n "id":"agent-of-tests", "id":"agent-of-tests"}\r\n'
    assert packaged(crossed({CONFIG: text}))["agent.config.json"] == text
    made = manifest(agent=Agent("a2", "Ada"))
    expected = b'{"id":"a2","name":"Ada","x":1.5}\n'
    assert packaged(crossed({CONFIG: text}, made))["agent.config.json"] == expected


def test_a_thread_s_narrowing_is_in_the_configuration() -> None:
    """With events or without; a thread that is not narrowed is not named."""
    tree = {
        SETTING: b'{"tools": ["b","a"]}',
        EVENTS: event(),
        "harness/conversations/silent/thread.json": b'{"tools": []}',
        "harness/conversations/free/thread.json": b"{}",
        "harness/conversations/u.jsonl/thread.json": b'{"tools": ["x"]}',
    }
    made = crossed(tree, strict=True)
    assert sorted(packaged(made)) == ["SOUL.md", "agent.config.json", SESSION]
    assert json.loads(packaged(made)["agent.config.json"]) == {
        "id": ID,
        "threads": {
            "telegram:u42": {"tools": ["b", "a"]},
            "thread:silent": {"tools": []},
            "thread:u.jsonl": {"tools": ["x"]},
        },
    }


def test_a_narrowing_that_was_removed_goes() -> None:
    """From the text that came, if the stream speaks for conversations."""
    came = b'{"id":"agent-of-tests","threads":{"a:b":{"tools":["x"]},"c:d":{"color":1}}}'
    assert config_of({CONFIG: came}) == {"id": ID, "threads": {"c:d": {"color": 1}}}
    made = manifest(collections=("instructions",))
    assert config_of({CONFIG: came}, made) == json.loads(came)


def test_a_file_that_can_be_run_stays_so() -> None:
    """One of a skill; no other file in a package can be run."""
    tree = {**SKILL, "harness/skills/s/run": File(b"x", 0o744), SOUL: File(b"x", 0o755)}
    files = crossed(tree).package.files
    assert [file.path for file in files if file.executable] == ["skills/s/run"]


def test_events_come_in_the_one_form_and_the_file_s_order() -> None:
    """Whatever their times are, and with all their fields."""
    came = (
        b'{ "ts": 5, "id": "b", "type": "user", "more": [1.50], "data": {"\\u00e9": null} }\r\n'
        b'{"ts":4,"id":"a","data":{},"type":"summary"}'  # without an end
    )
    made = crossed({EVENTS: came})
    assert packaged(made)[SESSION].decode() == (
        '{"data":{"\u00e9":null},"id":"b","more":[1.5],"ts":5,"type":"user"}\n'
        '{"data":{},"id":"a","ts":4,"type":"summary"}\n'
    )
    assert made.crossing.events == {"in": 2, "written": 2, "repeats": 0, "skipped": 0}


# -- what does not


LOSSES: list[tuple[Tree, Mapping[str, str]]] = [
    ({"files/a": b"x"}, {"files/a": FILES}),
    ({"files/l": Link(b"a")}, {"files/l": FILES}),
    ({"files/d": Folder()}, {"files/d": FILES}),
    ({"memory/engine/i": b"x"}, {"memory/engine/i": MEMORY}),
    ({"memory/engine/l": Link(b"i")}, {"memory/engine/l": MEMORY}),
    ({"memory/engine": Folder()}, {"memory/engine": MEMORY}),
    ({"schedule/waiting/j.json": b'{"id":"j"}'}, {"schedule/waiting/j.json": JOBS}),
    ({"schedule/day.json": b'["d",1]'}, {"schedule/day.json": JOBS}),
    ({"schedule/firing": Folder()}, {"schedule/firing": JOBS}),
    (
        {**SKILL, "harness/skills/s/l": Link(b"SKILL.md")},
        {"harness/skills/s/l": LINKS},
    ),
    ({**SKILL, "harness/skills/s/d/e": Folder()}, {"harness/skills/s/d/e": FOLDERS}),
    ({"harness/conversations/t": Folder()}, {"harness/conversations/t": FOLDERS}),
    ({"harness/skills/loose": b"x"}, {"harness/skills/loose": NO_SKILL}),
    ({"harness/skills/SKILL.md": b"x"}, {"harness/skills/SKILL.md": NO_SKILL}),
    ({**SKILL, "harness/skills/x/a": b"x"}, {"harness/skills/x/a": NO_SKILL}),
    (
        {**SKILL, "harness/skills/s/.DS_Store": b"x"},
        {"harness/skills/s/.DS_Store": PASSED_OVER["leftover"]},
    ),
    ({"harness/package/x.txt": b"x"}, {"harness/package/x.txt": NOT_THERE}),
    ({"harness/package/SOUL.md": b"x"}, {"harness/package/SOUL.md": NOT_THERE}),
    ({"harness/package/MEMORY.md": b"x"}, {"harness/package/MEMORY.md": NOT_THERE}),
    (
        {"harness/package/skills/s/SKILL.md": b"x"},
        {"harness/package/skills/s/SKILL.md": NOT_THERE},
    ),
    ({f"harness/package/{SESSION}": b""}, {f"harness/package/{SESSION}": NOT_THERE}),
    ({"harness/package/memory/a.txt": b""}, {"harness/package/memory/a.txt": NOT_THERE}),
    (
        {"harness/package/data/memory.sqlite": b"x"},
        {"harness/package/data/memory.sqlite": NOT_THERE},
    ),
    ({"harness/package/.DS_Store": b"x"}, {"harness/package/.DS_Store": NOT_THERE}),
    ({SETTING: b'{"tools":[],"color":1}'}, {SETTING: SETTINGS}),
    ({SETTING: b'{"color":1}'}, {SETTING: SETTINGS}),
    (
        {"harness/conversations/t/more.txt": b"x"},
        {"harness/conversations/t/more.txt": NOWHERE},
    ),
    ({"harness/other": b"x"}, {"harness/other": NOWHERE}),
    ({"harness/conversations/x": b"x"}, {"harness/conversations/x": NOWHERE}),
    ({"connections/a.txt": MARK}, {"connections/a.txt": CONNECTION}),
    ({"connections/.json": MARK}, {"connections/.json": CONNECTION}),
    ({"connections/d/a.json": MARK}, {"connections/d/a.json": NOWHERE}),
]


@pytest.mark.parametrize(
    ("tree", "losses"), LOSSES, ids=[f"{n}-{min(row[1])}" for n, row in enumerate(LOSSES)]
)
def test_what_has_no_place_is_told(tree: Tree, losses: Mapping[str, str]) -> None:
    """By path and reason, and with ``strict`` nothing comes out."""
    made = crossed(tree)
    assert dict(lost(made.crossing)) == losses
    assert len(made.crossing.lost) == len(losses)
    report = made.crossing.to_json()
    assert report["left_out"] == [{"path": p, "reason": why} for p, why in losses.items()]
    refusal = refused(tree, strict=True)
    assert refusal.code == "bridge-loss"
    assert refusal.details["paths"] == list(losses)
    assert refusal.details["path"] in losses
    assert refusal.why == losses[str(refusal.details["path"])]
    folders = sum(isinstance(tree.get(path), Folder) for path in losses)
    counts = made.crossing.kinds.values()
    assert sum(each["passed_over"] for each in counts) == len(losses) - folders
    things = {**MINIMAL, **tree}
    assert sum(each["in"] for each in counts) == sum(
        not isinstance(thing, Folder) for thing in things.values()
    )
    assert all(each["in"] == each["written"] + each["passed_over"] for each in counts)
    assert MARK not in json.dumps(report).encode()


def test_strict_names_all_that_is_lost() -> None:
    """The first in the line, and every path in the details."""
    tree = {"files/a": b"", "files/b": b"", "schedule/day.json": b'["d",1]'}
    refusal = refused(tree, strict=True)
    assert refusal.why == f"{FILES}; and 2 more (details.paths)"
    assert refusal.details["paths"] == list(tree)


def test_strict_names_events_that_come_again_too() -> None:
    """Together with what else is lost, so that nobody is refused twice."""
    refusal = refused({"files/a": b"1", EVENTS: event() * 2}, strict=True)
    assert refusal.details["paths"] == ["files/a", EVENTS]


def test_folders_of_the_layout_are_no_loss() -> None:
    """Each Home has them; nor are those in which something lies."""
    laid_out = ("files", "memory", "harness", "connections", "schedule")
    below = ("skills", "conversations", "package", "skills/s", "conversations/telegram:u42")
    tree: Tree = {
        **{name: Folder() for name in laid_out},
        **{f"harness/{name}": Folder() for name in below},
        **SKILL,
        EVENTS: event(),
    }
    assert lost(crossed(tree, strict=True).crossing) == []


def test_fields_of_the_manifest_without_a_place() -> None:
    """Unknown ones, and a harness or an owner that the configuration cannot say."""
    made = manifest(unknown={"x": 1}, unknown_of_agent={"y": 2})
    why = "a package has no place for its field {!r}"
    assert lost(crossed({}, made).crossing) == [
        ("lnk-move-4.json", why.format("x")),
        ("lnk-move-4.json", why.format("agent.y")),
    ]
    config = b'{"id":"agent-of-tests","harness":1,"owner":2}'
    made = manifest(harness="claude", agent=Agent(ID, ID, "Olga"))
    crossing = crossed({CONFIG: config}, made)
    assert packaged(crossing)["agent.config.json"] == config
    assert lost(crossing.crossing) == [
        ("lnk-move-4.json", why.format("harness")),
        ("lnk-move-4.json", why.format("agent.owner")),
    ]
    assert refused({}, manifest(unknown={"x": 1}), strict=True).code == "bridge-loss"


def test_a_name_is_composed() -> None:
    """As each name in a package; that is told, and the file is there."""
    tree = {"harness/skills/e\u0301/SKILL.md": b"x", "harness/package/memory/e\u0301.md": b"y"}
    made = crossed(tree)
    assert packaged(made) == {
        **AGENT,
        "skills/\u00e9/SKILL.md": b"x",
        "memory/\u00e9.md": b"y",
    }
    assert sorted(lost(made.crossing)) == sorted((path, COMPOSED) for path in tree)
    assert refused(tree, strict=True).code == "bridge-loss"


def test_an_event_that_comes_again() -> None:
    """Equal, it counts once; that is told, and it is a loss."""
    lines = event("a") + event("b")
    again = json.dumps(json.loads(event("a"))).encode() + b"\n"
    made = crossed({EVENTS: lines + again})
    assert packaged(made)[SESSION] == lines
    assert made.crossing.events == {"in": 3, "written": 2, "repeats": 1, "skipped": 0}
    why = "an event comes again, equal: a package has each once"
    assert lost(made.crossing) == [(EVENTS, why)]
    refusal = refused({EVENTS: lines + again * 2}, strict=True)
    assert refusal.code == "bridge-loss"
    assert refusal.why == "2 events come again, equal: a package has each once"


def test_what_goes_only_where_it_is_asked_for() -> None:
    """It is told, and no loss."""
    tree = {"harness/package/data/usage.json": b"1", "harness/package/browser-state/p.json": b"1"}
    made = crossed(tree, options=PLAIN, strict=True)
    assert packaged(made) == AGENT
    assert made.crossing.lost == []
    assert [(path.decode(), why) for path, why in made.crossing.not_asked] == [
        ("harness/package/browser-state/p.json", "only with --with browser-state"),
        ("harness/package/data/usage.json", "only with --with usage"),
    ]
    assert made.crossing.kinds["package"] == {"in": 3, "written": 1, "passed_over": 2}
    assert len(packaged(crossed(tree))) == 4


# -- phases


def test_a_copy_does_not_know_the_secrets() -> None:
    """A note says so; a switch without connections has none."""
    crossing = crossed({}, manifest("copy"), strict=True).crossing
    assert crossing.notes == [UNKNOWN_SECRETS.format("copy")]
    assert crossing.to_json()["notes"] == crossing.notes
    assert crossed({}).crossing.notes == []
    known = {"harness/package/data/secrets/agent.json": b'["A"]'}
    found = packaged(crossed(known, manifest("copy")))
    assert found["data/secrets/agent.json"] == secrets("A")


def test_files_alone_are_no_agent() -> None:
    """A package has to have a soul."""
    with pytest.raises(Refusal) as caught:
        to_package(sent({"files/a": b"x"}, manifest("files")))
    assert caught.value.code == "package-required"
    assert caught.value.details["path"] == SOUL


def test_what_the_stream_does_not_speak_for() -> None:
    """Is told and left out, though it is there."""
    tree = {"memory/notes.md": b"x", EVENTS: event(), SETTING: b'{"tools":[]}', **SKILL}
    made = manifest(collections=("instructions", "skills"))
    crossing = crossed(tree, made)
    assert packaged(crossing) == {**AGENT, "skills/s/SKILL.md": b"a skill"}
    assert dict(lost(crossing.crossing)) == {
        "memory/notes.md": "the stream does not speak for notes",
        EVENTS: "the stream does not speak for conversations",
        SETTING: "the stream does not speak for conversations",
    }
    assert refused(tree, made, strict=True).code == "bridge-loss"


def test_a_whole_home(here: Path) -> None:
    """Of a Home with something of each kind all is written or told."""
    home = full_home(here / "home")
    with pytest.raises(Refusal) as caught:
        to_package(stream_of(home, "switch"))
    assert caught.value.code == "field-json"
    made = to_package(stream_of(home, "switch"), skip_events=True)
    found = packaged(made)
    assert sorted(found) == [
        *("MEMORY.md", "SOUL.md", "agent.config.json", "data/secrets/agent.json"),
        *("data/sessions/thread:main.jsonl", "data/sessions/thread:side.jsonl"),
        "skills/cook/SKILL.md",
    ]
    assert json.loads(found["agent.config.json"]) == {
        "id": "a1",
        "name": "Ada",
        "harness": "claude",
        "owner": "Olga",
        "threads": {"thread:main": {"tools": ["read"]}, "thread:silent": {"tools": []}},
    }
    assert [path for path, _ in lost(made.crossing)] == [
        *("files/a.txt", "files/deep/er/b.bin", "files/link", "files/run.sh"),
        *("files/spaced name\nand line", "harness/package/extra.txt", "harness/skills/cook/salt"),
        *("memory/engine/current", "memory/engine/index.db"),
        *("schedule/day.json", "schedule/firing/j2.json", "schedule/waiting/j1.json"),
        "files/empty",
    ]
    assert made.crossing.events == {"in": 3, "written": 0, "repeats": 0, "skipped": 3}


# -- events that a package cannot hold

BAD_EVENTS = {
    "no object": (b"[]\n", "field-json"),
    "empty line": (b"\n", "field-json"),
    "no id": (b'{"type":"user","ts":1,"data":{}}\n', "field-json"),
    "empty id": (event(""), "field-json"),
    "id of a number": (event(id=1), "field-json"),
    "long id": (event("x" * 2000), "field-json"),
    "unknown type": (event("b", type="other"), "event-type"),
    "no type": (event("b", type=None), "field-json"),
    "ts of a text": (event("b", ts="1"), "field-json"),
    "ts out of range": (event("b", ts=10**19), "field-timestamp"),
    "ts of very many digits": (
        event("b").replace(b'"ts":1', b'"ts":' + b"1" * 5000),
        "field-timestamp",
    ),
    "data of a list": (event("b", data=[]), "field-json"),
    "NUL": (event("b", data={"t": "\0"}).replace(b"\0", b"\\u0000"), "field-nul"),
    "NUL in a key": (event("b", data={"\0": 1}).replace(b"\0", b"\\u0000"), "field-nul"),
    "lone surrogate": (event("b", x="y").replace(b'"y"', b'"\\ud800"'), "field-surrogate"),
    "not UTF-8": (event("b", x="y").replace(b'"y"', b'"\xff"'), "field-encoding"),
    "too long": (event("b", x="y" * MAX_JSON), "field-json"),
    "with another content": (event("a", ts=2), "event-duplicate"),
    "cut short": (event("b")[:-9], "field-json"),
}


@pytest.mark.parametrize("kind", BAD_EVENTS)
@pytest.mark.parametrize("drop", [False, True], ids=["", "drop"])
def test_a_bad_event_is_refused_or_skipped(kind: str, drop: bool) -> None:
    """With the stream's path and its line; skipped, the others are as they were."""
    bad, code = BAD_EVENTS[kind]
    torn = kind == "cut short"
    options = DROP if drop else PLAIN
    tree = {EVENTS: event("a") + (b"" if torn else bad) + event("c") + (bad if torn else b"")}
    line = 3 if torn else 2
    if torn and drop:
        made = crossed(tree, options=options)
        (warning,) = warnings_of(made.package)
        assert warning.endswith("its last line was cut short, and is left out")
    else:
        refusal = refused(tree, options=options)
        assert (refusal.code, refusal.details["line"]) == (code, line)
        assert refusal.details["path"] == EVENTS
        assert refusal.place == f"{EVENTS}: line {line}"
        assert (refusal.hint is not None) == torn
    made = crossed(tree, options=options, skip_events=True, strict=True)
    assert packaged(made)[SESSION] == event("a") + event("c")
    (skipped,) = made.crossing.skipped
    assert (skipped.path.decode(), skipped.line) == (EVENTS, line)
    assert skipped.why
    assert made.crossing.events == {"in": 3, "written": 2, "repeats": 0, "skipped": 1}
    assert made.crossing.to_json()["skipped_events"] == [
        {"path": EVENTS, "line": line, "reason": skipped.why}
    ]


def test_all_of_a_conversation_can_be_skipped() -> None:
    """It is there then, and empty; good ones are not touched, repeats among them."""
    other = "harness/conversations/main/events.jsonl"
    tree = {EVENTS: b"x\n" * 3, other: event("a") * 2}
    made = crossed(tree, skip_events=True)
    assert packaged(made)[SESSION] == b""
    assert packaged(made)["data/sessions/thread:main.jsonl"] == event("a")
    assert [each.line for each in made.crossing.skipped] == [1, 2, 3]
    assert made.crossing.events == {"in": 5, "written": 1, "repeats": 1, "skipped": 3}


def test_events_in_pieces_are_skipped_alike() -> None:
    """In a conversation of many MiB, line by line, with the long one among them."""
    lines = [event(f"e{number}", x="y" * 50_000) for number in range(100)]
    lines[40] = b"{" + b"z" * (MAX_JSON + 5) + b"\n"
    lines[70] = b"no event\n"
    made = crossed({EVENTS: b"".join(lines)}, skip_events=True)
    assert [each.line for each in made.crossing.skipped] == [41, 71]
    assert made.crossing.skipped[0].why == "it is longer than 10 MiB"
    kept = [line for number, line in enumerate(lines) if number not in (40, 70)]
    assert packaged(made)[SESSION] == b"".join(kept)


# -- refusals


@pytest.mark.parametrize(
    ("tree", "code", "path", "line"),
    [
        ({SOUL: b"a\nb\0"}, "field-nul", SOUL, 2),
        ({"memory/notes.md": b"\xff"}, "field-encoding", "memory/notes.md", 1),
        (
            {"harness/skills/s/SKILL.md": b"---\nname: [\n---\n"},
            "skill-front-matter",
            "harness/skills/s/SKILL.md",
            None,
        ),
        ({SETTING: b'{"tools":["\\u0000"]}'}, "field-nul", SETTING, None),
        ({CONFIG: b"{"}, "field-json", CONFIG, None),
        ({CONFIG: b"[]"}, "field-json", CONFIG, None),
        ({CONFIG: b'{"limits":1}'}, "field-json", CONFIG, None),
        ({CONFIG: b" " * (MAX_JSON + 1)}, "field-json", CONFIG, None),
        (
            {"harness/package/data/access.json": b"1"},
            "field-json",
            "harness/package/data/access.json",
            None,
        ),
        (
            {"harness/package/data/secrets/u.json": b"1"},
            "field-json",
            "harness/package/data/secrets/u.json",
            None,
        ),
        (
            {"harness/package/memory/2026-02-30.md": b""},
            "memory-date",
            "harness/package/memory/2026-02-30.md",
            None,
        ),
        (
            {**SKILL, "harness/skills/s/a\\b": b""},
            "package-path",
            "harness/skills/s/a\\b",
            None,
        ),
        (
            {**SKILL, "harness/skills/s/a": b"", "harness/skills/s/A": b""},
            "package-duplicate",
            "harness/skills/s/a",
            None,
        ),
        (
            {"harness/skills/\u00e9/SKILL.md": b"", "harness/skills/e\u0301/SKILL.md": b""},
            "package-duplicate",
            "harness/skills/e\u0301/SKILL.md",
            None,
        ),
        (
            {f"harness/conversations/{'x' * 2000}/events.jsonl": b"{}"},
            "field-json",
            f"harness/conversations/{'x' * 2000}/events.jsonl",
            1,
        ),
    ],
    ids=[f"refusal-{number}" for number in range(15)],
)
def test_refusals_name_the_stream_s_paths(
    tree: Tree, code: str, path: str, line: int | None
) -> None:
    """And the line in the stream's file, as who made the stream knows them."""
    refusal = refused(tree)
    assert refusal.code == code
    assert refusal.details["path"] == path
    assert refusal.details.get("line") == line


def test_an_id_that_no_package_can_have() -> None:
    """Is the manifest's."""
    refusal = refused({}, manifest(agent=Agent("x" * 2000, "Ada")))
    assert (refusal.code, refusal.details["path"]) == ("field-json", "lnk-move-4.json")


@pytest.mark.parametrize(
    ("made", "code", "field"),
    [
        (manifest(agent=Agent("x\0", "Ada")), "field-nul", "agent.id"),
        (manifest(agent=Agent(ID, "A\0")), "field-nul", "agent.name"),
        (manifest(agent=Agent(ID, "Ada", "\0")), "field-nul", "agent.owner"),
        (manifest(harness="\0"), "field-nul", "harness"),
        (manifest(agent=Agent(ID, "A" * 70_000)), "field-json", "agent.name"),
        (manifest(agent=Agent(ID, "Ada", "A" * 70_000)), "field-json", "agent.owner"),
        (manifest(harness="A" * 70_000), "field-json", "harness"),
    ],
    ids=[f"manifest-{number}" for number in range(7)],
)
def test_a_manifest_that_no_configuration_can_say(made: Manifest, code: str, field: str) -> None:
    """It is refused by its own field, and the configuration is not blamed."""
    refusal = refused({}, made)
    assert (refusal.code, refusal.details["path"]) == (code, "lnk-move-4.json")
    assert refusal.details["field"] == field


@pytest.mark.parametrize(("values", "why"), [(1, "its value is"), (2, "its 2 values are")])
def test_values_of_secrets_are_a_loss(values: int, why: str) -> None:
    """What came with a package may have been filled in since: that is told, without a value."""
    path = "harness/package/data/secrets/agent.json"
    text = one_form({"pendingKeys": ["P"], **{f"N{n}": MARK.decode() for n in range(values)}})
    made = crossed({path: text})
    names = ["P", *(f"N{n}" for n in range(values))]
    assert packaged(made)["data/secrets/agent.json"] == secrets(*names)
    assert lost(made.crossing) == [(path, f"{why} left out: a package holds only names")]
    assert refused({path: text}, strict=True).code == "bridge-loss"


def test_a_torn_line_that_is_left_out_is_told() -> None:
    """It is a loss, though it was asked for to go on."""
    made = crossed({EVENTS: event() + b'{"id'}, options=ALL._replace(drop_torn_line=True))
    assert lost(made.crossing) == [(EVENTS, "its last line was cut short")]


def test_files_that_were_not_asked_for_count_for_no_limit() -> None:
    """As they are no part of the package."""
    path = "harness/package/browser-state/p.json"
    stream = sent({SOUL: b"", path: bytes(MAX_UNPACKED)})
    made = to_package(stream, PLAIN)
    assert made.crossing.kinds["package"]["passed_over"] == 1


def test_events_that_are_skipped_count_for_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for as many that are none as come."""
    monkeypatch.setattr(to_package_module, "MAX_EVENTS", 10)
    stream = sent({SOUL: b"", EVENTS: b"\n" * 1000 + event()})
    made = to_package(stream, skip_events=True)
    assert made.crossing.events == {"in": 1001, "written": 1, "repeats": 0, "skipped": 1000}
    stream = sent({SOUL: b"", EVENTS: b"".join(map(event, "abcdefghijk"))})
    with pytest.raises(Refusal) as caught:
        to_package(stream, skip_events=True)
    assert caught.value.code == "package-entries"


def test_settings_of_threads_count_for_no_file() -> None:
    """In the package they are in the configuration."""
    half = MAX_ENTRIES // 2
    tree: dict[str, Thing] = {}
    for number in range(half):
        tree[f"harness/conversations/t{number}/events.jsonl"] = b""
        tree[f"harness/conversations/t{number}/thread.json"] = b'{"tools":[]}'
    made = crossed(tree)
    assert len(made.package.files) == half + 2


def test_very_many_empty_folders() -> None:
    """Those that came first are told, and the last ones remembered: memory does not grow."""
    tree: Tree = {f"files/{number:06}": Folder() for number in range(100_050)}
    made = crossed(tree)
    assert len(made.crossing.lost) == 100_000
    assert made.crossing.lost_more == 50


def test_a_folder_in_a_folder_that_is_not_listed_is_not_empty() -> None:
    """What lies anywhere below counts."""
    tree: Tree = {"harness/skills/s": Folder(), "harness/skills/s/SKILL.md": b"x"}
    assert lost(crossed({**tree, "harness/skills/s/a/b/c": b"x"}).crossing) == []
    tree = {"files/a": Folder(), "files/a/b/c/d": b"x"}
    assert dict(lost(crossed(tree).crossing)) == {"files/a/b/c/d": FILES}


@pytest.mark.parametrize(
    "name", ["A", "a/b", "e\u0301", "x\\y", "-rf", "\u202e", "%2F", "Main", "main"]
)
def test_agents_and_threads_of_odd_names(name: str) -> None:
    """They come across together with others that some disks take for the same."""
    thread = name.replace("/", "%2F")
    tree = {
        f"harness/conversations/{each}/events.jsonl": event(each)
        for each in {thread, thread.upper(), thread.lower(), "\u00e9"}
    }
    made = crossed(tree, manifest(agent=Agent(name, name)), strict=True)
    package = package_in(b"".join(made.pieces))
    package.check()
    assert package.found.config.id == name
    assert len(package.found.chats) == len(tree)


def test_of_a_cut_stream_there_is_no_package() -> None:
    """Nothing comes out before its end was seen, wherever it is cut."""
    stream = sent({**MINIMAL, EVENTS: event(), **SKILL})
    for size in range(0, stream.index(END_NAME), 256):
        with pytest.raises(Refusal) as caught:
            to_package(stream[:size])
        assert caught.value.code == ("stream-cut" if size >= 512 else "stream-not-move")


def test_an_altered_stream_is_refused() -> None:
    """Its hashes are looked at, of what is left out too."""
    stream = sent({**MINIMAL, "files/a": b"some of the agent's files"})
    with pytest.raises(Refusal) as caught:
        to_package(stream.replace(b"some of", b"more of"))
    assert (caught.value.code, caught.value.details["path"]) == ("hash-mismatch", "files/a")


# -- secrets


def test_no_value_of_a_secret_crosses() -> None:
    """Not into the package, the report or an error; of connections nothing is even read."""
    value = json.dumps({"token": MARK.decode()}).encode()
    tree = {
        "connections/mail.json": value,
        "connections/broken.json": b"{" + MARK,
        "connections/odd.txt": value,
        "harness/package/data/secrets/agent.json": value,
        "harness/package/data/secrets/user-u.json": value,
    }
    made = crossed(tree)
    found = packaged(made)
    assert found["data/secrets/agent.json"] == secrets("mail", "broken", "token")
    assert found["data/secrets/user-u.json"] == secrets("token")
    said = repr((made.crossing.to_json(), made.package.found, warnings_of(made.package)))
    for text in (b"".join(made.pieces), *found.values(), said.encode()):
        assert MARK not in text
    assert MARK.decode() not in error_of(refused(tree, strict=True))


@pytest.mark.parametrize(
    "text",
    [b'{"A":"%b"', b'{"A":"%b\\ud800"}', b'{"A":"%b\\u0000"}', b'["%b"', b'"%b"', b'[["%b"]]'],
    ids=repr,
)
def test_no_value_of_a_secret_is_in_an_error(text: bytes) -> None:
    """Whatever is wrong with the file."""
    tree = {"harness/package/data/secrets/agent.json": text.replace(b"%b", MARK)}
    refusal = refused(tree)
    assert refusal.details["path"] == "harness/package/data/secrets/agent.json"
    assert MARK.decode() not in error_of(refusal)


def error_of(refusal: Refusal) -> str:
    return repr((refusal.message, refusal.hint, refusal.place, refusal.details, refusal.args))


def test_too_many_names_of_connections() -> None:
    """Are refused as the limit is passed."""
    tree = {f"connections/{'n' * 200}{number:04}.json": b"" for number in range(5300)}
    refusal = refused(tree)
    assert refusal.code == "field-json"
    assert refusal.why == "the names of all connections are longer than 1 MiB"
    assert str(refusal.details["path"]).startswith("connections/nnn")


def test_too_many_tools_are_refused_as_the_limit_is_passed() -> None:
    """Those of all threads together have to fit into a configuration."""
    one = one_form({"tools": ["a-tool"] * 10_000})
    tree = {f"harness/conversations/t{number:02}/thread.json": one for number in range(9)}
    refusal = refused(tree)
    why = "the settings of all threads together are over 1 MiB"
    assert (refusal.code, refusal.why) == ("field-json", why)
    assert refusal.details["path"] == "harness/conversations/t04/thread.json"


def test_settings_that_are_too_long_are_refused_by_their_header() -> None:
    """A narrowing that is not read would let the thread use more."""
    refusal, given = refused_of(one_file(SETTING, 160 << 20))
    assert (refusal.code, refusal.details["path"]) == ("field-json", SETTING)
    assert given <= 2 << 20


# -- limits, as they are passed


class Endless:
    """A source that makes a stream as it is read, and counts how much was."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")
        self.given = 0

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        while not self._left:
            self._left = memoryview(next(self._pieces, None) or b"")
        count = min(len(buffer), len(self._left))
        memoryview(buffer)[:count] = self._left[:count]
        self._left = self._left[count:]
        self.given += count
        return count


def start() -> Iterator[bytes]:
    yield tars.manifest()
    yield tars.file(SOUL.encode(), b"be kind")


def many_files(size: int, count: int) -> Iterator[bytes]:
    """A stream with so many files of so many bytes, in the places of a skill's."""
    yield from start()
    content = bytes(size)
    before, behind = tars.hashed(content), tars.padded(content)
    for number in range(count):
        yield before
        yield tars.header(b"harness/skills/s/%08d" % number, size=size)
        yield behind


def one_file(path: str, size: int) -> Iterator[bytes]:
    """A stream with one file of so many bytes."""
    yield from start()
    yield tars.pax(LNK_sha256=b"0" * 64)
    yield tars.header(path.encode(), size=size)
    yield from repeat(bytes(1 << 20), size >> 20)


def refused_of(pieces: Iterator[bytes]) -> tuple[Refusal, int]:
    """Why a stream is refused, and how much of it was read by then."""
    source = Endless(pieces)
    with pytest.raises(Refusal) as caught:
        package_of(MoveReader(source), PLAIN)
    return caught.value, source.given


def test_a_stream_of_a_gibibyte_is_refused_as_the_limit_is_passed() -> None:
    """When as much was read as a package may hold, and no more."""
    refusal, given = refused_of(many_files(8 << 20, 128))
    assert refusal.code == "package-unpacked-size"
    assert refusal.details["path"] == "harness/skills/s/00000015"
    assert 120 << 20 < given <= (128 << 20) + (1 << 20)


@pytest.mark.parametrize(
    "path", [EVENTS, CONFIG, "harness/skills/s/a", "harness/package/USER.md", "memory/notes.md"]
)
def test_one_file_of_a_gibibyte_is_refused_by_its_header(path: str) -> None:
    """Before it is read, where a package would hold it."""
    refusal, given = refused_of(one_file(path, 1 << 30))
    assert (refusal.code, refusal.details["path"]) == ("package-unpacked-size", path)
    assert given <= 2 << 20


@pytest.mark.parametrize("path", ["files/a", "memory/engine/a", "harness/other"])
def test_a_large_file_without_a_place_is_read_to_its_end(path: str) -> None:
    """However large it is: it counts for no limit, and its hash is looked at."""
    refusal, given = refused_of(one_file(path, 160 << 20))
    assert (refusal.code, refusal.details["path"]) == ("hash-mismatch", path)
    assert given > 160 << 20


def test_too_many_files_are_refused_as_the_limit_is_passed() -> None:
    """The first that is one too many is named."""
    refusal, given = refused_of(many_files(0, 1 << 20))
    assert refusal.code == "package-entries"
    assert refusal.why == "the stream has more than 20000 files for a package"
    assert refusal.details["path"] == "harness/skills/s/00019999"
    assert given < 34 << 20


def test_too_many_events_are_refused_as_the_limit_is_passed() -> None:
    """Though none of them is one: they are counted before they are looked at."""
    stream = sent({SOUL: b"", EVENTS: b"\n" * (MAX_EVENTS + 1)})
    with pytest.raises(Refusal) as caught:
        package_of(MoveReader(io.BytesIO(stream)), PLAIN)
    assert caught.value.code == "package-entries"
    assert caught.value.details["path"] == EVENTS
