from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from tests.conftest import MEMORY
from tests.home.builder import (
    MOVE,
    OTHER_MOVE,
    Snapshot,
    entries_of,
    have_of,
    make_home,
    manifest_of,
    move,
    put,
    snapshot,
    stream_of,
    take,
    travelling,
)
from tests.property.homes import Chance, Parts, bring, chances

few = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@contextmanager
def folder() -> Iterator[Path]:
    # In memory where that can be had: every switch syncs its file system.
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


def made(where: Path, content: Parts) -> Path:
    """A Home of these parts, whose schedule is paused."""
    make_home(where, paused=True)
    bring(where, {}, content.things())
    return where


def expected(sender: Path, before: Snapshot | None = None) -> Snapshot:
    """What a receiver is to hold after the sender's switch, if it held ``before``."""
    result = travelling(snapshot(sender))
    for path, thing in travelling(before or {}).items():
        if path.startswith(b"connections/"):
            result.setdefault(path, thing)
        elif path.startswith(b"harness/conversations/"):
            sent = result.setdefault(path, thing)
            if path.endswith(b"/events.jsonl") and len(thing[2]) >= len(sent[2]):
                result[path] = thing  # its own is as long or longer, and stays, its mode too
            elif path.endswith(b"/events.jsonl"):
                result[path] = (sent[0], thing[1], sent[2])
    return result


@few
@given(chances)
def test_one_step(chance: Chance) -> None:
    """A switch alone makes an equal Home where there was none."""
    with folder() as here:
        sender = made(here / "sender", chance.parts())
        move(sender, here / "receiver", "switch")
        assert travelling(snapshot(here / "receiver")) == expected(sender)


@few
@given(chances)
def test_copy_and_switch(chance: Chance) -> None:
    """A copy, then whatever the agent does, then the switch: the receiver has the last state."""
    first = chance.parts()
    last = chance.edited(first, append_only=True)
    with folder() as here:
        sender = made(here / "sender", first)
        move(sender, here / "receiver", "copy")
        bring(sender, first.things(), last.things())
        move(sender, here / "receiver", "switch")
        wanted = expected(sender)
        # A conversation that was deleted after its copy stays: they are append-only.
        for path, thing in travelling(snapshot(here / "receiver")).items():
            if path.startswith(b"harness/conversations/") and path.endswith(b"events.jsonl"):
                wanted.setdefault(path, thing)
        assert travelling(snapshot(here / "receiver")) == wanted


@few
@given(chances)
def test_into_an_existing_home(chance: Chance) -> None:
    """Whatever the receiver held becomes what the sender holds, its own longer threads aside."""
    theirs = chance.parts()
    own = chance.edited(theirs, append_only=False)
    with folder() as here:
        sender = made(here / "sender", theirs)
        receiver = made(here / "receiver", own)
        before = snapshot(receiver)
        report = move(sender, receiver, "switch")
        assert travelling(snapshot(receiver)) == expected(sender, before)
        for counts in report.kinds.values():
            assert counts["in"] == (
                counts["written"] + counts["left_alone"] + counts["passed_over"]
            )


@few
@given(chances)
def test_there_and_back(chance: Chance) -> None:
    """The agent moves, works there, and moves back over its old Home; only what is new is sent."""
    first = chance.parts()
    last = chance.edited(first, append_only=True)
    with folder() as here:
        one = made(here / "one", first)
        two = here / "two"
        move(one, two, "copy")
        move(one, two, "switch")
        put(two, "schedule/paused", b"")
        bring(two, first.things(), last.things())
        before = snapshot(one)
        have = have_of(one)
        stream = stream_of(two, "switch", move=OTHER_MOVE, have=have)
        unchanged = {path for path, digest in have_of(two).items() if have.get(path) == digest}
        assert not unchanged & entries_of(stream).keys()
        take(one, stream)
        assert travelling(snapshot(one)) == expected(two, before)


@few
@given(chances)
def test_the_same_bytes_each_time(chance: Chance) -> None:
    """The same Home, manifest and have give the same stream, whoever wrote the manifest."""
    with folder() as here:
        sender = made(here / "sender", chance.parts())
        manifest = manifest_of(sender, "switch", move=MOVE)
        assert manifest_of(sender, "switch", move=MOVE) == manifest
        stream = stream_of(sender, manifest=manifest)
        assert stream_of(sender, manifest=manifest) == stream


@few
@given(chances)
def test_files_alone(chance: Chance) -> None:
    """The files phase makes ``files/`` the sender's, removes no file, and leaves the rest."""
    theirs = chance.parts()
    own = chance.edited(theirs, append_only=False)
    with folder() as here:
        sender = made(here / "sender", theirs)
        receiver = made(here / "receiver", own)
        before = snapshot(receiver)
        move(sender, receiver, "files")
        after = snapshot(receiver)
        sent = snapshot(sender)
        for path, thing in sent.items():
            if path.startswith(b"files/"):
                assert after[path] == thing
        for path, thing in before.items():
            if path.partition(b"/")[0] != b"files":
                assert after[path] == thing
        for path, thing in after.items():
            if path.startswith(b"files/") and path not in sent:
                # What the sender skipped and what it never had look the same: a mode of 644.
                kind, _, content = before[path]
                assert thing[0] == "folder" or thing in (before[path], (kind, 0o644, content))
