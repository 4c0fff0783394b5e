from __future__ import annotations

import io
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.cli.agents import FILES, VALUE, make_agent
from tests.cli.conftest import RunShell
from tests.conftest import RunTool
from tests.home.builder import Fifo, Link, put, snapshot

LEFT_OUT = b"""\
agentfy-pack: warning: skills/mess/SKILL.md: it has no front matter
agentfy-pack: left out: notes/: a package has no place for it
agentfy-pack: left out: browser-state/main.json: only with --with browser-state
agentfy-pack: left out: data/usage.json: only with --with usage
"""


def names_in(package: bytes) -> set[str]:
    return set(zipfile.ZipFile(io.BytesIO(package)).namelist())


@pytest.fixture
def ada(tmp_path: Path) -> Path:
    """An agent's folder."""
    return make_agent(tmp_path / "ada")


def test_a_folder_is_packed(tool: RunTool, ada: Path) -> None:
    """What it holds goes into the archive; the rest is named, and the folder is not changed."""
    before = snapshot(ada)
    done = tool("agentfy-pack", ada)
    assert (done.returncode, done.stderr) == (0, LEFT_OUT)
    left = {"notes/todo.txt", "data/memory.sqlite", "data/usage.json", "browser-state/main.json"}
    assert names_in(done.stdout) == FILES.keys() - left
    assert VALUE.encode() not in done.stdout
    archive = zipfile.ZipFile(io.BytesIO(done.stdout))
    assert archive.read("data/secrets/agent.json") == b'{"pendingKeys":["API_KEY","TOKEN"]}\n'
    assert snapshot(ada) == before


def test_what_is_asked_for_goes_too(tool: RunTool, ada: Path) -> None:
    """One name or both, in one option or two."""
    both = tool("agentfy-pack", "--with", "usage,browser-state", ada).stdout
    assert names_in(both) >= {"data/usage.json", "browser-state/main.json"}
    assert tool("agentfy-pack", ada, "--with=browser-state", "--with", "usage").stdout == both
    one = tool("agentfy-pack", "--with", "usage", ada).stdout
    assert names_in(both) - names_in(one) == {"browser-state/main.json"}
    wrong = tool("agentfy-pack", "--with", "secrets", ada)
    assert wrong.returncode == 2
    assert b"not 'secrets'" in wrong.stderr


def test_the_same_folder_gives_the_same_bytes(tool: RunTool, ada: Path, tmp_path: Path) -> None:
    """Copied file by file in another order, later, in another zone and locale."""
    again = tmp_path / "again"
    again.mkdir()
    for path in sorted(FILES, reverse=True):
        (again / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ada / path, again / path)
        os.utime(again / path, (2_000_000_000, 2_000_000_000))
    first = tool("agentfy-pack", ada, env={"TZ": "Asia/Tokyo"}).stdout
    assert first
    env = {"LC_ALL": "C", "TZ": "America/Lima", "PYTHONHASHSEED": "7"}
    assert tool("agentfy-pack", again, env=env).stdout == first


