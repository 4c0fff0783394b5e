from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentmove_tools.envelope.keys import Identity
from tests.conftest import VECTORS, RunTool
from tests.envelope.streams import unsealed

IDENTITY = Identity(bytes(range(32)))
TO = str(IDENTITY.recipient)
BAD_FILE = VECTORS / "envelope" / "recipients-bad.txt"
BAD = BAD_FILE.read_text().splitlines() if BAD_FILE.exists() else []


@pytest.mark.parametrize("length", [0, 1, 300_000])
@pytest.mark.parametrize("form", [TO, TO.upper(), IDENTITY.recipient.raw.hex()])
def test_what_it_writes_opens(tool: RunTool, length: int, form: str) -> None:
    """For each form that a recipient has."""
    plain = b"\x5a" * length
    done = tool("lnk-seal", "-r", form, stdin=plain)
    assert (done.returncode, done.stderr) == (0, b"")
    assert unsealed(done.stdout, IDENTITY) == (plain, None)


def test_what_is_sealed_may_be_sealed_again(tool: RunTool) -> None:
    """It takes any bytes."""
    once = tool("lnk-seal", "-r", TO, stdin=b"x").stdout
    twice = tool("lnk-seal", "-r", TO, stdin=once)
    assert twice.returncode == 0
    assert unsealed(twice.stdout, IDENTITY) == (once, None)


def test_the_recipient_is_read_from_a_file(tool: RunTool, tmp_path: Path) -> None:
    """With ``-R``: comments, blank lines and one recipient."""
    file = tmp_path / "box.recipient"
    file.write_text(f"# box\n\n{TO}\n")
    done = tool("lnk-seal", "-R", file, stdin=b"x")
    assert (done.returncode, done.stderr) == (0, b"")
    assert unsealed(done.stdout, IDENTITY) == (b"x", None)


def test_there_are_bad_recipients(vectors: Path) -> None:
    """The test below is not empty."""
    assert len((vectors / "envelope" / "recipients-bad.txt").read_text().splitlines()) > 10


@pytest.mark.parametrize("recipient", BAD)
def test_a_bad_recipient_of_the_vectors_is_not_taken(tool: RunTool, recipient: str) -> None:
    """The status is 2, nothing is written, and a secret is not shown."""
    for as_json in ([], ["--json-errors"]):
        done = tool("lnk-seal", "-r", recipient, *as_json, stdin=b"x")
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr
        assert b"LNK-SECRET-KEY-1" not in done.stderr
        if recipient:
            assert recipient.encode() not in done.stderr


@pytest.mark.parametrize(
    "content", ["", "# none\n", f"{TO}\n{TO}\n", IDENTITY.to_file(), "lnk1qqq\n"]
)
def test_a_bad_recipient_file_is_named(tool: RunTool, tmp_path: Path, content: str) -> None:
    """The status is 2, and nothing of a secret in it is shown."""
    file = tmp_path / "box.recipient"
    file.write_text(content)
    done = tool("lnk-seal", "-R", file, stdin=b"x")
    assert (done.returncode, done.stdout) == (2, b"")
    assert str(file).encode() in done.stderr
    assert IDENTITY.reveal()[20:].encode() not in done.stderr


@pytest.mark.parametrize(
    "given", [[], ["-r", TO, "-r", TO], ["-r", TO, "-R", "x"], ["-R", "x"] * 2]
)
def test_it_takes_exactly_one_recipient(tool: RunTool, given: list[str]) -> None:
    """One of two would be left out in silence."""
    done = tool("lnk-seal", *given, stdin=b"x")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"give one recipient" in done.stderr


def test_a_recipient_file_that_is_not_there_is_the_machines(tool: RunTool, tmp_path: Path) -> None:
    """The status is 3."""
    for path in (tmp_path / "missing", tmp_path):
        done = tool("lnk-seal", "-R", path, stdin=b"x")
        assert (done.returncode, done.stdout) == (3, b"")
        assert str(path).encode() in done.stderr


def test_an_identity_given_as_a_recipient_gets_a_hint(tool: RunTool) -> None:
    """It says how to get the recipient, and shows the secret nowhere."""
    done = tool("lnk-seal", "--json-errors", "-r", IDENTITY.reveal(), stdin=b"x")
    assert done.returncode == 2
    error = json.loads(done.stderr)["error"]
    assert "lnk-keygen -y" in error["details"]["hint"]
    assert IDENTITY.reveal()[16:].lower().encode() not in done.stderr.lower()


def test_it_writes_a_file(tool: RunTool, tmp_path: Path) -> None:
    """With ``-o``, and nothing to standard output."""
    done = tool("lnk-seal", "-r", TO, "-o", tmp_path / "x.sealed", stdin=b"x")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert unsealed((tmp_path / "x.sealed").read_bytes(), IDENTITY) == (b"x", None)
    assert os.listdir(tmp_path) == ["x.sealed"]


def test_a_bad_recipient_leaves_an_old_file(tool: RunTool, tmp_path: Path) -> None:
    """No file appears, and none is damaged."""
    file = tmp_path / "x.sealed"
    file.write_bytes(b"old")
    assert tool("lnk-seal", "-r", "lnk1", "-o", file, stdin=b"x").returncode == 2
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.sealed"]
