from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.conftest import RunTool
from tests.home.builder import MOVE, File, full_home, make_home, put, stream_of


def test_each_phase(tool: RunTool, here: Path) -> None:
    """The manifest is one line of JSON in the one form, as the specification has it."""
    home = full_home(here / "home")
    for phase in ("copy", "switch", "files"):
        ran = tool("lnk-manifest", home, "--phase", phase, "--move", MOVE)
        assert (ran.returncode, ran.stderr) == (0, b"")
        manifest = json.loads(ran.stdout)
        assert manifest["phase"] == phase
        assert manifest["move"] == MOVE
        assert manifest["format"] == 4
        assert manifest["agent"] == {"id": "a1", "name": "Ada", "owner": "Olga"}
        assert manifest["harness"] == "claude"
        assert ("tree" in manifest) == (phase == "switch")
        assert ran.stdout.count(b"\n") == 1
        assert tool("lnk-canon", stdin=ran.stdout).stdout == ran.stdout


def test_have(tool: RunTool, here: Path) -> None:
    """What the other end holds and this one does not is removed; modes are of what it has."""
    home = make_home(here / "home", files={"a": File(b"x", 0o755), "b": "y"})
    other = make_home(here / "other", files={"a": "x", "gone": "x", "b": File(b"z", 0o600)})
    have = here / "have.json"
    have.write_bytes(tool("lnk-have", other).stdout)
    manifest = json.loads(tool("lnk-manifest", home, "--phase", "switch", "--have", have).stdout)
    assert manifest["removed"] == ["files/gone"]
    assert manifest["modes"] == {"files/a": "755"}
    assert len(manifest["move"]) == 32


def test_of_a_stream(tool: RunTool, here: Path) -> None:
    """Without a Home it shows the one that a stream starts with, and reads it to its end."""
    home = full_home(here / "home")
    made = tool("lnk-manifest", home, "--phase", "copy").stdout
    stream = tool("lnk-tar-create", home, stdin=made).stdout
    assert tool("lnk-manifest", stdin=stream).stdout == made
    # A cut stream is its verifier's matter; the manifest is whole.
    assert tool("lnk-manifest", stdin=stream[:5000]).stdout == made


@pytest.mark.parametrize(
    "arguments",
    [
        ("HOME",),
        ("HOME", "--phase", "move"),
        ("HOME", "--phase", "copy", "--move", "ABC"),
        ("HOME", "--phase", "copy", "--move", "0123456789ABCDEF0123456789ABCDEF"),
        ("HOME", "--phase", "copy", "--have", "HOME/agent.json"),
        ("HOME", "--phase", "copy", "--exclude", ""),
        ("--phase", "copy"),
        ("--exclude", "x"),
    ],
)
def test_usage(tool: RunTool, here: Path, arguments: tuple[str, ...]) -> None:
    """A wrong command line is told as one: exit status 2, and nothing on standard output."""
    home = full_home(here / "home")
    ran = tool("lnk-manifest", *(word.replace("HOME", str(home)) for word in arguments))
    assert ran.returncode == 2
    assert ran.stdout == b""
    assert ran.stderr.startswith(b"lnk-manifest: usage: ")


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ("[]", "not one JSON object"),
        ('{"id": "a1"', "not one JSON object"),
        ('{"id": "a1", "name": "x"}', "harness"),
        ('{"id": "", "name": "x", "harness": "h"}', "id"),
        ('{"id": 7, "name": "x", "harness": "h"}', "id"),
        ('{"id": "a", "name": "x", "harness": "h", "owner": []}', "owner"),
    ],
)
def test_a_damaged_agent_json(tool: RunTool, here: Path, agent: str, says: str) -> None:
    """The Home is named, and what to mend."""
    home = make_home(here / "home")
    put(home, "agent.json", agent)
    ran = tool("lnk-manifest", home, "--phase", "copy")
    assert ran.returncode == 3
    told = ran.stderr.decode()
    assert told.startswith(f"lnk-manifest: failed: {home}: ")
    assert says in told
    assert told.count("\n") == 1


def test_no_home(tool: RunTool, here: Path) -> None:
    """A Home that is not there, or in a folder that is not there, is refused or failed."""
    assert tool("lnk-manifest", here / "no", "--phase", "copy").returncode == 1
    assert tool("lnk-manifest", here / "no" / "no", "--phase", "copy").returncode == 3
    assert os.listdir(here) == []


def test_output_into_the_home(tool: RunTool, here: Path) -> None:
    """Its own output is no part of the Home that it describes."""
    home = make_home(here / "home", files={"a": "x"})
    plain = tool("lnk-manifest", home, "--phase", "switch", "--move", MOVE).stdout
    file = home / "files" / "manifest.json"
    ran = tool("lnk-manifest", home, "--phase", "switch", "--move", MOVE, "-o", file)
    assert ran.returncode == 0
    assert file.read_bytes() == plain
    assert stream_of(home, "copy")
