from __future__ import annotations

import errno
import gc
import os
import shutil
import socket
import stat
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentmove_tools.disk import walk as walk_module
from agentmove_tools.package.contents import Package
from agentmove_tools.package.folder import FolderSource, open_folder
from agentmove_tools.refusals import MachineError, Refusal
from tests.package.packages import (
    AGENT,
    ALL,
    PLAIN,
    STRICT,
    contents,
    event,
    package_at,
    packed,
    put,
    refusal_at,
    told,
)

NOBODY = 65534
SKILL = b"---\nname: x\ndescription: d\n---\n"
WHOLE = {
    **AGENT,
    "USER.md": b"u",
    "HEARTBEAT.md": b"h",
    "MEMORY.md": b"m",
    "memory/2026-01-01.md": b"d",
    "memory/a/b/c.md": b"n",
    "skills/x/SKILL.md": SKILL,
    "skills/x/run.sh": b"#!/bin/sh\n",
    "skills/g/y/SKILL.md": SKILL,
    "data/access.json": b"[]",
    "data/secrets/agent.json": b'{"pendingKeys":["A"]}\n',
    "data/sessions/t:u.jsonl": b'{"data":{},"id":"e1","ts":1,"type":"user"}\n',
    "data/usage.json": b"{}",
    "browser-state/main.json": b"{}",
}


@pytest.fixture
def agent(here: Path) -> Path:
    """Give a folder that holds the smallest agent."""
    return put(here / "agent", AGENT)


@contextmanager
def source_at(folder: Path) -> Iterator[FolderSource]:
    root = open_folder(os.fsencode(folder))
    source = FolderSource(root)
    try:
        yield source
    finally:
        source.close()
        os.close(root)


def unknown_in(folder: Path) -> list[str]:
    with package_at(folder) as package:
        return package.unknown


def content_of(source: FolderSource, path: str) -> Callable[[], bytes]:
    """What reads a file that was found in a source."""
    (item,) = [item for item in source.items() if item.path == path]
    return lambda: b"".join(item.pieces())


# -- what is there


def test_all_parts_of_a_folder_are_packed(here: Path) -> None:
    """Byte for byte, where they are in the one form already; nothing is left out."""
    put(here, WHOLE)
    with package_at(here, ALL) as package:
        assert contents(package) == WHOLE
        assert (package.unknown, package.passed_over) == ([], [])


def test_a_folder_may_be_reached_through_a_link(here: Path, agent: Path) -> None:
    """It is the one that was named; only in it no link is followed."""
    (here / "link").symlink_to(agent)
    assert packed(here / "link") == packed(agent)


def test_what_is_no_folder_cannot_be_opened(here: Path, agent: Path) -> None:
    """A file, and nothing at all."""
    with pytest.raises(NotADirectoryError):
        packed(agent / "SOUL.md")
    with pytest.raises(FileNotFoundError):
        packed(here / "none")


@pytest.mark.parametrize("name", AGENT)
def test_an_agent_has_a_soul_and_a_configuration(agent: Path, name: str) -> None:
    """A folder without one of them is none, also where a folder has its name."""
    (agent / name).unlink()
    assert told(refusal_at(agent)) == ("package-required", name, None, None)
    (agent / name).mkdir()
    assert told(refusal_at(agent)) == ("package-required", name, None, None)


def test_the_folder_around_an_agent_is_told_from_one(here: Path) -> None:
    """A runtime keeps the agent in ``.agent``, and the error says so."""
    put(here / ".agent", AGENT)
    assert refusal_at(here).hint == "give its .agent folder"
    shutil.rmtree(here / ".agent")
    put(here / "agent", AGENT)
    assert refusal_at(here).hint == "name the agent's own folder, .agent"


def test_what_has_no_place_is_named_once(agent: Path) -> None:
    """A folder by its name alone, with a slash; what lies in it is not looked at."""
    put(
        agent,
        {
            "AGENTS.md": b"",
            "notes/a": b"",
            "notes/b/c": b"",
            ".git/objects/x": b"",
            "data/other.json": b"",
            "data/cache/x": b"",
            "data/sessions/old/t:u.jsonl": b"{",
            "memory/a.txt": b"",
            "skills/no-skill/readme.md": b"",
            "skills/readme.md": b"",
        },
    )
    (agent / "empty").mkdir()
    (agent / "memory" / "empty").mkdir()
    expected = [
        *(".git/", "AGENTS.md", "data/cache/", "data/other.json", "data/sessions/old/"),
        *("empty/", "memory/a.txt", "notes/", "skills/no-skill/readme.md", "skills/readme.md"),
    ]
    assert unknown_in(agent) == expected
    refusal = refusal_at(agent, STRICT)
    assert told(refusal) == ("package-path", ".git/", None, None)
    with package_at(agent) as package:
        assert contents(package) == AGENT


