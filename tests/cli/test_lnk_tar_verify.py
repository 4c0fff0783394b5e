from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from agentmove_tools.stream.paths import END_NAME
from tests.conftest import ROOT, VECTORS, RunTool, clean_environment
from tests.stream.tars import END, file, folder, link, manifest, stream

TOOL: Final = (sys.executable, str(ROOT / "bin" / "lnk-tar-verify"))
GOOD: Final = stream(folder(b"files/"), file(b"files/a"), file(b"files/z", b"z" * 3_000_000))
INDEX: Final = VECTORS / "stream" / "index.json"
ROWS: Final[list[dict[str, Any]]] = json.loads(INDEX.read_text()) if INDEX.exists() else []
# the last of each code, and of each that names a place otherwise
BAD: Final = {
    (row["refusal"], "path" in row, row.get("field")): row for row in ROWS if "refusal" in row
}


def test_a_good_stream_passes_as_it_is(tool: RunTool, tmp_path: Path) -> None:
    """To standard output, and with ``-o`` into a file."""
    piped = tool("lnk-tar-verify", stdin=GOOD)
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, GOOD, b"")
    filed = tool("lnk-tar-verify", "-o", tmp_path / "out", stdin=GOOD)
    assert (filed.returncode, filed.stdout, filed.stderr) == (0, b"", b"")
    assert (tmp_path / "out").read_bytes() == GOOD
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("row", BAD.values(), ids=lambda row: row["file"])
def test_a_bad_one_is_told_and_gets_no_end(
    tool: RunTool, row: dict[str, Any], tmp_path: Path, vectors: Path
) -> None:
    """Status 1, one line (and a hint at most), code and place; an old file stays."""
    data = (vectors / "stream" / row["file"]).read_bytes()
    piped = tool("lnk-tar-verify", stdin=data)
    out = tmp_path / "out"
    out.write_bytes(b"old")
    filed = tool("lnk-tar-verify", "-o", out, "--json-errors", stdin=data)
    assert piped.returncode == filed.returncode == 1
    assert data.startswith(piped.stdout)
    assert END_NAME not in piped.stdout
    assert out.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]
    told, *hints = piped.stderr.decode().splitlines()
    place = row.get("path") or row.get("field") or ""
    assert told.startswith(f"lnk-tar-verify: refused: {row['refusal']}: {place}")
    assert all(re.match("lnk-tar-verify: hint: ", line) for line in hints)
    assert len(hints) <= 1
    details = json.loads(filed.stderr)["error"]["details"]
    assert details["refusal"] == row["refusal"]
    for key in ("path", "field"):
        if key in row:
            assert details[key] == row[key]


def test_there_are_bad_vectors_of_many_codes() -> None:
    """The test above is not empty where the vectors are there."""
    assert not ROWS or len(BAD) >= 20


def test_a_later_stage_refuses_what_an_earlier_one_refused(tmp_path: Path) -> None:
    """Though the shell takes no notice of the first one's status."""
    (tmp_path / "bad").write_bytes(GOOD + b"x")
    script = f"{shlex.join(TOOL)} < bad 2> first | {shlex.join(TOOL)} > out 2> second"
    done = subprocess.run(
        ["bash", "-c", script], env=clean_environment(), cwd=tmp_path, check=False
    )
    assert done.returncode == 1
    assert (tmp_path / "first").read_text().startswith("lnk-tar-verify: refused: stream-after-end:")
    assert (tmp_path / "second").read_text().startswith("lnk-tar-verify: refused: stream-cut:")
    assert (tmp_path / "out").read_bytes() == GOOD[: GOOD.rindex(END)]


def test_links_are_taken_as_was_asked(tool: RunTool) -> None:
    """By default those that stay inside; anything else than the two words is a usage error."""
    data = stream(link(b"files/l", b"/etc/passwd"))
    assert tool("lnk-tar-verify", stdin=data).returncode == 1
    assert tool("lnk-tar-verify", "--links", "inside", stdin=data).returncode == 1
    taken = tool("lnk-tar-verify", "--links", "any", stdin=data)
    assert (taken.returncode, taken.stdout) == (0, data)
    wrong = tool("lnk-tar-verify", "--links", "all", stdin=data)
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    assert wrong.stderr.startswith(b"lnk-tar-verify: usage: ")


