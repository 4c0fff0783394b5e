from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from agentmove_tools.home.sender import Sender
from agentmove_tools.home.snapshot import IN_MEMORY, SnapshotReader
from agentmove_tools.refusals import MachineError, Refusal
from tests.home.builder import (
    LONG_AGO,
    Fifo,
    File,
    Folder,
    Link,
    Said,
    entries_of,
    full_home,
    have_of,
    make_home,
    manifest_of,
    one_form,
    put,
    stream_of,
    take,
    take_away,
)

LARGE = IN_MEMORY + 12345


# -- what is sent


def test_a_copy_holds_what_the_phase_allows(here: Path) -> None:
    """Connections and the schedule travel in a switch only; what is of no move is said."""
    home = full_home(here / "home")
    said = Said()
    sent = entries_of(stream_of(home, "copy", say=said))
    assert {path.partition(b"/")[0] for path in sent} == {b"files", b"memory", b"harness"}
    for path in ("logs", ".env", "harness/other"):
        assert said.of(path) == ["not sent: it is no part of a move"]
    assert len(said) == 3
    sent = entries_of(stream_of(home, "switch"))
    assert b"connections/mail.json" in sent
    assert b"schedule/paused" not in sent
    assert b"agent.json" not in sent


def test_jobs_and_events_are_put_in_one_form(here: Path) -> None:
    """Whatever white space and order of keys an agent wrote."""
    home = make_home(
        here / "home",
        jobs={"waiting/j": '{ "z": 1.50, "id" : "j" }'},
        conversations={"t": b'{ "b": 1, "a": [ 1e0 ] }\n\n'.replace(b"\n\n", b"\n")},
        day=["x", 1],
        paused=True,
    )
    sent = entries_of(stream_of(home, "switch"))
    assert sent[b"schedule/waiting/j.json"][2] == b'{"id":"j","z":1.5}'
    assert sent[b"schedule/day.json"][2] == b'["x",1]'
    assert sent[b"harness/conversations/t/events.jsonl"][2] == b'{"a":[1.0],"b":1}\n'


def test_the_same_home_gives_the_same_bytes(here: Path) -> None:
    """For the same manifest and have; reading changes nothing that is sent."""
    home = full_home(here / "home")
    manifest = manifest_of(home, "switch")
    have = {path: digest for path, digest in have_of(home).items() if b"a.txt" in path}
    once = stream_of(home, manifest=manifest, have=have)
    assert stream_of(home, manifest=manifest, have=have) == once
    assert b"files/a.txt" not in entries_of(once)


def test_what_the_other_end_holds_is_not_sent(here: Path) -> None:
    """By its hash, not its time; links, folders and all that is replaced travel in full."""
    home = full_home(here / "home")
    have = have_of(home)
    sent = entries_of(stream_of(home, "switch", have=have))
    assert not have.keys() & sent.keys()
    assert {b"files/link", b"files/empty", b"memory/notes.md", b"harness/skills/cook/SKILL.md",
            b"harness/conversations/main/thread.json"} <= sent.keys()  # fmt: skip
    put(home, "files/a.txt", File(b"ALPHA", mtime=LONG_AGO))
    assert entries_of(stream_of(home, "switch", have=have))[b"files/a.txt"][2] == b"ALPHA"


def test_have_may_name_what_is_no_file_here(here: Path) -> None:
    """Where the other end holds a file, this one may hold a folder, a link or nothing."""
    home = make_home(here / "home", files={"a/b": "x", "l": Link(b"a")})
    have = {b"files/a": bytes(32), b"files/l": bytes(32), b"files/gone": bytes(32)}
    assert manifest_of(home, "switch", have=have).removed == (b"files/a", b"files/gone", b"files/l")
    assert entries_of(stream_of(home, "switch", have=have)).keys() == {
        b"files", b"files/a", b"files/a/b", b"files/l"
    }  # fmt: skip


