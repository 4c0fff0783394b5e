from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.conftest import ROOT, RunTool, clean_environment
from tests.stream.tars import (
    END,
    digest,
    file,
    folder,
    hashed,
    header,
    link,
    manifest,
    padded,
    pax,
    stream,
)

TOOL: Final = (sys.executable, str(ROOT / "bin" / "lnk-tar-list"))
TIME: Final = 1_700_000_000
ODD: Final = "files/[bold]é\n\x1b[31m\u202e\u2028 \"'\\"


def lines(data: bytes) -> list[Any]:
    """Give the values of JSON lines; each line has one."""
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def listed(path: str, content: bytes = b"x") -> dict[str, str | int]:
    return {
        "path": path,
        "kind": "file",
        "mode": "644",
        "mtime": TIME,
        "size": len(content),
        "sha256": digest(content).decode(),
    }


def test_entries_are_json_lines(tool: RunTool) -> None:
    """All of them in order; the manifest and the end are none."""
    data = stream(
        folder(b"files/"),
        file(b"files/a"),
        hashed(b"x") + header(b"files/run", b"0", 1, mode=b"0004711\0") + padded(b"x"),
        pax(LNK_sha256=digest(b"y"), mtime=b"-1.5") + header(b"files/y", b"0", 1) + padded(b"y"),
        link(b"files/l", "é".encode()),
    )
    done = tool("lnk-tar-list", stdin=data)
    assert (done.returncode, done.stderr) == (0, b"")
    assert lines(done.stdout) == [
        {"path": "files", "kind": "folder", "mode": "755", "mtime": TIME, "size": 0},
        listed("files/a"),
        {**listed("files/run"), "mode": "711"},
        {**listed("files/y", b"y"), "mtime": -2},
        {
            "path": "files/l",
            "kind": "link",
            "mode": "644",
            "mtime": TIME,
            "size": 0,
            "target": "é",
        },
    ]
    assert tool("lnk-tar-list", stdin=stream()).stdout == b""


def test_any_name_is_one_line(tool: RunTool) -> None:
    """And comes out of the JSON as it is in the stream, under any locale."""
    data = stream(file(b"files/" + b"n" * 90), file(ODD.encode()))
    for locale in ("C", "C.UTF-8"):
        done = tool("lnk-tar-list", stdin=data, env={"LC_ALL": locale})
        assert lines(done.stdout)[1] == listed(ODD)


def test_what_came_before_a_refusal_is_listed(tool: RunTool, tmp_path: Path) -> None:
    """And the status is 1; with ``-o`` there is no file."""
    good = manifest() + folder(b"files/") + file(b"files/a")
    for bad in (b"", file(b"files/a"), hashed(b"y") + header(b"files/b", size=1) + padded(b"x")):
        done = tool("lnk-tar-list", stdin=good + bad)
        assert done.returncode == 1
        assert [entry["path"] for entry in lines(done.stdout)][:2] == ["files", "files/a"]
        assert done.stderr.startswith(b"lnk-tar-list: refused: ")
        out = tmp_path / "out"
        assert tool("lnk-tar-list", "-o", out, stdin=good + bad).returncode == 1
        assert os.listdir(tmp_path) == []


def test_a_file_is_written_whole(tool: RunTool, tmp_path: Path) -> None:
    """With ``-o`` it has the same lines, and nothing is on standard output."""
    data = stream(file(b"files/a"), file(b"files/b"))
    done = tool("lnk-tar-list", "-o", tmp_path / "out", stdin=data)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "out").read_bytes() == tool("lnk-tar-list", stdin=data).stdout


def test_it_checks_as_lnk_tar_verify_does(tool: RunTool) -> None:
    """With the same options."""
    data = stream(link(b"files/l", b"/etc/passwd"))
    assert tool("lnk-tar-list", stdin=data).returncode == 1
    done = tool("lnk-tar-list", "--links", "any", stdin=data)
    assert [entry["target"] for entry in lines(done.stdout)] == ["/etc/passwd"]
    assert tool("lnk-tar-list", "--links", "no", stdin=data).returncode == 2
    for option in ("--max-bytes", "--max-entries"):
        done = tool("lnk-tar-list", "--links", "any", option, "0", stdin=data)
        assert (done.returncode, done.stdout) == (1, b"")
        assert option.encode() in done.stderr
    assert tool("lnk-tar-list", stdin=b"").returncode == 1


