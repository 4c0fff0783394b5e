from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentmove_tools.home.sender import Sender
from agentmove_tools.home.snapshot import IN_MEMORY
from agentmove_tools.refusals import MachineError
from agentmove_tools.stream.manifest import Manifest
from tests.home.builder import (
    MOVE,
    Bytes,
    File,
    Folder,
    Link,
    Said,
    entries_of,
    full_home,
    make_home,
    manifest_of,
    put,
    stream_of,
    take_away,
)
from tests.home.meanwhile import just_before_reading, meanwhile

LARGE = IN_MEMORY + 12345


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
