from __future__ import annotations

import fcntl
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentmove_tools.disk import flush
from agentmove_tools.disk.workplace import Workplace
from agentmove_tools.package import unpack as unpack_module
from agentmove_tools.package import update as update_module
from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.contents import Options, Package
from agentmove_tools.package.existing import Existing
from agentmove_tools.package.layout import Part
from agentmove_tools.package.sources import ArchiveSource
from agentmove_tools.package.unpacked import UnpackOptions
from agentmove_tools.refusals import MachineError, Refusal, UsageError
from tests.conftest import lacking
from tests.home.builder import Fifo, File, Folder, Link, make_home, put, snapshot
from tests.home.machine import as_nobody, mounted_tmpfs, only_root
from tests.package.folders import (
    EVERYTHING,
    contents,
    event,
    into,
    made,
    modes,
    names,
    package,
    packed,
    whole,
)
from tests.package.zips import MINIMAL, Zipped, agent, archive, package_of

AGENT = {
    "USER.md": b"Olga\n",
    "MEMORY.md": b"# What I know\n",
    "memory/2026-01-02.md": b"a day\n",
    "memory/people/zo\u00eb.md": b"a friend\n",
    "skills/pdf/SKILL.md": b"---\nname: pdf\ndescription: reads PDFs\n---\n",
    "skills/pdf/scripts/run.py": b"print(1)\n",
    "data/secrets/agent.json": names("API_KEY", "TOKEN"),
    "data/access.json": b'["web:alice"]\n',
    "data/sessions/web:alice.jsonl": event(1) + event(2, ts=5),
    "data/usage.json": b'{"tokens": 5}\n',
    "browser-state/main.json": b'{"cookies": []}\n',
}
SESSION = "data/sessions/web:alice.jsonl"
SECRETS = "data/secrets/agent.json"
PRIVATE = {SECRETS, "browser-state/main.json"}


@pytest.fixture(autouse=True)
def usual_umask() -> None:
    """Modes are those of most users."""
    os.umask(0o022)


# -- a new folder


def test_a_new_folder_holds_the_package(here: Path) -> None:
    """Each file under its path, secrets and browser state for their owner only."""
    done = into(here / "out", AGENT, wanted=EVERYTHING)
    assert done.result == "created"
    assert contents(here / "out") == {**MINIMAL, **AGENT}
    assert modes(here / "out") == {
        path: 0o600 if path in PRIVATE else 0o644 for path in {**MINIMAL, **AGENT}
    }
    folders = {mode for kind, mode, _ in snapshot(here / "out").values() if kind == "folder"}
    assert folders == {0o755}
    assert os.listdir(here) == ["out"]


def test_what_was_not_asked_for_stays_away(here: Path) -> None:
    """Usage and browser state come only with their names, and the report says so."""
    done = into(here / "out", AGENT).to_json()
    assert contents(here / "out").keys() == {**MINIMAL, **AGENT}.keys() - {
        "data/usage.json",
        "browser-state/main.json",
    }
    assert done["passed_over"] == [
        {"path": "browser-state/main.json", "why": "only with --with browser-state"},
        {"path": "data/usage.json", "why": "only with --with usage"},
    ]


def test_the_report_counts_everything(here: Path) -> None:
    """For each part what came in is what was written, left alone and passed over."""
    done = into(here / "out", {**AGENT, "notes/todo.txt": b"", "data/memory.sqlite": b"db"})
    assert done.parts.keys() == {
        *("soul", "config", "user", "memory", "skill", "asset", "secrets", "access", "session"),
        *("usage", "browser-state", "unknown", "derived"),
    }
    assert sum(counts["in"] for counts in done.parts.values()) == len({**MINIMAL, **AGENT}) + 2
    for counts in done.parts.values():
        assert counts["in"] == counts["written"] + counts["left_alone"] + counts["passed_over"]
        assert counts["removed"] == 0
    assert done.parts["memory"]["written"] == 3
    assert done.pending == {"agent": ["API_KEY", "TOKEN"]}
    assert done.to_json()["unknown"] == ["notes/todo.txt"]


def test_an_asset_that_can_be_run_stays_so(here: Path) -> None:
    """And nothing else becomes executable: a program belongs to a skill."""
    run = 0o100755 << 16
    data = archive(
        *agent(
            Zipped(b"skills/x/SKILL.md", b"x", attributes=run),
            Zipped(b"skills/x/go.sh", b"x", attributes=run),
            Zipped(b"memory/a.md", b"x", attributes=run),
        )
    )
    unpack_module.unpack(package_of(data), os.fsencode(here / "out"), UnpackOptions())
    executable = {path for path, mode in modes(here / "out").items() if mode & 0o111}
    assert executable == {"skills/x/go.sh"}
    assert modes(here / "out")["skills/x/go.sh"] == 0o755


def test_the_umask_counts(here: Path) -> None:
    """Files and folders get what the user wants new ones to have."""
    os.umask(0o077)
    into(here / "out", AGENT)
    assert set(modes(here / "out").values()) == {0o600}
    assert (here / "out").stat().st_mode & 0o777 == 0o700


