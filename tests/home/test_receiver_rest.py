from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from agentmove_tools.home.receiver import Options
from agentmove_tools.refusals import AgentMoveError, Refusal, UsageError
from agentmove_tools.stream.paths import Phase
from tests.home.applying import manifest, refused
from tests.home.builder import (
    OTHER_MOVE,
    File,
    Folder,
    Link,
    entries_of,
    full_home,
    have_of,
    made_stream,
    make_home,
    manifest_of,
    move,
    one_form,
    put,
    snapshot,
    stream_of,
    take,
    take_away,
    times,
    travelling,
)

# -- what is carried over


def test_everything_else_is_carried_over(here: Path) -> None:
    """Names that are not UTF-8, links, empty folders, a socket: whatever it is."""
    sender = full_home(here / "sender")
    home = make_home(
        here / "home",
        other={
            b"logs/\xff\xfe": "x",
            b"logs/\xff/deep": File(b"x", 0o640),
            "logs/empty": Folder(0o711),
            "logs/link": Link(b"/etc/\xffpasswd"),
            "link at the top": Link(b"logs"),
            "harness/other/x": "x",
            "harness/file": "x",
            "harness/conversations/readme": "x",
            "harness/conversations/own/scratch": "x",
            "schedule/log.txt": "x",
            "schedule/deeper/x": "x",
            ".lnk-other": "x",
        },
    )
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.fsencode(home / "logs" / "socket"))
    listening.close()
    before = snapshot(home)
    old_times = {path: os.lstat(os.fsencode(home) + b"/" + path).st_mtime_ns for path in before}
    report = move(sender, home, "switch")
    after = snapshot(home)
    for path, thing in before.items():
        if path not in (b"agent.json", b"harness", b"harness/conversations", b"schedule"):
            assert after[path] == thing
            if thing[0] == "file":
                now = os.lstat(os.fsencode(home) + b"/" + path).st_mtime_ns
                assert now == old_times[path]
    assert set(report.carried) == {b"logs", b"link at the top", b".lnk-other"}


def test_collections(here: Path) -> None:
    """A collection that the stream does not speak for stays as it is, what is staged aside."""
    home = full_home(here / "home")
    before = snapshot(home)
    move(full_home(here / "sender"), home, "copy")
    stream = made_stream(
        manifest(collections=("notes", "skills")),
        [(b"harness/skills/new/SKILL.md", b"new"), (b"memory/notes.md", b"new notes")],
    )
    take(home, stream)
    after = snapshot(home)
    assert after.pop(b"memory/notes.md")[2] == b"new notes"
    assert after.pop(b"harness/skills/new/SKILL.md")[2] == b"new"
    assert b"harness/skills/cook" not in after
    gone = (b"memory/notes.md", b"harness/skills", b"agent.json", b"schedule/paused")
    for path, thing in before.items():
        if not path.startswith(gone) and path not in (b"connections", b"memory"):
            assert after[path] == thing, path
    assert b"schedule/paused" not in after


@pytest.mark.parametrize("speaks_for_all", [False, True])
def test_what_a_package_brings_on_request_only(here: Path, speaks_for_all: bool) -> None:
    """It stays where a stream of some collections does not bring it; other files of it go."""
    home = make_home(here / "home", instructions="x")
    kept = {"data/usage.json": "1", "browser-state/p.json": "2"}
    for path, text in {**kept, "USER.md": "old", "memory/old.md": "old"}.items():
        put(home, f"harness/package/{path}", text)
    brought = [(b"harness/package/USER.md", b"new")]
    some = manifest(collections=None if speaks_for_all else ("instructions",))
    take(home, made_stream(some, brought))
    after = snapshot(home)
    for path, text in kept.items():
        thing = after.get(b"harness/package/" + path.encode())
        assert thing == (None if speaks_for_all else ("file", 0o644, text.encode()))
    assert after[b"harness/package/USER.md"][2] == b"new"
    assert b"harness/package/memory/old.md" not in after
    brought.append((b"harness/package/data/usage.json", b"new"))
    some = manifest(move=OTHER_MOVE, collections=("instructions",))
    take(home, made_stream(some, sorted(brought)))
    assert snapshot(home)[b"harness/package/data/usage.json"][2] == b"new"


@pytest.mark.parametrize("path", [b"harness/package", b"harness/package/data"])
def test_what_was_not_asked_for_takes_nothing_s_place(here: Path, path: bytes) -> None:
    """Where the stream has a file on the way to it, that is what is there."""
    home = make_home(here / "home", instructions="x")
    put(home, "harness/package/data/usage.json", "1")
    take(home, made_stream(manifest(collections=("instructions",)), [(path, b"brought")]))
    assert snapshot(home)[path][2] == b"brought"