def test_manifest_of_each_phase(here: Path) -> None:
    """Only a switch says what is removed and what the whole is; modes are of skipped files."""
    home = full_home(here / "home")
    have = {**have_of(home), b"files/gone": bytes(32), b"memory/x/gone": bytes(32)}
    have[b"harness/conversations/gone/events.jsonl"] = bytes(32)
    copy = manifest_of(home, "copy", have=have)
    assert (copy.removed, copy.tree, copy.modes) == (None, None, None)
    assert (copy.agent.id, copy.agent.owner, copy.harness) == ("a1", "Olga", "claude")
    switch = manifest_of(home, "switch", have=have)
    assert switch.removed == (b"files/gone", b"memory/x/gone")
    assert switch.modes == {b"files/run.sh": 0o755}
    assert switch.tree is not None
    files = manifest_of(home, "files", have=have)
    assert (files.removed, files.tree) == (None, None)
    # A receiver cannot tell what is skipped from what is not held, so each is listed.
    assert files.modes == {
        path: 0o755 if path == b"files/run.sh" else 0o644
        for path in have_of(home)
        if path.startswith(b"files/")
    }


def test_a_new_move_has_an_id_of_its_own(here: Path) -> None:
    """128 random bits, where none is given."""
    home = make_home(here / "home")
    with Sender(os.fsencode(home), say=Said()) as sender:
        assert sender.manifest("copy").move != sender.manifest("copy").move


def test_modes_have_no_special_bits(here: Path) -> None:
    """A setuid bit at one end is nothing that another machine should have."""
    home = make_home(here / "home", files={"x": File(b"", 0o4755)})
    os.chmod(home / "files", 0o2775)
    sent = entries_of(stream_of(home, "copy"))
    assert sent[b"files/x"][1] == 0o755
    assert sent[b"files"][1] == 0o775


def test_large_and_sparse_and_linked(here: Path) -> None:
    """A large file, one with a hole, one before 1970, and two names of one file all come whole."""
    content = os.urandom(LARGE)
    home = make_home(here / "home", files={"large": content, "old": File(b"x", mtime=-5)})
    with open(home / "files" / "sparse", "wb") as file:
        file.truncate(LARGE)
        file.seek(LARGE // 2)
        file.write(b"in the middle")
    os.link(home / "files" / "large", home / "files" / "twin")
    for phase in ("copy", "switch"):
        sent = entries_of(stream_of(home, phase))
        assert sent[b"files/large"][2] == sent[b"files/twin"][2] == content
        assert sent[b"files/sparse"][2] == (home / "files" / "sparse").read_bytes()


def test_large_files_are_not_held_in_memory(here: Path) -> None:
    """A copy of a large file goes through a temporary file, which leaves nothing behind."""
    home = make_home(here / "home", files={"large": bytes(LARGE), "small": b"x"})
    reader = SnapshotReader(still=False, spool=None)
    folder = os.open(home / "files", os.O_RDONLY)
    try:
        snapshot = reader.read(folder, b"large", b"files/large")
        assert snapshot is not None
        assert not isinstance(snapshot[4], bytes)
        assert sum(map(len, snapshot[4])) == LARGE
        small = reader.read(folder, b"small", b"files/small")
        assert small is not None
        assert small[4] == b"x"
    finally:
        os.close(folder)
    stream_of(home, "copy")
    assert sorted(os.listdir(here)) == [".home.lnk-move", "home"]
    assert not [name for name in os.listdir(here / ".home.lnk-move") if "tmp" in name]


def test_home_through_a_link(here: Path) -> None:
    """The Home itself may be reached through a link."""
    home = full_home(here / "home")
    os.symlink("home", here / "link")
    manifest = manifest_of(home, "switch")
    assert manifest_of(here / "link", "switch") == manifest
    assert stream_of(here / "link", manifest=manifest) == stream_of(home, manifest=manifest)


# -- what is left out


def test_special_files_are_left_out_and_said(here: Path) -> None:
    """A FIFO, a socket and a device are never opened: one would hang, another do anything."""
    home = make_home(
        here / "home",
        files={"fifo": Fifo(), "a": "x"},
        memory={"e/fifo": Fifo()},
        skills={"s/fifo": Fifo()},
        other={"harness/instructions.md": Fifo(), "harness/conversations/t/events.jsonl": Fifo()},
    )
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.fsencode(home / "files" / "socket"))
    listening.close()
    said = Said()
    sent = entries_of(stream_of(home, "switch", say=said))
    assert not [path for path in sent if path.endswith((b"fifo", b"socket", b".md", b".jsonl"))]
    for path in ("files/fifo", "files/socket", "memory/e/fifo", "harness/skills/s/fifo"):
        assert said.of(path) == ["left out: a socket, FIFO or device"]
    for path in ("harness/instructions.md", "harness/conversations/t/events.jsonl"):
        assert said.of(path) == ["left out: it must be a file"]