def test_strict_refuses_what_would_be_left_out(tool: RunTool, ada: Path, tmp_path: Path) -> None:
    """Folders, files and links; nothing comes out, and a file of before stays."""
    (tmp_path / "out").write_bytes(b"old")
    done = tool("agentfy-pack", "--strict", ada, "-o", tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.startswith(b"agentfy-pack: refused: package-path: notes/: ")
    assert (tmp_path / "out").read_bytes() == b"old"
    shutil.rmtree(ada / "notes")
    put(ada, "link", Link(b"SOUL.md"))
    assert b"package-path: link: " in tool("agentfy-pack", "--strict", ada).stderr
    (ada / "link").unlink()
    assert tool("agentfy-pack", "--strict", ada).returncode == 0


@pytest.mark.parametrize("path", ["USER.md", "data/sessions", "skills/pdf/more", "memory/a.md"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_is_no_file_in_a_packages_place_is_refused(
    tool: RunTool, ada: Path, path: str, kind: str
) -> None:
    """Leaving it out would lose what the agent sees there."""
    if (ada / path).is_dir():
        shutil.rmtree(ada / path)
    put(ada, path, Link(b"/etc/passwd") if kind == "link" else Fifo())
    done = tool("agentfy-pack", ada)
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.startswith(f"agentfy-pack: refused: package-type: {path}: ".encode())


def test_an_output_in_the_folder_is_not_packed(tool: RunTool, ada: Path, shell: RunShell) -> None:
    """By ``-o`` and by the shell, a second time too."""
    from tests.cli.agents import tools

    expected = tool("agentfy-pack", ada).stdout
    for _ in range(2):
        assert tool("agentfy-pack", ada, "-o", ada / "skills/pdf/agent.zip").returncode == 0
        assert (ada / "skills/pdf/agent.zip").read_bytes() == expected
    (ada / "skills/pdf/agent.zip").unlink()
    done = shell(f"{tools()} agentfy-pack . > skills/pdf/agent.zip", cwd=ada)
    assert done.returncode == 0
    assert (ada / "skills/pdf/agent.zip").read_bytes() == expected


def test_the_folder_above_gets_a_hint(tool: RunTool, tmp_path: Path) -> None:
    """Whoever names the project and not its ``.agent`` is told."""
    make_agent(tmp_path / ".agent")
    done = tool("agentfy-pack", ".", cwd=tmp_path)
    assert done.returncode == 1
    assert b"refused: package-required: SOUL.md: " in done.stderr
    assert b"hint: give its .agent folder" in done.stderr


def test_an_id_can_be_told(tool: RunTool, ada: Path) -> None:
    """For a configuration that has none; another than it has is refused."""
    put(ada, "agent.config.json", "{}")
    missing = tool("agentfy-pack", ada)
    assert missing.returncode == 1
    assert b"refused: agent-id: agent.config.json: " in missing.stderr
    assert b"--external-id" in missing.stderr
    told = tool("agentfy-pack", ada, "--external-id", "a7")
    assert told.returncode == 0
    report = tool("agentfy-verify", "--report", "--external-id", "a7", stdin=told.stdout)
    assert b'"id": "a7"' in report.stdout
    put(ada, "agent.config.json", '{"id": "b"}')
    assert tool("agentfy-pack", ada, "--external-id", "a7").returncode == 1
    assert tool("agentfy-pack", ada, "--external-id", "").returncode == 2


def test_a_torn_line_can_be_dropped(tool: RunTool, ada: Path) -> None:
    """It is refused by default, with the option in a hint."""
    with (ada / "data/sessions/web:alice.jsonl").open("ab") as file:
        file.write(b'{"id": "e3", "ty')
    done = tool("agentfy-pack", ada)
    assert done.returncode == 1
    assert b"refused: field-json: data/sessions/web:alice.jsonl: line 3: " in done.stderr
    assert b"hint: --drop-torn-line" in done.stderr
    done = tool("agentfy-pack", ada, "--drop-torn-line")
    assert done.returncode == 0
    assert b"its last line was cut short" in done.stderr


@pytest.mark.parametrize(
    ("folder", "status", "said"),
    [
        ("", 2, b"FOLDER is empty"),
        ("nowhere", 3, b"No such file"),
        ("ada/SOUL.md", 2, b"is a file"),
        ("empty", 1, b"refused: package-required"),
    ],
)
def test_a_wrong_folder(
    tool: RunTool, ada: Path, tmp_path: Path, folder: str, status: int, said: bytes
) -> None:
    """One line, and nothing on standard output."""
    (tmp_path / "empty").mkdir()
    done = tool("agentfy-pack", folder, cwd=tmp_path)
    assert done.returncode == status
    assert done.stdout == b""
    assert said in done.stderr
    assert b"Traceback" not in done.stderr