def test_what_the_stream_does_not_speak_for_is_passed_over(here: Path) -> None:
    """Even if it holds it; and the report says so."""
    home = full_home(here / "home")
    before = snapshot(home)
    stream = made_stream(
        manifest(collections=("notes",)),
        [
            (b"harness/instructions.md", b"not spoken for"),
            (b"harness/oddity", b"no place in a Home"),
            (b"memory/notes.md", b"new notes"),
        ],
    )
    report = take(home, stream)
    assert snapshot(home)[b"harness/instructions.md"] == before[b"harness/instructions.md"]
    assert b"harness/oddity" not in snapshot(home)
    assert [row["path"] for row in report.passed_over] == [
        "harness/instructions.md", "harness/oddity"
    ]  # fmt: skip
    assert report.kinds["instructions"] == {
        "in": 1, "written": 0, "left_alone": 0, "passed_over": 1, "kept": 0, "removed": 0
    }  # fmt: skip


def test_what_the_stream_lacks_is_gone(here: Path) -> None:
    """Instructions, skills, notes, jobs and a package's files become what the stream holds."""
    home = full_home(here / "home")
    move(full_home(here / "sender"), home, "copy")
    move(make_home(here / "bare"), home, "switch")
    after = snapshot(home)
    for path in (b"memory/notes.md", b"harness/instructions.md", b"harness/skills/cook/SKILL.md",
                 b"harness/package/extra.txt", b"schedule/waiting/j1.json", b"schedule/day.json",
                 b"files/a.txt", b"memory/engine/index.db"):  # fmt: skip
        assert path not in after
    assert after[b"connections/mail.json"][2] == b'{"token":"t"}'
    assert b"harness/conversations/main/events.jsonl" in after


# -- files


def test_the_files_phase(here: Path) -> None:
    """It makes files/ the sender's, removes no file, uses what is staged, and leaves the rest."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    put(home, "files/own", File(b"x", 0o644))
    put(home, "files/a.txt", "old")
    move(sender, home, "copy")  # staged files are used, and stay staged
    have = have_of(home)
    before = snapshot(home)
    stream = stream_of(sender, "files", have=have, move=OTHER_MOVE)
    assert b"files/a.txt" not in entries_of(stream)
    report = take(home, stream)
    after = snapshot(home)
    assert after[b"files/a.txt"][2] == b"alpha"
    assert {path: row for path, row in after.items() if not path.startswith(b"files/a.txt")} == {
        path: row for path, row in before.items() if not path.startswith(b"files/a.txt")
    }
    assert have_of(home) == have
    assert report.result == "in place"
    move(sender, home, "switch")
    assert travelling(snapshot(home)) == travelling(snapshot(sender))


def test_the_files_phase_makes_a_home(here: Path) -> None:
    """Where there was none."""
    sender = full_home(here / "sender")
    move(sender, here / "home", "files")
    after = snapshot(here / "home")
    assert after[b"files/run.sh"] == ("file", 0o755, b"#!/bin/sh\n")
    assert {path.partition(b"/")[0] for path in after} == {b"agent.json", b"files"}


# -- options


def test_a_dry_run_changes_nothing_at_all(here: Path) -> None:
    """Nor does it leave a working state; it reports what the real run then does."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    put(home, "files/own", "x")
    have = have_of(home)
    take_away(here / ".home.lnk-move")
    for phase in ("copy", "switch", "files"):
        stream = stream_of(sender, phase, have=have)
        before = snapshot(home), times(home)
        dry = take(home, stream, Options(dry_run=True))
        assert dry.result == ("would be staged" if phase == "copy" else "would be in place")
        assert (snapshot(home), times(home)) == before
        assert sorted(os.listdir(here)) == [".sender.lnk-move", "home", "sender"]
    real = take(home, stream_of(sender, "switch", have=have))
    dry = take(here / "absent", stream_of(sender, "switch"), Options(dry_run=True))
    assert not (here / "absent").exists()
    assert not (here / ".absent.lnk-move").exists()
    assert real.kinds["files"]["removed"] == 1


