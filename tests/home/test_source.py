from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentmove_tools.home.exclude import Exclusion
from agentmove_tools.home.index import Index
from agentmove_tools.home.snapshot import SnapshotReader
from agentmove_tools.home.source import FileSource, check_paused, has_jobs
from agentmove_tools.refusals import Refusal
from tests.home.builder import Folder, Link, Name, Said, Thing, full_home, make_home, put


@contextmanager
def source_of(home: Path, said: Said | None = None) -> Iterator[FileSource]:
    fd = os.open(home, os.O_RDONLY)
    try:
        yield FileSource(
            fd,
            SnapshotReader(still=False, spool=None),
            still=False,
            index=Index(None, b""),
            exclude=Exclusion(()),
            say=Said() if said is None else said,
        )
    finally:
        os.close(fd)


def test_notes_stand_among_the_memory(here: Path) -> None:
    """At their place in the order; or not, where the stream does not speak for them."""
    memory: dict[Name, Thing] = {"a/x": "x", "notes": "x", "notes.md.bak": "x", "z": "x"}
    home = make_home(here / "home", memory=memory, notes="n")
    with source_of(home) as source:
        with_notes = [record.path for record in source.memory({}, notes=True)]
        without = [record.path for record in source.memory({}, notes=False)]
    assert with_notes == sorted(with_notes)
    assert b"memory/notes.md" in with_notes
    assert without == [path for path in with_notes if path != b"memory/notes.md"]


def test_threads_are_in_the_order_of_their_paths(here: Path) -> None:
    """``t-1/`` before ``t/``, as a stream has them."""
    home = make_home(here / "home", conversations={"t": [1], "t-1": [1], "t.x": [1], "t0": [1]})
    with source_of(home) as source:
        found = [record.path for record in source.records("conversations")]
    assert found == sorted(found)
    assert len(found) == 4


def test_what_is_not_there(here: Path) -> None:
    """A bare Home has nothing, and that is no error."""
    home = make_home(here / "home")
    with source_of(home) as source:
        for collection in ("instructions", "skills", "notes", "jobs", "conversations"):
            assert list(source.records(collection)) == []
        assert list(source.files({})) == []
        assert list(source.memory({}, notes=True)) == []
        assert list(source.connections()) == []
        assert list(source.package()) == []
        assert source.not_sent() == []


def test_not_sent(here: Path) -> None:
    """All that a Home holds beside what moves, and beside the tools' own."""
    home = full_home(here / "home")
    put(home, "schedule/more", "x")
    put(home, ".lnk-move", Folder())
    with source_of(home) as source:
        assert source.not_sent() == [b".env", b"logs", b"harness/other", b"schedule/more"]


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("schedule/waiting/j.json", True),
        ("schedule/firing/j.json", True),
        ("schedule/ending/j.json", True),
        ("schedule/ending/j.txt", False),
        ("schedule/day.json", False),
        ("schedule/other/j.json", False),
    ],
)
def test_jobs_that_count(here: Path, path: str, counts: bool) -> None:
    """In each of the three places, and nowhere else."""
    home = os.open(make_home(here / "home", other={path: "{}"}), os.O_RDONLY)
    assert has_jobs(home) is counts
    if counts:
        with pytest.raises(Refusal):
            check_paused(home, "home")
        put(here / "home", "schedule/paused", Link(b"nowhere"))
    check_paused(home, "home")
    os.close(home)