def test_a_folder_alone_that_has_no_place_is_refused_when_it_is_strict(agent: Path) -> None:
    """As a file is."""
    (agent / "notes").mkdir()
    assert told(refusal_at(agent, STRICT)) == ("package-path", "notes/", None, None)
    assert packed(agent) == packed(put(agent.parent / "other", AGENT))


def test_a_derived_index_is_never_packed(agent: Path) -> None:
    """It is built again from the texts; neither is what macOS leaves; strict says nothing of it."""
    expected = packed(agent)
    for name in ("", "-wal", "-shm", "-journal"):
        put(agent, {f"data/memory.sqlite{name}": b"x" * 100})
    put(agent, {".DS_Store": b"", "memory/._a.md": b"", "__MACOSX/SOUL.md": b""})
    assert packed(agent, STRICT) == packed(agent) == expected
    with package_at(agent) as package:
        assert package.unknown == []
        passed = {each.path: each.part for each in package.passed_over}
    assert passed == {
        **{f"data/memory.sqlite{name}": "derived" for name in ("", "-wal", "-shm", "-journal")},
        ".DS_Store": "leftover",
        "memory/._a.md": "leftover",
    }


def test_empty_folders_are_nothing(agent: Path) -> None:
    """A package holds files only."""
    expected = packed(agent)
    for name in ("skills/x", "memory/a/b", "data/secrets", "data/sessions", "browser-state"):
        (agent / name).mkdir(parents=True)
    assert packed(agent, STRICT) == expected


# -- what is no file


@pytest.mark.parametrize(
    "path",
    [
        *("SOUL.md", "USER.md", "MEMORY.md", "data/access.json", "data/usage.json"),
        *("memory/a.md", "memory/a.txt", "memory/x/b.md", "skills/x", "skills/x/lib"),
        *("data/secrets/agent.json", "data/sessions/t:u.jsonl", "browser-state/a.json"),
        *("data", "skills", "memory", "data/secrets", "data/sessions", "browser-state"),
    ],
)
def test_a_link_where_a_package_has_something_is_refused(agent: Path, path: str) -> None:
    """To a file, to a folder, or to nothing: it would be lost, and is never followed."""
    link = agent / path
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    for target in (agent / "agent.config.json", agent, agent / "none"):
        link.symlink_to(target)
        refusal = refusal_at(agent)
        assert told(refusal) == ("package-type", path, None, None)
        assert "symbolic link" in refusal.why
        link.unlink()


@pytest.mark.parametrize("path", ["current", "AGENTS.md", "notes", "data/cache", ".git"])
def test_a_link_elsewhere_is_named(agent: Path, path: str) -> None:
    """It has no place, and is left out; strict refuses it."""
    link = agent / path
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(agent)
    assert unknown_in(agent) == [path]
    assert told(refusal_at(agent, STRICT)) == ("package-path", path, None, None)
    assert packed(agent) == packed(put(agent.parent / "other", AGENT))


