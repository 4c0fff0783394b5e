from __future__ import annotations

from collections.abc import Iterable

import pytest

from agentmove_tools.package.contents import (
    File,
    Options,
    Package,
    PassedOver,
    joined,
)
from agentmove_tools.package.layout import PASSED_OVER, REQUIRED
from agentmove_tools.package.sources import Item
from agentmove_tools.refusals import Refusal
from tests.package.packages import (
    AGENT,
    ALL,
    STRICT,
    checked,
    contents,
    event,
    package_in,
    package_of,
    refusal_of,
    told,
    warnings_of,
    zipped,
)

SKILL = b"---\nname: x\ndescription: d\n---\n"


def in_top(files: dict[str, bytes], top: str = "my-agent/") -> dict[str, bytes]:
    return {top + path: content for path, content in files.items()}


# -- the root


@pytest.mark.parametrize("top", [".agent/", "my agent/", "\u00e9/", "SOUL.md/", "data/", "memory/"])
def test_one_top_folder_is_taken_off(top: str) -> None:
    """As a zipped folder has it, whatever its name; its own entry may be there or not."""
    files = {**AGENT, "memory/a.md": b"m", "data/access.json": b"[]", "x/y": b""}
    for more in ({}, {top: b""}):
        package = package_in(zipped({**more, **in_top(files, top)}))
        assert contents(package) == {path: files[path] for path in files if path != "x/y"}
        assert package.unknown == ["x/y"]


def test_only_one_top_folder_is_taken_off() -> None:
    """An agent two folders down is none."""
    with pytest.raises(Refusal) as caught:
        package_in(zipped(in_top(in_top(dict(AGENT)))))
    assert caught.value.code == "package-required"


@pytest.mark.parametrize(
    "beside", ["readme.txt", "other/x", "other/"], ids=["a file", "a folder", "an empty folder"]
)
def test_with_something_beside_it_a_folder_is_no_top(beside: str) -> None:
    """Then the agent must lie at the root."""
    with pytest.raises(Refusal) as caught:
        package_in(zipped({**in_top(dict(AGENT)), beside: b""}))
    assert caught.value.code == "package-required"


@pytest.mark.parametrize(
    "beside", ["__MACOSX/my-agent/._SOUL.md", ".DS_Store", "._my-agent", "__MACOSX/"]
)
def test_what_macos_leaves_beside_it_does_not_count(beside: str) -> None:
    """It is passed over, below the top folder too."""
    files = {**AGENT, "memory/.DS_Store": b"", "._USER.md": b""}
    package = package_in(zipped({**in_top(files), beside: b""}))
    assert contents(package) == AGENT
    assert package.unknown == []
    assert {each.part for each in package.passed_over} == {"leftover"}
    assert {"memory/.DS_Store", "._USER.md"} <= {each.path for each in package.passed_over}


def test_an_error_names_the_path_without_the_top_folder() -> None:
    """It is the path in the agent's folder."""
    with pytest.raises(Refusal) as caught:
        package_in(zipped(in_top({**AGENT, "USER.md": b"\0"}))).check()
    assert told(caught.value) == ("field-nul", "USER.md", "agent.user", 1)


# -- parts


def test_parts_come_in_the_order_of_their_paths() -> None:
    """Each with what it is, and what it belongs to."""
    package = checked(
        {
            "skills/g/x/SKILL.md": SKILL,
            "skills/g/x/lib/a": b"\0\xff",
            "data/sessions/t:u:v.jsonl": b"",
            "data/secrets/u9.json": b"[]",
            "memory/2026-01-01.md": b"",
            "MEMORY.md": b"",
        }
    )
    rows = [(file.path, file.part, file.skill or file.scope or file.chat) for file in package.files]
    none = ("", "")
    assert rows == [
        ("MEMORY.md", "memory", none),
        ("SOUL.md", "soul", none),
        ("agent.config.json", "config", none),
        ("data/secrets/user-u9.json", "secrets", "user-u9"),
        ("data/sessions/t:u:v.jsonl", "session", ("t", "u:v")),
        ("memory/2026-01-01.md", "memory", none),
        ("skills/g/x/SKILL.md", "skill", "skills/g/x"),
        ("skills/g/x/lib/a", "asset", "skills/g/x"),
    ]


