from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, RunTool, clean_environment
from tests.home.builder import (
    MOVE,
    Fifo,
    Link,
    Name,
    Thing,
    entries_of,
    full_home,
    have_of,
    make_home,
    manifest_of,
    put,
    stream_of,
)


def manifest(tool: RunTool, home: Path, phase: str, *more: str | Path) -> bytes:
    ran = tool("lnk-manifest", home, "--phase", phase, "--move", MOVE, *more)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_stream_is_what_its_verifier_takes(tool: RunTool, here: Path) -> None:
    """In each phase; a second run writes the same bytes."""
    home = full_home(here / "home")
    for phase in ("copy", "switch", "files"):
        text = manifest_of(home, phase).to_json()
        stream = tool("lnk-tar-create", home, stdin=text).stdout
        assert tool("lnk-tar-verify", stdin=stream).stdout == stream
        assert tool("lnk-tar-create", home, stdin=text).stdout == stream


def test_tar_itself_can_list_it(tool: RunTool, here: Path) -> None:
    """The stream is an ordinary tar to every other program."""
    home = full_home(here / "home")
    stream = tool("lnk-tar-create", home, stdin=manifest(tool, home, "switch")).stdout
    listed = subprocess.run(["tar", "-tf", "-"], input=stream, capture_output=True, check=True)
    assert listed.stdout.startswith(b"lnk-move-4.json\n")
    assert listed.stdout.endswith(b"lnk-move-4.end\n")


def test_have(tool: RunTool, here: Path) -> None:
    """What the other end holds is not sent."""
    home = full_home(here / "home")
    have = here / "have.json"
    have.write_bytes(tool("lnk-have", home).stdout)
    text = manifest(tool, home, "switch", "--have", have)
    stream = tool("lnk-tar-create", home, "--have", have, stdin=text).stdout
    assert not entries_of(stream).keys() & have_of(home).keys()


def test_what_is_left_out_is_said(tool: RunTool, here: Path) -> None:
    """On standard error, escaped, and the stream is whole."""
    home = make_home(here / "home", files={"a\nfifo": Fifo()}, other={"logs/x": "x"})
    ran = tool("lnk-tar-create", home, stdin=manifest(tool, home, "copy"))
    assert ran.returncode == 0
    assert ran.stderr.decode() == (
        "lnk-tar-create: logs: not sent: it is no part of a move\n"
        "lnk-tar-create: files/a\\x0afifo: left out: a socket, FIFO or device\n"
    )


@pytest.mark.parametrize("old", [False, True])
def test_output_into_the_home(tool: RunTool, here: Path, old: bool) -> None:
    """With ``-o`` inside the Home, neither its temporary file nor what it replaces is packed."""
    home = make_home(here / "home", files={"a": "x"})
    if old:
        put(home, "files/x.tar", "an old stream")
    text = manifest(tool, home, "copy")
    ran = tool("lnk-tar-create", home, "-o", home / "files" / "x.tar", stdin=text)
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert entries_of((home / "files" / "x.tar").read_bytes()).keys() == {b"files", b"files/a"}
    assert sorted(os.listdir(home / "files")) == ["a", "x.tar"]


def test_redirection_into_the_home(tool: RunTool, here: Path) -> None:
    """Nor is the file that standard output is, in a copy and in a switch."""
    for phase in ("copy", "switch"):
        home = make_home(here / phase, files={"a": "x" * 100, "z": "y" * 3_000_000})
        text = manifest(tool, home, phase)
        with (home / "files" / "x.tar").open("wb") as file:
            ran = subprocess.run(
                [sys.executable, ROOT / "bin" / "lnk-tar-create", home],
                input=text,
                stdout=file,
                stderr=subprocess.PIPE,
                env=clean_environment(),
                check=False,
            )
        assert (ran.returncode, ran.stderr) == (0, b"")
        sent = entries_of((home / "files" / "x.tar").read_bytes())
        assert sent.keys() == {b"files", b"files/a", b"files/z"}


def test_exclude(tool: RunTool, here: Path) -> None:
    """The same at both stages; another at one of them stops a switch."""
    home = make_home(here / "home", files={"a": "x", "b.log": "x", "c/d.log": "x"})
    text = manifest(tool, home, "switch", "--exclude", "*.log", "--exclude", "files/c")
    sent = tool("lnk-tar-create", home, "--exclude", "*.log", "--exclude=files/c", stdin=text)
    assert entries_of(sent.stdout).keys() == {b"files", b"files/a"}
    other = tool("lnk-tar-create", home, "--exclude", "*.log", stdin=text)
    assert other.returncode == 0  # what differs is an empty folder, which is no part of the tree
    other = tool("lnk-tar-create", home, stdin=text)
    assert other.returncode == 3
    assert b"--exclude" in other.stderr
    assert b"lnk-move-4.end" not in other.stdout


def test_links(tool: RunTool, here: Path) -> None:
    """Bad ones are all named in the machine form; ``--links any`` takes them."""
    import json

    links: dict[Name, Thing] = {"a": Link(b"/etc"), "b": Link(b"../.."), "c": Link(b"a")}
    home = make_home(here / "home", files=links)
    text = manifest(tool, home, "copy")
    ran = tool("lnk-tar-create", home, "--json-errors", stdin=text)
    assert ran.returncode == 1
    details = json.loads(ran.stderr)["error"]["details"]
    assert details == {
        "refusal": "entry-link", "path": "files/a", "paths": ["files/a", "files/b"]
    }  # fmt: skip
    ran = tool("lnk-tar-create", home, "--links", "any", stdin=text)
    assert len(entries_of(ran.stdout, any_links=True)) == 4
    assert tool("lnk-tar-create", home, "--links", "all", stdin=text).returncode == 2


def test_a_change_since_the_manifest(tool: RunTool, here: Path) -> None:
    """Exit status 3, and no end, so that no later stage takes it."""
    home = full_home(here / "home")
    text = manifest(tool, home, "switch")
    put(home, "files/a.txt", "other")
    ran = tool("lnk-tar-create", home, stdin=text)
    assert ran.returncode == 3
    assert b"lnk-move-4.end" not in ran.stdout
    file = here / "out.tar"
    file.write_text("an old one")
    assert tool("lnk-tar-create", home, "-o", file, stdin=text).returncode == 3
    assert file.read_text() == "an old one"


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"not json", b"\xff", b"{" * 10_000])
def test_what_is_no_manifest(tool: RunTool, here: Path, text: bytes) -> None:
    """Is refused in one line."""
    ran = tool("lnk-tar-create", make_home(here / "home"), stdin=text)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert ran.stderr.startswith(b"lnk-tar-create: refused: manifest-")
    assert ran.stderr.count(b"\n") == 1


def test_a_manifest_of_another_format(tool: RunTool, here: Path) -> None:
    """Is told apart from one that is damaged."""
    home = make_home(here / "home")
    text = manifest(tool, home, "copy").replace(b'"format":4', b'"format":3')
    ran = tool("lnk-tar-create", home, stdin=text)
    assert ran.stderr.startswith(b"lnk-tar-create: refused: stream-format: ")


def test_it_runs_under_the_c_locale(tool: RunTool, here: Path) -> None:
    """The same bytes as elsewhere, whatever the names in the Home."""
    home = full_home(here / "home")
    put(home, "files/\u00fc\u4e2d", "x")
    made = manifest_of(home, "switch")
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = tool("lnk-tar-create", home, stdin=made.to_json(), env=env)
    assert ran.stdout == stream_of(home, manifest=made)