@pytest.mark.parametrize(
    ("path", "expected"), [("memory/a.md", True), ("data", True), ("x", False), ("data/x", False)]
)
def test_a_pipe_or_a_socket_is_never_opened(agent: Path, path: str, expected: bool) -> None:
    """Where a package has something it is refused, and elsewhere named."""
    thing = agent / path
    thing.parent.mkdir(exist_ok=True)

    def check() -> None:
        if expected:
            refusal = refusal_at(agent)
            assert told(refusal) == ("package-type", path, None, None)
            assert refusal.why == "it is a device, a socket or the like: remove it"
        else:
            assert unknown_in(agent) == [path]
            assert told(refusal_at(agent, STRICT)) == ("package-path", path, None, None)

    os.mkfifo(thing)
    check()
    thing.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        folder = os.open(thing.parent, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{folder}/{thing.name}")
        except OSError:
            made.bind(str(thing))
        finally:
            os.close(folder)
        check()


def test_a_link_in_a_folder_that_has_no_place_is_not_seen(agent: Path) -> None:
    """Nothing in it is looked at."""
    put(agent, {"notes/a": b""})
    (agent / "notes" / "link").symlink_to("/")
    assert unknown_in(agent) == ["notes/"]


# -- names


def made_at(path: bytes) -> bool:
    """Whether an empty file could be made there; macOS takes no name that is not UTF-8."""
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    return os.path.exists(path)


@pytest.mark.parametrize(
    "name",
    [b"memory/\xff.md", b"skills/x/\xe9", b"memory/\xff/a.md", b"data/sessions/t:\xc3.jsonl"],
)
def test_a_name_that_is_not_utf8_is_refused(agent: Path, name: bytes) -> None:
    """Where a package has something; the error shows its bytes."""
    put(agent, {"skills/x/SKILL.md": SKILL})
    if not made_at(os.path.join(os.fsencode(agent), name)):
        return
    refusal = refusal_at(agent)
    assert refusal.code == "package-path"
    assert refusal.why == "its name is not UTF-8: rename it"
    assert name.decode("utf-8", "backslashreplace").startswith(str(refusal.details["path"]))


def test_a_name_that_is_not_utf8_elsewhere_is_named(agent: Path) -> None:
    """A file and a folder; both are left out."""
    base = os.fsencode(agent)
    if not (made_at(base + b"/\xfe") and made_at(base + b"/\xff/x")):
        return
    assert unknown_in(agent) == ["\udcfe", "\udcff/"]
    assert refusal_at(agent, STRICT).details["path"] == "\\xfe"
    assert packed(agent) == packed(put(agent.parent / "other", AGENT))


def test_decomposed_names_are_composed(agent: Path) -> None:
    """macOS hands names out so; the content is found under the name that the disk has."""
    name = unicodedata.normalize("NFD", "memory/\u00e9\u00fc/\u00c5.md")
    put(agent, {name: b"text"})
    with package_at(agent) as package:
        assert contents(package)["memory/\u00e9\u00fc/\u00c5.md"] == b"text"
    other = put(agent.parent / "other", {**AGENT, "memory/\u00e9\u00fc/\u00c5.md": b"text"})
    assert packed(agent) == packed(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("memory/a.md", "memory/A.md"),
        ("memory/\u00e9.md", "memory/e\u0301.md"),
        ("memory/a/x.md", "memory/A/y.md"),
        ("skills/x/a", "skills/x/A"),
        ("skills/x/a/b", "skills/x/A/c"),
    ],
)
def test_two_names_that_some_disk_takes_for_one_are_refused(
    agent: Path, one: str, other: str
) -> None:
    """Such a package could not be unpacked there."""
    put(agent, {"skills/x/SKILL.md": SKILL, one: b"", other: b""})
    if not (agent / one).exists() or (agent / one).samefile(agent / other):
        return  # this is such a disk
    assert refusal_at(agent).code == "package-duplicate"


def test_names_that_differ_in_case_where_only_one_has_a_place(agent: Path) -> None:
    """The other is named."""
    put(agent, {"USER.md": b"u", "notes.md": b""})
    (agent / "user.md").write_bytes(b"")
    assert "notes.md" in unknown_in(agent)
    packed(agent)


@pytest.mark.parametrize("path", ["memory/a\\b.md", "skills/x/..\\..\\evil"])
def test_a_name_with_a_backslash_is_refused(agent: Path, path: str) -> None:
    """Elsewhere it would be a path."""
    put(agent, {"skills/x/SKILL.md": SKILL, path: b""})
    assert told(refusal_at(agent)) == ("package-path", path, None, None)


def test_odd_names_are_packed(agent: Path) -> None:
    """Controls, spaces, what looks like an option, and what looks like an archive's own."""
    paths = [f"memory/{name}.md" for name in ("\n", " ", "-rf", "*", "C:", "\u202e", "...", "a/-")]
    put(agent, dict.fromkeys(paths, b"x"))
    with package_at(agent) as package:
        assert sorted(contents(package)) == sorted([*AGENT, *paths])


# -- the file that is written


def test_the_output_is_left_out(agent: Path) -> None:
    """Wherever in the folder it is written, it is not a part of itself; without a word."""
    expected = packed(agent)
    for path in ("memory/out.md", "out.zip", "skills/x/out"):
        put(agent, {"skills/x/SKILL.md": SKILL, path: b"half an archive"})
        info = (agent / path).stat()
        with package_at(agent, STRICT, but=frozenset({(info.st_dev, info.st_ino)})) as package:
            assert set(contents(package)) == {*AGENT, "skills/x/SKILL.md"}
        (agent / path).unlink()
    (agent / "skills/x/SKILL.md").unlink()
    assert packed(agent) == expected


def test_a_file_of_the_output_s_number_on_another_disk_is_packed(agent: Path) -> None:
    """Both the device and the number have to be its own."""
    info = (agent / "SOUL.md").stat()
    but = frozenset({(info.st_dev + 1, info.st_ino), (info.st_dev, info.st_ino + (1 << 40))})
    with package_at(agent, but=but) as package:
        assert contents(package) == AGENT