def test_lines_come_as_the_stream_does() -> None:
    """Those of what came, before more is waited for."""
    process = subprocess.Popen(
        TOOL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=clean_environment()
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(manifest())
        for number in range(3):
            process.stdin.write(file(b"files/%d" % number))
            assert json.loads(process.stdout.readline()) == listed(f"files/{number}")
        process.stdin.write(END)
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


# -- on a terminal


class OnTerminal:
    """The tool, with its standard output on a terminal; ``shown`` is what is on it so far."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._user, terminal = pty.openpty()
        self.process = subprocess.Popen(
            TOOL,
            stdin=subprocess.PIPE,
            stdout=terminal,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=clean_environment(
                {"COLUMNS": "120", "TERM": "xterm", "TZ": "UTC", "LC_ALL": "C.UTF-8", **(env or {})}
            ),
        )
        os.close(terminal)
        self.shown = ""

    def give(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def wait_for(self, until: Callable[[str], bool]) -> None:
        seen = b""
        end = time.monotonic() + 30
        while not until(self.shown + seen.decode(errors="replace")):
            assert time.monotonic() < end
            if select.select([self._user], [], [], 0.1)[0]:
                seen += os.read(self._user, 1 << 16)
        self.shown += seen.decode()

    def finish(self) -> tuple[int, str]:
        """Close its input and wait; give its status and what it said on standard error."""
        assert self.process.stdin is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        seen = b""
        while True:
            try:
                more = os.read(self._user, 1 << 16)
            except OSError:  # its end of the terminal is closed
                more = b""
            if not more:
                break
            seen += more
        self.shown += seen.decode()
        os.close(self._user)
        said = self.process.stderr.read().decode()
        self.process.stderr.close()
        return self.process.wait(30), said


def on_terminal(data: bytes, env: Mapping[str, str] | None = None) -> tuple[str, int, str]:
    """List a stream on a terminal; give what it shows, the status and standard error."""
    running = OnTerminal(env)
    running.give(data)
    status, said = running.finish()
    return running.shown, status, said


GOOD: Final = stream(
    folder(b"files/"),
    file(b"files/a", b"x" * 1536),
    file(ODD.encode()),
    link(b"files/l", b"[red]a"),
)


def test_a_terminal_gets_a_table() -> None:
    """Modes, sizes, times and paths as a person reads them, and totals last."""
    shown, status, said = on_terminal(GOOD)
    assert (status, said) == (0, "")
    rows = [line.rstrip() for line in re.sub("\x1b\\[[0-9;]*m", "", shown).splitlines()]
    assert rows[0].split() == ["mode", "size", "changed", "sha256", "path"]
    assert rows[1].split() == ["drwxr-xr-x", "2023-11-14", "22:13", "files/"]
    first = digest(b"x" * 1536)[:12].decode()
    assert rows[2].split() == [
        "-rw-r--r--", "1.5", "KiB", "2023-11-14", "22:13", first, "files/a"
    ]  # fmt: skip
    assert rows[4].endswith("files/l -> [red]a")
    assert rows[5].endswith("in all: 2 files, 1 folder, 1 link")
    assert len(rows) == 6


def test_no_name_does_anything_to_the_terminal() -> None:
    """Control characters are escaped, and nothing is read as markup."""
    for env in ({}, {"NO_COLOR": "1"}):
        shown, _, _ = on_terminal(GOOD, env)
        assert "files/[bold]é\\x0a\\x1b[31m\\u202e\\u2028 \"'\\" in shown
        assert "\x1b[31m" not in shown
        assert "\u202e" not in shown
    assert "\x1b" not in on_terminal(GOOD, {"TERM": "dumb"})[0]
    assert "\x1b[3" not in on_terminal(GOOD, {"NO_COLOR": "1"})[0]


def test_a_long_table_comes_in_parts() -> None:
    """Before the stream is at its end; and its columns stay where they are."""
    running = OnTerminal()
    running.give(manifest() + b"".join(file(b"files/%04d" % number) for number in range(900)))
    running.wait_for(lambda shown: "files/0500" in shown)
    running.give(END)
    assert running.finish()[0] == 0
    rows = running.shown.splitlines()
    places = {row.index("files/") for row in rows if "files/" in row}
    assert len(places) == 1
    assert sum("files/" in row for row in rows) == 900
    assert "in all: 900 files" in rows[-1]


def test_a_table_that_ends_in_a_refusal_has_what_came_before() -> None:
    """The error follows it."""
    shown, status, said = on_terminal(manifest() + file(b"files/a") + file(b"files/b"))
    assert status == 1
    assert said.startswith("lnk-tar-list: refused: stream-cut: byte ")
    assert "files/a" in shown
    assert "files/b" in shown
    assert "in all" not in shown


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    """It is shown as it is."""
    data = stream(
        pax(LNK_sha256=digest(b"x"), mtime=b"9" * 18) + header(b"files/a", size=1) + padded(b"x")
    )
    shown, status, _ = on_terminal(data)
    assert status == 0
    assert "9" * 18 in shown
