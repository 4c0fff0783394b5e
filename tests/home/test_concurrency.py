"""Others at the same Home at the same time: a second receiver, a reader, the agent (section 5)."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentmove_tools.disk import system
from agentmove_tools.home import assemble, conversations, exchange, receiver
from agentmove_tools.refusals import MachineError, Refusal
from agentmove_tools.stream.tar_reader import MoveReader
from tests.conftest import ROOT, RunTool, clean_environment
from tests.home.builder import (
    File,
    full_home,
    have_of,
    make_home,
    move,
    put,
    snapshot,
    stream_of,
    take,
    travelling,
)
from tests.home.dying import forked


def _old(folder: Path) -> Path:
    return make_home(
        folder,
        files={"same": "same", "x": "old"},
        conversations={"main": [{"n": 1, "text": "hello"}]},
        connections={"own.json": File(b"{}", 0o600)},
        other={"logs/a": "log"},
    )


def _sender(folder: Path) -> Path:
    home = full_home(folder)
    put(home, "files/same", "same")
    put(home, "files/x", "new")
    put(home, "files/large", b"large" * 400_000)
    return home


def _holds(home: Path, sender: Path) -> None:
    theirs = travelling(snapshot(sender))
    ours = travelling(snapshot(home))
    assert {path: ours.get(path) for path in theirs} == theirs


@contextlib.contextmanager
def _halfway(home: Path, stream: bytes) -> Iterator[subprocess.Popen[bytes]]:
    """A receiver that has read half of the stream, and waits for the rest."""
    process = subprocess.Popen(
        [sys.executable, ROOT / "bin/lnk-tar-apply", home],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert process.stdin is not None
    with process:
        process.stdin.write(stream[: len(stream) // 2])
        process.stdin.flush()
        staged = home.with_name(f".{home.name}.lnk-move") / "staged/tree/files"
        before = None
        while not staged.exists() or before != (before := snapshot(staged)):
            assert process.poll() is None
            time.sleep(0.1)  # it blocks in a read once what was sent is written
        yield process


def test_two_receivers(here: Path, tool: RunTool) -> None:
    """The second, whatever it brings, is told that the Home is busy, and changes nothing."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    stream = stream_of(sender, "switch", have=have_of(home))
    other = stream_of(_sender(here / "other"), "copy", move="f" * 32)
    known = snapshot(home)
    state = here / ".home.lnk-move"
    with _halfway(home, stream) as first:
        there = snapshot(state)
        for arguments, sent in (
            ([home], other),
            ([home], stream),
            (["--dry-run", home], other),
            (["--replace-agent", home], other),
            (["--keep-old", here / "kept", home], stream),
            (["--drop-staged", home], b""),
        ):
            done = tool("lnk-tar-apply", *arguments, stdin=sent)
            assert done.returncode == 1
            assert done.stdout == b""
            assert done.stderr.startswith(b"lnk-tar-apply: refused: home-busy: ")
            assert done.stderr.count(b"\n") == 1
            assert snapshot(state) == there
        assert snapshot(home) == known
        assert first.stdin is not None
        out, err = first.communicate(stream[len(stream) // 2 :], timeout=60)
        assert (first.returncode, err) == (0, b"")
        assert b'"in place"' in out
    _holds(home, sender)


def test_a_second_receiver_through_another_path(here: Path) -> None:
    """A link to a Home is the same Home, and so is a path that goes round."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    (here / "link").symlink_to("home")
    stream = stream_of(sender, "switch", have=have_of(home))
    with _halfway(home, stream) as first:
        for other in (here / "link", here / "sender/../home", here / "home/files/.."):
            with pytest.raises(Refusal) as refusal:
                take(other, stream)
            assert refusal.value.code == "home-busy"
        first.kill()


def test_have_while_a_receiver_is_at_work(here: Path, tool: RunTool) -> None:
    """It prints what the Home and the staged copy hold by then, and hinders nobody."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    before = have_of(home)
    stream = stream_of(sender, "switch", have=before)
    with _halfway(home, stream) as first:
        for _ in range(3):
            done = tool("lnk-have", home)
            assert (done.returncode, done.stderr) == (0, b"")
            assert done.stdout.count(b'"files/same"') == 1
        assert first.stdin is not None
        first.communicate(stream[len(stream) // 2 :], timeout=60)
        assert first.returncode == 0
    assert have_of(home) == have_of(sender)


def test_have_all_through_many_switches(here: Path) -> None:
    """Each answer is of one agent or of the other; none fails."""
    senders = [_sender(here / "one"), _sender(here / "two")]
    put(senders[1], "files/x", "second")
    home = _old(here / "home")
    for number, sender in enumerate(senders):
        move(sender, home, "switch", move_id=f"{number + 100:032x}")
    expected = {have_of(sender)[b"files/x"] for sender in senders}
    stop = here / "stop"

    def look() -> None:
        seen = set()
        while not stop.exists():
            try:
                seen.add(have_of(home)[b"files/x"])
            except Refusal as refusal:
                assert refusal.code == "home-busy"  # noqa: PT017 - a journal may be under way
        assert seen == expected

    looker = threading.Thread(target=lambda: ended.append(forked(look)))
    ended: list[int] = []
    looker.start()
    try:
        for number in range(16):
            stream = stream_of(
                senders[number % 2], "switch", move=f"{number:032x}", have=have_of(home)
            )
            while True:
                try:
                    assert take(home, stream).result == "in place"
                    break
                except Refusal as refusal:
                    assert refusal.code == "home-busy"  # noqa: PT017 - have may tidy just then
    finally:
        stop.touch()
        looker.join()
    assert ended == [0]
    _holds(home, senders[1])


# -- the agent writes


def _writes_all_the_time(path: Path, stop: threading.Event) -> threading.Thread:
    """A thread that appends to one file, replaces another, and makes and removes a third."""

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            with (path / "files/log").open("ab", buffering=0) as log:
                log.write(b"line %d\n" % number)
            with (path / "files/state.new").open("wb") as state:
                state.write(b"%d" % number * 1000)
            (path / "files/state.new").rename(path / "files/state")
            (path / "files/here").write_bytes(b"x")
            (path / "files/here").unlink()
            events = path / "harness/conversations/main/events.jsonl"
            with events.open("ab", buffering=0) as conversation:
                conversation.write(b'{"number":%d,"text":"te' % number)
                conversation.write(b'xt"}\n')
            time.sleep(0.0005)

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_a_home_that_is_written_to_all_through_a_copy(here: Path) -> None:
    """Each copy is one that can be taken, of files that were so at some time; a switch ends it."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    put(sender, "files/log", "")
    put(sender, "files/state", "0" * 1000)
    (home / "files/same").unlink()
    stop = threading.Event()
    thread = _writes_all_the_time(sender, stop)
    try:
        for _ in range(6):
            stream = stream_of(sender, "copy", have=have_of(home))
            assert take(home, stream).result == "staged"
            staged = here / ".home.lnk-move/staged/tree"
            lines = (staged / "files/log").read_bytes().split(b"\n")
            assert all(line == b"line %d" % at for at, line in enumerate(lines[:-1], 1))
            state = (staged / "files/state").read_bytes()
            assert state == state[: len(state) // 1000] * 1000
            events = staged / "harness/conversations/main/events.jsonl"
            assert events.read_bytes().endswith(b"}\n")
    finally:
        stop.set()
        thread.join()
    assert move(sender, home, "switch").result == "in place"
    _holds(home, sender)


def test_a_switch_of_a_home_that_is_written_to_is_no_stream(here: Path) -> None:
    """The sender stops without the end, or sends what the Home really was at one time."""
    sender = _sender(here / "sender")
    for name in ("log", "state"):
        put(sender, f"files/{name}", "0")
    stop = threading.Event()
    thread = _writes_all_the_time(sender, stop)
    failed = 0
    try:
        for _ in range(5):
            try:
                stream_of(sender, "switch")
            except (MachineError, Refusal):
                failed += 1
    finally:
        stop.set()
        thread.join()
    assert failed
    stream_of(sender, "switch")


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


_Change = Callable[[Path], object]


def _after(
    monkeypatch: pytest.MonkeyPatch, call: str, name: bytes, change: Callable[[], object]
) -> list[int]:
    """Have ``change`` done once, just after ``assemble`` made ``call`` for the file ``name``."""
    real = getattr(assemble, call)
    done: list[int] = []

    def watched(folder: int, own: bytes, *rest: object) -> object:
        result = real(folder, own, *rest)
        if own == name and not done:
            done.append(1)
            change()
        return result

    monkeypatch.setattr(assemble, call, watched)
    return done


@pytest.mark.parametrize(
    "change",
    [
        lambda home: put(home, "files/same", "changed"),
        lambda home: _append(home / "files/same", b"more"),
        lambda home: (home / "files/same").unlink(),
        lambda home: os.utime(home / "files/same", (5, 5)),
    ],
    ids=["replaced", "appended to", "removed", "touched"],
)
@pytest.mark.parametrize("call", ["hash_file", "link_file"])
def test_a_receivers_home_that_changes_during_a_switch(
    here: Path, monkeypatch: pytest.MonkeyPatch, call: str, change: _Change
) -> None:
    """A file that was taken over and then changes stops the switch; the old Home stays as it is."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    stream = stream_of(sender, "switch", have=have_of(home))
    inode = home.stat().st_ino
    with monkeypatch.context() as patched:
        done = _after(patched, call, b"same", lambda: change(home))
        with pytest.raises((MachineError, OSError)):
            take(home, stream)
    assert done
    assert home.stat().st_ino == inode
    assert (home / "files/x").read_text() == "old"
    put(home, "files/same", "same")
    assert take(home, stream).result == "in place"
    _holds(home, sender)


def test_a_conversation_that_goes_on_during_a_switch(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that the receiver's agent writes after the two were compared is not lost."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    stream = stream_of(sender, "switch", have=have_of(home))
    real = conversations.compare
    events = home / "harness/conversations/main/events.jsonl"

    def watched(own: int | None, theirs: int, path: bytes) -> object:
        result = real(own, theirs, path)
        if path.endswith(b"main/events.jsonl"):
            with events.open("ab") as file:
                file.write(b'{"n":9}\n')
        return result

    with monkeypatch.context() as patched:
        patched.setattr(assemble, "compare", watched)
        with pytest.raises(MachineError, match="stop the agent first"):
            take(home, stream)
    assert events.read_bytes().endswith(b'{"n":9}\n')


def test_a_home_that_comes_into_being_meanwhile(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that somebody makes and fills before a new Home is put there is not replaced."""
    sender = _sender(here / "sender")
    home = here / "home"
    stream = stream_of(sender, "switch")

    def made(_: int) -> None:
        home.mkdir()
        (home / "mine").write_text("mine")

    with monkeypatch.context() as patched:
        patched.setattr(exchange, "sync_file_system", made)
        with pytest.raises(OSError, match="not empty") as raised:
            take(home, stream)
    assert raised.value.errno in (errno.ENOTEMPTY, errno.EEXIST)
    assert os.listdir(home) == ["mine"]
    (home / "mine").unlink()
    assert take(home, stream).result == "in place"
    _holds(home, sender)


def test_a_folder_of_the_old_homes_name_is_made_meanwhile(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is to keep the old Home is looked at again when the old Home goes there."""
    sender = _sender(here / "sender")
    home = _old(here / "home")
    kept = here / "kept"
    reader = MoveReader(io.BytesIO(stream_of(sender, "switch", have=have_of(home))))
    real = system.exchange

    def meanwhile(one: bytes, other: bytes) -> None:
        real(one, other)
        kept.mkdir()
        (kept / "mine").write_text("mine")

    before = snapshot(home)
    with monkeypatch.context() as patched:
        patched.setattr(exchange, "exchange", meanwhile)
        report = receiver.receive(
            os.fsencode(home), reader, receiver.Options(keep_old=os.fsencode(kept))
        )
    assert report.result == "in place"
    assert "move that away" in report.notes[0]
    _holds(home, sender)
    with pytest.raises(MachineError, match="move that away"):
        move(sender, home, "switch")
    assert os.listdir(kept) == ["mine"]
    (kept / "mine").unlink()
    kept.rmdir()
    assert move(sender, home, "switch").result == "already in place"
    assert snapshot(kept) == before