def test_an_empty_folder_is_filled(here: Path) -> None:
    """One that was made before is as good as a new one."""
    (here / "out").mkdir(0o750)
    done = into(here / "out", AGENT)
    assert done.result == "created"
    assert contents(here / "out")[SESSION] == AGENT[SESSION]
    assert (here / "out").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("there", ["SOUL.md", "something.txt", ".hidden"])
def test_a_folder_with_something_in_it_is_left_alone(here: Path, there: str) -> None:
    """It is a matter of the command line, and the error names the option."""
    put(here, f"out/{there}", "mine")
    before = snapshot(here)
    with pytest.raises(UsageError) as caught:
        into(here / "out", AGENT)
    assert "--update" in str(caught.value.details) + str(caught.value.__dict__)
    assert snapshot(here) == before


def test_a_file_is_no_folder(here: Path) -> None:
    """Nothing takes its place, not even with --update."""
    put(here, "out", "mine")
    for update in (False, True):
        with pytest.raises(UsageError, match="is a file"):
            into(here / "out", AGENT, update=update)
    assert (here / "out").read_bytes() == b"mine"


def test_a_folder_in_a_folder_that_is_not_there(here: Path) -> None:
    """Nothing is made on the way: the name may be mistyped."""
    with pytest.raises(MachineError, match="would lie in"):
        into(here / "no" / "out", AGENT)
    assert os.listdir(here) == []


def test_a_link_to_the_folder_is_followed(here: Path) -> None:
    """The one named on the command line, to a folder that is there and to one that is not."""
    (here / "link").symlink_to("real")
    into(here / "link", AGENT)
    assert contents(here / "real").keys() >= MINIMAL.keys()
    assert (here / "link").is_symlink()
    assert into(here / "link", AGENT, update=True).result == "unchanged"


@pytest.mark.parametrize("name", ["-rf", "a b", "\n", "Zoë", "n" * 255])
def test_any_name_of_a_folder(here: Path, name: str) -> None:
    """Also the longest, beside which a name of a working folder has to be shorter."""
    name = name[:255]
    assert into(here / name, AGENT).result == "created"
    assert os.listdir(here) == [name]


# -- all or nothing

