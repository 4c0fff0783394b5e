from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.cli.agents import VALUE, make_agent
from tests.conftest import ROOT, RunTool, clean_environment
from tests.database.databases import Database
from tests.database.whole import WHOLE, all_rows
from tests.package.packages import AGENT, zipped

NAME: Final = "agentfy-import"


@pytest.fixture
def package(tool: RunTool, tmp_path: Path) -> bytes:
    """The package of an agent."""
    agent = make_agent(tmp_path / "ada")
    return tool("agentfy-pack", agent, "--with", "usage,browser-state").stdout


def error_of(done: subprocess.CompletedProcess[bytes], status: int) -> str:
    """The first line that a tool says, when it ends with this status and no result."""
    assert (done.returncode, done.stdout) == (status, b"")
    line, _, hint = done.stderr.decode().partition("\n")
    assert hint.count("\n") <= 1
    return line


def on_terminal(
    *command: str | Path, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> str:
    """What is shown on a terminal by a command that ends well."""
    reading, writing = pty.openpty()
    done = subprocess.run(
        [sys.executable, ROOT / "bin" / command[0], *command[1:]],
        input=stdin,
        stdout=writing,
        stderr=subprocess.PIPE,
        env=clean_environment({"COLUMNS": "200", "TERM": "dumb", **(env or {})}),
        check=False,
    )
    os.close(writing)
    shown = os.read(reading, 1 << 16).decode().replace("\r\n", "\n")
    os.close(reading)
    assert (done.returncode, done.stderr) == (0, b"")
    return shown


def test_a_package_becomes_an_agent(tool: RunTool, database: Database, package: bytes) -> None:
    """The report is JSON in a pipe; again it is left alone, and a change is updated."""
    team = ("--team", "t\u00e4m %s 'x'")
    url = {"AGENTFY_DATABASE_URL": database.url}
    done = tool(NAME, *team, "--create-team", stdin=package, env=url)
    assert done.returncode == 0, done.stderr
    said = done.stderr.decode().splitlines()
    assert said == [
        f"{NAME}: warning: skills/mess/SKILL.md: it has no front matter",
        f"{NAME}: left out: browser-state/main.json: only with --with browser-state",
        f"{NAME}: left out: data/usage.json: only with --with usage",
    ]
    report = json.loads(done.stdout)
    assert done.stdout.count(b"\n") == 1
    assert report["result"] == "created"
    assert report["dry_run"] is False
    assert report["team"]["name"] == team[1]
    assert report["team"]["created"] is True
    assert report["agent"]["externalId"] == "agent-7"
    assert re.fullmatch(r"agent-[0-9a-f-]{36}", report["agent"]["id"])
    assert report["pending_secrets"] == {"agent": ["API_KEY", "TOKEN"]}
    assert report["tables"]["message"] == {"in": 2, "written": 2, "left_alone": 0, "removed": 0}
    assert "usage" not in report["tables"]
    assert VALUE.encode() not in done.stdout + done.stderr
    before = all_rows(database)
    again = tool(NAME, *team, stdin=package, env=url)
    assert json.loads(again.stdout)["result"] == "unchanged"
    assert all_rows(database) == before
    done = tool(NAME, *team, "--with", "usage", "--with", "browser-state", stdin=package, env=url)
    assert done.stderr.decode().splitlines() == said[:1]
    report = json.loads(done.stdout)
    assert report["result"] == "updated"
    assert {name for name, counts in report["tables"].items() if counts["written"]} == {
        "usage",
        "account",
    }


def test_a_dry_run_changes_nothing(tool: RunTool, empty_database: Database) -> None:
    """It reports what would be, in a database that has not even a schema."""
    url = {"AGENTFY_DATABASE_URL": empty_database.url}
    arguments = (NAME, "--team", "t", "--create-team")
    done = tool(*arguments, "--dry-run", stdin=zipped(WHOLE), env=url)
    assert done.returncode == 0, done.stderr
    would = json.loads(done.stdout)
    assert (would["dry_run"], would["agent"]["id"], would["team"]["id"]) == (True, None, None)
    assert empty_database.rows("SELECT to_regnamespace('agentfy')") == [(None,)]
    done = tool(*arguments, stdin=zipped(WHOLE), env=url)
    assert json.loads(done.stdout)["tables"] == would["tables"]


def test_what_goes_by_the_package_and_what_by_options(tool: RunTool, database: Database) -> None:
    """An ID, pruning, a torn line, strictness."""
    url = {"AGENTFY_DATABASE_URL": database.url}
    without = {**AGENT, "agent.config.json": b"{}", "notes.txt": b"?", "MEMORY.md": b"x"}
    base = (NAME, "--team", "t", "--create-team")
    assert "agent-id" in error_of(tool(*base, stdin=zipped(without), env=url), 1)
    done = tool(*base, "--external-id", "mine", stdin=zipped(without), env=url)
    report = json.loads(done.stdout)
    assert report["agent"]["externalId"] == "mine"
    assert report["unknown"] == ["notes.txt"]
    assert b"left out: notes.txt" in done.stderr
    agent = report["agent"]["id"]
    strict = tool(*base, "--agent", agent, "--strict", stdin=zipped(without), env=url)
    assert "package-path" in error_of(strict, 1)
    torn = zipped({**AGENT, "agent.config.json": b"{}", "data/sessions/a:b.jsonl": b'{"id'})
    assert "field-json" in error_of(tool(*base, "--agent", agent, stdin=torn, env=url), 1)
    done = tool(*base, "--agent", agent, "--drop-torn-line", "--prune", "-q", stdin=torn, env=url)
    report = json.loads(done.stdout)
    assert report["agent"]["id"] == agent
    assert report["tables"]["memory"]["removed"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "missing option '--team'"),
        (["--team", ""], "--team is empty: a variable that is not set?"),
        (["--team", "a\nb"], "--team holds what is no text, or a control character"),
        (["--team", "\udcff"], "--team holds what is no text, or a control character"),
        (["--team", "\x1bx"], "--team holds what is no text, or a control character"),
        (["--team", "x" * 1025], "--team is longer than 1024 bytes"),
        (["--team", "t", "--agent", ""], "--agent is empty"),
        (["--team", "t", "--external-id", ""], "--external-id is empty"),
        (["--team", "t", "--agent", "a", "--external-id", "b"], "--agent and --external-id name"),
        (["--team", "t", "--with", "cookies"], "--with takes usage and browser-state"),
        (["--team", "t", "--db", ""], "--db is empty"),
        (["--team", "t", "--db", "postgresql://u:hunter2@h/d"], "--db holds a password"),
        (["--team", "t", "--db", "nonsense"], "--db is no PostgreSQL URL"),
        (["--team", "t", "package.zip"], "got unexpected extra argument"),
    ],
)
def test_a_mistake_in_the_command_line(tool: RunTool, arguments: list[str], said: str) -> None:
    """It is told before the package is read or a server looked for; and no password with it."""
    done = tool(NAME, *arguments, stdin=b"", env={"AGENTFY_DATA": "/nonexistent/data"})
    line = error_of(done, 2)
    assert line.startswith(f"{NAME}: usage: {said}")
    assert b"hunter2" not in done.stderr


