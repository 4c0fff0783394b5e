"""``agentfy-pack`` with no FOLDER, as one calls it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cli.agents import tools
from tests.cli.conftest import RunShell
from tests.conftest import ROOT, RunTool, clean_environment
from tests.envelope.streams import sealed
from tests.home.builder import File, Folder, Link, make_home, put, snapshot, stream_of
from tests.package.folders import event, names
from tests.package.packages import contents, package_in
from tests.package.zips import MINIMAL, zipped
from tests.refusal_cases import IDENTITY

NAME: Final = "agentfy-pack"
TOOL: Final = (sys.executable, str(ROOT / "bin" / NAME))
TOKEN: Final = "t0ken-that-nobody-sees"
SKILL: Final = "---\nname: cook\ndescription: Cooks.\n---\n"

# What a package has no place for in that Home, and what is not asked for.
LEFT_OUT: Final = b"""\
agentfy-pack: left out: files/a.txt: a package holds none of the agent's own files
agentfy-pack: left out: files/link: a package holds none of the agent's own files
agentfy-pack: left out: memory/engine/index.db: a package holds no index of a memory engine
agentfy-pack: left out: schedule/day.json: a package holds no schedule
agentfy-pack: left out: schedule/waiting/j1.json: a package holds no schedule
agentfy-pack: left out: files/empty: a package holds none of the agent's own files
agentfy-pack: left out: harness/package/data/usage.json: only with --with usage
"""


def laptop(folder: Path) -> Path:
    """A Home with something of each kind, and no more events than a package can hold."""
    return make_home(
        folder,
        fields={"color": "blue"},
        owner="Olga",
        files={"a.txt": "alpha", "link": Link(b"a.txt"), "empty": Folder()},
        memory={"engine/index.db": b"\0" * 100},
        notes="# notes\n",
        instructions="be kind\n",
        skills={"cook/SKILL.md": SKILL, "cook/run.sh": File(b"#!/bin/sh\n", 0o755)},
        package={"USER.md": "Zoë\n", "data/usage.json": '{"tokens": 5}\n'},
        conversations={
            "web:alice": event(1) + event(2),
            "main": event(1),
        },
        threads={"main": {"tools": ["read"]}},
        connections={"mail.json": File(f'{{"token":"{TOKEN}"}}'.encode(), 0o600)},
        jobs={"waiting/j1": {"id": "j1"}},
        day=["2026-01-01", 3],
        paused=True,
    )


@pytest.fixture
def home(here: Path) -> Path:
    """The Home on the laptop."""
    return laptop(here / "home")


@pytest.fixture
def stream(home: Path) -> bytes:
    """Its switch."""
    return stream_of(home, "switch")


def test_a_stream_becomes_a_package(tool: RunTool, stream: bytes) -> None:
    """What it holds goes into the archive, what has no place is named, no secret's value shows."""
    done = tool(NAME, stdin=stream)
    assert (done.returncode, done.stderr) == (0, LEFT_OUT)
    found = contents(package_in(done.stdout))
    assert found.keys() == {
        "SOUL.md",
        "MEMORY.md",
        "USER.md",
        "agent.config.json",
        "skills/cook/SKILL.md",
        "skills/cook/run.sh",
        "data/secrets/agent.json",
        "data/sessions/thread:main.jsonl",
        "data/sessions/web:alice.jsonl",
    }
    assert found["SOUL.md"] == b"be kind\n"
    assert found["data/secrets/agent.json"] == names("mail")
    assert found["data/sessions/web:alice.jsonl"] == event(1) + event(2)
    assert json.loads(found["agent.config.json"]) == {
        "id": "a1",
        "name": "Ada",
        "harness": "claude",
        "owner": "Olga",
        "threads": {"thread:main": {"tools": ["read"]}},
    }
    assert TOKEN.encode() not in done.stdout
    checked = tool("agentfy-verify", stdin=done.stdout)
    assert (checked.returncode, checked.stdout) == (0, done.stdout)


def test_the_same_stream_gives_the_same_bytes(tool: RunTool, stream: bytes) -> None:
    """In any zone and locale, quiet or not, into a pipe or through standard output's name."""
    first = tool(NAME, stdin=stream).stdout
    assert first
    env = {"LC_ALL": "C", "LANG": "C", "TZ": "America/Lima", "PYTHONHASHSEED": "7"}
    done = tool(NAME, "--quiet", "-o", "-", stdin=stream, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, first, LEFT_OUT)


def test_names_are_shown_as_they_are(tool: RunTool, tmp_path: Path) -> None:
    """As UTF-8 in the C locale too; what a terminal would act on is escaped."""
    home = make_home(tmp_path / "home", instructions="x", files={"größe\n\x1b": "x"})
    done = tool(NAME, stdin=stream_of(home, "switch"), env={"LC_ALL": "C"})
    assert done.returncode == 0
    assert "left out: files/größe\\x0a\\x1b: ".encode() in done.stderr