def test_limits_hold(tool: RunTool) -> None:
    """Exactly; the error says which option it was."""
    size = str(len(GOOD))
    done = tool("lnk-tar-verify", "--max-bytes", size, "--max-entries", "3", stdin=GOOD)
    assert (done.returncode, done.stdout) == (0, GOOD)
    for option, value in (("--max-bytes", str(len(GOOD) - 1)), ("--max-entries", "2")):
        done = tool("lnk-tar-verify", option, value, stdin=GOOD)
        assert done.returncode == 1
        assert END_NAME not in done.stdout
        assert done.stderr.startswith(b"lnk-tar-verify: refused: stream-tar: ")
        assert option.encode() in done.stderr
    for value in ("-1", "x", ""):
        done = tool("lnk-tar-verify", "--max-bytes", value, stdin=GOOD)
        assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"Last login: today\n" + GOOD, b"18 bytes of text come first: a login banner?"),
        (b"\xff\xfel\0n\0", b"PowerShell"),
        (b"\x1f\x8b\x08\0" + bytes(600), b"gzip -d"),
        (b"LNKSEAL1" + bytes(600), b"lnk-unseal"),
    ],
)
def test_a_known_accident_gets_a_hint(tool: RunTool, data: bytes, hint: bytes) -> None:
    """On a line of its own, and nothing passes."""
    done = tool("lnk-tar-verify", stdin=data)
    assert (done.returncode, done.stdout) == (1, b"")
    error, hinted = done.stderr.splitlines()
    assert error.startswith(b"lnk-tar-verify: refused: stream-not-move: ")
    assert hinted.startswith(b"lnk-tar-verify: hint: ")
    assert hint in hinted


def test_names_are_shown_escaped_and_whole(tool: RunTool) -> None:
    """Under any locale: what is printable as it is, what is not by its number."""
    name = "files/é\n\x1b[31m\u202e"
    data = stream(file(b"files/ok"), file(name.encode(), b"x"), file(name.encode(), b"x"))
    for locale in ("C", "C.UTF-8"):
        done = tool("lnk-tar-verify", stdin=data, env={"LC_ALL": locale})
        assert done.returncode == 1
        assert "entry-duplicate: files/é\\x0a\\x1b[31m\\u202e: " in done.stderr.decode()
        assert done.stderr.count(b"\n") == 1
    told = tool("lnk-tar-verify", stdin=data, env={"AGENTMOVE_ERRORS": "json"})
    assert json.loads(told.stderr)["error"]["details"]["path"] == name


def test_it_flows(tmp_path: Path) -> None:
    """Each entry comes out while the next one is still awaited."""
    process = subprocess.Popen(
        TOOL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=clean_environment()
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        for part in (
            manifest(),
            folder(b"files/"),
            file(b"files/a"),
            file(b"files/b", b"b" * 9000),
        ):
            process.stdin.write(part)
            got = b""
            while len(got) < len(part):
                got += process.stdout.read(len(part) - len(got)) or b""
            assert got == part
        process.stdin.write(END)
        process.stdin.close()
        assert process.stdout.read() == END
    assert process.returncode == 0


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    """As SIGPIPE does."""
    (tmp_path / "good").write_bytes(GOOD)
    script = f'{shlex.join(TOOL)} < good | head -c 1 > one; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        env=clean_environment(),
        cwd=tmp_path,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"141\n", b"")


def test_a_full_disk_is_the_machines_fault(tool: RunTool) -> None:
    """Status 3, one line."""
    done = tool("lnk-tar-verify", "-o", "/dev/full", stdin=GOOD)
    assert done.returncode == 3
    assert done.stderr == b"lnk-tar-verify: failed: /dev/full: No space left on device\n"


def test_a_stream_is_neither_typed_nor_shown(tmp_path: Path) -> None:
    """A terminal at either end is a usage error, not a hang."""
    user, terminal = pty.openpty()
    try:
        (tmp_path / "good").write_bytes(GOOD)
        with (tmp_path / "good").open("rb") as good:
            for stdin, stdout in ((terminal, subprocess.PIPE), (good.fileno(), terminal)):
                done = subprocess.run(
                    TOOL,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=subprocess.PIPE,
                    env=clean_environment(),
                    timeout=30,
                    check=False,
                )
                assert done.returncode == 2
                assert b"is a terminal" in done.stderr
    finally:
        os.close(user)
        os.close(terminal)
