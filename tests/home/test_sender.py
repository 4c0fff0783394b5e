from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentmove_tools.home.sender import Sender
from agentmove_tools.home.snapshot import IN_MEMORY, Snapshot, SnapshotReader
from agentmove_tools.refusals import MachineError, Refusal
from agentmove_tools.stream.manifest import Manifest
from tests.home.builder import (
    LONG_AGO,
    MOVE,
    Bytes,
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


@contextmanager
def meanwhile(action: Callable[[int], object]) -> Iterator[None]:
    """Do ``action(0)``, ``action(1)``, ... in a thread all the while, once before it at least."""
    stop = threading.Event()
    begun = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            action(number)
            begun.set()
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def just_before_reading(
    monkeypatch: pytest.MonkeyPatch, path: bytes, action: Callable[[], object]
) -> None:
    """Let ``action`` happen after the sender saw the file's name and before it opens it."""
    real = SnapshotReader.read

    def read(
        self: SnapshotReader, folder: int, name: bytes, path_: bytes, known: None = None
    ) -> Snapshot | None:
        if path_ == path:
            action()
        return real(self, folder, name, path_, known)

    monkeypatch.setattr(SnapshotReader, "read", read)


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
    assert (files.removed, files.tree, files.modes) == (None, None, {b"files/run.sh": 0o755})


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


# -- a copy while the agent runs


def becomes_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def becomes_a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("a")


def becomes_a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES: dict[str, Callable[[Path], None]] = {
    "vanished": Path.unlink,
    "a folder": becomes_a_folder,
    "a link": becomes_a_link,
    "a fifo": becomes_a_fifo,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_takes_a_files_place_in_a_copy(
    here: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A file that is gone when its turn comes is left out and said; the stream is whole."""
    home = make_home(here / "home", files={"a": "first", "m": "x", "z": "last"})
    just_before_reading(monkeypatch, b"files/m", lambda: CHANGES[change](home / "files" / "m"))
    said = Said()
    sent = entries_of(stream_of(home, "copy", say=said))
    assert sent.keys() == {b"files", b"files/a", b"files/z"}
    assert said.of("files/m") == ["left out: it vanished meanwhile"]


@pytest.mark.parametrize("change", CHANGES)
def test_what_takes_a_files_place_in_a_switch(
    here: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The same stops a switch, and the stream gets no end."""
    home = make_home(here / "home", files={"a": "first", "m": "x", "z": "last"})
    manifest = manifest_of(home, "switch")
    just_before_reading(monkeypatch, b"files/m", lambda: CHANGES[change](home / "files" / "m"))
    with pytest.raises(MachineError) as caught:
        stream_of(home, manifest=manifest)
    assert caught.value.details["path"] == "files/m"


@pytest.mark.parametrize("path", ["memory/e/x", "harness/skills/s/x", "connections/c.json"])
def test_vanishing_in_a_switch(here: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Wherever it lies."""
    home = make_home(here / "home", other={path: "x"})
    manifest = manifest_of(home, "switch")
    just_before_reading(monkeypatch, path.encode(), (home / path).unlink)
    with pytest.raises(MachineError) as caught:
        stream_of(home, manifest=manifest)
    assert caught.value.details["path"] == path


def test_a_folder_that_vanishes_in_a_copy(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that was in it."""
    home = make_home(here / "home", files={"a": "x", "b/c/d": "x", "b/e": "x", "z": "x"})
    just_before_reading(monkeypatch, b"files/a", lambda: take_away(home / "files" / "b"))
    sent = entries_of(stream_of(home, "copy"))
    assert sent.keys() == {b"files", b"files/a", b"files/z"}


def test_a_change_between_manifest_and_stream(here: Path) -> None:
    """The tree of the manifest is computed again: what changed in between stops the switch."""
    changes: list[Callable[[Path], object]] = [
        lambda home: put(home, "files/a", "y"),
        lambda home: put(home, "files/new", "y"),
        lambda home: put(home, "memory/e/new", Link(b"x")),
        lambda home: (home / "files" / "a").chmod(0o600),
        lambda home: take_away(home / "files" / "a"),
        lambda home: (home / "files" / "b").rename(home / "files" / "c"),
    ]
    for number, change in enumerate(changes):
        home = make_home(
            here / str(number), files={"a": "x", "b": "x"}, memory={"e/x": "x"}, notes="n"
        )
        manifest = manifest_of(home, "switch")
        put(home, "memory/notes.md", "other notes")  # no part of the tree
        assert stream_of(home, manifest=manifest)
        change(home)
        sink = Bytes()
        with (
            Sender(os.fsencode(home), say=Said()) as sender,
            pytest.raises(MachineError, match="tree"),
        ):
            sender.send(sink, manifest)
        assert b"lnk-move-4.end" not in sink.getvalue()


@pytest.mark.parametrize("size", [100, 9000, 300_000, LARGE])
def test_a_file_that_is_rewritten_in_place(here: Path, size: int) -> None:
    """What is sent of it is what it really held at one time, never half of each."""
    patterns = [bytes([letter]) * size for letter in b"ABC"]
    home = make_home(here / "home", files={"a": patterns[2], "z": "last"})
    descriptor = os.open(home / "files" / "a", os.O_RDWR)

    def rewrite(number: int) -> None:
        os.pwrite(descriptor, patterns[number % 3], 0)
        time.sleep(0.0005 * (number % 4))

    try:
        with meanwhile(rewrite):
            for _ in range(4):
                said = Said()
                sent = entries_of(stream_of(home, "copy", say=said))
                assert b"files/z" in sent
                if b"files/a" in sent:
                    assert sent[b"files/a"][2] in patterns
                else:
                    assert said.of("files/a") == ["left out: it is written to all the time"]
    finally:
        os.close(descriptor)
    assert entries_of(stream_of(home, "copy"))[b"files/a"][2] in patterns


def test_files_that_grow_and_shrink(here: Path) -> None:
    """A log that grows is sent as far as it went; one that is written anew is whole lines."""
    home = make_home(here / "home", files={"log": "", "cut": "", "new": "", "z": "last"})
    line = b"0123456789" * 20 + b"\n"
    log = os.open(home / "files" / "log", os.O_WRONLY | os.O_APPEND)
    cut = os.open(home / "files" / "cut", os.O_RDWR)

    def change(number: int) -> None:
        os.write(log, line)
        os.pwrite(cut, line * (number % 50), 0)
        os.ftruncate(cut, len(line) * (number % 50))
        path = home / "files" / "new"
        if number % 5 == 0:
            path.unlink(missing_ok=True)
        else:
            temporary = here / "temporary"
            temporary.write_bytes(line * number)
            temporary.rename(path)
        time.sleep(0.0002)

    try:
        with meanwhile(change):
            for _ in range(4):
                sent = entries_of(stream_of(home, "copy"))
                assert b"files/z" in sent
                for path in (b"files/log", b"files/cut", b"files/new"):
                    content = sent[path][2] if path in sent else b""
                    assert content == line * (len(content) // len(line))
    finally:
        os.close(log)
        os.close(cut)


@pytest.mark.parametrize("size", [100, LARGE])
def test_a_change_during_a_switch_is_noticed(here: Path, size: int) -> None:
    """A file that is written to all the time stops a switch, large or small."""
    home = make_home(here / "home", files={"a": bytes(size)})
    manifest = manifest_of(home, "switch")
    patterns = [bytes([letter]) * size for letter in b"AB"]
    descriptor = os.open(home / "files" / "a", os.O_RDWR)
    try:
        with (
            meanwhile(lambda number: os.pwrite(descriptor, patterns[number % 2], 0)),
            pytest.raises(MachineError),
        ):
            stream_of(home, manifest=manifest)
    finally:
        os.close(descriptor)


# -- what cannot be read


def as_nobody(action: Callable[[], object]) -> str:
    """Run ``action`` as an unprivileged user in a process of its own; give what it raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setegid(65534)
            os.seteuid(65534)
            action()
            text = "nothing"
        except BaseException as error:  # noqa: BLE001 - the parent looks at it
            details = getattr(error, "details", {})
            path = details.get("path") or os.fsdecode(getattr(error, "filename", None) or "")
            text = f"{type(error).__name__}: {path}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        told = file.read()
    os.waitpid(child, 0)
    return told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("path", ["files/secret", "files/closed", "memory/e/secret", "connections"])
def test_what_cannot_be_read_stops_the_sender(here: Path, path: str) -> None:
    """With its name, in a copy and in a switch: a move that leaves a file out is no move."""
    home = make_home(here / "home", files={"a": "x"}, connections={"c.json": "x"})
    put(home, path, Folder(0o700) if path in ("files/closed", "connections") else File(b"", 0o600))
    os.chmod(here, 0o777)
    for number, phase in enumerate(("copy", "switch")):
        if (path, phase) == ("connections", "copy"):
            continue
        told = as_nobody(lambda: stream_of(home, phase))  # type: ignore[arg-type]  # noqa: B023
        assert told.startswith(("MachineError", "PermissionError")), (number, told)
        assert f": {path}" in told


def test_a_manifest_written_by_somebody_else(here: Path) -> None:
    """Its collections are what is sent; unknown fields stay in the stream."""
    home = full_home(here / "home")
    made = manifest_of(home, "copy")
    manifest = Manifest(
        phase="copy",
        move=MOVE,
        version="9",
        agent=made.agent,
        harness="h",
        collections=("notes", "jobs"),
        unknown={"new": [1]},
    )
    stream = stream_of(home, manifest=manifest)
    sent = entries_of(stream)
    assert b"memory/notes.md" in sent
    assert not [path for path in sent if path.startswith(b"harness/") and b"package" not in path]
    assert b'"new":[1]' in stream