def test_errors_in_json(tool: RunTool, database: Database) -> None:
    """One line each: a refusal with its code, a mistake with its hint, a failure."""
    url = {"AGENTFY_DATABASE_URL": database.url}
    done = tool(NAME, "--team", "t", "--json-errors", stdin=zipped(AGENT), env=url)
    error_of(done, 1)
    assert json.loads(done.stderr)["error"]["details"]["refusal"] == "team-unknown"
    wrong = {"AGENTFY_DATABASE_URL": "postgresql://u:hun@ter2@h/d", "AGENTMOVE_ERRORS": "json"}
    done = tool(NAME, "--team", "t", stdin=zipped(AGENT), env=wrong)
    error_of(done, 2)
    assert "percent-encoded" in json.loads(done.stderr)["error"]["message"]
    assert b"ter2" not in done.stderr
    done = tool(
        *(NAME, "--team", "t", "--json-errors", "--db", "postgresql://127.0.0.1:1/d"),
        stdin=zipped(AGENT),
    )
    error_of(done, 3)
    assert json.loads(done.stderr)["error"]["message"].startswith("cannot connect")


def test_a_refused_package_leaves_nothing(tool: RunTool, database: Database) -> None:
    """Not even the team; and what is no package needs no server."""
    bad = zipped({**WHOLE, "data/sessions/web:z.jsonl": b'{"id": "e"}\n'})
    url = {"AGENTFY_DATABASE_URL": database.url}
    done = tool(NAME, "--team", "t", "--create-team", stdin=bad, env=url)
    assert "refused: field-json: data/sessions/web:z.jsonl: line 1" in error_of(done, 1)
    assert set(database.counts().values()) == {0}
    done = tool(NAME, "--team", "t", "--db", "postgresql://127.0.0.1:1/d", stdin=b"text\n")
    assert "refused: package-not-zip" in error_of(done, 1)


def test_a_report_goes_to_a_file(tool: RunTool, database: Database, tmp_path: Path) -> None:
    """One that cannot be written is told before anything is done."""
    base = (NAME, "--team", "t", "--create-team", "--db", database.url)
    done = tool(*base, "-o", tmp_path / "no" / "report", stdin=zipped(AGENT))
    assert "no/report" in error_of(done, 3)
    assert set(database.counts().values()) == {0}
    done = tool(*base, "-o", tmp_path / "report", stdin=zipped(AGENT))
    assert (done.returncode, done.stdout) == (0, b"")
    assert json.loads((tmp_path / "report").read_text())["result"] == "created"


def test_a_report_that_is_lost(tool: RunTool, database: Database) -> None:
    """It is told, and that the agent is there: a second import would write nothing."""
    base = (NAME, "--team", "t", "--create-team", "--db", database.url)
    done = tool(*base, "-o", "/dev/full", stdin=zipped(AGENT))
    assert "the agent was imported, but the report cannot be written: No space" in error_of(done, 3)
    assert json.loads(tool(*base, stdin=zipped(AGENT)).stdout)["result"] == "unchanged"


def test_a_report_is_a_table_on_a_terminal(database: Database, package: bytes) -> None:
    """For a person to read, with what is to be entered and what was left out."""
    base = (NAME, "--team", "t\u00e4m", "--create-team", "--db", database.url)
    shown = on_terminal(*base, "-n", stdin=package)
    assert shown.startswith("would be created: a new agent, Ada, of team t\u00e4m, which is new\n")
    shown = on_terminal(*base, stdin=package)
    assert re.match(r"created: agent-[0-9a-f-]{36}, Ada, of team t\u00e4m, which is new\n", shown)
    assert re.search(r"\ntable +came in +written +left alone +removed *\n", shown)
    assert re.search(r"\nmessage +2 +2 +0 +0 *\n", shown)
    assert "\nto be entered, agent: API_KEY, TOKEN\n" in shown
    assert "left out: data/usage.json" in shown
    shown = on_terminal(*base, stdin=package)
    assert re.match(r"unchanged: agent-[0-9a-f-]{36}, Ada, of team t\u00e4m\n", shown)