# -- files that change


@pytest.mark.parametrize("size", [0, 1, 100, 1 << 20, (1 << 20) + 1, (3 << 20) + 7])
def test_a_file_of_any_size_is_read_whole(agent: Path, size: int) -> None:
    """In one piece or in many, and again each time."""
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    put(agent, {"skills/x/SKILL.md": SKILL, "skills/x/data": data})
    with source_at(agent) as source:
        read = content_of(source, "skills/x/data")
        assert read() == data
        assert read() == data


@pytest.mark.parametrize("size", [10, 5000])
@pytest.mark.parametrize("new", [0, 3, 10_000, 3 << 20])
def test_a_small_file_that_changes_while_it_is_read(
    agent: Path, size: int, new: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes as it is then, longer or shorter than it was said to be."""
    path = agent / "SOUL.md"
    path.write_bytes(b"a" * size)
    true_read = os.read

    def read(fd: int, count: int) -> bytes:
        monkeypatch.undo()
        path.write_bytes(b"b" * new)
        return true_read(fd, count)

    with source_at(agent) as source:
        content = content_of(source, "SOUL.md")
        monkeypatch.setattr(os, "read", read)
        assert content() == b"b" * new
        assert content() == b"b" * new


@pytest.mark.parametrize("change", [b"more", None])
def test_a_large_file_that_changes_while_it_is_read(agent: Path, change: bytes | None) -> None:
    """It is read to the end that it has then."""
    path = agent / "SOUL.md"
    path.write_bytes(b"a" * (3 << 20))
    with source_at(agent) as source:
        (item,) = [item for item in source.items() if item.path == "SOUL.md"]
        pieces = iter(item.pieces())
        got = next(pieces)
        if change is None:
            os.truncate(path, 2 << 20)
            expected = b"a" * (2 << 20)
        else:
            with path.open("ab") as file:
                file.write(change)
            expected = b"a" * (3 << 20) + change
        assert got + b"".join(pieces) == expected


def test_a_file_that_is_something_else_by_then_is_refused(agent: Path) -> None:
    """A pipe is not waited for, a link not followed, a folder not read; each is named."""
    path = agent / "SOUL.md"
    with source_at(agent) as source:
        read = content_of(source, "SOUL.md")
        path.unlink()
        with pytest.raises(FileNotFoundError) as caught:
            read()
        assert caught.value.filename == b"SOUL.md"
        path.symlink_to("agent.config.json")
        with pytest.raises(OSError, match="SOUL") as linked:
            read()
        assert linked.value.errno in (errno.ELOOP, errno.EMLINK)
        for make in (os.mkdir, os.mkfifo):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            make(path)
            with pytest.raises(Refusal) as refused:
                read()
            assert told(refused.value) == ("package-type", "SOUL.md", None, None)
            assert refused.value.why == "it is no file any more"


def test_a_folder_that_is_a_link_by_then_is_not_followed(agent: Path) -> None:
    """Whoever can write in the folder cannot make another be packed."""
    put(agent, {"memory/a/b.md": b"own"})
    put(agent.parent / "elsewhere", {"b.md": b"other"})
    with source_at(agent) as source:
        read = content_of(source, "memory/a/b.md")
        shutil.rmtree(agent / "memory" / "a")
        (agent / "memory" / "a").symlink_to(agent.parent / "elsewhere")
        with pytest.raises(OSError, match=r"memory"):
            read()


def test_no_descriptor_is_left_open(agent: Path) -> None:
    """Of files that were read, and of those that were read in part or refused."""
    put(agent, {f"memory/{n}/{n}.md": b"x" * (n << 19) for n in range(6)})
    before = len(os.listdir("/dev/fd"))
    packed(agent)
    put(agent, {"memory/bad.md": b"a" * (3 << 20) + b"\0"})
    refusal_at(agent)
    gc.collect()  # the error's traceback held the file that was read in part
    assert len(os.listdir("/dev/fd")) == before


# -- files that cannot be read


@contextmanager
def somebody() -> Iterator[None]:
    """Do without the rights of root, who may read everything."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("path", ["SOUL.md", "memory/a.md", "skills/x/data"])
def test_a_file_that_cannot_be_read_is_an_error_of_the_machine(agent: Path, path: str) -> None:
    """With its path; nothing is left out for that."""
    put(agent, {"skills/x/SKILL.md": SKILL, path: b"x"})
    agent.chmod(0o755)
    with package_at(agent) as package:
        (agent / path).chmod(0)
        with somebody(), pytest.raises(PermissionError) as caught:
            contents(package)
    assert caught.value.filename == os.fsencode(path)


def test_a_folder_that_cannot_be_read_is_an_error_of_the_machine(agent: Path) -> None:
    """One of a package; another one is not even looked at."""
    put(agent, {"memory/a.md": b"", "notes/x": b""})
    agent.chmod(0o755)
    root = open_folder(os.fsencode(agent))
    try:
        (agent / "notes").chmod(0)
        with somebody():
            assert Package(FolderSource(root), PLAIN).unknown == ["notes/"]
        (agent / "memory").chmod(0)
        with somebody(), pytest.raises(PermissionError, match="memory"):
            Package(FolderSource(root), PLAIN)
    finally:
        os.close(root)
        (agent / "memory").chmod(0o755)


# -- what makes no difference


def test_times_modes_and_order_make_no_difference(here: Path) -> None:
    """The same agent is the same bytes; of the modes only an asset's x bit crosses."""
    first = put(here / "one", WHOLE)
    second = put(here / "two", dict(reversed(WHOLE.items())))
    for number, path in enumerate(second.rglob("*")):
        if path.is_file():
            path.chmod(0o755 if path.suffix == ".md" else 0o600)
        os.utime(path, (number * 1_000_000, number * 3_000_000))
    (second / "skills/x/run.sh").chmod(0o666)
    assert packed(first, ALL) == packed(second, ALL)


@pytest.mark.parametrize("mode", [0o100, 0o010, 0o001, 0o755])
def test_an_asset_that_can_be_run_stays_so(agent: Path, mode: int) -> None:
    """Whoever may run it; another part never can be."""
    put(agent, {"skills/x/SKILL.md": SKILL, "skills/x/run.sh": b"", "memory/a.md": b""})
    for path in ("skills/x/SKILL.md", "skills/x/run.sh", "memory/a.md", "SOUL.md"):
        (agent / path).chmod(0o400 | mode)
    with package_at(agent) as package:
        assert [file.path for file in package.files if file.executable] == ["skills/x/run.sh"]


def test_the_folder_is_not_touched(here: Path) -> None:
    """Packing writes nothing, and leaves every time and mode."""
    put(here, WHOLE)

    def state() -> list[tuple[str, int, int, int]]:
        found = []
        for path in sorted(here.rglob("*")):
            info = path.stat()
            found.append((str(path), info.st_mode, info.st_mtime_ns, info.st_ctime_ns))
        return found

    before = state()
    assert stat.S_ISREG(before[0][1]) or stat.S_ISDIR(before[0][1])
    packed(here, ALL)
    assert state() == before


def test_sessions_and_secrets_get_their_written_names(agent: Path) -> None:
    """A folder's own spelling is not the package's."""
    put(agent, {"data/sessions/x:%61%2fb.jsonl": event(), "data/secrets/u9.json": b'["A"]'})
    with package_at(agent) as package:
        assert set(contents(package)) == {
            *AGENT,
            "data/sessions/x:a%2Fb.jsonl",
            "data/secrets/user-u9.json",
        }


@pytest.mark.parametrize("path", ["browser-state", "browser-state/x.json", "data/usage.json"])
def test_a_link_in_a_place_that_is_not_asked_for_is_passed_over(agent: Path, path: str) -> None:
    """It is refused only where what it leads to would be packed."""
    (agent / path).parent.mkdir(exist_ok=True)
    (agent / path).symlink_to("/etc")
    root = open_folder(os.fsencode(agent))
    try:
        assert FolderSource(root, wanted=frozenset()).items()
        with pytest.raises(Refusal) as caught:
            FolderSource(root).items()
        assert caught.value.code == "package-type"
    finally:
        os.close(root)


def test_a_folder_that_is_gone_while_it_is_read_is_told(
    agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a word the package would lack all that lies in it."""
    put(agent, {"memory/a.md": b"x"})
    root = open_folder(os.fsencode(agent))
    real = walk_module.Folder.read

    def read(self: walk_module.Folder, **named: bool) -> None:
        if self.path == b"memory":
            shutil.move(agent / "memory", agent / "away")
        real(self, **named)

    monkeypatch.setattr(walk_module.Folder, "read", read)
    try:
        with pytest.raises(MachineError, match="moved or removed"):
            FolderSource(root).items()
    finally:
        os.close(root)


def test_what_an_unpacking_left_is_no_path_of_anybodys(agent: Path) -> None:
    """A working folder is not named, and ``--strict`` does not mind it."""
    put(agent, {".agentfy-unpack/tree/SOUL.md": b"half"})
    assert unknown_in(agent) == []