def test_what_has_no_place_is_said(here: Path) -> None:
    """Nothing that a Home holds stays behind in silence."""
    home = make_home(
        here / "home",
        paused=True,
        other={
            "harness/conversations/README": "x",
            "harness/conversations/t/events.jsonl": b"",
            "harness/conversations/t/scratch": "x",
            "schedule/waiting/notes.txt": "x",
            "schedule/log": "x",
            "connections/folder/x": "x",
        },
    )
    said = Said()
    stream_of(home, "switch", say=said)
    assert {path for path, _ in said} == {
        b"harness/conversations/README",
        b"harness/conversations/t/scratch",
        b"schedule/waiting/notes.txt",
        b"schedule/log",
        b"connections/folder",
    }


@pytest.mark.parametrize(
    "path",
    ["files", "memory", "harness", "harness/skills", "harness/conversations", "harness/package",
     "connections", "schedule", "schedule/waiting"],
)  # fmt: skip
@pytest.mark.parametrize("thing", [Link(b"/nowhere"), Link(b"../elsewhere"), b"a file"])
def test_a_part_that_is_no_folder_stops_the_sender(here: Path, path: str, thing: bytes) -> None:
    """What lies behind a link would be lost without a word: the receiver would drop its own."""
    (here / "elsewhere").mkdir()
    home = make_home(here / "home", paused=True)
    put(home, path, thing)
    with pytest.raises(MachineError, match="folder") as caught:
        stream_of(home, "switch")
    assert str(caught.value.details["path"]).startswith(path)


def test_own_output_is_not_packed(here: Path) -> None:
    """The stream that is being written into the Home, and the one it replaces, by their inodes."""
    home = make_home(here / "home", files={"a": "x", "out.tar": "an old one"})
    info = os.stat(home / "files" / "out.tar")
    own = frozenset({(info.st_dev, info.st_ino)})
    assert b"files/out.tar" not in entries_of(stream_of(home, "copy", own=own))
    assert b"files/out.tar" not in entries_of(stream_of(home, "switch", own=own))


def test_anothers_inode_number_is_not_ones_own(here: Path) -> None:
    """A pipe may have the number that a file of the Home has on its own device."""
    home = make_home(here / "home", files={"a": "x"})
    info = os.stat(home / "files" / "a")
    own = frozenset({(info.st_dev + 1, info.st_ino)})
    assert b"files/a" in entries_of(stream_of(home, "switch", own=own))


def test_working_state_in_the_home_is_not_packed(here: Path) -> None:
    """Where the parent folder cannot hold it."""
    home = make_home(here / "home", files={"a": "x"}, other={".lnk-move/lock": ""})
    said = Said()
    assert entries_of(stream_of(home, "copy", say=said)).keys() == {b"files", b"files/a"}
    assert said == []


def test_exclude(here: Path) -> None:
    """What is left out at both stages is left out of the stream and of its tree."""
    home = make_home(
        here / "home",
        files={"a": "x", "b.log": "x", "cache/x": "x", "keep/b.log": "x"},
        memory={"e/b.log": "x"},
    )
    globs = ["*.log", "cache"]
    have = {b"files/b.log": bytes(32), b"memory/e/gone": bytes(32)}
    manifest = manifest_of(home, "switch", exclude=globs, have=have)
    assert manifest.removed == (b"files/b.log", b"memory/e/gone")
    sent = entries_of(stream_of(home, manifest=manifest, exclude=globs))
    assert sent.keys() == {
        b"files", b"files/a", b"files/keep", b"memory", b"memory/e", b"memory/e/b.log"
    }  # fmt: skip
    with pytest.raises(MachineError, match="--exclude"):
        stream_of(home, manifest=manifest)


def test_an_excluded_file_need_not_be_readable(here: Path) -> None:
    """Nothing below an excluded folder is looked at: a bad name or link there is no matter."""
    home = make_home(here / "home", files={b"cache/\xff": "x", b"cache/l": Link(b"/etc")})
    sent = entries_of(stream_of(home, "switch", exclude=["cache"]))
    assert sent.keys() == {b"files"}


# -- what is refused


