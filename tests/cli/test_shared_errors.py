from __future__ import annotations

import json
import subprocess

import pytest

from agentmove_tools.cli.errors import shown
from tests.cli.conftest import RunPrivate


def lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return done.stderr.decode().splitlines()


def test_a_refusal_names_program_code_and_place_on_one_line(private: RunPrivate) -> None:
    """Control characters, bidi overrides and lone bytes of a path are escaped; status 1."""
    done = private("refusal")
    assert done.returncode == 1
    assert lines(done) == [
        (
            r"private: refused: hash-mismatch: files/a\x1b[31m\x0a\u202e\xff.txt: "
            "the content has another hash than the stream says"
        )
    ]
    assert done.stdout == b""


def test_a_hint_is_a_line_of_its_own(private: RunPrivate) -> None:
    """A refusal with a place that is no path and a hint has both."""
    assert lines(private("place")) == [
        (
            "private: refused: stream-tar: byte 1536: "
            "the tar is malformed, or over a limit: bad checksum"
        ),
        "private: hint: was it cut?",
    ]


@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_refusal_in_json(private: RunPrivate, how: str) -> None:
    """Both ways to ask for JSON give one line with the code and the path."""
    if how == "option":
        done = private("refusal", "--json-errors")
    else:
        done = private("refusal", env={"AGENTMOVE_ERRORS": "json"})
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert json.loads(done.stderr) == {
        "error": {
            "message": "the content has another hash than the stream says",
            "details": {"refusal": "hash-mismatch", "path": "files/a\x1b[31m\n\u202e\\xff.txt"},
        }
    }
    assert done.stderr.isascii()


def test_json_holds_the_place_and_the_hint(private: RunPrivate) -> None:
    """A place that is no path stands in the message, a hint in the details."""
    error = json.loads(private("place", "--json-errors").stderr)["error"]
    assert error["message"].startswith("byte 1536: ")
    assert error["details"] == {"refusal": "stream-tar", "hint": "was it cut?"}


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["machine"], 3, "private: failed: files/a.txt: it changed while it was read"),
        (["missing-file"], 3, r"private: failed: no/such\x0afile: No such file or directory"),
        (["memory"], 3, "private: failed: out of memory"),
        (["usage"], 2, "private: usage: this is no recipient"),
        (["--nonesuch"], 2, "private: usage: no such option: --nonesuch"),
        (["--number", "x"], 2, "private: usage: invalid value for '--number': 'x' is not"),
        (["a", "b"], 2, "private: usage: got unexpected extra argument(s) (b)"),
        (["--output"], 2, "private: usage: option '--output' requires an argument"),
        (["exit"], 2, "private: usage: "),
    ],
)
def test_each_kind_of_failure_has_its_status(
    private: RunPrivate, arguments: list[str], status: int, text: str
) -> None:
    """The status says whose fault it is, and the first line what it is; nothing is a traceback."""
    done = private(*arguments)
    assert done.returncode == status
    assert lines(done)[0].startswith(text)
    assert len(lines(done)) <= 2
    assert done.stdout == b""


def test_a_mistake_in_the_command_line_is_told_in_json_too(private: RunPrivate) -> None:
    """Also when the mistake comes before the option that asks for JSON."""
    error = json.loads(private("--nonesuch", "--json-errors").stderr)["error"]
    assert error["message"] == "no such option: --nonesuch"


def test_json_errors_after_two_dashes_is_an_argument(private: RunPrivate) -> None:
    """What follows ``--`` is never an option."""
    assert private("a", "--", "--json-errors").stderr.startswith(b"private: usage: ")


@pytest.mark.parametrize("how", ["bug", "recursion"])
def test_an_unforeseen_exception_is_one_line(private: RunPrivate, how: str) -> None:
    """It says the exception's type but not its text, which may hold a secret; status 3."""
    done = private(how)
    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 1
    assert b"Traceback" not in done.stderr
    assert b"hunter2" not in done.stderr
    assert b"please report it: " in done.stderr


def test_an_unforeseen_exception_says_where_in_the_package(private: RunPrivate) -> None:
    """The deepest line of the package that it passed through is named."""
    assert b"ValueError at cli/tool.py:" in private("bug").stderr


@pytest.mark.parametrize("more", [[], ["--json-errors"]])
def test_a_secret_key_on_the_command_line_is_not_repeated(
    private: RunPrivate, more: list[str]
) -> None:
    """Whatever repeats a command line leaves a secret key out."""
    done = private("a", "LNK-SECRET-KEY-1QQQSAMPLE", *more)
    assert done.returncode == 2
    assert b"QQQSAMPLE" not in done.stderr


def test_names_are_shown_as_utf8_under_the_c_locale(private: RunPrivate) -> None:
    """Text that is not ASCII is neither escaped nor fatal under LC_ALL=C."""
    done = private("--name", "нотатки", "text", env={"LC_ALL": "C"})
    assert done.stderr.decode() == "private: нотатки\n"
    assert done.stdout.decode() == "нотатки\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("files/a b.txt", "files/a b.txt"),
        ("файли/ключ ✓", "файли/ключ ✓"),
        ("a\nb\x7f", r"a\x0ab\x7f"),
        ("a\u202eb\u2066c", r"a\u202eb\u2066c"),
        ("a\x9b31m", r"a\x9b31m"),
        ("a\udcffb", r"a\xffb"),
        ("a\ud800b", r"a\ud800b"),
        ("a\U000e0001b", r"a\U000e0001b"),
        ("x lnk-secret-key-1qqqq y", "x (a secret key) y"),
        ("it starts with LNK-SECRET-KEY-1...", "it starts with LNK-SECRET-KEY-1..."),
    ],
)
def test_what_a_terminal_would_act_on_is_escaped(text: str, expected: str) -> None:
    """Printable text stays; controls, bidi overrides and lone bytes are escaped."""
    assert shown(text) == expected