def test_an_asset_is_any_bytes() -> None:
    """Nothing in it is looked at, an inner skill's front matter neither."""
    files = {
        "skills/x/SKILL.md": SKILL,
        "skills/x/a": bytes(range(256)),
        "skills/x/y/SKILL.md": b"---\n\0\xff",
        "skills/x/2026-02-30.md": b"\0",
        "skills/x/empty": b"",
    }
    assert contents(checked(files)) == {**AGENT, **files}


def test_what_has_no_place_is_named_and_not_read() -> None:
    """Sorted; ``--strict`` refuses the first."""
    files = {"notes/todo.txt": b"\0", "AGENTS.md": b"\xff", "data/x.json": b"{", "memory/a": b""}
    package = checked(files)
    assert package.unknown == ["AGENTS.md", "data/x.json", "memory/a", "notes/todo.txt"]
    assert contents(package) == AGENT
    assert told(refusal_of(files, STRICT)) == ("package-path", "AGENTS.md", None, None)


def test_folders_of_an_archive_are_nothing() -> None:
    """Empty or not, with a place or without; strict says nothing of them."""
    package = checked({"notes/": b"", "memory/": b"", "memory/a.md": b"", "SOUL/": b""}, STRICT)
    assert package.unknown == []
    assert [file.path for file in package.files] == sorted([*AGENT, "memory/a.md"])


def test_what_is_passed_over_says_why() -> None:
    """A derived index, leftovers, and what was not asked for."""
    files = {
        "data/memory.sqlite": b"x",
        "._SOUL.md": b"",
        "data/usage.json": b"{}",
        "browser-state/a.json": b"{}",
    }
    package = checked(files, STRICT)
    assert package.passed_over == [
        PassedOver("._SOUL.md", "leftover", PASSED_OVER["leftover"]),
        PassedOver("browser-state/a.json", "browser-state", "only with --with browser-state"),
        PassedOver("data/memory.sqlite", "derived", PASSED_OVER["derived"]),
        PassedOver("data/usage.json", "usage", "only with --with usage"),
    ]
    package = checked(files, ALL)
    assert {each.path for each in package.passed_over} == {"._SOUL.md", "data/memory.sqlite"}


def test_what_is_wrong_with_names_is_told_before_any_content() -> None:
    """Sessions, scopes and dates: such a package is refused when it is opened."""
    for path, code in (
        ("data/sessions/x.jsonl", "session-name"),
        ("data/secrets/.json", "package-path"),
        ("memory/2026-13-01.md", "memory-date"),
    ):
        with pytest.raises(Refusal) as caught:
            package_of({path: b"", "SOUL.md": b"\0"})
        assert told(caught.value)[:2] == (code, path)


def test_a_date_is_one_of_memories_only() -> None:
    """A name in another folder may look as it likes."""
    checked({"skills/x/SKILL.md": SKILL, "skills/x/2026-02-30.md": b"", "notes/2026-02-30.md": b""})


def test_reading_again_finds_the_same() -> None:
    """What an earlier reading found is forgotten, warnings too."""
    files = {
        "memory/a.md": b"abc",
        "skills/x/SKILL.md": b"no",
        "data/secrets/u.json": b'{"A":"v"}',
        "data/sessions/t:u.jsonl": event(),
    }
    package = checked(files)
    first = (warnings_of(package), package.found.sizes, package.found.secrets)
    chats = {path: chat.events for path, chat in package.found.chats.items()}
    package.check()
    assert (warnings_of(package), package.found.sizes, package.found.secrets) == first
    assert {path: chat.events for path, chat in package.found.chats.items()} == chats
    assert first[1] == {"memory/a.md": 3}
    assert len(first[0]) == 2


def test_a_package_that_was_only_opened_says_nothing_of_its_contents() -> None:
    """Its paths alone were looked at."""
    package = package_of({"skills/x/SKILL.md": b"\0"})
    assert package.found.skills == {}
    assert [file.path for file in package.files] == sorted([*AGENT, "skills/x/SKILL.md"])