def test_a_report_says_what_crossed(tool: RunTool, stream: bytes, tmp_path: Path) -> None:
    """In = written + passed over, for each kind; by path and reason what did not; no value."""
    report = tmp_path / "report"
    done = tool(NAME, "--report", report, "-o", tmp_path / "a.zip", stdin=stream)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", LEFT_OUT)
    text = report.read_text()
    found = json.loads(text)
    assert found["agent"] == {"id": "a1", "name": "Ada"}
    assert found["kinds"] == {
        kind: {"in": written + passed, "written": written, "passed_over": passed}
        for kind, written, passed in (
            ("connections", 1, 0),
            ("conversations", 3, 0),
            ("files", 0, 2),
            ("instructions", 1, 0),
            ("jobs", 0, 2),
            ("memory", 0, 1),
            ("notes", 1, 0),
            ("package", 1, 1),
            ("skills", 2, 0),
        )
    }
    assert found["events"] == {"in": 3, "written": 3, "repeats": 0, "skipped": 0}
    said = [line.split(b": ", 3)[2:] for line in LEFT_OUT.splitlines()]
    *left_out, unasked = [{"path": path.decode(), "reason": why.decode()} for path, why in said]
    assert found["left_out"] == left_out
    assert found["not_asked_for"] == [unasked]
    assert found["secrets"] == {"agent": ["mail"]}
    assert TOKEN not in text


def test_a_copy_says_what_it_lacks(tool: RunTool, home: Path) -> None:
    """It carries no connections, so that the names of secrets are not known."""
    done = tool(NAME, stdin=stream_of(home, "copy"))
    assert done.returncode == 0
    assert done.stderr.decode().splitlines()[-1] == (
        f"{NAME}: note: a copy carries no connections: the names of these secrets are not known"
    )
    assert "data/secrets/agent.json" not in contents(package_in(done.stdout))


def test_what_is_asked_for_goes_too(tool: RunTool, stream: bytes) -> None:
    """As with a folder."""
    done = tool(NAME, "--with", "usage", stdin=stream)
    assert done.returncode == 0
    assert b"usage" not in done.stderr
    assert tool("agentfy-verify", stdin=done.stdout).returncode == 0
    assert b"data/usage.json" in done.stdout


def test_strict_refuses_and_names_every_path(tool: RunTool, stream: bytes, tmp_path: Path) -> None:
    """Nothing comes out, files of before stay, and a program is told all paths at once."""
    for name in ("a.zip", "report"):
        (tmp_path / name).write_bytes(b"old")
    out = ("-o", tmp_path / "a.zip", "--report", tmp_path / "report")
    done = tool(NAME, "--strict", *out, "--json-errors", stdin=stream)
    assert (done.returncode, done.stdout) == (1, b"")
    error = json.loads(done.stderr)["error"]
    paths = [line.split(b": ")[2].decode() for line in LEFT_OUT.splitlines()[:-1]]
    assert error["details"] == {"refusal": "bridge-loss", "path": paths[0], "paths": paths}
    assert "5 more" in error["message"]
    assert {path.name for path in tmp_path.iterdir()} == {"a.zip", "report"}
    assert [(tmp_path / name).read_bytes() for name in ("a.zip", "report")] == [b"old", b"old"]
    done = tool(NAME, "--strict", stdin=stream)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"agentfy-pack: refused: bridge-loss: files/a.txt: ")
    assert done.stderr.count(b"\n") == 1


def test_strict_takes_what_has_a_place(tool: RunTool, tmp_path: Path) -> None:
    """What is merely not asked for is no loss."""
    home = laptop(tmp_path / "home")
    for path in ("files", "memory/engine", "schedule"):
        subprocess.run(["rm", "-r", home / path], check=True)
    done = tool(NAME, "--strict", stdin=stream_of(home, "switch"))
    assert (done.returncode, done.stderr) == (0, LEFT_OUT.splitlines(keepends=True)[-1])


BAD: Final = b'{"id":"e9","type":"joke","ts":0,"data":{}}\n'
EVENTS: Final = "harness/conversations/web:alice/events.jsonl"


