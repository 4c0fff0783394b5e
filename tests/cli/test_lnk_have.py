from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.conftest import RunTool
from tests.home.builder import (
    File,
    Link,
    full_home,
    make_home,
    move,
    one_form,
    put,
    snapshot,
    times,
)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_no_home_is_an_empty_object(tool: RunTool, here: Path) -> None:
    """So that a first move needs no case of its own; nothing is made for it."""
    ran = tool("lnk-have", here / "home")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"{}\n", b"")
    assert os.listdir(here) == []
    (here / "empty").mkdir()
    assert tool("lnk-have", here / "empty").stdout == b"{}\n"


def test_what_counts(tool: RunTool, here: Path) -> None:
    """Files under files/ and memory/ but the notes, and conversations by their one form."""
    home = full_home(here / "home")
    put(home, "harness/conversations/main/events.jsonl", b'{ "n":1, "text": "hello" }')
    ran = tool("lnk-have", home)
    assert ran.stderr == b""
    event = one_form({"n": 1, "text": "hello"}) + b"\n"
    assert json.loads(ran.stdout) == {
        "files/a.txt": sha256(b"alpha"),
        "files/run.sh": sha256(b"#!/bin/sh\n"),
        "files/deep/er/b.bin": sha256(bytes(range(256))),
        "files/spaced name\nand line": sha256(b"odd"),
        "memory/engine/index.db": sha256(bytes(1000)),
        "harness/conversations/main/events.jsonl": sha256(event),
        "harness/conversations/side/events.jsonl": sha256(b'{"n":1}\n'),
    }


def test_a_second_run_says_the_same(tool: RunTool, here: Path) -> None:
    """Out of the index; what changed since is hashed again, and the Home is not touched."""
    home = full_home(here / "home")
    before = snapshot(home), times(home)
    first = tool("lnk-have", home).stdout
    assert tool("lnk-have", home).stdout == first
    assert (snapshot(home), times(home)) == before
    put(home, "files/a.txt", "ALPHA")
    assert json.loads(tool("lnk-have", home).stdout)["files/a.txt"] == sha256(b"ALPHA")


def test_what_is_staged_counts_and_comes_first(tool: RunTool, here: Path) -> None:
    """For a Home that is there, and for one that is not yet."""
    sender = make_home(here / "sender", files={"a": "theirs", "b": "x"}, conversations={"t": [1]})
    for home in (make_home(here / "home", files={"a": "own", "c": "x"}), here / "absent"):
        move(sender, home, "copy")
        have = json.loads(tool("lnk-have", home).stdout)
        assert have["files/a"] == sha256(b"theirs")
        assert have["files/b"] == sha256(b"x")
        assert ("files/c" in have) == home.exists()
        assert have["harness/conversations/t/events.jsonl"] == sha256(b"1\n")


def test_what_cannot_be_told_is_left_out_and_said(tool: RunTool, here: Path) -> None:
    """A conversation with a torn event is sent in full, and looked at then."""
    home = make_home(here / "home", files={"l": Link(b"a")}, conversations={"t": b'{"torn'})
    ran = tool("lnk-have", home)
    assert (ran.returncode, ran.stdout) == (0, b"{}\n")
    assert ran.stderr.decode() == (
        "lnk-have: harness/conversations/t/events.jsonl: left out: it cannot be read\n"
    )


def test_a_file_for_the_output(tool: RunTool, here: Path) -> None:
    """With ``-o``, whole or not at all."""
    home = make_home(here / "home", files={"a": "x"})
    assert tool("lnk-have", home, "-o", here / "have.json").stdout == b""
    assert json.loads((here / "have.json").read_bytes()) == {"files/a": sha256(b"x")}


def test_a_home_through_a_link(tool: RunTool, here: Path) -> None:
    """The Home itself may be reached through a link; one with a slash at its end too."""
    home = make_home(here / "home", files={"a": "x"})
    os.symlink("home", here / "link")
    said = tool("lnk-have", home).stdout
    assert tool("lnk-have", here / "link").stdout == said
    assert tool("lnk-have", f"{home}/").stdout == said
    assert tool("lnk-have", ".", cwd=home).stdout == said
    assert sorted(os.listdir(here)) == [".home.lnk-move", "home", "link"]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_names_do_not_depend_on_the_locale(tool: RunTool, here: Path, locale: str) -> None:
    """A path is its bytes, whatever the locale says that they are."""
    home = make_home(here / "home", files={"\u00fc\u2028\U0001f600 \x01": "x"})
    env = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = tool("lnk-have", home, env=env)
    assert json.loads(ran.stdout.decode()) == {"files/\u00fc\u2028\U0001f600 \x01": sha256(b"x")}


def test_a_name_that_is_not_utf8(tool: RunTool, here: Path) -> None:
    """Is shown escaped."""
    home = make_home(here / "home", files={b"a\xff\n": File(b"x")})
    ran = tool("lnk-have", home)
    assert ran.returncode == 1
    assert ran.stderr.startswith(b"lnk-have: refused: home-path: files/a\\xff\\x0a: ")


def test_a_home_that_is_a_file(tool: RunTool, here: Path) -> None:
    """Is none."""
    put(here, "file", "x")
    ran = tool("lnk-have", here / "file")
    assert ran.returncode == 3
    assert b"folder" in ran.stderr
