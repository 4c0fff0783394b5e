from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cli.agents import VALUE, make_agent, tools
from tests.cli.conftest import RunShell
from tests.conftest import ROOT, RunTool, clean_environment
from tests.home.builder import put, snapshot
from tests.package.folders import contents, event, names
from tests.package.zips import MINIMAL, zipped

TOOL: Final = (sys.executable, str(ROOT / "bin" / "agentfy-unpack"))
SECRETS: Final = "data/secrets/agent.json"


@pytest.fixture
def package(tool: RunTool, tmp_path: Path) -> bytes:
    """The package of an agent."""
    return tool("agentfy-pack", make_agent(tmp_path / "ada")).stdout


def test_a_package_becomes_a_folder(tool: RunTool, tmp_path: Path, package: bytes) -> None:
    """The report is JSON in a pipe, and names the secrets that are to be entered."""
    done = tool("agentfy-unpack", tmp_path / "out", stdin=package)
    assert done.returncode == 0
    assert done.stderr == b"agentfy-unpack: warning: skills/mess/SKILL.md: it has no front matter\n"
    report = json.loads(done.stdout)
    assert report["result"] == "created"
    assert report["agent"] == {"id": "agent-7", "name": "Ada"}
    assert report["pending_secrets"] == {"agent": ["API_KEY", "TOKEN"]}
    assert report["parts"]["memory"]["written"] == 2
    found = contents(tmp_path / "out")
    sent = contents(tmp_path / "ada")
    assert found[SECRETS] == names("API_KEY", "TOKEN")
    assert {k: v for k, v in found.items() if k != SECRETS} == {
        k: v for k, v in sent.items() if k in found and k != SECRETS
    }
    assert tool("agentfy-pack", tmp_path / "out").stdout == package


def test_an_update_and_its_report(tool: RunTool, tmp_path: Path, package: bytes) -> None:
    """Without the option a folder is left alone; with it only what differs is written."""
    out = tmp_path / "out"
    tool("agentfy-unpack", out, stdin=package)
    put(out, SECRETS, names(API_KEY=VALUE, TOKEN=VALUE))
    put(out, "skills/own/SKILL.md", "mine")
    put(out, "USER.md", "changed")
    before = snapshot(out)
    refused = tool("agentfy-unpack", out, stdin=package)
    assert refused.returncode == 2
    assert b"--update" in refused.stderr
    assert snapshot(out) == before
    done = tool("agentfy-unpack", "--update", out, stdin=package)
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["result"] == "updated"
    assert report["pending_secrets"] == {}
    assert {part for part, counts in report["parts"].items() if counts["written"]} == {"user"}
    assert VALUE.encode() not in done.stdout + done.stderr
    done = tool("agentfy-unpack", "--update", "--delete", out, stdin=package)
    assert json.loads(done.stdout)["removed"] == ["skills/own/SKILL.md"]
    assert contents(out)[SECRETS] == names(API_KEY=VALUE, TOKEN=VALUE)
    done = tool("agentfy-unpack", "--update", "--delete", out, stdin=package)
    assert json.loads(done.stdout)["result"] == "unchanged"


def test_delete_goes_with_update(tool: RunTool, tmp_path: Path, package: bytes) -> None:
    """Alone it would be taken for more than it does."""
    done = tool("agentfy-unpack", "--delete", tmp_path / "out", stdin=package)
    assert done.returncode == 2
    assert b"--delete goes with --update" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_report_goes_to_a_file(tool: RunTool, tmp_path: Path, package: bytes) -> None:
    """With ``-o``; standard output stays empty."""
    done = tool("agentfy-unpack", tmp_path / "out", "-o", tmp_path / "report", stdin=package)
    assert (done.returncode, done.stdout) == (0, b"")
    assert json.loads((tmp_path / "report").read_text())["result"] == "created"


def test_a_report_is_a_table_on_a_terminal(tmp_path: Path, package: bytes) -> None:
    """For a person to read, with what is to be entered."""
    reading, writing = pty.openpty()
    done = subprocess.run(
        [*TOOL, tmp_path / "out"],
        input=package,
        stdout=writing,
        stderr=subprocess.PIPE,
        env=clean_environment({"COLUMNS": "100", "TERM": "dumb"}),
        check=False,
    )
    os.close(writing)
    shown = os.read(reading, 1 << 16).decode()
    os.close(reading)
    assert done.returncode == 0
    assert shown.startswith("created: agent Ada")
    assert "to be entered, agent: API_KEY, TOKEN" in shown
    assert re.search(r"memory +2 +2 +0 +0 +0", shown)