def test_an_event_that_a_package_cannot_hold(tool: RunTool, home: Path, tmp_path: Path) -> None:
    """It is refused with the stream's file and line; with the option it is named and left out."""
    put(home, EVENTS, event(1) + BAD + event(2))
    stream = stream_of(home, "switch")
    done = tool(NAME, stdin=stream)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(f"{NAME}: refused: event-type: {EVENTS}: line 2: ".encode())
    report = tmp_path / "report"
    done = tool(NAME, "--skip-events", "--report", report, stdin=stream)
    assert done.returncode == 0
    skipped, rest = done.stderr.split(b"\n", 1)
    assert skipped.startswith(f"{NAME}: skipped: {EVENTS}: line 2: ".encode())
    assert rest == LEFT_OUT
    found = json.loads(report.read_text())
    assert found["events"] == {"in": 4, "written": 3, "repeats": 0, "skipped": 1}
    assert [(each["path"], each["line"]) for each in found["skipped_events"]] == [(EVENTS, 2)]
    held = contents(package_in(done.stdout))["data/sessions/web:alice.jsonl"]
    assert held == event(1) + event(2)


def test_links_that_lead_outside(tool: RunTool, home: Path) -> None:
    """They are refused as by any reader of streams, but where they are asked for."""
    put(home, "files/out", Link(b"/etc"))
    stream = stream_of(home, "switch", any_links=True)
    done = tool(NAME, stdin=stream)
    assert done.returncode == 1
    assert done.stderr.startswith(b"agentfy-pack: refused: entry-link: files/out: ")
    done = tool(NAME, "--links", "any", stdin=stream)
    assert done.returncode == 0
    assert b"left out: files/out: " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["home", "--skip-events"], "--skip-events is for a Move Stream: leave FOLDER out"),
        (["home", "--report", "r"], "--report is for a Move Stream: leave FOLDER out"),
        (["home", "--links", "any"], "--links is for a Move Stream: leave FOLDER out"),
        (["", "--report", "r"], "FOLDER is empty: a variable that is not set?"),
        ([""], "FOLDER is empty: a variable that is not set?"),
        (["--links", "all"], "--links is inside or any"),
        (["--external-id", ""], "--external-id is empty"),
        (["--with", "secrets"], "--with takes usage and browser-state, not 'secrets'"),
        (["--report", "-"], "--report needs a file: the result goes to standard output"),
        (["--report", "r", "-o", "./r"], "--report r is where the result goes"),
        (["--report", "/dev/stdout"], "--report /dev/stdout is where the result goes"),
        (["--report", "home"], "home is a folder: name a file in it"),
        (["-o", "home"], "home is a folder: name a file in it"),
        (["--move", "0" * 32], "no such option: --move"),
    ],
)
def test_a_mistake_in_the_command_line(
    tool: RunTool, home: Path, arguments: list[str], said: str
) -> None:
    """One line, and nothing is read or written."""
    before = snapshot(home.parent)
    done = tool(NAME, *arguments, stdin=b"no stream", cwd=home.parent)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith(f"{NAME}: usage: {said}")
    assert snapshot(home.parent) == before


def test_a_stream_named_in_a_folders_place_gets_a_hint(tool: RunTool, tmp_path: Path) -> None:
    """The commonest mistake with a filter."""
    (tmp_path / "my move.lnk").write_bytes(b"")
    done = tool(NAME, "my move.lnk", cwd=tmp_path)
    assert done.returncode == 2
    assert b"my move.lnk is a file: name a folder\n" in done.stderr
    assert b"hint: a Move Stream is read from standard input: " in done.stderr
    assert b"agentfy-pack < 'my move.lnk'\n" in done.stderr


def test_the_help_tells_both_ways(tool: RunTool) -> None:
    """What is read where no folder is named, and which options go with it only."""
    shown = " ".join(tool(NAME, "--help").stdout.decode().split())
    assert "agentfy-pack [OPTIONS] [FOLDER]" in shown
    assert "without it a Move Stream is read" in shown
    assert shown.count("Without FOLDER: ") == 2


def test_a_report_that_cannot_be_written_is_told_first(tool: RunTool, tmp_path: Path) -> None:
    """Before anything is read: what comes is not even a stream."""
    done = tool(NAME, "--report", tmp_path / "none/report", stdin=b"no stream")
    assert (done.returncode, done.stdout) == (3, b"")
    place = tmp_path / "none/report"
    assert done.stderr.decode() == f"{NAME}: failed: {place}: No such file or directory\n"


@pytest.mark.parametrize("option", ["--report", "-o"])
def test_a_full_disk_is_told(tool: RunTool, stream: bytes, option: str) -> None:
    """For the package and for the report; no package comes out without its report."""
    done = tool(NAME, option, "/dev/full", stdin=stream)
    assert (done.returncode, done.stdout) == (3, b"")
    last = done.stderr.decode().splitlines()[-1]
    assert last == f"{NAME}: failed: /dev/full: No space left on device"


def test_standard_output_that_is_full(shell: RunShell, stream: bytes, tmp_path: Path) -> None:
    """It is told, and an old report stays."""
    (tmp_path / "s.lnk").write_bytes(stream)
    (tmp_path / "report").write_bytes(b"old")
    done = shell(f"{tools()} agentfy-pack --report report < s.lnk > /dev/full")
    assert done.returncode == 3
    assert done.stderr.endswith(b"failed: standard output: No space left on device\n")
    assert (tmp_path / "report").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["report", "s.lnk"]


