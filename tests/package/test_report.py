from __future__ import annotations

import json
from typing import Any

from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.contents import Options
from agentmove_tools.package.events import TYPES
from agentmove_tools.package.report import counts_of, report_of
from tests.package.packages import AGENT, ALL, PLAIN, checked, event, package_in, zipped

CONFIG = b'{"id":"a-1","name":"Ad\\u0061","runtimeProfile":"fast","accessStrategy":"list"}'
SKILL = "---\nname: pdf\ndescription: \u00e9\n---\n".encode()
FILES = {
    "SOUL.md": b"# A soul\n",
    "agent.config.json": CONFIG,
    "MEMORY.md": b"1234",
    "memory/": b"",
    "memory/2026-01-31-x.md": b"12",
    "memory/note.md": "\u00e9".encode(),
    "memory/x.txt": b"",
    "skills/pdf/SKILL.md": SKILL,
    "skills/pdf/a": b"1",
    "skills/pdf/b/c": b"2",
    "skills/g/other/SKILL.md": b"no front matter",
    "data/access.json": b'{"t:u":{},"x":1,"a:b":2}',
    "data/secrets/agent.json": b'{"B":"value","A":""}',
    "data/secrets/u9.json": b"[]",
    "data/sessions/t:u:v.jsonl": b"\n".join(
        (event("e1", 5), event("e2", -3, type="summary"), event("e1", 5))
    ),
    "data/sessions/%54:%2f.jsonl": b"",
    "data/usage.json": b"{}",
    "browser-state/main.json": b"{}",
    "data/memory.sqlite": b"index",
    "__MACOSX/x": b"",
}


def report(files: dict[str, bytes], options: Options = PLAIN) -> Any:  # noqa: ANN401
    data = zipped(files)
    package = package_in(data, options)
    package.check()
    return json.loads(json.dumps(report_of(package, Archive(data))))


def test_all_that_is_in_a_package_is_told() -> None:
    """Every part, what was passed over and why, and the warnings."""
    assert report(FILES) == {
        "agent": {
            "id": "a-1",
            "name": "Ada",
            "runtimeProfile": "fast",
            "accessStrategy": "list",
        },
        "archive": {
            "bytes": len(zipped(FILES)),
            "entries": len(FILES),
            "folders": 1,
            "unpacked": sum(map(len, FILES.values())),
        },
        "parts": {
            "memory": 3,
            "soul": 1,
            "config": 1,
            "access": 1,
            "secrets": 2,
            "session": 2,
            "skill": 2,
            "asset": 2,
        },
        "skills": [
            {"path": "skills/g/other", "name": None, "description": None, "assets": 0},
            {"path": "skills/pdf", "name": "pdf", "description": "\u00e9", "assets": 2},
        ],
        "memories": [
            {"path": "MEMORY.md", "date": None, "bytes": 4},
            {"path": "memory/2026-01-31-x.md", "date": "2026-01-31", "bytes": 2},
            {"path": "memory/note.md", "date": None, "bytes": 2},
        ],
        "chats": [
            {
                "channel": "T",
                "user": "/",
                "path": "data/sessions/T:%2F.jsonl",
                "events": 0,
                "repeats": 0,
                "first": None,
                "last": None,
                "types": dict.fromkeys(TYPES, 0),
            },
            {
                "channel": "t",
                "user": "u:v",
                "path": "data/sessions/t:u:v.jsonl",
                "events": 2,
                "repeats": 1,
                "first": -3,
                "last": 5,
                "types": {**dict.fromkeys(TYPES, 0), "user": 1, "summary": 1},
            },
        ],
        "events": 2,
        "access": ["a:b", "t:u"],
        "pending_secrets": {"agent": ["A", "B"], "user-u9": []},
        "unknown": ["memory/x.txt"],
        "passed_over": [
            {"path": "__MACOSX/x", "why": "a leftover of the system that packed it"},
            {"path": "browser-state/main.json", "why": "only with --with browser-state"},
            {
                "path": "data/memory.sqlite",
                "why": "a derived index: it is built again from the texts",
            },
            {"path": "data/usage.json", "why": "only with --with usage"},
        ],
        "warnings": [
            {
                "path": "data/secrets/agent.json",
                "warning": "it holds a value: only names are taken, but this archive has them",
            },
            {"path": "skills/g/other/SKILL.md", "warning": "it has no front matter"},
        ],
    }


def test_what_comes_in_is_told_once() -> None:
    """Each file of the archive is a part, has no place, or was passed over."""
    for options in (PLAIN, ALL):
        told = report(FILES, options)
        parts = sum(told["parts"].values())
        assert (
            parts + len(told["unknown"]) + len(told["passed_over"])
            == told["archive"]["entries"] - told["archive"]["folders"]
        )


def test_what_was_asked_for_is_a_part() -> None:
    """And no more passed over."""
    told = report(FILES, ALL)
    assert (told["parts"]["usage"], told["parts"]["browser-state"]) == (1, 1)
    assert len(told["passed_over"]) == 2


def test_the_smallest_agent_has_a_report_of_the_same_shape() -> None:
    """Lists and counts are empty, and nothing is missing."""
    told = report(dict(AGENT))
    assert told.keys() == report(FILES).keys()
    assert told["agent"] == {
        "id": "agent-of-tests",
        "name": None,
        "runtimeProfile": "default",
        "accessStrategy": None,
    }
    assert told["parts"] == {"soul": 1, "config": 1}
    empty = ("skills", "memories", "chats", "access", "unknown", "passed_over", "warnings")
    assert all(told[name] == [] for name in empty)
    assert (told["events"], told["pending_secrets"]) == (0, {})


def test_an_id_that_was_told_is_the_agents() -> None:
    """Where its configuration has none."""
    files = {**AGENT, "agent.config.json": b"{}"}
    assert report(files, Options(external_id="told"))["agent"]["id"] == "told"


def test_a_line_that_was_left_out_is_a_warning() -> None:
    """With its session."""
    files = {**AGENT, "data/sessions/t:u.jsonl": event() + b"\n{"}
    told = report(files, Options(drop_torn_line=True))
    assert told["events"] == 1
    assert told["warnings"] == [
        {
            "path": "data/sessions/t:u.jsonl",
            "warning": "its last line was cut short, and is left out",
        }
    ]


def test_warnings_come_by_path() -> None:
    """Sorted, and those of one path as they were found."""
    files = {
        "skills/b/SKILL.md": b"---\nx: 1\n---\n",
        "skills/a/SKILL.md": b"",
        "data/secrets/u.json": b'{"A":"v"}',
    }
    told = report({**AGENT, **files})["warnings"]
    assert [each["path"] for each in told] == [
        "data/secrets/u.json",
        "skills/a/SKILL.md",
        *["skills/b/SKILL.md"] * 3,
    ]


def test_files_are_counted_as_they_are_written() -> None:
    """Two files of one scope make one."""
    package = checked({"data/secrets/u.json": b"[]", "data/secrets/user-u.json": b"[]"})
    assert counts_of(package)["secrets"] == 1