def test_the_whole_way_in_pipes(shell: RunShell, tmp_path: Path) -> None:
    """Packed, checked and unpacked, as one would type it."""
    make_agent(tmp_path / ".agent")
    done = shell(
        f"{tools()} agentfy-pack .agent | agentfy-verify | agentfy-unpack out > report &&"
        " agentfy-pack .agent > a.zip && agentfy-pack out > b.zip && cmp a.zip b.zip"
    )
    assert done.returncode == 0, done.stderr
    done = shell(f"{tools()} agentfy-pack nowhere | agentfy-verify | agentfy-unpack new")
    assert done.returncode != 0
    assert not (tmp_path / "new").exists()
    assert done.stderr.decode().count("refused: package-not-zip") == 2


def test_a_stream_of_the_wrong_kind_changes_nothing(tool: RunTool, tmp_path: Path) -> None:
    """A sealed stream, a tar, text, nothing: one line, and no folder."""
    for data in (b"", b"hello\n", b"LNKSEAL1" + bytes(100), b"x" * 30_000_000, zipped(MINIMAL)[4:]):
        done = tool("agentfy-unpack", tmp_path / "out", stdin=data)
        assert done.returncode == 1
        assert done.stdout == b""
        assert done.stderr.startswith(b"agentfy-unpack: refused: package-")
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_half_done(tmp_path: Path, sent: signal.Signals) -> None:
    """While files are written the process ends quietly; there is no folder, or the whole one."""
    files = {f"memory/{number}.md": b"x" * 1000 for number in range(6000)}
    package = zipped({**MINIMAL, **files})
    with subprocess.Popen(
        [*TOOL, tmp_path / "out"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    ) as process:
        assert process.stdin is not None
        process.stdin.write(package)
        process.stdin.close()
        while (
            process.poll() is None and not (tmp_path / ".out.agentfy-unpack/tree/memory").exists()
        ):
            pass
        process.send_signal(sent)
        assert process.stderr is not None
        assert process.stderr.read() == b""
    if process.returncode == 0:
        assert contents(tmp_path / "out") == {**MINIMAL, **files}
    else:
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("update", [False, True])
def test_two_at_once_end_right(tmp_path: Path, update: bool) -> None:
    """One makes or updates the folder; the other does so after it, or says why it did not."""
    files = {f"memory/{number}.md": b"x" * 1000 for number in range(3000)}
    data = zipped({**MINIMAL, **files})

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*TOOL, *arguments, tmp_path / "out"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
        )

    arguments = ["--update"] if update else []
    both = [run(*arguments), run(*arguments)]
    for process in both:
        assert process.stdin is not None
        process.stdin.write(data)
        process.stdin.close()
    states = []
    for process in both:
        assert process.stderr is not None
        said = process.stderr.read()
        assert b"Traceback" not in said
        states.append(process.wait())
        assert process.stdout is not None
        process.stdout.close()
        process.stderr.close()
    assert 0 in states
    assert all(state in (0, 2, 3) for state in states)
    assert contents(tmp_path / "out") == {**MINIMAL, **files}
    assert os.listdir(tmp_path) == ["out"]


def test_any_name_in_a_session(tool: RunTool, tmp_path: Path) -> None:
    """What would lead out of the folder comes encoded and stays so."""
    names_of = ("web:..%2f..%2Fetc", "web:%2Ehidden", "a%2Fb:c", "web:a:b:c", "web:%25")
    files = {f"data/sessions/{name}.jsonl": event(1) for name in names_of}
    done = tool("agentfy-unpack", tmp_path / "out", stdin=zipped({**MINIMAL, **files}))
    assert done.returncode == 0, done.stderr
    found = sorted(os.listdir(tmp_path / "out/data/sessions"))
    assert found == sorted(
        f"{name}.jsonl"
        for name in ("web:%2E.%2F..%2Fetc", "web:%2Ehidden", "a%2Fb:c", "web:a:b:c", "web:%25")
    )
    assert os.listdir(tmp_path) == ["out"]