def test_a_dry_run_over_a_staged_copy(here: Path) -> None:
    """What is staged counts, and stays staged; the numbers are the real run's."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    put(home, "harness/conversations/main/events.jsonl", b'{"n":1,"text":"hello"}\n')
    move(sender, home, "copy")
    put(sender, "files/new", "x")
    have = have_of(home)
    stream = stream_of(sender, "switch", have=have)
    state = snapshot(here / ".home.lnk-move" / "staged")
    dry = take(home, stream, Options(dry_run=True)).to_json()
    assert snapshot(here / ".home.lnk-move" / "staged") == state
    assert have_of(home) == have
    real = take(home, stream).to_json()
    for key in ("kinds", "events", "passed_over"):
        assert dry[key] == real[key]


@pytest.mark.parametrize(
    ("damage", "code"),
    [(lambda stream: stream[:5000], "stream-cut"), (lambda stream: stream, "tree-mismatch")],
)
def test_a_dry_run_refuses_what_the_real_one_would(
    here: Path, damage: Callable[[bytes], bytes], code: str
) -> None:
    """And leaves as little behind."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    put(home, "files/own", "x")
    stream = damage(stream_of(sender, "switch"))
    refused(home, stream, Options(dry_run=True), code=code)
    assert not (here / ".home.lnk-move").exists()


def test_keep_old(here: Path) -> None:
    """The old Home is kept whole, and shares no file with the new one."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    put(home, b"logs/\xff", Link(b"x"))
    before = snapshot(home)
    report = take(
        home,
        stream_of(sender, "switch", have=have_of(home)),
        Options(keep_old=os.fsencode(here / "old")),
    )
    assert report.old_home == str(here / "old")
    assert snapshot(here / "old") == before
    assert travelling(snapshot(home)) == travelling(snapshot(sender))
    new = {row[0] for path, row in times(home).items() if os.path.isfile(path)}
    assert not new & {row[0] for row in times(here / "old").values()}


def test_keep_old_is_checked_first(here: Path) -> None:
    """A folder that is there is never written into or replaced."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    stream = stream_of(sender, "switch", have=have_of(home))
    (here / "there").mkdir()
    before = snapshot(here)
    for path in (here / "there", here / "no" / "such", home):
        with pytest.raises(UsageError):
            take(home, stream, Options(keep_old=os.fsencode(path)))
    assert snapshot(home) == {k[5:]: v for k, v in before.items() if k.startswith(b"home/")}


def test_any_links(here: Path) -> None:
    """Taken as they are, and never followed."""
    outside = here / "outside"
    outside.mkdir()
    sender = make_home(here / "sender", files={"l": Link(os.fsencode(outside))})
    home = make_home(here / "home", files={"l/x": "old"})
    move(sender, home, "copy", any_links=True)
    move(sender, home, "switch", any_links=True)
    assert os.readlink(home / "files" / "l") == str(outside)
    take_away(sender / "files" / "l")
    put(sender, "files/l/x", "new")
    move(sender, home, "switch", move_id=OTHER_MOVE)
    assert os.listdir(outside) == []
    assert (home / "files" / "l" / "x").read_text() == "new"


def test_links_in_the_home_are_not_followed(here: Path) -> None:
    """An agent that puts a link where a part should be leads the receiver nowhere."""
    outside = here / "outside"
    put(outside.parent, "outside/files/x", "precious")
    for part in ("harness/skills", "schedule/waiting"):
        name = part.replace("/", "-")
        sender = full_home(here / f"s-{name}")
        home = full_home(here / f"h-{name}")
        put(home, part, Link(b"../outside"))
        before = snapshot(outside)
        move(sender, home, "switch")
        assert snapshot(outside) == before
        sent = travelling(snapshot(sender))
        got = travelling(snapshot(home))
        assert {path: got.get(path) for path in sent} == sent, part


def test_links_in_the_staged_copy_are_not_followed(here: Path) -> None:
    """A link of a first copy, and a file below it in the next, write nowhere else."""
    home = here / "home"
    one = made_stream(manifest("copy"), [(b"files/l", Link(b"..")), (b"files/m", Link(b"l"))])
    take(home, one, any_links=True)
    two = made_stream(manifest("copy"), [(b"files/l/escaped", b"x"), (b"files/m/tree", b"x")])
    take(home, two)
    assert not (here / ".home.lnk-move" / "staged" / "tree" / "escaped").exists()
    take(home, made_stream(manifest(), [(b"files/l/escaped", b"y")]))
    assert snapshot(home)[b"files/l/escaped"][2] == b"y"


# -- the report


