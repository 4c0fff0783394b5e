from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from tests.cli.conftest import PRIVATE, RunShell
from tests.conftest import clean_environment

ZEROS: Final = "head -c 5000000 /dev/zero"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("$private <&-", "standard input is closed, where a stream is expected"),
        ("$private -o out <&-", "standard input is closed, where a stream is expected"),
        ("$private >&-", "standard output is closed"),
        ("$private text >&-", "standard output is closed"),
        ("$private --help >&-", "standard output is closed"),
        ("$private --version >&-", "standard output is closed"),
        ("$private <&- >&-", "standard input is closed, where a stream is expected"),
    ],
)
def test_a_closed_descriptor_is_one_clear_line(shell: RunShell, script: str, message: str) -> None:
    """The status is 3, and no other file is taken for the closed one."""
    done = shell(script)
    assert done.returncode == 3
    assert done.stderr.decode() == f"private: failed: {message}\n"


def test_closed_standard_error_leaves_the_status(shell: RunShell) -> None:
    """What cannot be said is not said elsewhere."""
    done = shell("$private refusal 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_with_everything_closed_the_version_still_fails(shell: RunShell) -> None:
    """Three closed descriptors are no traceback and no hang."""
    assert shell("$private --version <&- >&- 2>&-").returncode == 3


def test_a_file_that_is_opened_never_takes_a_closed_ones_place(
    shell: RunShell, tmp_path: Path
) -> None:
    """With standard output closed, ``-o`` still writes the whole file, and nothing else does."""
    done = shell("echo data | $private --name note -o out >&- 2>&-")
    assert done.returncode == 0
    assert (tmp_path / "out").read_bytes() == b"data\n"


def test_a_reader_that_goes_away_ends_it_as_sigpipe(shell: RunShell) -> None:
    """``| head`` leaves the status 141 and says nothing."""
    done = shell(f'{ZEROS} | $private | head -c 1 >/dev/null; echo "${{PIPESTATUS[1]}}"')
    assert done.stdout == b"141\n"
    assert done.stderr == b""


@pytest.mark.parametrize("option", ["--help", "--version", "text"])
def test_a_reader_that_never_reads_ends_it_as_sigpipe(shell: RunShell, option: str) -> None:
    """Text is no different."""
    done = shell(f'(sleep 1; exec $private {option}) | true; echo "${{PIPESTATUS[0]}}"')
    assert done.stdout == b"141\n"
    assert done.stderr == b""


@pytest.mark.parametrize("what", ["--help", "--version", "text", "--text"])
@pytest.mark.parametrize("env", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_a_late_write_error_is_told(shell: RunShell, what: str, env: dict[str, str]) -> None:
    """A full disk is status 3, buffered or not."""
    done = shell(f"echo data | $private {what} >/dev/full", env=env)
    assert done.returncode == 3
    expected = "private: failed: standard output: No space left on device\n"
    assert done.stderr.decode() == expected


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)],
)
def test_a_signal_is_quiet_and_leaves_no_file(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """The temporary file is removed, the old file is as it was, and nothing is said."""
    out = tmp_path / "out"
    out.write_bytes(b"old")
    with subprocess.Popen(
        [*PRIVATE, "-o", out],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    ) as process:
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        process.send_signal(number)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(30) == status
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert out.read_bytes() == b"old"


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """Under ``nohup`` a hang-up does not end the work."""
    with subprocess.Popen(
        ["nohup", *PRIVATE, "-o", tmp_path / "out"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environment(),
    ) as process:
        wait_for(lambda: any(tmp_path.iterdir()))
        process.send_signal(signal.SIGHUP)
        process.communicate(b"data", timeout=30)
        assert process.returncode == 0
    assert (tmp_path / "out").read_bytes() == b"data"


def wait_for(condition: object) -> None:
    """Wait until the callable gives true, and fail after half a minute."""
    assert callable(condition)
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