REFUSED = {
    "no event": {SESSION: event(1) + b"{}\n"},
    "torn": {SESSION: event(1) + b'{"id":'},
    "front matter": {"skills/zz/SKILL.md": b"---\n"},
    "last": {"skills/zz/z.md": b"", "skills/zz/SKILL.md": b"\0"},
    "secrets": {SECRETS: b"5"},
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("large", [False, True])
def test_a_refused_package_leaves_nothing(here: Path, case: str, large: bool) -> None:
    """No folder, no working folder; a folder that was there is as it was."""
    files = {**AGENT, **REFUSED[case]}
    if large:  # then it is checked before any of it is written
        files["memory/large.md"] = b"x" * (9 << 20)
    with pytest.raises(Refusal):
        into(here / "out", files)
    assert os.listdir(here) == []
    made(here / "out", {"USER.md": "mine", "skills/zz/old": "mine"})
    before = snapshot(here)
    for delete in (False, True):
        with pytest.raises(Refusal):
            into(here / "out", files, update=True, delete=delete)
        assert snapshot(here) == before


def test_one_that_another_writes_into_is_left_to_it(here: Path) -> None:
    """Two at once would mix; the second says so and changes nothing."""
    made(here / "old", {})
    for folder, working in (
        ("new", here / ".new.agentfy-unpack"),
        ("old", here / "old" / ".agentfy-unpack"),
    ):
        working.mkdir()
        lock = os.open(working, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = snapshot(here)
        try:
            with pytest.raises(MachineError, match="another agentfy-unpack"):
                into(here / folder, AGENT, update=folder == "old")
            assert snapshot(here) == before
        finally:
            os.close(lock)
        into(here / folder, AGENT, update=folder == "old")
        assert not working.exists()


def test_one_that_appears_meanwhile_is_not_replaced(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody else puts there while the package is written is not lost."""
    real = unpack_module._write_all

    def write(package: object, tree: int) -> None:
        real(package, tree)  # type: ignore[arg-type]
        put(here, "out/precious", "theirs")

    monkeypatch.setattr(unpack_module, "_write_all", write)
    with pytest.raises(OSError, match="not empty"):
        into(here / "out", AGENT)
    assert contents(here / "out") == {"precious": b"theirs"}
    assert os.listdir(here) == ["out"]


def test_what_a_killed_one_left_is_cleared(here: Path) -> None:
    """A working folder that nobody holds goes, whatever is in it."""
    put(here, ".out.agentfy-unpack/tree/SOUL.md", "half")
    put(here, ".out.agentfy-unpack/tree/locked/x", "half")
    (here / ".out.agentfy-unpack/tree/locked").chmod(0o555)
    into(here / "out", AGENT)
    put(here, "out/.agentfy-unpack/tree/SOUL.md", "half")
    assert into(here / "out", AGENT, update=True).result == "unchanged"
    assert contents(here / "out").keys() >= MINIMAL.keys()
    assert os.listdir(here) == ["out"]
    assert ".agentfy-unpack" not in os.listdir(here / "out")


@pytest.mark.parametrize("working", ["link", "file"])
def test_a_working_folder_is_never_reached_through_a_link(here: Path, working: str) -> None:
    """Something else under its name is in the way, and stays."""
    put(here, "elsewhere/precious", "mine")
    put(here, ".out.agentfy-unpack", Link(b"elsewhere") if working == "link" else "mine")
    before = snapshot(here)
    with pytest.raises(OSError):
        into(here / "out", AGENT)
    assert snapshot(here) == before


def test_a_killed_first_try_is_tried_again_with_the_same_command(here: Path) -> None:
    """What it left in an empty folder is not somebody's."""
    put(here, "out/.agentfy-unpack/tree/SOUL.md", "half")
    assert into(here / "out", AGENT).result == "created"


@pytest.mark.parametrize("path", ["notes/todo.txt", "data/memory.sqlite", "data/usage.json"])
@pytest.mark.parametrize("update", [False, True])
def test_what_is_no_part_may_not_be_damaged_either(here: Path, path: str, update: bool) -> None:
    """An archive that was damaged there was damaged."""
    data = archive(*agent(Zipped(path.encode(), b"{}", packed=b"{]")))
    options = UnpackOptions(update=update)
    if update:
        made(here / "out", {})
    before = snapshot(here)
    made_package = Package(ArchiveSource(Archive(data)), Options())
    with pytest.raises(Refusal) as caught:
        unpack_module.unpack(made_package, os.fsencode(here / "out"), options)
    assert caught.value.code == "package-damaged"
    assert caught.value.details["path"] == path
    assert snapshot(here) == before


# -- an update


@pytest.mark.parametrize("delete", [False, True])
def test_another_agents_folder_is_left_alone(here: Path, delete: bool) -> None:
    """Conversations and secrets of two agents do not mix."""
    out = made(here / "out", {"agent.config.json": b'{"id": "another"}'})
    before = snapshot(here)
    with pytest.raises(Refusal) as caught:
        into(out, AGENT, update=True, delete=delete)
    assert caught.value.code == "agent-id"
    assert snapshot(here) == before


@pytest.mark.parametrize("config", [b"broken", b'{"id": "another"}{', b""])
def test_a_folder_whose_configuration_is_broken_is_left_alone(here: Path, config: bytes) -> None:
    """It may be another agent's, whose configuration a crash cut short."""
    out = made(here / "out", {"agent.config.json": config})
    before = snapshot(here)
    for delete in (False, True):
        with pytest.raises(MachineError, match="in the folder"):
            into(out, AGENT, update=True, delete=delete)
        assert snapshot(here) == before


def test_another_agent_is_told_before_its_messages_are_looked_at(here: Path) -> None:
    """A conflict of two agents' messages would only mislead."""
    own = {"agent.config.json": b'{"id": "another"}', SESSION: event(1, "something else")}
    out = made(here / "out", own)
    with pytest.raises(Refusal) as caught:
        into(out, AGENT, update=True)
    assert caught.value.code == "agent-id"


@pytest.mark.parametrize("update", [False, True])
def test_a_home_is_no_agents_folder(here: Path, update: bool) -> None:
    """What a package would write into it no runtime would find; it is left as it is."""
    home = make_home(here / "home", instructions="x")
    before = snapshot(home)
    with pytest.raises(UsageError, match="is an agent's Home") as caught:
        into(home, AGENT, update=update)
    assert (
        caught.value.details["hint"] == f"leave FOLDER out: agentfy-unpack | lnk-tar-apply {home}"
    )
    assert snapshot(home) == before


def test_a_folder_that_is_no_agents_loses_nothing(here: Path) -> None:
    """``--delete`` in a folder that was mistyped takes out nobody's diary."""
    put(here, "out/memory/diary.md", "mine")
    put(here, "out/USER.md", "mine")
    before = snapshot(here)
    with pytest.raises(UsageError, match="no agent's folder"):
        into(here / "out", AGENT, delete=True)
    assert snapshot(here) == before


@pytest.mark.parametrize(
    ("own", "brought"),
    [
        ("memory/Note.md", "memory/note.md"),
        ("skills/PDF/SKILL.md", "skills/pdf/SKILL.md"),
        ("memory/A/x.md", "memory/a/y.md"),
    ],
)
def test_names_that_would_meet_are_told(here: Path, own: str, brought: str) -> None:
    """The folder could not be packed again, and on some disks one file would be lost."""
    out = made(here / "out", {own: "mine"})
    before = snapshot(here)
    with pytest.raises(MachineError, match="only in case"):
        into(out, {brought: b"theirs"}, update=True)
    assert snapshot(here) == before
    into(out, {brought: b"theirs"}, delete=True)
    assert contents(out)[brought] == b"theirs"


@pytest.mark.parametrize("config", [b"{}", b'{"id": 5}'])
def test_a_folder_that_says_no_id_is_anybodys(here: Path, config: bytes) -> None:
    """A new one takes the package's."""
    out = made(here / "out", {"agent.config.json": config})
    into(out, AGENT, update=True)
    assert contents(out)["agent.config.json"] == MINIMAL["agent.config.json"]


def test_one_file_of_two_names_is_not_taken_out(here: Path) -> None:
    """A disk that ignores case has the package's file under the folder's own name."""
    out = made(here / "out", {"memory/Note.md": "old"})
    os.link(out / "memory/Note.md", out / "memory/note.md")  # as near as Linux comes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Existing, "check_names", lambda *_: None)  # which the second name is for
        done = into(out, {"memory/note.md": b"old"}, delete=True)
    assert done.removed == []
    assert (out / "memory/Note.md").exists()


def test_the_same_again_changes_nothing(here: Path) -> None:
    """Not even a time or an inode."""
    into(here / "out", AGENT, wanted=EVERYTHING)

    def looks() -> dict[Path, tuple[int, int]]:
        return {
            path: (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in sorted((here / "out").rglob("*"))
            if path.is_file()
        }

    before = looks()
    for delete in (False, True):
        done = into(here / "out", AGENT, update=True, delete=delete, wanted=EVERYTHING)
        assert done.result == "unchanged"
        assert done.removed == []
        assert looks() == before
        for counts in done.parts.values():
            assert counts["left_alone"] == counts["in"]


def test_only_what_differs_is_written(here: Path) -> None:
    """And it is counted; what the package lacks stays."""
    into(here / "out", AGENT)
    put(here, "out/skills/own/SKILL.md", "mine")
    inode = (here / "out/MEMORY.md").stat().st_ino
    done = into(
        here / "out", {**AGENT, "USER.md": b"Zoe\n", "memory/new.md": b"new\n"}, update=True
    )
    assert done.result == "updated"
    assert done.parts["user"]["written"] == 1
    assert done.parts["memory"] == {
        "in": 4,
        "written": 1,
        "left_alone": 3,
        "passed_over": 0,
        "removed": 0,
    }
    found = contents(here / "out")
    assert found["USER.md"] == b"Zoe\n"
    assert found["memory/new.md"] == b"new\n"
    assert found["skills/own/SKILL.md"] == b"mine"
    assert (here / "out/MEMORY.md").stat().st_ino == inode


def test_what_the_package_lacks_is_taken_out(here: Path) -> None:
    """Only with --delete, and only what a package can hold."""
    kept = {
        "data/memory.sqlite": b"an index",
        "notes/todo.txt": b"unknown",
        "README": b"unknown",
        "memory/picture.png": b"no memory",
        "skills/loose.md": b"no skill's",
        "data/usage.json": b"{}",
        "browser-state/mine.json": b"{}",
        ".env": b"SECRET=1",
    }
    gone = {
        "HEARTBEAT.md": b"old",
        "memory/old/deep/x.md": b"old",
        "skills/old/SKILL.md": b"old",
        "skills/old/a/b": b"old",
        "data/sessions/web:bob.jsonl": event(9),
    }
    out = made(here / "out", {**AGENT, **kept, **gone})
    done = into(out, AGENT, delete=True)
    assert contents(out) == {**MINIMAL, **AGENT, **kept}
    assert sorted(done.removed) == sorted(gone)
    assert done.parts["skill"]["removed"] == 1
    assert done.parts["asset"]["removed"] == 1
    assert not (out / "memory/old").exists()
    assert not (out / "skills/old").exists()


def test_what_is_asked_for_is_taken_out_too(here: Path) -> None:
    """Usage and browser state are the package's with ``--with``."""
    files: dict[str, bytes] = {"data/usage.json": b"{}", "browser-state/mine.json": b"{}"}
    out = made(here / "out", files)
    wanted: frozenset[Part] = frozenset({"browser-state"})
    assert into(out, {}, delete=True, wanted=wanted).removed == ["browser-state/mine.json"]
    assert (out / "data/usage.json").exists()


def test_modes_of_files_that_are_there_stay(here: Path) -> None:
    """Whoever made a file private or shared it wanted that."""
    out = made(here / "out", {"USER.md": File(b"old", 0o640), SECRETS: File(names("X"), 0o660)})
    into(out, AGENT, update=True)
    assert modes(out)["USER.md"] == 0o640
    assert modes(out)[SECRETS] == 0o660
    assert contents(out)["USER.md"] == AGENT["USER.md"]


@pytest.mark.parametrize(
    ("old", "executable", "new"),
    [
        (0o644, True, 0o755),
        (0o600, True, 0o700),
        (0o755, False, 0o644),
        (0o711, False, 0o600),
        (0o700, True, 0o700),
        (0o640, False, 0o640),
    ],
)
def test_an_asset_takes_the_packages_run_bit(
    here: Path, old: int, executable: bool, new: int
) -> None:
    """Whoever may read it may run it; the rest of its mode stays."""
    out = made(here / "out", {"skills/x/SKILL.md": "x", "skills/x/go": File(b"same", old)})
    attributes = (0o100755 if executable else 0o100644) << 16
    data = archive(
        *agent(
            Zipped(b"skills/x/SKILL.md", b"x"),
            Zipped(b"skills/x/go", b"same", attributes=attributes),
        )
    )
    options = UnpackOptions(update=True)
    done = unpack_module.unpack(package_of(data), os.fsencode(out), options)
    # 0711 may be run by others who may not read it: the bits for running go, and so no more is left
    expected = 0o600 if old == 0o711 else new
    assert modes(out)["skills/x/go"] == expected
    assert done.result == ("unchanged" if old == expected else "updated")


# -- sessions


def test_events_are_added_and_never_lost(here: Path) -> None:
    """First the package's, in their order, then those that only the folder has."""
    own = event(2, ts=5) + event(7) + event(1)
    out = made(here / "out", {SESSION: own})
    done = into(out, AGENT, update=True)
    assert contents(out)[SESSION] == event(1) + event(2, ts=5) + event(7)
    assert done.parts["session"]["written"] == 1
    assert into(out, AGENT, update=True).result == "unchanged"
    assert into(out, AGENT, delete=True).result == "updated"
    assert contents(out)[SESSION] == AGENT[SESSION]


def test_an_event_does_not_change(here: Path) -> None:
    """Another content under an ID that the folder has is refused, with the folder's line."""
    out = made(here / "out", {SESSION: event(5) + event(1, "goodbye")})
    before = snapshot(out)
    with pytest.raises(Refusal) as caught:
        into(out, AGENT, update=True)
    assert caught.value.code == "event-duplicate"
    assert caught.value.details["path"] == SESSION
    assert caught.value.details["line"] == 2
    assert snapshot(out) == before


def test_a_session_of_another_spelling_is_the_same(here: Path) -> None:
    """The folder's own file is updated, and no second one is made."""
    out = made(here / "out", {"data/sessions/web:%61lice.jsonl": event(7)})
    into(out, AGENT, update=True)
    assert os.listdir(out / "data/sessions") == ["web:%61lice.jsonl"]
    assert (out / "data/sessions/web:%61lice.jsonl").read_bytes() == AGENT[SESSION] + event(7)


def test_users_who_differ_in_case_do_not_meet(here: Path) -> None:
    """On a disk that ignores case the folder's own would be overwritten."""
    out = made(here / "out", {"data/sessions/web:Alice.jsonl": event(7)})
    into(out, AGENT, update=True)
    found = {name.casefold() for name in os.listdir(out / "data/sessions")}
    assert len(found) == 2
    assert (out / "data/sessions/web:Alice.jsonl").read_bytes() == event(7)


@pytest.mark.parametrize("own", [b"no event\n", event(1) + b'{"id":'])
def test_a_broken_session_of_the_folder_is_its_own_fault(here: Path, own: bytes) -> None:
    """It is said to be in the folder, and stays as it is."""
    out = made(here / "out", {SESSION: own})
    with pytest.raises(MachineError, match="in the folder"):
        into(out, AGENT, update=True)
    assert contents(out)[SESSION] == own


def test_a_torn_line_of_the_folder_can_be_dropped(here: Path) -> None:
    """With the option that drops the package's too."""
    out = made(here / "out", {SESSION: event(7) + b'{"id":'})
    done = into(out, AGENT, update=True, drop_torn_line=True)
    assert contents(out)[SESSION] == AGENT[SESSION] + event(7)
    [(path, warning)] = done.warnings
    assert path == SESSION
    assert "cut short" in warning
    assert done.to_json()["warnings"] == [{"path": path, "warning": warning}]


def test_events_are_counted(here: Path) -> None:
    """What came is what was written and what was there; what goes is counted too."""
    out = made(here / "out", {SESSION: event(1) + event(7) + event(8)})
    done = into(out, AGENT, update=True)
    expected = {"in": 2, "written": 1, "left_alone": 1, "passed_over": 0, "removed": 0}
    assert done.events == expected
    done = into(out, AGENT, delete=True)
    assert done.events == {**expected, "written": 0, "left_alone": 2, "removed": 2}
    assert into(here / "new", AGENT).events == {**expected, "written": 2, "left_alone": 0}


def test_names_that_are_no_longer_pending_are_told(here: Path) -> None:
    """With ``--delete``, by scope."""
    out = made(here / "out", {SECRETS: names("OLD"), "data/secrets/shared.json": names("GONE")})
    done = into(out, AGENT, delete=True)
    assert done.removed_names == {"agent": ["OLD"], "shared": ["GONE"]}


def test_what_an_update_wrote_is_named(here: Path) -> None:
    """By path; of a new folder that would be everything."""
    out = made(here / "out", {**AGENT, "USER.md": "old"})
    assert into(out, AGENT, update=True).written == ["USER.md"]
    assert into(here / "new", AGENT).written == []


# -- at the same time


def test_an_update_sees_what_another_has_just_written(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it knows of the folder it learned when nobody else could write any more."""
    out = made(here / "out", {})
    ran: list[int] = []

    class Late(Workplace):
        def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
            if not ran:  # another one comes first, and is done before this one begins
                ran.append(1)
                into(out, {SESSION: event(1), SECRETS: names("KA")}, update=True)
                put(out, SECRETS, names(KA="the value"))
            super().__init__(*arguments, **named)

    monkeypatch.setattr(unpack_module, "Workplace", Late)
    into(out, {SESSION: event(2), SECRETS: names("KB")}, update=True)
    assert contents(out)[SESSION] == event(2) + event(1)
    assert contents(out)[SECRETS] == names("KB", KA="the value")


def test_a_folder_that_is_filled_meanwhile_is_left_alone(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was empty when it was looked at first."""
    (here / "out").mkdir()

    class Late(Workplace):
        def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
            put(here, "out/SOUL.md", "mine")
            super().__init__(*arguments, **named)

    monkeypatch.setattr(unpack_module, "Workplace", Late)
    with pytest.raises(UsageError, match="not empty"):
        into(here / "out", AGENT)
    assert contents(here / "out") == {"SOUL.md": b"mine"}


@pytest.mark.parametrize("path", [SESSION, SECRETS, "USER.md"])
def test_what_the_agent_writes_meanwhile_is_not_overwritten(
    here: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The update stops, and nothing is changed."""
    out = made(here / "out", {SESSION: event(7), SECRETS: names("OLD"), "USER.md": "old"})
    real = Existing.check_names

    def check(self: Existing, *arguments: object) -> None:
        real(self, *arguments)  # type: ignore[arg-type]
        with (out / path).open("ab") as file:
            file.write(b" ")

    monkeypatch.setattr(Existing, "check_names", check)
    with pytest.raises(MachineError, match="changed meanwhile"):
        into(out, AGENT, update=True)
    assert contents(out)[path].endswith(b" ")
    assert contents(out)["SOUL.md"] == MINIMAL["SOUL.md"]
    assert "memory/2026-01-02.md" not in contents(out)


@pytest.mark.parametrize("path", ["data/secrets/shared.json", "data/sessions/web:bob.jsonl"])
def test_what_is_to_go_and_changes_meanwhile_stays(
    here: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A value may have been entered where there was only a name."""
    own = {"data/secrets/shared.json": names("GONE"), "data/sessions/web:bob.jsonl": event(9)}
    out = made(here / "out", own)
    real = Existing.check_names

    def check(self: Existing, *arguments: object) -> None:
        real(self, *arguments)  # type: ignore[arg-type]
        with (out / path).open("ab") as file:
            file.write(b" ")

    monkeypatch.setattr(Existing, "check_names", check)
    with pytest.raises(MachineError, match="changed meanwhile"):
        into(out, AGENT, delete=True)
    assert contents(out)[path] == own[path] + b" "
    assert "USER.md" not in contents(out)


def test_no_descriptor_is_left_open(here: Path) -> None:
    """After a refusal, which a program that goes on may have many of."""
    out = made(here / "out", {SESSION: event(1, "something else"), "memory/d/x.md": "x"})
    before = os.listdir("/dev/fd")
    for _ in range(4):
        with pytest.raises(Refusal):
            into(out, AGENT, update=True)
    assert len(os.listdir("/dev/fd")) == len(before)


@only_root
@pytest.mark.parametrize("update", [False, True])
def test_what_is_mounted_in_the_working_folder_is_not_emptied(here: Path, update: bool) -> None:
    """A bind mount is of the same file system, and its files are somebody's."""
    put(here, "victim/precious", "mine")
    if update:
        made(here / "out", {})
    left = here / ("out/.agentfy-unpack/m" if update else ".out.agentfy-unpack/m")
    left.mkdir(parents=True)
    mounted = subprocess.run(["mount", "--bind", here / "victim", left], check=False)
    if mounted.returncode != 0:
        lacking("nothing can be mounted here")
    try:
        with pytest.raises(MachineError, match="mounted in it"):
            into(here / "out", AGENT, update=update)
        assert (here / "victim/precious").read_text() == "mine"
    finally:
        subprocess.run(["umount", "-l", left], check=True)


@only_root
@pytest.mark.parametrize("place", ["memory", "memory/2026-01-02.md"])
def test_a_bind_mount_in_the_folder_is_told_before_anything_changes(here: Path, place: str) -> None:
    """A volume of the same disk: no file can be moved onto it."""
    out = made(here / "out", {"memory/2026-01-02.md": "old", "USER.md": "old"})
    source = here / "volume"
    if place == "memory":
        put(source.parent, "volume/2026-01-02.md", "volume's")
    else:
        put(here, "volume", "volume's")
    mounted = subprocess.run(["mount", "--bind", source, out / place], check=False)
    if mounted.returncode != 0:
        lacking("nothing can be mounted here")
    try:
        before = snapshot(out)
        with pytest.raises(MachineError, match="mounted here"):
            into(out, AGENT, update=True)
        assert snapshot(out) == before
    finally:
        subprocess.run(["umount", "-l", out / place], check=True)


@only_root
def test_a_folder_without_rights_in_the_folder_is_told_before_anything_changes(
    here: Path,
) -> None:
    """One of its parts may not be written: then none is."""
    out = made(here / "out", {"memory/2026-01-02.md": "old", "USER.md": "old"})
    subprocess.run(["chown", "-R", "65534:65534", out], check=True)
    (out / "memory").chmod(0o555)
    before = snapshot(out)

    def work() -> None:
        with pytest.raises(PermissionError) as caught:
            into(out, AGENT, update=True)
        assert caught.value.filename == b"memory"
        with pytest.raises(PermissionError):  # also where a folder would have to be made first
            into(out, {"memory/new/deep.md": b"x", "USER.md": b"new"}, update=True)

    as_nobody(work, reach=here)
    assert snapshot(out) == before


# -- secrets


def test_entered_secrets_stay(here: Path) -> None:
    """A name with a value keeps it and is not pending again; new names are added."""
    own = names("OLD", API_KEY="s3cr3t")
    out = made(here / "out", {SECRETS: own})
    done = into(out, AGENT, update=True)
    assert contents(out)[SECRETS] == names("OLD", "TOKEN", API_KEY="s3cr3t")
    assert done.pending == {"agent": ["OLD", "TOKEN"]}
    assert "s3cr3t" not in repr(done.to_json())


def test_names_that_the_package_lacks_go_and_values_stay(here: Path) -> None:
    """With --delete; a file in which only names were goes, one with a value stays."""
    out = made(
        here / "out",
        {
            SECRETS: names("OLD", MINE="s3cr3t"),
            "data/secrets/shared.json": names("GONE"),
            "data/secrets/user-bob.json": names("GONE", KEPT="s3cr3t"),
        },
    )
    done = into(out, AGENT, delete=True)
    assert contents(out)[SECRETS] == names("API_KEY", "TOKEN", MINE="s3cr3t")
    assert contents(out)["data/secrets/user-bob.json"] == names(KEPT="s3cr3t")
    assert not (out / "data/secrets/shared.json").exists()
    assert done.removed == ["data/secrets/shared.json"]


def test_a_file_of_plain_values_is_kept_as_it_is(here: Path) -> None:
    """Where it holds all the names already, not a byte of it changes."""
    own = b'{ "TOKEN" : "s3cr3t",\n "API_KEY" : {"nested": 1} }'
    out = made(here / "out", {SECRETS: own})
    assert into(out, AGENT, update=True).pending == {}
    assert contents(out)[SECRETS] == own


def test_a_broken_file_of_secrets_is_not_overwritten(here: Path) -> None:
    """There may be values in it; the error shows none."""
    own = b'{"API_KEY": "s3cr3t", }'
    out = made(here / "out", {SECRETS: own})
    with pytest.raises(MachineError, match="in the folder") as caught:
        into(out, AGENT, update=True)
    assert "s3cr3t" not in str(caught.value)
    assert contents(out)[SECRETS] == own


# -- what is in the way


@pytest.mark.parametrize("path", ["SOUL.md", "USER.md", SESSION, SECRETS, "skills/pdf/SKILL.md"])
@pytest.mark.parametrize("delete", [False, True])
def test_a_link_in_a_files_place_is_not_written_through(
    here: Path, path: str, delete: bool
) -> None:
    """Neither followed nor replaced."""
    put(here, "elsewhere", "precious")
    out = made(here / "out", {})
    put(out, path, Link(os.fsencode(here / "elsewhere")))
    before = snapshot(here)
    with pytest.raises(MachineError):
        into(out, AGENT, update=True, delete=delete)
    assert snapshot(here) == before


@pytest.mark.parametrize("top", ["data", "skills", "memory", "data/sessions", "data/secrets"])
def test_a_link_in_a_folders_place_is_not_followed(here: Path, top: str) -> None:
    """Nothing is written where it leads, and nothing there is removed."""
    put(here, "elsewhere/pdf/x.md", "precious")
    out = made(here / "out", {})
    put(out, top, Link(os.fsencode(here / "elsewhere")))
    before = snapshot(here)
    for delete in (False, True):
        with pytest.raises(MachineError):
            into(out, AGENT, update=True, delete=delete)
        assert snapshot(here) == before


@pytest.mark.parametrize(
    ("path", "thing"),
    [
        ("USER.md", Folder()),
        ("USER.md", Fifo()),
        ("memory", "a file"),
        ("data/sessions", "a file"),
        ("skills/pdf", "a file"),
        (SESSION, Folder()),
        ("skills/pdf/scripts/run.py/deeper", "a file"),
    ],
)
def test_what_is_of_another_kind_is_in_the_way(here: Path, path: str, thing: Folder) -> None:
    """It stays, and nothing else is written either."""
    out = made(here / "out", {})
    put(out, path, thing)
    before = snapshot(here)
    with pytest.raises((MachineError, OSError)):
        into(out, AGENT, update=True)
    assert snapshot(here) == before


def test_a_socket_and_unknown_links_are_nobodys(here: Path) -> None:
    """What no package holds is not looked at, not even with --delete."""
    out = made(here / "out", {"notes/link": Link(b"/etc"), "link": Link(b"/etc")})
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(out / "s"))
        into(out, AGENT, delete=True)
        assert (out / "s").is_socket()
    assert (out / "link").is_symlink()


@only_root
def test_another_file_system_in_the_folder_is_not_moved_onto(here: Path) -> None:
    """A rename cannot: it is said before anything is changed."""
    out = made(here / "out", {"memory/a.md": "a", "USER.md": "old"})
    put(out, "memory", Folder())
    with mounted_tmpfs(out / "memory", "1m"):
        before = snapshot(out)
        with pytest.raises(MachineError, match="mounted here"):
            into(out, AGENT, update=True)
        assert snapshot(out) == before


@only_root
def test_root_gives_files_to_the_folders_owner(here: Path) -> None:
    """In a folder that is there; the agent could not read its own files otherwise."""
    out = made(here / "out", {})
    for path in (out, *out.rglob("*")):
        os.chown(path, 1234, 1234)
    into(out, AGENT, update=True)
    assert {path.stat().st_uid for path in out.rglob("*") if path.is_file()} == {1234}


@only_root
def test_new_folders_are_the_owners_too(here: Path) -> None:
    """Those that an update makes on the way to a file."""
    out = made(here / "out", {})
    for path in (out, *out.rglob("*")):
        os.chown(path, 1234, 1234)
    into(out, AGENT, update=True)
    assert {path.stat().st_uid for path in out.rglob("*")} == {1234}


@only_root
def test_a_folder_that_may_not_be_written(here: Path) -> None:
    """The system's word, and nothing changed."""
    out = made(here / "out", {})
    out.chmod(0o555)

    def work() -> None:
        with pytest.raises(PermissionError):
            into(out, AGENT, update=True)
        with pytest.raises(PermissionError):
            into(here / "new", AGENT)

    here.chmod(0o755)
    before = snapshot(out)
    as_nobody(work, reach=here)
    assert snapshot(out) == before
    assert sorted(os.listdir(here)) == ["out"]


# -- there and back


def test_a_folder_comes_back_the_same(here: Path) -> None:
    """Packed, unpacked and packed again it is the same package."""
    out = made(here / "one", {**AGENT, "skills/pdf/go.sh": File(b"#!/bin/sh\n", 0o755)})
    first = packed(out)
    unpack_module.unpack(package_of(first), os.fsencode(here / "two"), UnpackOptions())
    assert packed(here / "two") == first


def test_a_name_that_the_disk_has_decomposed_is_the_packages(here: Path) -> None:
    """macOS writes names so: the folder's own file is updated, under its own name."""
    out = made(here / "out", {"memory/people/zoe\u0308.md": "old"})
    into(out, AGENT, update=True)
    assert os.listdir(out / "memory/people") == ["zoe\u0308.md"]
    assert (out / "memory/people/zoe\u0308.md").read_bytes() == b"a friend\n"
    assert into(out, AGENT, delete=True).removed == []


def test_the_disk_is_synced_before_the_folder_shows(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut leaves all of it or nothing."""
    made_calls: list[str] = []
    real = os.rename

    def rename(*arguments: object, **named: object) -> None:
        made_calls.append("rename")
        real(*arguments, **named)  # type: ignore[arg-type]

    def sync(fd: int) -> None:
        made_calls.append("sync")

    for module in (update_module, flush):
        monkeypatch.setattr(module, "sync_file_system", sync)
    monkeypatch.setattr(os, "rename", rename)
    into(here / "out", AGENT)
    assert made_calls[-2:] == ["sync", "rename"]
    made_calls.clear()
    into(here / "out", {**AGENT, "USER.md": b"new"}, update=True)
    assert made_calls == ["sync", "rename", "sync"]


def test_a_sync_that_fails_is_not_forgotten(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells of a lost write once, and then no folder shows."""

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(flush, "sync_file_system", fail)
    with pytest.raises(OSError, match="Input/output"):
        into(here / "out", AGENT)
    assert whole(here / "out") is None
    assert os.listdir(here) == []


def test_an_empty_name_is_no_folder() -> None:
    """It would be the one that the process is in."""
    with pytest.raises(UsageError, match="empty"):
        unpack_module.unpack(package(AGENT), b"", UnpackOptions())
