from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from agentmove_tools.home.have import holdings_of
from agentmove_tools.refusals import MachineError
from tests.home.builder import (
    OTHER_MOVE,
    Fifo,
    Link,
    Name,
    as_bytes,
    full_home,
    have_of,
    make_home,
    move,
    put,
    snapshot,
    take_away,
)


def sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def test_only_what_the_specification_lists(here: Path) -> None:
    """Neither notes nor links, folders, settings, instructions, skills, connections or jobs."""
    home = full_home(here / "home")
    put(home, "files/fifo", Fifo())
    put(home, "harness/conversations/events.jsonl", "x")
    put(home, "harness/conversations/t/deeper/events.jsonl", "x")
    put(home, "memory/notes.md.bak", "counts")
    put(home, "memory/engine/notes.md", "counts")
    assert sorted(have_of(home)) == [
        b"files/a.txt",
        b"files/deep/er/b.bin",
        b"files/run.sh",
        b"files/spaced name\nand line",
        b"harness/conversations/main/events.jsonl",
        b"harness/conversations/side/events.jsonl",
        b"memory/engine/index.db",
        b"memory/engine/notes.md",
        b"memory/notes.md.bak",
    ]


def test_conversations_by_their_one_form(here: Path) -> None:
    """However they are written, with or without a newline at the end; an empty one counts too."""
    events = {"a": b'{ "b":1 }\n2', "b": b'{"b":1}\n2\n', "c": b"", "d": b'{"b":NaN}\n'}
    home = make_home(here / "home", conversations=events)
    unreadable: list[bytes] = []
    for _ in holdings_of(os.fsencode(home), unreadable.append):
        pass
    assert unreadable == [b"harness/conversations/d/events.jsonl"]
    have = have_of(home)
    form = sha256(b'{"b":1}\n2\n')
    assert have == {
        b"harness/conversations/a/events.jsonl": form,
        b"harness/conversations/b/events.jsonl": form,
        b"harness/conversations/c/events.jsonl": sha256(b""),
    }


def test_large_files_in_two_threads(here: Path) -> None:
    """Each digest comes to its own file, whichever thread is done first."""
    contents: dict[Name, bytes] = {
        f"d{n % 5}/f{n}": os.urandom(200_000 + n * 17_000) for n in range(40)
    }
    home = make_home(here / "home", files={**contents})
    assert have_of(home) == {
        b"files/" + as_bytes(path): sha256(content) for path, content in contents.items()
    }


def test_what_is_staged_hides_what_the_home_holds(here: Path) -> None:
    """At the same path; and half a copy counts for what it is."""
    sender = full_home(here / "sender")
    home = make_home(here / "home", files={"a.txt": "own", "own": "x"})
    move(sender, home, "copy")
    have = have_of(home)
    assert have[b"files/a.txt"] == sha256(b"alpha")
    assert have[b"files/own"] == sha256(b"x")
    put(sender, "files/a.txt", "newer")
    take_away(sender / "files" / "deep")
    move(sender, home, "copy", move_id=OTHER_MOVE)
    have = have_of(home)
    assert have[b"files/a.txt"] == sha256(b"newer")
    move(sender, home, "switch", move_id=OTHER_MOVE)
    assert have_of(home) == have_of(sender)


def test_links_on_the_way_are_not_followed(here: Path) -> None:
    """What lies behind one is not the Home's."""
    put(here, "outside/x", "x")
    home = make_home(here / "home", files={"l": Link(b"../../outside")})
    assert have_of(home) == {}
    for top in ("files", "memory", "harness"):
        put(home, top, Link(b"../outside"))
    assert have_of(home) == {}


def test_something_else_where_the_working_state_goes(here: Path) -> None:
    """Is never removed: it is said what to do, and the Home stays as it is."""
    home = make_home(here / "home", files={"a": "x"})
    put(here, ".home.lnk-move", "somebody's")
    before = snapshot(here)
    with pytest.raises(MachineError, match="remove it"):
        have_of(home)
    assert snapshot(here) == before
