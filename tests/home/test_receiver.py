from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from agentmove_tools.home.receiver import Options, drop_staged
from agentmove_tools.refusals import Refusal
from agentmove_tools.stream.paths import Phase
from tests.home.applying import manifest, refused
from tests.home.builder import (
    LONG_AGO,
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
    move,
    put,
    snapshot,
    stream_of,
    take,
    take_away,
    times,
    travelling,
)

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