def test_bad_links_are_all_named(here: Path) -> None:
    """So that they can be mended in one go; with any_links they travel as they are."""
    home = make_home(
        here / "home",
        files={"good": Link(b"a"), "m/l1": Link(b"/etc"), "z": Link(b"../x"), "b": Link(b"..")},
        memory={"e/l": Link(b"../../files"), "top": Link(b"e")},
        skills={"s/l": Link(b"../t/x")},
    )
    with pytest.raises(Refusal) as caught:
        stream_of(home, "copy")
    assert caught.value.code == "entry-link"
    assert caught.value.details["path"] == "files/b"
    bad = ["files/b", "files/m/l1", "files/z", "harness/skills/s/l", "memory/e/l", "memory/top"]
    assert caught.value.details["paths"] == bad
    sent = entries_of(stream_of(home, "copy", any_links=True), any_links=True)
    assert sent[b"files/m/l1"] == ("link", 0o777, b"/etc")


def test_a_link_in_the_place_of_a_single_file_is_refused(here: Path) -> None:
    """Instructions behind a link would be lost without a word."""
    for path in ("harness/instructions.md", "memory/notes.md", "connections/x.json"):
        home = make_home(here / path.replace("/", "-"), other={path: Link(b"elsewhere")})
        with pytest.raises(Refusal) as caught:
            stream_of(home, "switch")
        assert (caught.value.code, caught.value.details["path"]) == ("entry-link", path)


@pytest.mark.parametrize(
    "top",
    ["files", "memory/e", "harness/skills/s", "harness/package", "connections",
     "harness/conversations", "schedule/waiting"],
)  # fmt: skip
def test_a_name_that_is_not_utf8(here: Path, top: str) -> None:
    """It is shown escaped, and nothing else is tried with it."""
    thing = Folder() if top == "harness/conversations" else "x"
    home = make_home(here / "home", other={top.encode() + b"/bad\xff": thing})
    with pytest.raises(Refusal) as caught:
        stream_of(home, "switch")
    assert caught.value.code == "home-path"
    assert caught.value.details["path"] == top + "/bad\\xff"


def test_names_that_do_not_travel_may_be_anything(here: Path) -> None:
    """What is no part of a move is named, escaped, and not in the way."""
    home = make_home(here / "home", other={b"logs\xff/x": "x", b"harness/\xff": "x"})
    said = Said()
    stream_of(home, "switch", say=said)
    assert [path for path, _ in said] == [b"logs\xff", b"harness/\xff"]


def test_times_past_all_clocks(here: Path) -> None:
    """A time that no 64 bits of nanoseconds can hold travels as others do, and is no obstacle."""
    home = make_home(here / "home", files={"a": File(b"x", mtime=2**34), "b": File(b"y", mtime=-2)})
    take(here / "other", stream_of(home, "switch"))
    for name in ("a", "b"):
        there, here_ = here / "other" / "files" / name, home / "files" / name
        assert there.stat().st_mtime == here_.stat().st_mtime
    assert have_of(here / "other") == have_of(home) == have_of(home)


def test_an_agent_json_that_no_stream_can_hold(here: Path) -> None:
    """A lone surrogate in a name stops the sender; in a field that is not sent it is kept."""
    home = make_home(here / "home")
    put(home, "agent.json", '{"id": "a1", "name": "\\ud800", "harness": "h"}')
    with pytest.raises(MachineError, match="name"):
        stream_of(home, "copy")
    put(home, "agent.json", '{"id": "a1", "name": "n", "harness": "h", "x": "\\ud800"}')
    take(home, stream_of(make_home(here / "sender"), "switch"))
    assert b'"x": "\\ud800"' in (home / "agent.json").read_bytes()