def test_every_entry_is_accounted_for(here: Path) -> None:
    """For each kind: in = written + left alone + passed over, and it is what the stream holds."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    put(home, "harness/conversations/side/events.jsonl", b'{"n":1}\n{"n":2}\n')
    for phase in ("copy", "switch", "switch"):
        stream = stream_of(sender, phase)
        report = take(home, stream)
        for counts in report.kinds.values():
            assert counts["in"] == (
                counts["written"] + counts["left_alone"] + counts["passed_over"]
            )
        came = sum(counts["in"] for counts in report.kinds.values())
        assert came == sum(1 for row in entries_of(stream).values() if row[0] != "folder")
    events = take(here / "new", stream_of(sender, "switch")).events
    assert events["in"] == events["appended"] + events["already_there"] + events["kept_beside"] == 3


def test_kept_files_are_counted(here: Path) -> None:
    """What the sender skipped, out of the Home or out of the staged copy."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    report = move(sender, home, "switch")
    assert report.kinds["files"]["kept"] == 4
    assert report.kinds["memory"]["kept"] == 1


@pytest.mark.parametrize("phase", ["copy", "switch", "files"])
def test_jobs_and_connections_only_in_a_switch(here: Path, phase: Phase) -> None:
    """A receiver of another phase refuses them; it never has them staged."""
    day = one_form(["d", 1])
    stream = made_stream(manifest(), [(b"connections/c", b"x"), (b"schedule/day.json", day)])
    if phase == "switch":
        assert take(here / "home", stream).kinds.keys() == {"connections", "jobs"}
        return
    stream = stream.replace(b'"phase":"switch"', b'"phase":"%b"' % phase.ljust(6).encode())
    with pytest.raises(AgentMoveError):
        take(here / "home", stream)


def test_removed_cannot_leave_files_and_memory(here: Path) -> None:
    """Neither notes, nor the agent's own file, nor a path outside."""
    home = full_home(here / "home")
    good = made_stream(manifest(removed=(b"files/a.txt",)), [])
    for path in (b"../x.txt", b"agent.json", b"files/../x"):
        bad = good.replace(b"files/a.txt", path.ljust(11, b"x"))
        with pytest.raises(Refusal):
            take(home, bad)
    report = take(home, good)
    assert b"files/a.txt" not in snapshot(home)
    assert report.kinds["files"]["removed"] == 1


def test_a_removed_path_that_the_stream_holds(here: Path) -> None:
    """What the stream brings is there; a removed folder is no file, and what it holds stays."""
    home = make_home(here / "home", files={"a": "x", "d/x": "x"})
    stream = made_stream(manifest(removed=(b"files/a", b"files/d")), [(b"files/a", b"new")])
    take(home, stream)
    assert snapshot(home)[b"files/a"][2] == b"new"
    assert snapshot(home)[b"files/d/x"][2] == b"x"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("keep_old", [False, True])
def test_a_home_of_another_user_stays_theirs(here: Path, keep_old: bool) -> None:
    """Root moves an agent; its user can read and change all of it afterwards."""
    sender = full_home(here / "sender")
    put(sender, "files/mode", File(b"same content", 0o600))
    home = full_home(here / "home")
    put(home, "files/mode", File(b"same content", 0o644))
    put(home, "harness/conversations/main/events.jsonl", b'{"n":1,"text":"hello"}\n')
    for path in times(home):
        os.chown(path, 1234, 1235, follow_symlinks=False)
    move(sender, home, "copy")
    options = Options(keep_old=os.fsencode(here / "old") if keep_old else None)
    move(sender, home, "switch", options=options)
    for path in times(home):
        info = os.lstat(path)
        assert (info.st_uid, info.st_gid) == (1234, 1235), path


def test_manifest_and_stream_agree_with_the_receivers_tree(here: Path) -> None:
    """The digest that a sender computes is the one that the specification describes."""
    home = make_home(
        here / "home",
        files={"a b\n": File(b"x", 0o640), "l": Link(b"a b\n"), "d/e": b""},
        memory={"e/x": b"y"},
        notes="no part of it",
    )
    record = b"".join(
        (
            b"f 640 %b files/a b\n\0" % hashlib.sha256(b"x").hexdigest().encode(),
            b"f 644 %b files/d/e\0" % hashlib.sha256(b"").hexdigest().encode(),
            b"l files/l\0a b\n\0",
            b"f 644 %b memory/e/x\0" % hashlib.sha256(b"y").hexdigest().encode(),
        )
    )
    assert manifest_of(home, "switch").tree == hashlib.sha256(record).hexdigest()