def test_what_is_damaged_in_what_is_not_taken_is_refused_too() -> None:
    """A file that has no place, and one that was not asked for."""
    for path in ("notes/x", "data/usage.json", "data/memory.sqlite", "._x"):
        data = bytearray(zipped({**AGENT, path: b"unmistakable" * 9}))
        package = package_in(bytes(data))
        package.check()
        (entry,) = [
            each
            for each in package._source._archive.entries  # type: ignore[attr-defined]
            if each.path == path
        ]
        data[entry.end - 1] ^= 1
        package = package_in(bytes(data))
        with pytest.raises(Refusal) as caught:
            package.check()
        assert caught.value.code == "package-damaged"


# -- any source


class Made:
    """A source of files at these paths."""

    def __init__(self, *paths: str, passed_over: Iterable[str] = (), is_folder: bool = True):
        self.is_folder = is_folder
        self._paths = [*REQUIRED, *paths]
        self._passed_over = list(passed_over)

    def items(self) -> list[Item]:
        return [Item(path, True, 0, self._content(path)) for path in reversed(self._paths)]

    def passed_over(self) -> list[str]:
        return self._passed_over

    def _content(self, path: str):  # type: ignore[no-untyped-def] # noqa: ANN202
        return lambda: (AGENT.get(path, b""),)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("memory/../../x.md", "package-path"),
        ("memory//x.md", "package-path"),
        ("memory/./x.md", "package-path"),
        ("skills/x/a\\b", "package-path"),
        ("memory/a\0.md", "package-path"),
        ("memory/" + "x" * 5000 + ".md", "package-path"),
        ("skills/x/A", "package-duplicate"),
        ("skills/x/a", "package-duplicate"),
        ("skills/x/a/b", "package-type"),
    ],
    ids=range(9),
)
def test_no_path_of_a_folder_leads_out_of_it(path: str, code: str) -> None:
    """Whatever it comes from, each is checked as an archive's are."""
    with pytest.raises(Refusal) as caught:
        Package(Made("skills/x/SKILL.md", "skills/x/a", path), Options())
    assert caught.value.code == code


@pytest.mark.parametrize("user", ["..", "../x", "/", "\\", ".", "a/../../b", "\x01"])
def test_no_user_leads_out_of_it(user: str) -> None:
    """A chat's or a scope's name is encoded in the path that is written."""
    encoded = "".join(f"%{byte:02x}" for byte in user.encode())
    package = Package(
        Made(f"data/sessions/{encoded}:{encoded}.jsonl", f"data/secrets/{encoded}.json"), Options()
    )
    written = [file for file in package.files if file.part in ("session", "secrets")]
    assert {file.path.count("/") for file in written} == {2}
    assert all("\\" not in file.path and "/." not in file.path for file in written)
    assert [file.chat for file in written if file.part == "session"] == [(user, user)]


def test_only_an_asset_can_be_run() -> None:
    """Whatever modes the other files have."""
    package = Package(Made("skills/x/SKILL.md", "skills/x/a", "memory/a.md"), Options())
    assert [file.path for file in package.files if file.executable] == ["skills/x/a"]


def test_a_source_s_own_unknown_paths_are_put_among_the_others() -> None:
    """Sorted, each once."""
    package = Package(Made("b", "d", passed_over=["c/", "a/"]), Options())
    assert package.unknown == ["a/", "b", "c/", "d"]


def test_lines_are_joined_into_pieces() -> None:
    """Each with its end; none make nothing."""
    assert b"".join(joined([])) == b""
    assert b"".join(joined([b"a"])) == b"a\n"
    many = [b"x" * 1000] * 1000
    pieces = list(joined(many))
    assert len(pieces) > 2
    assert b"".join(pieces) == b"".join(line + b"\n" for line in many)


def test_a_file_says_what_it_is_made_of() -> None:
    """One file of the source, but for the names of secrets."""
    package = package_of({"data/secrets/u.json": b"[]", "data/secrets/user-u.json": b"[]"})
    counts = {file.path: len(file.items) for file in package.files}
    assert counts == {**dict.fromkeys(AGENT, 1), "data/secrets/user-u.json": 2}
    assert isinstance(package.files[0], File)
