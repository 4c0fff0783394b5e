from __future__ import annotations

import hashlib
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import ROOT, RunTool, clean_environment
from tests.memory import peak_memory
from tests.test_canonical import SAID, Row, rows

COMMAND: Final = (sys.executable, str(ROOT / "bin" / "lnk-canon"))


def test_the_vectors_that_are_taken_hold(tool: RunTool, vectors: Path) -> None:
    """All of them in one run, a value a line."""
    taken = [row for row in rows() if row.form is not None]
    done = tool("lnk-canon", stdin=b"".join(row.text + b"\n" for row in taken))
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.split(b"\n") == [*(row.form for row in taken), b""]


@pytest.mark.parametrize(
    "row", [row for row in rows() if row.form is None], ids=lambda row: f"line {row.line}"
)
def test_a_vector_that_is_refused_holds(tool: RunTool, row: Row) -> None:
    """The line is named, its reason said, and what came before it is out."""
    done = tool("lnk-canon", "--json-errors", stdin=b"[1, 2]\n" + row.text + b"\n3\n")
    assert (done.returncode, done.stdout) == (1, b"[1,2]\n")
    error = json.loads(done.stderr)["error"]
    assert error["details"] == {"refusal": "canon-json", "line": 2}
    assert SAID[row.why] in error["message"]


def test_a_refused_line_is_named(tool: RunTool) -> None:
    """In one line, by its number."""
    done = tool("lnk-canon", stdin=b"1\n2\n[ 3 ]\n[4\n5\n")
    assert (done.returncode, done.stdout) == (1, b"1\n2\n[3]\n")
    assert done.stderr.startswith(b"lnk-canon: refused: canon-json: line 4: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (b"", b""),
        (b"1", b"1\n"),
        (b'{"b": 1, "a": 2}\r\n{}\n', b'{"a":2,"b":1}\n{}\n'),
        ('"\u2028"\n" \x85"'.encode(), '"\u2028"\n" \x85"\n'.encode()),
    ],
)
def test_each_value_comes_out_on_a_line(tool: RunTool, given: bytes, written: bytes) -> None:
    """Also the last one, where its line has no end."""
    done = tool("lnk-canon", stdin=given)
    assert (done.returncode, done.stdout, done.stderr) == (0, written, b"")


@pytest.mark.parametrize("given", [b"1\n\n2\n", b"1\n \t\r\n", b"1\n "])
def test_a_blank_line_is_refused(tool: RunTool, given: bytes) -> None:
    """It is no value."""
    done = tool("lnk-canon", stdin=given)
    assert (done.returncode, done.stdout) == (1, b"1\n")
    assert b"line 2: " in done.stderr
    assert b"there is no value" in done.stderr


def test_a_line_that_never_ends_is_refused(tool: RunTool) -> None:
    """The error says how long one may be."""
    done = tool("lnk-canon", stdin=b"1\n" + b"[" * ((64 << 20) + 1))
    assert (done.returncode, done.stdout) == (1, b"1\n")
    assert b"line 2: " in done.stderr
    assert b"64 MiB" in done.stderr


def test_a_file_is_whole_or_not_there(tool: RunTool, tmp_path: Path) -> None:
    """With ``-o``, a refused line leaves the old file as it was."""
    file = tmp_path / "out"
    done = tool("lnk-canon", "-o", file, stdin=b"[ 1 ]\n")
    assert (done.returncode, done.stdout, file.read_bytes()) == (0, b"", b"[1]\n")
    done = tool("lnk-canon", "-o", file, stdin=b"2\n3 4\n")
    assert (done.returncode, done.stdout, file.read_bytes()) == (1, b"", b"[1]\n")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_value_comes_out_before_the_next_is_waited_for() -> None:
    """So it can stand in a pipe that stays open."""
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment()
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        guard = threading.Timer(60, running.kill)
        guard.start()
        for number in range(3):
            running.stdin.write(b"[ %d ]\n" % number)
            running.stdin.flush()
            assert running.stdout.readline() == b"[%d]\n" % number
        guard.cancel()
        running.stdin.close()
        assert running.stdout.read() == b""
    assert running.returncode == 0