@pytest.mark.parametrize(
    ("given", "code", "hint"),
    [
        ("nothing", "stream-not-move", "nothing came: look whether the command before it failed"),
        ("package", "stream-not-move", "agentfy-unpack makes a Move Stream of that"),
        ("sealed", "stream-not-move", "it is sealed: put lnk-unseal -i FILE before"),
        ("manifest", "stream-not-move", "it is a manifest: put lnk-tar-create HOME before"),
        ("text", "stream-not-move", None),
        ("cut", "stream-cut", None),
        ("without its end", "stream-cut", None),
        ("damaged", "hash-mismatch", None),
        ("more", "stream-after-end", None),
    ],
)
def test_what_is_no_whole_stream(
    tool: RunTool, stream: bytes, tmp_path: Path, given: str, code: str, hint: str | None
) -> None:
    """No package comes of it, with a hint where one knows what it is."""
    data = {
        "nothing": b"",
        "package": zipped(MINIMAL),
        "sealed": sealed(stream, IDENTITY.recipient),
        "manifest": b'{"format":4,"phase":"switch"}\n',
        "text": b"hello\n",
        "cut": stream[: len(stream) // 2],
        "without its end": stream[: stream.index(b"lnk-move-4.end")],
        "damaged": stream.replace(b"be kind", b"be rude"),
        "more": stream + b"more",
    }[given]
    done = tool(NAME, "-o", tmp_path / "a.zip", "--report", tmp_path / "report", stdin=data)
    assert (done.returncode, done.stdout) == (1, b"")
    lines = done.stderr.decode().splitlines()
    assert lines[0].startswith(f"{NAME}: refused: {code}: ")
    if hint is None:
        assert len(lines) == 1
    else:
        assert lines[1].startswith(f"{NAME}: hint: ")
        assert lines[1].endswith(hint)
        assert len(lines) == 2
    assert os.listdir(tmp_path) == []


def test_a_later_stage_refuses_what_was_refused(
    shell: RunShell, stream: bytes, tmp_path: Path
) -> None:
    """Even where the shell looks at the last stage only."""
    (tmp_path / "s.lnk").write_bytes(stream)
    done = shell(
        f"{tools()} agentfy-pack --strict < s.lnk | agentfy-unpack | lnk-tar-verify > out;"
        ' echo "${PIPESTATUS[*]}"; cat out'
    )
    assert done.stdout == b"1 1 1\n"


def test_a_terminal_is_told_and_not_waited_for() -> None:
    """As input, where a stream is expected; as output, since a package is binary."""
    user, terminal = pty.openpty()
    try:
        done = subprocess.run(
            TOOL,
            stdin=terminal,
            capture_output=True,
            env=clean_environment(),
            timeout=30,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr.decode() == (
            f"{NAME}: usage: standard input is a terminal, where a Move Stream, or FOLDER as an"
            f" argument, is expected\n{NAME}: hint: pipe it in, or redirect a file: < FILE\n"
        )
        done = subprocess.run(
            TOOL,
            input=b"",
            stdout=terminal,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            timeout=30,
            check=False,
        )
        assert done.returncode == 2
        assert b"standard output is a terminal, and an agent package is binary" in done.stderr
    finally:
        os.close(user)
        os.close(terminal)


def test_a_reader_that_closes_early(shell: RunShell, home: Path, tmp_path: Path) -> None:
    """``| head`` ends it as SIGPIPE does, and it says nothing of it."""
    put(home, "harness/skills/cook/noise", os.urandom(4 << 20))
    (tmp_path / "s.lnk").write_bytes(stream_of(home, "switch"))
    done = shell(f'{tools()} agentfy-pack < s.lnk | head -c 10 | wc -c; echo "${{PIPESTATUS[0]}}"')
    assert done.stdout.split() == [b"10", b"141"]
    assert done.stderr == LEFT_OUT


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_is_quiet_and_leaves_no_file(
    stream: bytes, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """While it waits for more of a stream: files of before stay."""
    (tmp_path / "a.zip").write_bytes(b"old")
    with subprocess.Popen(
        [*TOOL, "-o", tmp_path / "a.zip", "--report", tmp_path / "report"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(stream[:-2000])
        process.stdin.flush()
        while len(os.listdir(tmp_path)) < 3:
            assert process.poll() is None
        process.send_signal(number)
        assert process.stderr.read() == b""
        assert process.wait(30) == status
    assert os.listdir(tmp_path) == ["a.zip"]
    assert (tmp_path / "a.zip").read_bytes() == b"old"
