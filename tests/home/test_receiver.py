from __future__ import annotations

import hashlib
import itertools
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentmove_tools.home.receiver import Options, drop_staged
from agentmove_tools.refusals import AgentMoveError, Refusal, UsageError
from agentmove_tools.stream.manifest import Agent, Manifest
from agentmove_tools.stream.paths import Phase
from tests.home.builder import (
    LONG_AGO,
    MOVE,
    OTHER_MOVE,
    File,
    Folder,
    Link,
    Name,
    Thing,
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

AGENT = Agent("a1", "Ada")


def manifest(phase: Phase = "switch", **fields: object) -> Manifest:
    """A manifest of Ada's, as another sender may write it."""
    made = Manifest(phase=phase, move=MOVE, version="9", agent=AGENT, harness="claude")
    return replace(made, **fields)  # type: ignore[arg-type]


def state_of(home: Path) -> object:
    """All of a Home, its inodes and mtimes included; a hard link made and dropped is no change."""
    if not home.exists():
        return None
    return snapshot(home), {path: row[:2] for path, row in times(home).items()}


def refused(home: Path, stream: bytes, options: Options | None = None, *, code: str) -> Refusal:
    """Apply a stream that is refused with this code and leaves the Home as it was."""
    before = state_of(home)
    with pytest.raises(Refusal) as caught:
        take(home, stream, options)
    assert caught.value.code == code
    assert state_of(home) == before
    return caught.value


# -- the two phases


def test_a_copy_changes_nothing_in_the_home(here: Path) -> None:
    """Not even a time; what it brought lies beside it, and counts for have."""
    sender = full_home(here / "sender")
    home = make_home(here / "home", files={"a.txt": "old", "own": "x"})
    before = snapshot(home), times(home)
    report = move(sender, home, "copy")
    assert report.result == "staged"
    assert (snapshot(home), times(home)) == before
    have = have_of(home)
    assert have[b"files/a.txt"] == hashlib.sha256(b"alpha").digest()
    assert b"files/own" in have


def test_a_copy_and_a_switch(here: Path) -> None:
    """The Home becomes the sender's in all that travels; the rest of it is carried over."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    for gone in ("files/old", "files/folder/x", "memory/engine/old"):
        put(home, gone, "gone later")
    put(home, "logs/own.log", "own")
    put(home, "connections/own.json", File(b"own", 0o640))
    before = snapshot(home)
    move(sender, home, "copy")
    put(sender, "files/a.txt", "changed since")
    report = move(sender, home, "switch")
    assert report.result == "in place"
    after = snapshot(home)
    wanted = travelling(snapshot(sender))
    wanted[b"connections/own.json"] = ("file", 0o600, b"own")
    assert travelling(after) == wanted
    assert after[b"connections/own.json"] == ("file", 0o640, b"own")  # it stays as it is
    assert after[b"connections"][1] == 0o700
    for path in (b"logs/own.log", b"logs/today.log", b".env", b"harness/other/x", b"logs"):
        assert after[path] == before[path]
    assert b"schedule/paused" not in after
    assert have_of(home).items() <= have_of(sender).items()


def test_times_and_modes_travel(here: Path) -> None:
    """Permission bits and whole seconds, of folders too; a read-only folder is no obstacle."""
    sender = make_home(
        here / "sender",
        files={
            "ro/x": File(b"x", 0o400, LONG_AGO + 5),
            "ro": Folder(0o555, LONG_AGO + 7),
            "old": File(b"x", 0o666, -7),
        },
    )
    home = here / "home"
    move(sender, home, "copy")
    move(sender, home, "switch")
    for path in ("files/ro/x", "files/ro", "files/old", "files"):
        mine, theirs = os.stat(home / path), os.stat(sender / path)
        assert (mine.st_mode, mine.st_mtime) == (theirs.st_mode, theirs.st_mtime // 1)
    os.chmod(sender / "files" / "ro", 0o755)
    take_away(sender / "files" / "ro")
    move(sender, home, "switch", move_id=OTHER_MOVE)
    assert not (home / "files" / "ro").exists()


def test_the_home_keeps_its_own_mode(here: Path) -> None:
    """The folder that is exchanged is as open as the old one; a new Home is its owner's alone."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    os.chmod(home, 0o2751)
    move(sender, home, "switch")
    assert stat.S_IMODE(os.stat(home).st_mode) == 0o2751
    move(sender, here / "new", "switch")
    assert stat.S_IMODE(os.stat(here / "new").st_mode) & 0o077 == 0


def test_kinds_that_change(here: Path) -> None:
    """An entry replaces one of another kind at its path, staged or in the Home."""
    trees: list[dict[str, Thing]] = [
        {"one": "a file", "two": Folder(), "two/in": "x", "three": Link(b"one")},
        {"one": Folder(), "one/in": "x", "two": Link(b"one"), "three": "a file"},
        {"one": Link(b"three"), "two": "a file", "three": Folder(), "three/in/in": "x"},
        {},
    ]

    def parts(tree: dict[str, Thing]) -> dict[Name, Thing]:
        return {f"{top}/{path}": tree[path] for top in ("files", "memory/e") for path in tree}

    for number, (first, second, third) in enumerate(itertools.product(trees, trees, trees)):
        sender = make_home(here / f"s{number}", other=parts(first))
        home = make_home(here / f"h{number}", other=parts(third))
        move(sender, home, "copy")
        for top in ("files", "memory"):
            take_away(sender / top)
            put(sender, top, Folder())
        for path, thing in parts(second).items():
            put(sender, path, thing)
        move(sender, home, "switch")
        assert travelling(snapshot(home)) == travelling(snapshot(sender))


def test_removed(here: Path) -> None:
    """What the sender has no more goes, from the Home and from what was staged."""
    sender = make_home(here / "sender", files={"staged": "x", "stays": "x"}, memory={"e/s": "x"})
    home = make_home(here / "home", files={"own/deep/x": "x"}, memory={"e/own": "x"})
    move(sender, home, "copy")
    take_away(sender / "files" / "staged")
    take_away(sender / "memory" / "e")
    report = move(sender, home, "switch")
    assert travelling(snapshot(home)) == travelling(snapshot(sender))
    assert b"files/own" not in snapshot(home)
    assert report.kinds["files"]["removed"] + report.kinds["memory"]["removed"] >= 2


def test_only_what_is_new_is_sent(here: Path) -> None:
    """After a copy the switch is small, and what it skipped is there with its mode."""
    files: dict[Name, Thing] = {"big": File(os.urandom(100_000)), "run": File(b"x", 0o755)}
    sender = make_home(here / "sender", files=files)
    home = here / "home"
    move(sender, home, "copy")
    os.chmod(sender / "files" / "big", 0o640)
    have = have_of(home)
    stream = stream_of(sender, "switch", have=have)
    assert len(stream) < 20_000
    take(home, stream)
    assert travelling(snapshot(home)) == travelling(snapshot(sender))


@pytest.mark.parametrize("staged", [False, True])
def test_modes_of_skipped_files(here: Path, staged: bool) -> None:
    """With ``modes``, one that is not listed gets 644; without it, the receiver leaves them."""
    files: dict[Name, Thing] = {"a": File(b"a", 0o600), "b": File(b"b", 0o777)}
    sender = make_home(here / "sender", files=files)
    home = here / "home" if staged else make_home(here / "home", files=files)
    if staged:
        move(sender, home, "copy")
    others = {b"files/b": 0o750}
    before = manifest(modes=None)
    take(home, made_stream(before, []))
    assert {path: row[1] for path, row in snapshot(home).items() if path[:6] == b"files/"} == {
        b"files/a": 0o600, b"files/b": 0o777
    }  # fmt: skip
    take(home, made_stream(manifest(modes=others, move=OTHER_MOVE), []))
    assert {path: row[1] for path, row in snapshot(home).items() if path[:6] == b"files/"} == {
        b"files/a": 0o644, b"files/b": 0o750
    }  # fmt: skip


def test_a_stream_without_folders(here: Path) -> None:
    """Another sender may leave folders' entries out; the modes of connections are ours anyway."""
    home = here / "home"
    take(
        home,
        made_stream(
            manifest(),
            [
                (b"connections/c.json", b"{}"),
                (b"files/deep/er/x", b"x"),
                (b"harness/skills/s/SKILL.md", b"x"),
                (b"schedule/waiting/j.json", b'{"id":"j"}'),
            ],
        ),
    )
    after = snapshot(home)
    assert after[b"files/deep/er/x"] == ("file", 0o644, b"x")
    assert after[b"connections"][1] == 0o700
    assert after[b"connections/c.json"] == ("file", 0o600, b"{}")
    assert after[b"files/deep"][1] == 0o755


# -- whose Home


def test_the_same_switch_again_changes_nothing(here: Path) -> None:
    """A lost connection can be retried, also when the agent went on since."""
    sender = full_home(here / "sender")
    home = here / "home"
    stream = stream_of(sender, "switch")
    assert take(home, stream).result == "in place"
    put(home, "files/a.txt", "the agent went on")
    before = snapshot(home), times(home)
    report = take(home, stream)
    assert report.result == "already in place"
    assert (snapshot(home), times(home)) == before
    assert all(counts["in"] == counts["left_alone"] for counts in report.kinds.values())
    move(sender, home, "switch", move_id=OTHER_MOVE)
    assert take(home, stream).result == "in place"  # only the last move is remembered


def test_a_damaged_stream_is_not_in_place_already(here: Path) -> None:
    """It is read to its end even when nothing is to be done."""
    stream = stream_of(full_home(here / "sender"), "switch")
    home = here / "home"
    take(home, stream)
    refused(home, stream[: len(stream) // 2], code="stream-cut")


def test_a_switch_of_another_move_is_refused(here: Path) -> None:
    """Until the staged copy is thrown away; what was staged stays so."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    move(sender, home, "copy")
    have = have_of(home)
    refused(home, stream_of(sender, "switch", move=OTHER_MOVE), code="move-mismatch")
    assert have_of(home) == have
    assert drop_staged(os.fsencode(home))
    assert not drop_staged(os.fsencode(home))
    move(sender, home, "switch", move_id=OTHER_MOVE)
    assert travelling(snapshot(home)) == travelling(snapshot(sender))


def test_a_copy_with_a_new_move_takes_over(here: Path) -> None:
    """What an earlier copy staged is not sent again, and the switch is of the new move."""
    sender = full_home(here / "sender")
    home = here / "home"
    move(sender, home, "copy")
    have = have_of(home)
    assert have
    stream = stream_of(sender, "copy", move=OTHER_MOVE, have=have)
    assert not have.keys() & entries_of(stream).keys()
    take(home, stream)
    refused(home, stream_of(sender, "switch", have=have), code="move-mismatch")
    move(sender, home, "switch", move_id=OTHER_MOVE)
    assert travelling(snapshot(home)) == travelling(snapshot(sender))


def test_another_agents_home(here: Path) -> None:
    """It is not touched without --replace-agent, by any phase."""
    sender = full_home(here / "sender")
    for phase in ("copy", "switch", "files"):
        home = make_home(here / phase, "a2", files={"own": "x"}, fields={"color": "red"})
        stream = stream_of(sender, phase)
        refused(home, stream, code="home-other-agent")
        assert sorted(name for name in os.listdir(here) if phase in name) == [phase]
    have = have_of(here / "switch")
    stream = stream_of(sender, "switch", have=have)
    take(here / "switch", stream, Options(replace_agent=True))
    assert b'"id": "a1"' in snapshot(here / "switch")[b"agent.json"][2]
    assert b"files/own" not in snapshot(here / "switch")


def test_a_folder_that_is_no_home(here: Path) -> None:
    """One that is not empty is left alone; an empty one becomes the Home."""
    stream = stream_of(full_home(here / "sender"), "switch")
    (here / "full").mkdir()
    (here / "full" / "thesis.txt").write_text("years of work")
    refused(here / "full", stream, code="home-missing")
    (here / "empty").mkdir()
    take(here / "empty", stream)
    assert (here / "empty" / "agent.json").exists()


def test_a_home_through_a_link(here: Path) -> None:
    """What the link points to is exchanged; the link stays one."""
    sender = full_home(here / "sender")
    real = make_home(here / "real", files={"own": "x"})
    os.symlink("real", here / "link")
    move(sender, here / "link", "copy")
    move(sender, here / "link", "switch")
    assert os.readlink(here / "link") == "real"
    assert travelling(snapshot(real)) == travelling(snapshot(sender))


def test_other_fields_of_agent_json_stay(here: Path) -> None:
    """Its id, name, owner and harness are the manifest's."""
    import json

    sender = make_home(here / "sender", name="Ada \u00fc", fields={"harness": "other", "x": 1})
    home = make_home(here / "home", name="Old", owner="Olga", fields={"color": ["b"], "n": None})
    move(sender, home, "switch")
    assert json.loads((home / "agent.json").read_text()) == {
        "id": "a1", "name": "Ada \u00fc", "harness": "other", "color": ["b"], "n": None
    }  # fmt: skip


# -- all or nothing


REFUSED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "cut": ("stream-cut", lambda stream: stream[:-20_000]),
    "empty": ("stream-not-move", lambda _: b""),
    "altered": ("hash-mismatch", lambda stream: stream.replace(b"# notes", b"# votes")),
    "followed": ("stream-after-end", lambda stream: stream + b"x"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("phase", ["copy", "switch"])
def test_a_bad_stream_changes_nothing(here: Path, case: str, phase: Phase) -> None:
    """And a good one after it is taken."""
    sender = full_home(here / "sender")
    put(sender, "memory/z", os.urandom(30_000))
    home = full_home(here / "home")
    stream = stream_of(sender, phase)
    code, damage = REFUSED[case]
    refused(home, damage(stream), code=code)
    take(home, stream)
    move(sender, home, "switch")
    assert travelling(snapshot(home)) == travelling(snapshot(sender))


def test_what_arrived_whole_stays_staged(here: Path) -> None:
    """The next try sends the rest; half a file does not count."""
    sender = make_home(
        here / "sender", files={"a": os.urandom(3_000_000), "b": os.urandom(3_000_000)}
    )
    home = here / "home"
    stream = stream_of(sender, "copy")
    with pytest.raises(Refusal):
        take(home, stream[:4_500_000])
    assert have_of(home).keys() == {b"files/a"}
    assert not home.exists()
    move(sender, home, "copy")
    move(sender, home, "switch")
    assert travelling(snapshot(home)) == travelling(snapshot(sender))


def test_tree_mismatch(here: Path) -> None:
    """A Home that would differ is not put in place, and can be once have is asked anew."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    put(home, "files/own", "nobody knows of it")
    refused(home, stream_of(sender, "switch", have={}), code="tree-mismatch")
    move(sender, home, "switch")
    assert travelling(snapshot(home)) == travelling(snapshot(sender))


@pytest.mark.parametrize("change", ["files/a.txt", "memory/engine/index.db"])
def test_what_the_receiver_held_is_gone(here: Path, change: str) -> None:
    """The sender skipped it, so the switch cannot be put in place without it."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    stream = stream_of(sender, "switch", have=have_of(home))
    put(home, change, "another")
    refused(home, stream, code="tree-mismatch")
    take_away(home / change)
    refused(home, stream, code="tree-mismatch")
    move(sender, home, "switch")
    assert travelling(snapshot(home)) == travelling(snapshot(sender))


def test_what_a_failed_switch_carried_is_not_kept(here: Path) -> None:
    """What the old Home holds beside the move is taken when it is put in place, not before."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    move(sender, home, "copy")
    put(home, "files/own", "x")
    refused(home, stream_of(sender, "switch", have={}), code="tree-mismatch")
    put(home, "harness/other/x", "changed since")
    put(home, "harness/other/new", "new")
    put(home, "logs/today.log", "changed since")
    put(home, "connections/own.json", "own")
    put(home, "harness/conversations/main/scratch", "own")
    move(sender, home, "switch")
    after = snapshot(home)
    assert after[b"harness/other/x"][2] == b"changed since"
    assert after[b"harness/other/new"][2] == b"new"
    assert after[b"logs/today.log"][2] == b"changed since"
    assert after[b"connections/own.json"][2] == b"own"
    assert after[b"harness/conversations/main/scratch"][2] == b"own"


def test_a_staged_copy_shares_nothing_with_the_home(here: Path) -> None:
    """Also after a switch that failed half-way: no staged file is a hard link."""
    sender = full_home(here / "sender")
    home = full_home(here / "home")
    move(sender, home, "copy")
    put(home, "files/own", "x")
    refused(home, stream_of(sender, "switch", have=have_of(sender)), code="tree-mismatch")
    inodes = {row[0] for row in times(home).values()}
    staged = here / ".home.lnk-move" / "staged"
    assert staged.exists()
    assert not inodes & {row[0] for row in times(staged).values()}


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
    for part in ("files", "memory", "harness", "harness/skills", "harness/conversations",
                 "connections", "schedule", "schedule/waiting"):  # fmt: skip
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
