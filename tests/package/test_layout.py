from __future__ import annotations

import pytest

from agentmove_tools.package.layout import (
    FIELDS,
    ON_REQUEST,
    PASSED_OVER,
    Layout,
    Part,
    Place,
    is_leftover,
    is_of_package,
    may_hold,
    memory_date,
)
from agentmove_tools.refusals import Refusal

PLACES: dict[str, Part] = {
    "SOUL.md": "soul",
    "soul.md": "unknown",
    "x/SOUL.md": "unknown",
    "agent.config.json": "config",
    "USER.md": "user",
    "HEARTBEAT.md": "heartbeat",
    "MEMORY.md": "memory",
    "AGENTS.md": "unknown",
    "memory/a.md": "memory",
    "memory/2026-01-01.md": "memory",
    "memory/a/b/c.md": "memory",
    "memory/.md": "memory",
    "memory/a.MD": "unknown",
    "memory/a.txt": "unknown",
    "memory": "unknown",
    "data/access.json": "access",
    "data/usage.json": "usage",
    "data/other.json": "unknown",
    "data/memory.sqlite": "derived",
    "data/memory.sqlite-wal": "derived",
    "data/memory.sqlite-shm": "derived",
    "data/memory.sqlite-journal": "derived",
    "data/memory.sqlite3": "unknown",
    "data/secrets/agent.json": "secrets",
    "data/secrets/shared.json": "secrets",
    "data/secrets/user-u42.json": "secrets",
    "data/secrets/u99.json": "secrets",
    "data/secrets/.json": "secrets",
    "data/secrets/x/agent.json": "unknown",
    "data/secrets/agent.txt": "unknown",
    "data/sessions/telegram:u42.jsonl": "session",
    "data/sessions/noname.jsonl": "session",
    "data/sessions/telegram:u42.json": "unknown",
    "data/sessions/telegram/u42.jsonl": "unknown",
    "browser-state/main.json": "browser-state",
    "browser-state/main.txt": "unknown",
    "browser-state/a/main.json": "unknown",
    "skills/SKILL.md": "unknown",
    "skills/x.md": "unknown",
    "skills/no-skill/readme.md": "unknown",
    "__MACOSX/SOUL.md": "leftover",
    "__MACOSX/._SOUL.md": "leftover",
    "._SOUL.md": "leftover",
    "memory/._a.md": "leftover",
    "memory/.DS_Store": "leftover",
    ".DS_Store": "leftover",
    ".DS_Store/x": "unknown",
    "x/__MACOSX/y": "unknown",
}


@pytest.mark.parametrize("path", PLACES, ids=str)
def test_each_path_has_its_place(path: str) -> None:
    """Case counts, and so does the folder; what has no place is unknown."""
    assert Layout([path]).place(path) == Place(PLACES[path])


def test_a_skill_is_a_folder_with_a_skill_file() -> None:
    """Directly, in a group, or deeper; all below it is its assets, whatever it is called."""
    paths = {
        "skills/pdf/SKILL.md": Place("skill", "skills/pdf"),
        "skills/pdf/run.sh": Place("asset", "skills/pdf"),
        "skills/pdf/a/b/c": Place("asset", "skills/pdf"),
        "skills/pdf/inner/SKILL.md": Place("asset", "skills/pdf"),
        "skills/pdf/skill.md": Place("asset", "skills/pdf"),
        "skills/pdf/.DS_Store": Place("leftover"),
        "skills/pdf-tools/x": Place("unknown"),
        "skills/group/one/SKILL.md": Place("skill", "skills/group/one"),
        "skills/group/one/x": Place("asset", "skills/group/one"),
        "skills/group/readme.md": Place("unknown"),
        "skills/group/two/x": Place("unknown"),
        "skills/a/b/c/d/SKILL.md": Place("skill", "skills/a/b/c/d"),
        "skills/a/b/c/x": Place("unknown"),
        "skills/SKILL.md/x": Place("unknown"),
    }
    layout = Layout(paths)
    assert {path: layout.place(path) for path in paths} == paths


