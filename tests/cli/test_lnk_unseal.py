from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentmove_tools.envelope.keys import Identity
from tests.conftest import ROOT, VECTORS, RunTool, clean_environment
from tests.envelope.streams import FULL, sealed

IDENTITY = Identity(bytes(range(32)))
TO = IDENTITY.recipient
INDEX = VECTORS / "envelope" / "index.json"
ROWS = json.loads(INDEX.read_text()) if INDEX.exists() else []


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """Give an identity file in a folder of its own."""
    file = tmp_path / "keys" / "move.key"
    file.parent.mkdir()
    file.touch(0o600)
    file.write_text(IDENTITY.to_file())
    return file


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_a_vector_holds(
    tool: RunTool, row: dict[str, str | int], tmp_path: Path, vectors: Path
) -> None:
    """On standard output as much as may be; with ``-o`` all of it, or no file."""
    identity = tmp_path / "identity.txt"
    identity.touch(0o600)
    identity.write_bytes((vectors / "envelope" / "identity.txt").read_bytes())
    envelope = (vectors / "envelope" / str(row["file"])).read_bytes()
    piped = tool("lnk-unseal", "-i", identity, stdin=envelope)
    out = tmp_path / "out"
    filed = tool("lnk-unseal", "-i", identity, "-o", out, "--json-errors", stdin=envelope)
    assert filed.stdout == b""
    if "refusal" in row:
        assert piped.returncode == filed.returncode == 1
        assert len(piped.stdout) <= int(row["plaintext_bytes_released_at_most"])
        told = piped.stderr.decode()
        assert re.match(rf"lnk-unseal: refused: {row['refusal']}: .*byte \d+: ", told)
        details = json.loads(filed.stderr)["error"]["details"]
        assert details["refusal"] == row["refusal"]
        assert isinstance(details["byte"], int)
        assert os.listdir(tmp_path) == ["identity.txt"]
    else:
        assert (piped.returncode, filed.returncode) == (0, 0)
        assert piped.stderr == filed.stderr == b""
        assert hashlib.sha256(piped.stdout).hexdigest() == row["plaintext_sha256"]
        assert out.read_bytes() == piped.stdout


def test_a_refused_envelope_leaves_an_old_file(tool: RunTool, key: Path, tmp_path: Path) -> None:
    """It is not damaged."""
    out = tmp_path / "out"
    out.write_bytes(b"old")
    envelope = sealed(bytes(5 * FULL), TO)[:-1]
    assert tool("lnk-unseal", "-i", key, "-o", out, stdin=envelope).returncode == 1
    assert out.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["keys", "out"]


def test_what_was_sealed_is_written_for_the_owner_alone(
    tool: RunTool, key: Path, tmp_path: Path
) -> None:
    """It may hold credentials."""
    out = tmp_path / "out"
    assert tool("lnk-unseal", "-i", key, "-o", out, stdin=sealed(b"x", TO)).returncode == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_an_identity_that_others_may_read_gets_a_warning(tool: RunTool, key: Path) -> None:
    """It works all the same, and the warning is not on standard output."""
    key.chmod(0o644)
    done = tool("lnk-unseal", "-i", key, stdin=sealed(b"x", TO))
    assert (done.returncode, done.stdout) == (0, b"x")
    assert b"warning: others may read the identity" in done.stderr


@pytest.mark.parametrize(
    "content", ["", "# none", IDENTITY.to_file() * 2, str(TO), IDENTITY.reveal().lower(), "\0"]
)
def test_a_bad_identity_file_is_named_and_not_shown(tool: RunTool, key: Path, content: str) -> None:
    """The status is 2."""
    key.write_text(content)
    done = tool("lnk-unseal", "-i", key, stdin=sealed(b"x", TO))
    assert (done.returncode, done.stdout) == (2, b"")
    assert str(key).encode() in done.stderr
    assert IDENTITY.reveal()[20:].lower().encode() not in done.stderr.lower()


def test_an_identity_is_needed_once(tool: RunTool, key: Path) -> None:
    """The status is 2 without one, with two, and 3 with one that is not there."""
    assert tool("lnk-unseal", stdin=b"").returncode == 2
    assert tool("lnk-unseal", "-i", key, "-i", key, stdin=b"").returncode == 2
    assert tool("lnk-unseal", "-i", key.with_name("none"), stdin=b"").returncode == 3


def test_the_identity_itself_on_the_command_line_is_not_shown(tool: RunTool) -> None:
    """``-i`` takes a file; a secret in its place is not repeated."""
    done = tool("lnk-unseal", "-i", IDENTITY.reveal(), stdin=b"")
    assert done.returncode == 3
    assert IDENTITY.reveal()[16:].encode() not in done.stderr


@pytest.mark.parametrize(
    ("before", "hint"),
    [
        (b"Last login: today\n", b"18 bytes of text come first: a login banner?"),
        (b"\xff\xfeL\0", b"PowerShell"),
        (b"\x1f\x8b\x08\0", b"gzip -d"),
    ],
)
def test_a_known_accident_gets_a_hint(tool: RunTool, key: Path, before: bytes, hint: bytes) -> None:
    """On a line of its own."""
    done = tool("lnk-unseal", "-i", key, stdin=before + sealed(b"x", TO))
    assert (done.returncode, done.stdout) == (1, b"")
    error, hinted = done.stderr.splitlines()
    assert error.startswith(b"lnk-unseal: refused: envelope-magic: byte 0: ")
    assert hinted.startswith(b"lnk-unseal: hint: ")
    assert hint in hinted


def test_a_pipeline_of_all_three(tmp_path: Path) -> None:
    """As the man page has it."""
    bins = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'bin'))}"
    script = (
        f"set -eo pipefail; key=$({bins}/lnk-keygen -o move.key)\n"
        f"head -c 3000000 /dev/urandom > plain\n"
        f'cat plain | {bins}/lnk-seal -r "$key" | {bins}/lnk-unseal -i move.key | cmp - plain'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        env=clean_environment(),
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_reader_that_goes_away_ends_it_quietly(key: Path, tmp_path: Path) -> None:
    """As SIGPIPE does."""
    (tmp_path / "x.sealed").write_bytes(sealed(bytes(80 * FULL), TO))
    bins = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'bin'))}"
    script = f'{bins}/lnk-unseal -i "$1" < x.sealed | head -c 1 > one; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", key],
        capture_output=True,
        env=clean_environment(),
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout == b"141\n"
    assert done.stderr == b""


def test_a_run_that_is_stopped_leaves_no_file(key: Path, tmp_path: Path) -> None:
    """The temporary file is removed."""
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, ROOT / "bin" / "lnk-unseal", "-i", key, "-o", out],
        stdin=subprocess.PIPE,
        env=clean_environment(),
    )
    assert process.stdin is not None
    process.stdin.write(sealed(bytes(10 * FULL), TO)[:-1])
    process.stdin.flush()
    limit = time.monotonic() + 30
    while not any(name.endswith(".tmp") for name in os.listdir(tmp_path)):
        assert time.monotonic() < limit
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    process.stdin.close()
    assert os.listdir(tmp_path) == ["keys"]
