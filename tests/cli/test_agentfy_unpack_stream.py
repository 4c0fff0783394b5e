"""``agentfy-unpack`` with no FOLDER, as one calls it."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from agentmove_tools.bridge.to_stream import COLLECTIONS
from agentmove_tools.stream.tar_reader import MoveReader
from tests.cli.agents import VALUE, make_agent, tools
from tests.cli.conftest import RunShell
from tests.conftest import ROOT, RunTool, clean_environment
from tests.envelope.streams import sealed
from tests.home.builder import MOVE, entries_of, make_home, stream_of
from tests.package.folders import event
from tests.package.zips import MINIMAL, zipped
from tests.refusal_cases import IDENTITY

NAME: Final = "agentfy-unpack"
TOOL: Final = (sys.executable, str(ROOT / "bin" / NAME))
WARNING: Final = b"agentfy-unpack: warning: skills/mess/SKILL.md: it has no front matter\n"


@pytest.fixture
def package(tool: RunTool, here: Path) -> bytes:
    """The package of an agent."""
    agent = make_agent(here / "ada")
    return tool("agentfy-pack", agent, "--with", "usage,browser-state").stdout


def unlike_a_package(files: dict[str, bytes]) -> bytes:
    """An archive with what a package has no place for, besides these files."""
    return zipped({**MINIMAL, **files, "notes/todo.txt": b"x", "data/memory.sqlite": b"index"})


def test_a_package_becomes_a_stream(tool: RunTool, package: bytes) -> None:
    """Each file in its place; what is not asked for is named; no jobs, connections or files."""
    done = tool(NAME, "--move", MOVE, stdin=package)
    assert done.returncode == 0
    assert done.stderr == WARNING + (
        b"agentfy-unpack: left out: browser-state/main.json: only with --with browser-state\n"
        b"agentfy-unpack: left out: data/usage.json: only with --with usage\n"
    )
    found = entries_of(done.stdout)
    assert set(found) == {
        b"harness/conversations/web:alice/events.jsonl",
        b"harness/instructions.md",
        b"harness/package/USER.md",
        b"harness/package/agent.config.json",
        b"harness/package/data/access.json",
        b"harness/package/data/secrets/agent.json",
        b"harness/package/memory/2026-01-02.md",
        b"harness/skills/mess/SKILL.md",
        b"harness/skills/pdf/SKILL.md",
        b"harness/skills/pdf/run.sh",
        b"memory/notes.md",
    }
    assert found[b"harness/instructions.md"] == ("file", 0o644, b"# Ada\n")
    assert found[b"harness/skills/pdf/run.sh"] == ("file", 0o755, b"#!/bin/sh\n")
    assert VALUE.encode() not in done.stdout
    checked = tool("lnk-tar-verify", stdin=done.stdout)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, done.stdout, b"")
    manifest = json.loads(tool("lnk-manifest", stdin=done.stdout).stdout)
    version = manifest.pop("version")
    assert tool(NAME, "--version").stdout.decode().split() == [NAME, version]
    assert manifest == {
        "format": 4,
        "phase": "switch",
        "move": MOVE,
        "agent": {"id": "agent-7", "name": "Ada"},
        "harness": "default",
        "collections": list(COLLECTIONS),
    }


def test_the_way_back_gives_the_same_package(tool: RunTool, package: bytes) -> None:
    """Byte for byte, with all that can be asked for."""
    more = ("--with", "usage,browser-state")
    stream = tool(NAME, *more, stdin=package)
    assert (stream.returncode, stream.stderr) == (0, WARNING)
    assert tool("agentfy-pack", *more, stdin=stream.stdout).stdout == package


def test_the_same_package_gives_the_same_bytes(tool: RunTool, package: bytes) -> None:
    """For one move, in any zone and locale; a move that is not named is a new one each time."""
    first = tool(NAME, "--move", MOVE, stdin=package).stdout
    env = {"LC_ALL": "C", "LANG": "C", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
    again = tool(NAME, "--move", MOVE, "-q", "-o", "-", stdin=package, env=env)
    assert (again.returncode, again.stdout) == (0, first)
    moves = {
        MoveReader(io.BytesIO(tool(NAME, stdin=package).stdout)).manifest.move for _ in range(2)
    }
    assert len(moves - {MOVE}) == 2


def test_a_report_says_what_crossed(tool: RunTool, tmp_path: Path) -> None:
    """In = written + passed over, for each kind; by path and reason what did not."""
    data = unlike_a_package(
        {
            "USER.md": b"x",
            "data/usage.json": b"{}",
            "data/secrets/user-alice.json": b'{"HERS":"%s"}' % VALUE.encode(),
            "data/sessions/web:bob.jsonl": event(1) + event(2) + event(1),
        }
    )
    report, out = tmp_path / "report", tmp_path / "s.lnk"
    done = tool(NAME, "--report", report, "-o", out, stdin=data)
    assert (done.returncode, done.stdout) == (0, b"")
    text = report.read_text()
    found = json.loads(text)
    assert found["kinds"] == {
        kind: {"in": written + passed, "written": written, "passed_over": passed}
        for kind, written, passed in (
            ("conversations", 1, 0),
            ("instructions", 1, 0),
            ("other", 0, 3),
            ("package", 3, 0),
        )
    }
    assert found["events"] == {"in": 3, "written": 2, "repeats": 1, "skipped": 0}
    assert [each["path"] for each in found["left_out"]] == [
        "notes/todo.txt",
        "data/memory.sqlite",
        "data/sessions/web:bob.jsonl",
    ]
    assert [each["path"] for each in found["not_asked_for"]] == ["data/usage.json"]
    (warning,) = found["warnings"]
    assert warning["path"] == "data/secrets/user-alice.json"
    assert found["secrets"] == {"user-alice": ["HERS"]}
    for each in found["left_out"] + found["not_asked_for"]:
        line = f"{NAME}: left out: {each['path']}: {each['reason']}\n"
        assert line.encode() in done.stderr
    assert VALUE not in text + done.stderr.decode()
    assert VALUE.encode() not in out.read_bytes()


def test_strict_refuses_and_leaves_files(tool: RunTool, tmp_path: Path) -> None:
    """Nothing comes out, and files of before stay."""
    for name in ("s.lnk", "report"):
        (tmp_path / name).write_bytes(b"old")
    out = ("-o", tmp_path / "s.lnk", "--report", tmp_path / "report")
    for arguments in (out, ()):
        done = tool(NAME, "--strict", *arguments, stdin=unlike_a_package({}), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, b"")
        assert b": notes/todo.txt: " in done.stderr
        assert done.stderr.count(b"\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["report", "s.lnk"]
    assert [(tmp_path / name).read_bytes() for name in ("s.lnk", "report")] == [b"old", b"old"]
    assert tool(NAME, "--strict", stdin=zipped(MINIMAL)).returncode == 0


def test_an_id_can_be_told(tool: RunTool) -> None:
    """For a configuration that has none; another than it has is refused."""
    data = zipped({**MINIMAL, "agent.config.json": b'{"name": "Ada"}'})
    missing = tool(NAME, stdin=data)
    assert (missing.returncode, missing.stdout) == (1, b"")
    assert b"refused: agent-id: agent.config.json: " in missing.stderr
    told = tool(NAME, "--external-id", "a7", stdin=data)
    assert told.returncode == 0
    manifest = json.loads(tool("lnk-manifest", stdin=told.stdout).stdout)
    assert manifest["agent"] == {"id": "a7", "name": "Ada"}
    assert tool(NAME, "--external-id", "b", stdin=zipped(MINIMAL)).returncode == 1


def test_a_torn_line_can_be_dropped(tool: RunTool) -> None:
    """It is refused by default, with nothing written; with the option it is warned of."""
    session = "data/sessions/web:bob.jsonl"
    data = zipped({**MINIMAL, session: event(1) + b'{"id": "e2", "ty'})
    done = tool(NAME, stdin=data)
    assert (done.returncode, done.stdout) == (1, b"")
    assert f"refused: field-json: {session}: line 2: ".encode() in done.stderr
    done = tool(NAME, "--drop-torn-line", stdin=data)
    assert done.returncode == 0
    assert b"its last line was cut short" in done.stderr
    path = b"harness/conversations/web:bob/events.jsonl"
    assert entries_of(done.stdout)[path][2] == event(1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["out", "--move", MOVE], "--move is for a Move Stream: leave FOLDER out"),
        (["out", "--report", "r"], "--report is for a Move Stream: leave FOLDER out"),
        (["--update"], "--update needs a FOLDER: name the agent's folder"),
        (["--delete"], "--delete goes with --update"),
        (["--update", "--delete"], "--update needs a FOLDER: name the agent's folder"),
        ([""], "FOLDER is empty: a variable that is not set?"),
        (["", "--move", MOVE], "FOLDER is empty: a variable that is not set?"),
        (["--move", ""], "a move's ID has 32 lower-case hex digits"),
        (["--move", MOVE.upper()], "a move's ID has 32 lower-case hex digits"),
        (["--move", MOVE[1:]], "a move's ID has 32 lower-case hex digits"),
        (["--with", "all"], "--with takes usage and browser-state, not 'all'"),
        (["--external-id", ""], "--external-id is empty"),
        (["--report", "-"], "--report needs a file: the result goes to standard output"),
        (["--report", "r", "-o", "./r"], "--report r is where the result goes"),
        (["--report", "/dev/stdout"], "--report /dev/stdout is where the result goes"),
        (["-o", "."], ". is a folder: name a file in it"),
        (["--skip-events"], "no such option: --skip-events"),
        (["--links", "any"], "no such option: --links"),
    ],
)
def test_a_mistake_in_the_command_line(
    tool: RunTool, tmp_path: Path, arguments: list[str], said: str
) -> None:
    """One line, and nothing is read or written."""
    done = tool(NAME, *arguments, stdin=b"no package", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith(f"{NAME}: usage: {said}")
    assert os.listdir(tmp_path) == []


def test_the_help_tells_both_ways(tool: RunTool) -> None:
    """What is written where no folder is named, and which options go with it only."""
    shown = " ".join(tool(NAME, "--help").stdout.decode().split())
    assert "agentfy-unpack [OPTIONS] [FOLDER]" in shown
    assert "without it a Move Stream is written" in shown
    assert shown.count("Without FOLDER: ") == 2


def test_a_report_that_cannot_be_written_is_told_first(tool: RunTool, tmp_path: Path) -> None:
    """Before anything is read: what comes is not even a package."""
    place = tmp_path / "none/report"
    done = tool(NAME, "--report", place, stdin=b"no package")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.decode() == f"{NAME}: failed: {place}: No such file or directory\n"


def test_a_full_disk_is_told(tool: RunTool, shell: RunShell, tmp_path: Path) -> None:
    """For the stream, and for the report, without which no file of a stream is left."""
    data = zipped(MINIMAL)
    done = tool(NAME, "-o", "/dev/full", stdin=data)
    said = f"{NAME}: failed: /dev/full: No space left on device\n"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (3, b"", said)
    done = tool(NAME, "--report", "/dev/full", "-o", tmp_path / "s.lnk", stdin=data)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (3, b"", said)
    assert os.listdir(tmp_path) == []
    (tmp_path / "a.zip").write_bytes(data)
    done = shell(f"{tools()} agentfy-unpack --report r < a.zip > /dev/full")
    assert done.returncode == 3
    assert done.stderr.endswith(b"failed: standard output: No space left on device\n")
    assert os.listdir(tmp_path) == ["a.zip"]


@pytest.mark.parametrize(
    ("given", "code", "hint"),
    [
        ("nothing", "package-not-zip", "nothing came: look whether the command before it failed"),
        ("stream", "package-not-zip", "agentfy-pack makes an agent package of it"),
        ("sealed", "package-not-zip", "it is sealed: put lnk-unseal -i FILE before"),
        ("text", "package-not-zip", None),
        ("cut", "package-damaged", None),
    ],
)
def test_what_is_no_whole_package(
    tool: RunTool, tmp_path: Path, given: str, code: str, hint: str | None
) -> None:
    """No stream comes of it, with a hint where one knows what it is."""
    home = make_home(tmp_path / "home/home", instructions="x")
    data = {
        "nothing": b"",
        "stream": stream_of(home, "switch"),
        "sealed": sealed(zipped(MINIMAL), IDENTITY.recipient),
        "text": b"hello\n",
        "cut": zipped(MINIMAL)[:-30],
    }[given]
    done = tool(NAME, "-o", tmp_path / "s.lnk", "--report", tmp_path / "report", stdin=data)
    assert (done.returncode, done.stdout) == (1, b"")
    lines = done.stderr.decode().splitlines()
    assert lines[0].startswith(f"{NAME}: refused: {code}: ")
    assert [line.endswith(hint or "") for line in lines[1:]] == ([] if hint is None else [True])
    assert os.listdir(tmp_path) == ["home"]


def test_a_later_stage_refuses_what_was_refused(shell: RunShell, tmp_path: Path) -> None:
    """Nothing of a stream comes, even of a package whose last event is bad; no Home is made."""
    (tmp_path / "a.zip").write_bytes(
        zipped({**MINIMAL, "data/sessions/web:bob.jsonl": event(1) + b"{}\n"})
    )
    done = shell(
        f'{tools()} agentfy-unpack < a.zip | lnk-tar-apply home; echo "${{PIPESTATUS[*]}}"'
    )
    assert done.stdout == b"1 1\n"
    assert b"agentfy-unpack: refused: field-json: " in done.stderr
    assert b"lnk-tar-apply: hint: nothing came" in done.stderr
    assert os.listdir(tmp_path) == ["a.zip"]


def test_a_terminal_is_told_and_not_waited_for() -> None:
    """As input, where a package is expected; as output, since a stream is binary."""
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
            f"{NAME}: usage: standard input is a terminal, where an agent package is expected\n"
            f"{NAME}: hint: pipe it in, or redirect a file: < FILE\n"
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
        assert b"standard output is a terminal, and a Move Stream is binary" in done.stderr
    finally:
        os.close(user)
        os.close(terminal)


def test_a_reader_that_closes_early(shell: RunShell, tmp_path: Path) -> None:
    """``| head`` ends it as SIGPIPE does, and it says nothing of it."""
    noise = os.urandom(4 << 20)
    (tmp_path / "a.zip").write_bytes(zipped({**MINIMAL, "USER.md": noise.hex().encode()}))
    done = shell(
        f'{tools()} agentfy-unpack < a.zip | head -c 10 | wc -c; echo "${{PIPESTATUS[0]}}"'
    )
    assert done.stdout.split() == [b"10", b"141"]
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_signal_is_quiet_and_leaves_no_file(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """While it waits for more of a package: files of before stay."""
    (tmp_path / "s.lnk").write_bytes(b"old")
    with subprocess.Popen(
        [*TOOL, "-o", tmp_path / "s.lnk", "--report", tmp_path / "report"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(zipped(MINIMAL)[:-20])
        process.stdin.flush()
        while len(os.listdir(tmp_path)) < 3:
            assert process.poll() is None
        process.send_signal(number)
        assert process.stderr.read() == b""
        assert process.wait(30) == status
    assert os.listdir(tmp_path) == ["s.lnk"]
    assert (tmp_path / "s.lnk").read_bytes() == b"old"
