from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.cli.conftest import PRIVATE
from tests.conftest import clean_environment

SECONDS = 30


@dataclass
class Terminal:
    """A terminal: ``user`` is our end, ``tool`` the one that a tool is given."""

    user: int
    tool: int

    def shown(self, until: Callable[[bytes], bool], seconds: float = SECONDS) -> bytes:
        """Give all that was written to it, as soon as ``until`` likes it or the time is over."""
        seen = b""
        end = time.monotonic() + seconds
        while not until(seen) and time.monotonic() < end:
            if select.select([self.user], [], [], 0.1)[0]:
                seen += os.read(self.user, 1 << 16)
        return seen


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    user, tool = pty.openpty()
    yield Terminal(user, tool)
    os.close(user)
    os.close(tool)


def run(
    *arguments: str,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PRIVATE, *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=clean_environment(env),
        timeout=SECONDS,
        check=False,
    )


def test_binary_output_is_not_written_to_a_terminal(terminal: Terminal) -> None:
    """The error says what to do; status 2."""
    done = run(stdout=terminal.tool)
    assert done.returncode == 2
    assert done.stderr == (
        b"private: usage: standard output is a terminal, and a stream is binary: "
        b"redirect it or use -o FILE\n"
    )


def test_a_terminal_by_its_path_is_no_better(terminal: Terminal) -> None:
    """``-o`` with a terminal's name is refused as well."""
    done = run("-o", os.ttyname(terminal.tool))
    assert done.returncode == 2
    assert b"is a terminal" in done.stderr


def test_text_is_written_to_a_terminal(terminal: Terminal) -> None:
    """Text output, a file, the help and the version do not mind one."""
    assert run("--text", stdout=terminal.tool).returncode == 0
    assert run("--version", stdout=terminal.tool).returncode == 0
    assert run("text", stdout=terminal.tool).returncode == 0
    assert run("-o", os.devnull, stdout=terminal.tool).returncode == 0


def test_standard_input_on_a_terminal_is_a_hint_and_no_hang(terminal: Terminal) -> None:
    """The tool does not wait for somebody to type a stream."""
    done = run(stdin=terminal.tool)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        "private: usage: standard input is a terminal, where a stream is expected",
        "private: hint: pipe it in, or redirect a file: < FILE",
    ]


def test_a_table_shows_every_row_and_no_control_character(terminal: Terminal) -> None:
    """A long table is printed whole, one header, markup and controls as text."""
    env = {"TERM": "dumb", "COLUMNS": "60"}
    with subprocess.Popen(
        [*PRIVATE, "--table"],
        stdin=subprocess.DEVNULL,
        stdout=terminal.tool,
        env=clean_environment(env),
    ) as process:
        seen = terminal.shown(lambda seen: b"/b]449" in seen and seen.endswith(b"449\r\n"))
    assert process.returncode == 0
    rows = [line.split() for line in seen.decode().replace("\r", "").splitlines()]
    assert rows[:2] == [["a", r"table\x07"], ["path", "size"]]
    assert rows[2:] == [[rf"files/[/b]{n}\x1b[2J", str(n)] for n in range(450)]


def start(terminal: Terminal, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
    """Start the tool with its standard error on the terminal and an input that does not end."""
    process = subprocess.Popen(
        [*PRIVATE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=terminal.tool,
        env=clean_environment({"TERM": "xterm", **env}),
    )
    assert process.stdin is not None
    process.stdin.write(b"x" * 123_456)
    process.stdin.flush()
    return process


def test_long_work_shows_progress(terminal: Terminal) -> None:
    """The count of bytes appears while the work goes on."""
    with start(terminal) as process:
        seen = terminal.shown(lambda seen: b"123.5" in seen)
        process.communicate(timeout=SECONDS)
    assert b"private" in seen
    assert b"123.5" in seen
    assert process.returncode == 0


def test_progress_has_no_colour_where_none_is_wanted(terminal: Terminal) -> None:
    """``NO_COLOR`` holds for it."""
    with start(terminal, NO_COLOR="1") as process:
        seen = terminal.shown(lambda seen: b"123.5" in seen)
        process.communicate(timeout=SECONDS)
    assert b"123.5" in seen
    assert b"\x1b[3" not in seen


@pytest.mark.parametrize(
    ("arguments", "env"), [(["--quiet"], {}), ([], {"TERM": "dumb"}), (["-q"], {})]
)
def test_no_progress_where_it_is_not_wanted(
    terminal: Terminal, arguments: list[str], env: dict[str, str]
) -> None:
    """Quiet, or on a terminal that cannot draw, nothing is shown."""
    with start(terminal, *arguments, **env) as process:
        assert terminal.shown(bool, seconds=1.5) == b""
        process.communicate(timeout=SECONDS)
    assert process.returncode == 0


def test_no_progress_without_a_terminal() -> None:
    """Standard error that is a pipe stays empty, also when colour is forced."""
    env = {"FORCE_COLOR": "1", "TERM": "xterm"}
    assert run("--pause", "1.5", env=env).stderr == b""


def test_one_tool_of_a_pipeline_draws_at_a_time(terminal: Terminal) -> None:
    """While another holds the terminal a tool draws nothing; then it takes its turn."""
    other = os.open(os.ttyname(terminal.tool), os.O_WRONLY | os.O_NOCTTY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with start(terminal) as process:
        assert terminal.shown(bool, seconds=1.5) == b""
        os.close(other)
        assert b"123.5" in terminal.shown(lambda seen: b"123.5" in seen)
        process.communicate(timeout=SECONDS)
    assert process.returncode == 0
