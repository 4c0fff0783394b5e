from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agentmove_tools.envelope.key_files import read_identity
from tests.conftest import ROOT, RunTool, clean_environment


def test_it_prints_an_identity_file(tool: RunTool) -> None:
    """Two lines: the recipient as a comment, and the secret; new ones each time."""
    first, second = tool("lnk-keygen"), tool("lnk-keygen")
    for done in (first, second):
        assert (done.returncode, done.stderr) == (0, b"")
        comment, secret = done.stdout.decode().splitlines()
        assert secret.startswith("LNK-SECRET-KEY-1")
        assert comment == f"# recipient: {read_identity(done.stdout).recipient}"
    assert first.stdout != second.stdout


def test_with_a_file_it_prints_the_recipient_only(tool: RunTool, tmp_path: Path) -> None:
    """The secret is in the file, which is the owner's alone, and nowhere else."""
    file = tmp_path / "move.key"
    done = tool("lnk-keygen", "-o", file)
    assert (done.returncode, done.stderr) == (0, b"")
    identity = read_identity(file.read_bytes())
    assert done.stdout.decode() == f"{identity.recipient}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["move.key"]


@pytest.mark.parametrize("kind", ["file", "empty", "link", "dangling", "folder"])
def test_nothing_is_ever_overwritten(tool: RunTool, tmp_path: Path, kind: str) -> None:
    """Not an empty file, and not what a link leads to, there or not."""
    file, other = tmp_path / "move.key", tmp_path / "other"
    if kind == "folder":
        file.mkdir()
    elif kind == "link":
        other.write_text("precious")
        file.symlink_to(other)
    elif kind == "dangling":
        file.symlink_to(other)
    else:
        file.write_text("precious" if kind == "file" else "")
    before = {path: path.lstat() for path in tmp_path.iterdir()}
    done = tool("lnk-keygen", "-o", file)
    assert done.returncode in (2, 3)
    assert done.stdout == b""
    assert b"move.key" in done.stderr
    assert {path: path.lstat().st_ino for path in tmp_path.iterdir()} == {
        path: status.st_ino for path, status in before.items()
    }
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.iterdir()} == {
        path: status.st_mtime_ns for path, status in before.items()
    }


def test_a_file_that_exists_is_named(tool: RunTool, tmp_path: Path) -> None:
    """The status is 3, and the error says what to do."""
    file = tmp_path / "move.key"
    file.write_text("precious")
    done = tool("lnk-keygen", "-o", file)
    assert done.returncode == 3
    assert f"failed: {file}: it is there already" in done.stderr.decode()
    assert file.read_text() == "precious"


def test_when_the_recipient_cannot_be_printed_the_file_stays(tool: RunTool, tmp_path: Path) -> None:
    """The error is told, and ``-y`` prints the recipient again."""
    file = tmp_path / "move.key"
    script = f"'{sys.executable}' '{ROOT}/bin/lnk-keygen' -o '{file}' > /dev/full"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, env=clean_environment(), check=False
    )
    assert done.returncode == 3
    assert b"No space left" in done.stderr
    assert tool("lnk-keygen", "-y", stdin=file.read_bytes()).returncode == 0


def test_an_identity_that_cannot_be_printed_is_an_error() -> None:
    """Half an identity is not the end of a run that says it went well."""
    script = f"'{sys.executable}' '{ROOT}/bin/lnk-keygen' > /dev/full"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, env=clean_environment(), check=False
    )
    assert done.returncode == 3
    assert b"No space left" in done.stderr
    assert b"SECRET" not in done.stderr


def test_a_file_that_cannot_be_made_is_an_error(tool: RunTool, tmp_path: Path) -> None:
    """And no recipient is printed, which nobody could open."""
    done = tool("lnk-keygen", "-o", tmp_path / "none" / "move.key")
    assert (done.returncode, done.stdout) == (3, b"")


def test_it_prints_the_recipient_of_an_identity(tool: RunTool, vectors: Path) -> None:
    """With ``-y``, of the identity on standard input."""
    folder = vectors / "envelope"
    done = tool("lnk-keygen", "-y", stdin=(folder / "identity.txt").read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().strip() == (folder / "recipient.txt").read_text().strip()


@pytest.mark.parametrize(
    "content",
    [b"", b"\n# nothing\n", b"hello", b"\xff\xfe\0", b"#" * 70_000, b"LNK-SECRET-KEY-1QQQQQQQ"],
)
def test_what_is_no_identity_is_refused(tool: RunTool, content: bytes) -> None:
    """The status is 2, nothing is printed, and nothing of the input is shown."""
    done = tool("lnk-keygen", "-y", stdin=content)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"standard input" in done.stderr
    assert b"QQQ" not in done.stderr


def test_a_recipient_is_no_identity(tool: RunTool, vectors: Path) -> None:
    """It says which of the two it is."""
    text = (vectors / "envelope" / "recipient.txt").read_bytes()
    done = tool("lnk-keygen", "-y", stdin=text)
    assert done.returncode == 2
    assert b"this is a recipient" in done.stderr


def test_it_takes_no_file_with_y(tool: RunTool, tmp_path: Path) -> None:
    """The two together have no meaning."""
    done = tool("lnk-keygen", "-y", "-o", tmp_path / "x", stdin=b"")
    assert done.returncode == 2
    assert os.listdir(tmp_path) == []


def test_a_file_of_the_shells_gets_a_warning(tmp_path: Path) -> None:
    """A redirection makes a file that others may read, if the umask lets them."""
    script = f"umask $1; '{sys.executable}' '{ROOT}/bin/lnk-keygen' > key$1"
    for umask, is_warned in [("022", True), ("077", False)]:
        done = subprocess.run(
            ["bash", "-c", script, "bash", umask],
            capture_output=True,
            env=clean_environment(),
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0
        assert (b"warning" in done.stderr) == is_warned
        assert (tmp_path / f"key{umask}").read_bytes().count(b"\nLNK-SECRET-KEY-1") == 1