def write_events(place: Path, lines: int) -> Path:
    """Write so many lines of 4 KB."""
    line = json.dumps({"text": "x" * 4000, "cost": 1e-5, "at": [1, 2, 3]}).encode() + b"\n"
    with place.open("wb") as file:
        for _ in range(lines):
            file.write(line)
    return place


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    """40 MB of lines take no more than a few do, give or take some buffers."""
    few = peak_memory("lnk-canon", source=write_events(tmp_path / "few", 100))
    many = peak_memory("lnk-canon", source=write_events(tmp_path / "many", 10_000))
    assert many - few < 5 << 20


def test_a_conversation_hashes_as_in_have(tool: RunTool) -> None:
    """What the man page's example says: the hash is that of the output."""
    from io import BytesIO

    from agentmove_tools.canonical import hash_lines

    events = b'{"b": 1, "a": 1e-5}\n{"z": [], "y": "\\u00e9"}'
    done = tool("lnk-canon", stdin=events)
    assert hashlib.sha256(done.stdout).digest() == hash_lines(BytesIO(events))


def test_the_example_of_the_page_is_true(tool: RunTool) -> None:
    """As it is printed."""
    page = (ROOT / "man" / "man1" / "lnk-canon.1").read_text()
    given = r"""{"b": 1.50, "a": "\u00e9", "b": 2e0}"""
    assert f"$ echo '{given}' | lnk-canon".replace("\\u", "\\eu") in page
    assert r"""{"a":"\('e","b":2.0}""" in page
    assert tool("lnk-canon", stdin=given.encode() + b"\n").stdout.decode() == '{"a":"é","b":2.0}\n'


def test_a_terminal_is_not_waited_for() -> None:
    """Somebody who forgot the pipe is told so."""
    user, terminal = pty.openpty()
    try:
        done = subprocess.run(
            COMMAND,
            stdin=terminal,
            capture_output=True,
            env=clean_environment(),
            timeout=60,
            check=False,
        )
    finally:
        os.close(user)
        os.close(terminal)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"standard input is a terminal" in done.stderr
    assert b"lnk-canon: hint: " in done.stderr


MANY: Final = 1_000_000
HARD: Final = {
    "digits": (b"7" * MANY, 0),
    "decimals": (b"-1." + b"0" * MANY + b"1", 0),
    "small number": (b"0." + b"0" * MANY + b"1", 0),
    "exponent": (b"1e" + b"9" * MANY, 1),
    "depth": (b"[" * MANY, 1),
    "values": (b"[]" * MANY, 1),
    "width": (b"[" + b"[],{}," * (MANY // 8) + b"1]", 0),
    "open string": (b"[" * 127 + b'"' + b'\\"' * MANY, 1),
    "open string, too deep": (b"[" * 128 + b'"' + b'\\"' * MANY, 1),
    "open string after much": (b"[" + b"[1]," * 200 + b'"' + b'\\"' * MANY, 1),
    "brackets in an open string": (b'"' + b"[" * 200 + b"\\\\" * MANY, 1),
    "surrogates": (b'["' + b"\\ud83d\\ude00" * (MANY // 12) + b'"]', 0),
    "no surrogates": (b'["' + b"\\\\ud83d" * (MANY // 8) + b'\\ud83d"]', 1),
    "small numbers": (b"[" + b'"1e-05",1e-5,' * (MANY // 12) + b"1]", 0),
    "one key": (b"{" + b'"k":{},' * (MANY // 8) + b'"k":1}', 0),
    "white space": (b" " * MANY + b"1" + b" " * MANY, 0),
}


@pytest.mark.parametrize("hard", HARD)
def test_no_line_takes_for_ever(tool: RunTool, hard: str) -> None:
    """A million characters made to be hard take far under the two minutes that a run has."""
    text, status = HARD[hard]
    done = tool("lnk-canon", stdin=text + b"\n")
    assert done.returncode == status
    assert (b"canon-json: line 1: " in done.stderr) == (status == 1)
    assert done.stdout.count(b"\n") == 1 - status