def test_a_path_that_is_too_long(here: Path) -> None:
    """One of 4096 bytes is sent, one of 4097 is not."""
    home = make_home(here / "home", files={})
    deep = os.open(home / "files", os.O_RDONLY)
    name = b"n" * 250
    length = len(b"files")
    while length + 251 < 4090:
        os.mkdir(name, dir_fd=deep)
        below = os.open(name, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
        length += 251
    fits = b"f" * (4096 - length - 1)
    os.close(os.open(fits, os.O_CREAT | os.O_WRONLY, dir_fd=deep))
    assert max(map(len, entries_of(stream_of(home, "switch")))) == 4096
    os.close(os.open(fits + b"x", os.O_CREAT | os.O_WRONLY, dir_fd=deep))
    os.close(deep)
    with pytest.raises(Refusal) as caught:
        stream_of(home, "copy")
    assert caught.value.code == "home-path"


def test_a_running_schedule_is_refused(here: Path) -> None:
    """At both stages of a switch: a job must not fire at two places."""
    home = make_home(here / "home", jobs={"waiting/j": {"id": "j"}}, paused=True)
    manifest = manifest_of(home, "switch")
    (home / "schedule" / "paused").unlink()
    for attempt in (
        lambda: manifest_of(home, "switch"),
        lambda: stream_of(home, manifest=manifest),
    ):
        with pytest.raises(Refusal) as caught:
            attempt()
        assert caught.value.code == "schedule-running"
    stream_of(home, "copy")  # a copy does not mind
    take_away(home / "schedule" / "waiting")
    stream_of(home, "switch")  # nor a switch without jobs
    put(home, "schedule/day.json", one_form(["d", 1]))
    stream_of(home, "switch")


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ('{"id": "other"}', "schedule-json"),
        ('{"id": "j"', "schedule-json"),
        ("[]", "schedule-json"),
        ("", "schedule-json"),
    ],
)
def test_a_malformed_job(here: Path, job: str, code: str) -> None:
    """The sender refuses what its own verifier would."""
    home = make_home(here / "home", jobs={"firing/j": job}, paused=True)
    with pytest.raises(Refusal) as caught:
        stream_of(home, "switch")
    assert (caught.value.code, caught.value.details["path"]) == (code, "schedule/firing/j.json")


def test_an_event_that_is_none(here: Path) -> None:
    """Its file and line are named."""
    home = make_home(here / "home", conversations={"t": b'{"a":1}\n{"a":NaN}\n'})
    for phase in ("copy", "switch"):
        with pytest.raises(Refusal) as caught:
            stream_of(home, phase)
        assert caught.value.code == "canon-json"
        assert caught.value.place == "harness/conversations/t/events.jsonl: line 2"


def test_another_agents_manifest(here: Path) -> None:
    """A manifest of one Home makes no stream of another."""
    manifest = manifest_of(make_home(here / "one"), "copy")
    home = make_home(here / "two", "a2")
    with pytest.raises(Refusal) as caught:
        stream_of(home, manifest=manifest)
    assert caught.value.code == "home-other-agent"


def test_no_home(here: Path) -> None:
    """Neither a folder that is none nor one that is not there can be sent."""
    (here / "folder").mkdir()
    for home in (here / "folder", here / "nothing"):
        with pytest.raises(Refusal) as caught:
            stream_of(home, "copy")
        assert caught.value.code == "home-missing"


# -- an event that is being written


def test_a_torn_event_in_a_copy(here: Path) -> None:
    """A copy takes a conversation up to its last newline, and says so."""
    home = make_home(here / "home", conversations={"t": b'{"a":1}\n{"a":2}\n{"a":', "u": b'{"a"'})
    said = Said()
    sent = entries_of(stream_of(home, "copy", say=said))
    assert sent[b"harness/conversations/t/events.jsonl"][2] == b'{"a":1}\n{"a":2}\n'
    assert sent[b"harness/conversations/u/events.jsonl"][2] == b""
    assert len(said.of("harness/conversations/t/events.jsonl")) == 1


def test_an_event_without_a_newline_in_a_switch(here: Path) -> None:
    """It is taken when it is whole, and refused when it is not."""
    home = make_home(here / "home", conversations={"t": b'{"a":1}\n{"a": 2}'})
    sent = entries_of(stream_of(home, "switch"))
    assert sent[b"harness/conversations/t/events.jsonl"][2] == b'{"a":1}\n{"a":2}\n'
    put(home, "harness/conversations/t/events.jsonl", b'{"a":1}\n{"a": 2')
    with pytest.raises(Refusal) as caught:
        stream_of(home, "switch")
    assert caught.value.code == "canon-json"
    assert caught.value.details["line"] == 2


def test_a_large_conversation(here: Path) -> None:
    """One that is longer than what is held in memory, with a torn end."""
    lines = b"".join(b'{"number":%d,"text":"%b"}\n' % (n, b"x" * 1000) for n in range(6000))
    assert len(lines) > IN_MEMORY
    home = make_home(here / "home", conversations={"t": lines + b'{"torn'})
    sent = entries_of(stream_of(home, "copy"))
    assert sent[b"harness/conversations/t/events.jsonl"][2] == lines
    put(home, "harness/conversations/t/events.jsonl", lines)
    sent = entries_of(stream_of(home, "switch"))
    assert sent[b"harness/conversations/t/events.jsonl"][2] == lines
