from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.agents import VALUE, make_agent, tools
from tests.cli.conftest import RunShell
from tests.conftest import ROOT, VECTORS, RunTool, clean_environment
from tests.package.zips import MINIMAL, zipped

INDEX: Final = VECTORS / "package" / "index.json"
ROWS: Final[list[dict[str, Any]]] = json.loads(INDEX.read_text()) if INDEX.exists() else []
# the last of each code, and of each that names a place otherwise
BAD: Final = {
    (row["refusal"], "path" in row, "field" in row): row for row in ROWS if "refusal" in row
}
TOOL: Final = (sys.executable, str(ROOT / "bin" / "agentfy-verify"))


@pytest.fixture
def package(tool: RunTool, tmp_path: Path) -> bytes:
    """The package of an agent with all its parts."""
    ada = make_agent(tmp_path / "ada")
    return tool("agentfy-pack", ada, "--with", "usage,browser-state").stdout


def test_a_good_package_passes_as_it_is(tool: RunTool, tmp_path: Path, package: bytes) -> None:
    """To standard output, and with ``-o`` into a file."""
    piped = tool("agentfy-verify", stdin=package)
    warning = b"agentfy-verify: warning: skills/mess/SKILL.md: it has no front matter\n"
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, package, warning)
    filed = tool("agentfy-verify", "-o", tmp_path / "out", stdin=package)
    assert (filed.returncode, filed.stdout) == (0, b"")
    assert (tmp_path / "out").read_bytes() == package


@pytest.mark.parametrize("row", BAD.values(), ids=lambda row: row["file"])
def test_a_bad_one_is_told_and_nothing_of_it_passes(
    tool: RunTool, row: dict[str, Any], tmp_path: Path, vectors: Path
) -> None:
    """Status 1, one line (and a hint at most), code and place; an old file stays."""
    data = (vectors / "package" / row["file"]).read_bytes()
    (tmp_path / "out").write_bytes(b"old")
    piped = tool("agentfy-verify", stdin=data)
    filed = tool("agentfy-verify", "-o", tmp_path / "out", "--json-errors", stdin=data)
    assert piped.returncode == filed.returncode == 1
    assert piped.stdout == filed.stdout == b""
    assert (tmp_path / "out").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]
    told, *hints = piped.stderr.decode().splitlines()
    details = json.loads(filed.stderr)["error"]["details"]
    code = details["refusal"]
    assert code in (row["refusal"], row.get("also"))
    assert told.startswith(f"agentfy-verify: refused: {code}: ")
    assert len(hints) <= 1
    for key in ("path", "field", "line"):
        if key in row:
            assert details[key] == row[key]


def test_there_are_bad_vectors_of_many_codes() -> None:
    """The test above is not empty where the vectors are there."""
    assert not ROWS or len({row["refusal"] for row in BAD.values()}) >= 18


def test_a_later_stage_refuses_what_an_earlier_one_refused(
    shell: RunShell, tmp_path: Path, package: bytes
) -> None:
    """Though the shell takes no notice of the first one's status."""
    (tmp_path / "bad").write_bytes(package[:-1])
    done = shell(
        f"{tools()} set +o pipefail; agentfy-verify < bad 2> first | agentfy-unpack out 2> second"
    )
    assert done.returncode == 1
    assert (tmp_path / "first").read_text().startswith("agentfy-verify: refused: package-damaged")
    second = (tmp_path / "second").read_text()
    assert second.startswith("agentfy-unpack: refused: package-not-zip: ")
    assert "hint: nothing came" in second
    assert not (tmp_path / "out").exists()


def test_a_report_is_json_in_a_pipe(tool: RunTool, package: bytes) -> None:
    """What is in it, in the place of the package."""
    done = tool("agentfy-verify", "--report", stdin=package)
    assert (done.returncode, done.stderr) == (0, b"")
    report = json.loads(done.stdout)
    assert report["agent"] == {
        "id": "agent-7",
        "name": "Ada",
        "runtimeProfile": "default",
        "accessStrategy": "list",
    }
    assert report["archive"]["bytes"] == len(package)
    assert report["archive"]["entries"] == 13
    assert [skill["path"] for skill in report["skills"]] == ["skills/mess", "skills/pdf"]
    assert report["skills"][1]["description"] == "Reads PDFs."
    assert report["skills"][1]["assets"] == 1
    assert [m["date"] for m in report["memories"]] == [None, "2026-01-02"]
    [chat] = report["chats"]
    assert (chat["channel"], chat["user"], chat["events"]) == ("web", "alice", 2)
    assert (chat["first"], chat["last"]) == (1_700_000_000_000, 1_700_000_001_000)
    assert chat["types"]["user"] == 2
    assert report["access"] == ["web:alice"]
    assert report["pending_secrets"] == {"agent": ["API_KEY", "TOKEN"]}
    assert report["warnings"] == [
        {"path": "skills/mess/SKILL.md", "warning": "it has no front matter"}
    ]
    assert report["unknown"] == []