def test_the_order_of_the_paths_does_not_matter() -> None:
    """What is a skill depends on all of them, also on those that come later."""
    paths = ["skills/g/s/x", "skills/g/s/SKILL.md", "skills/g/SKILL.md", "skills/g/x"]
    for order in (paths, paths[::-1]):
        layout = Layout(order)
        assert {layout.place(path).folder for path in paths} == {"skills/g"}


def test_what_macos_leaves_behind_is_told_by_its_name() -> None:
    """In any folder, but only ``__MACOSX`` at the root is one."""
    assert is_leftover("__MACOSX/x")
    assert is_leftover("a/b/._c")
    assert is_leftover("a/.DS_Store")
    assert not is_leftover("a/x.DS_Store")
    assert not is_leftover("._a/b")
    assert not is_leftover("__MACOSX")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("SOUL.md", True),
        ("data/access.json", True),
        ("data/usage.json", True),
        ("data", True),
        ("data/secrets", True),
        ("data/secrets/x", True),
        ("data/sessions/a/b", True),
        ("skills", True),
        ("skills/x", True),
        ("memory", True),
        ("memory/x.txt", True),
        ("browser-state", True),
        ("browser-state/x", True),
        ("data/memory.sqlite", False),
        ("data/x", False),
        ("notes", False),
        ("skillset", False),
        ("current", False),
    ],
)
def test_a_link_is_in_the_way_where_a_package_has_something(path: str, expected: bool) -> None:
    """A folder of a package, a file of one, and what lies below its folders."""
    assert is_of_package(path) is expected


def test_only_folders_of_a_package_are_looked_into() -> None:
    """And, of those that hold anything at all, all that is below."""
    assert all(map(may_hold, ["data", "data/secrets", "data/sessions", "browser-state"]))
    assert all(map(may_hold, ["skills", "skills/a/b", "memory", "memory/a/b"]))
    assert not any(map(may_hold, ["node_modules", "data/x", "data/secrets/x", "browser-state/x"]))
    assert not any(map(may_hold, ["SOUL.md", "skillset", ".git", "data/memory.sqlite"]))


def test_every_part_with_a_text_has_a_field() -> None:
    """An error can name where in a database it would go."""
    parts = {place for place in PLACES.values() if place not in PASSED_OVER} | {"skill"}
    assert parts == set(FIELDS)
    assert set(ON_REQUEST) < parts


@pytest.mark.parametrize(
    ("path", "date"),
    [
        ("memory/2026-01-31.md", "2026-01-31"),
        ("memory/2024-02-29.md", "2024-02-29"),
        ("memory/2026-01-31-a-slug.md", "2026-01-31"),
        ("memory/2026-01-31-1530.md", "2026-01-31"),
        ("memory/2026-01-31-.md", "2026-01-31"),
        ("memory/2026-01-31-a\nb.md", "2026-01-31"),
        ("memory/deep/er/0001-01-01.md", "0001-01-01"),
        ("memory/2026-01-31x.md", None),
        ("memory/2026-1-31.md", None),
        ("memory/2026-01.md", None),
        ("memory/x-2026-01-31.md", None),
        ("memory/2026-02-30/note.md", None),
        ("memory/\u0662026-01-31.md", None),
        ("memory/\u0662\u0660\u0662\u0666-02-30.md", None),
        ("MEMORY.md", None),
    ],
    ids=range(15),
)
def test_a_daily_memory_has_a_date(path: str, date: str | None) -> None:
    """Told by the start of its name, in ASCII digits; others have none."""
    assert memory_date(path) == date


@pytest.mark.parametrize(
    "name",
    [
        "2026-02-30.md",
        "2025-02-29-slug.md",
        "2026-13-01.md",
        "2026-00-10.md",
        "2026-01-00.md",
        "0000-01-01.md",
        "9999-99-99-1200.md",
    ],
)
def test_a_date_that_there_is_not_is_refused(name: str) -> None:
    """The error names the file and says what to do."""
    with pytest.raises(Refusal) as caught:
        memory_date(f"memory/\u00e9/{name}")
    assert caught.value.code == "memory-date"
    assert caught.value.details["path"] == f"memory/\u00e9/{name}"
    assert "rename" in caught.value.why