def test_a_report_is_a_table_on_a_terminal(package: bytes) -> None:
    """For a person to read: times in UTC, counts, and what is to be entered."""
    reading, writing = pty.openpty()
    with subprocess.Popen(
        [*TOOL, "--report"],
        stdin=subprocess.PIPE,
        stdout=writing,
        stderr=subprocess.PIPE,
        env=clean_environment({"COLUMNS": "100", "TERM": "dumb"}),
    ) as process:
        _, said = process.communicate(package)
    os.close(writing)
    shown = b""
    while True:
        try:
            piece = os.read(reading, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(reading)
    assert process.returncode == 0, said
    text = shown.decode()
    assert "agent agent-7, Ada" in text
    assert "2023-11-14 22:13:20" in text
    assert "API_KEY, TOKEN" in text
    assert "warning: skills/mess/SKILL.md: it has no front matter" in text
    assert not text.startswith("{")


def test_a_package_is_not_written_to_a_terminal(package: bytes) -> None:
    """A clear word in place of bytes that spoil the screen."""
    reading, writing = pty.openpty()
    done = subprocess.run(
        TOOL,
        input=package,
        stdout=writing,
        stderr=subprocess.PIPE,
        env=clean_environment(),
        check=False,
    )
    os.close(writing)
    os.close(reading)
    assert done.returncode == 2
    assert b"terminal" in done.stderr


@pytest.mark.parametrize(
    "secrets",
    [
        {"API_KEY": VALUE},
        {"API_KEY": {"nested": VALUE}, "pendingKeys": ["B"]},
        {"API_KEY": [VALUE, 1]},
        {"pendingKeys": {"x": VALUE}},
    ],
)
def test_a_value_in_a_package_is_warned_of_and_never_shown(
    tool: RunTool, secrets: dict[str, object]
) -> None:
    """Only how many there are; ``--strict`` refuses the package."""
    package = zipped({**MINIMAL, "data/secrets/agent.json": json.dumps(secrets).encode()})
    for arguments in ((), ("--report",), ("--json-errors",)):
        done = tool("agentfy-verify", *arguments, stdin=package)
        assert done.returncode == 0
        said = done.stderr + (done.stdout if arguments == ("--report",) else b"")
        assert VALUE.encode() not in said
        assert b"a value" in said
    done = tool("agentfy-verify", "--strict", stdin=package)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"refused: field-json: data/secrets/agent.json: " in done.stderr
    assert VALUE.encode() not in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        '{"API_KEY": "' + VALUE + '", }',
        '{"API_KEY": "' + VALUE + '\\ud800"}',
        '["' + VALUE + '", 5]',
        '"' + VALUE + '"',
        '{"": "' + VALUE + '"}',
        '{"API_KEY": "' + VALUE + '\\u0000"}',
    ],
)
def test_a_refused_file_of_secrets_shows_no_value(tool: RunTool, text: str) -> None:
    """The error names the file and what is wrong, and nothing out of it."""
    package = zipped({**MINIMAL, "data/secrets/agent.json": text.encode()})
    for arguments in ((), ("--json-errors",), ("--report",)):
        done = tool("agentfy-verify", *arguments, stdin=package)
        assert done.returncode == 1
        assert b"data/secrets/agent.json" in done.stderr
        assert VALUE.encode() not in done.stderr + done.stdout


def test_a_move_stream_is_told(tool: RunTool, vectors: Path) -> None:
    """Whoever mistakes the one tool for the other is told which it is, both ways."""
    stream = next(iter(sorted((vectors / "stream").glob("good-*.tar")))).read_bytes()
    done = tool("agentfy-verify", stdin=stream)
    assert done.returncode == 1
    assert b"refused: package-not-zip" in done.stderr
    assert b"hint: it is a Move Stream" in done.stderr
    done = tool("lnk-tar-verify", stdin=zipped(MINIMAL))
    assert done.returncode == 1
    assert b"agentfy-unpack makes a Move Stream of that" in done.stderr


def test_bytes_that_come_slowly(package: bytes) -> None:
    """One at a time, and in pieces that end anywhere."""
    with subprocess.Popen(
        TOOL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=clean_environment()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for at in range(0, len(package), 13):
            process.stdin.write(package[at : at + 13])
        process.stdin.close()
        assert process.stdout.read() == package
    assert process.returncode == 0


def test_a_reader_that_closes_early(shell: RunShell, tmp_path: Path) -> None:
    """``| head`` ends it as SIGPIPE does, and it says nothing of it."""
    noise = os.urandom(4 << 20)
    (tmp_path / "zip").write_bytes(
        zipped({**MINIMAL, "skills/x/SKILL.md": b"x", "skills/x/n": noise})
    )
    done = shell(f"{tools()} agentfy-verify < zip | head -c 1 | wc -c; echo ${{PIPESTATUS[@]}}")
    count, states = done.stdout.decode().split("\n")[:2]
    assert count.strip() == "1"
    assert states.split()[0] == "141"
    assert done.stderr.count(b"\n") == 1  # the skill's warning
