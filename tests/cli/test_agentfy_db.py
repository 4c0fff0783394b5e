from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from agentmove_tools.database.schema import HEAD
from tests.cli.test_agentfy_import import error_of, on_terminal
from tests.conftest import RunTool
from tests.database.databases import Database
from tests.database.servers import scratch
from tests.database.whole import bring_in_whole
from tests.package.packages import AGENT, zipped

NAME: Final = "agentfy-db"
ODD: Final = "\u05d0\u200c\u05d1 'x' \"%s\" [b]\u00fc"


def test_a_database_without_a_schema(tool: RunTool, empty_database: Database) -> None:
    """It is looked at, and stays without; then it is brought forward, once."""
    url = ("--db", empty_database.url)
    status = json.loads(tool(NAME, "status", *url).stdout)
    assert status["embedded"] is None
    assert status["server"]["database"] == empty_database.name
    assert status["schema"] == {"version": None, "known": HEAD}
    for command in ("teams", "agents"):
        assert tool(NAME, command, *url).stdout == b"[]\n"
    assert "agent-unknown" in error_of(tool(NAME, "pending", "agent-x", *url), 1)
    sql = tool(NAME, "migrate", "--sql", *url).stdout
    assert b"CREATE TABLE agentfy.agent" in sql
    assert empty_database.rows("SELECT to_regnamespace('agentfy')") == [(None,)]
    migrated = tool(NAME, "migrate", *url)
    assert json.loads(migrated.stdout) == {"before": None, "after": HEAD}
    migrated = tool(NAME, "migrate", *url)
    assert json.loads(migrated.stdout) == {"before": HEAD, "after": HEAD}
    assert tool(NAME, "migrate", "--sql", *url).stdout == b""


def test_what_is_there(tool: RunTool, database: Database) -> None:
    """As JSON, all of it, whatever the names are."""
    env = {"AGENTFY_DATABASE_URL": database.url}
    agent = bring_in_whole(database, ODD)
    database.bring_in(zipped(AGENT), "empty-handed")
    (first, second) = json.loads(tool(NAME, "teams", env=env).stdout)
    assert (first["name"], first["agents"]) == ("empty-handed", 1)
    assert (second["name"], second["agents"]) == (ODD, 1)
    assert re.fullmatch(r"team-[0-9a-f-]{36}", first["id"])
    found = json.loads(tool(NAME, "agents", env=env).stdout)
    assert [each["team"]["name"] for each in found] == ["empty-handed", ODD]
    for team in (ODD, second["id"]):
        (whole,) = json.loads(tool(NAME, "agents", "--team", team, env=env).stdout)
        assert whole == found[1]
    assert whole.pop("updatedAt")
    assert whole == {
        "id": agent,
        "externalId": "agent-of-tests",
        "name": "Ada",
        "type": "agent",
        "skills": 1,
        "memories": 2,
        "chats": 2,
        "messages": 10,
        "pendingSecrets": 2,
        "team": {"id": second["id"], "name": ODD},
    }
    pending = tool(NAME, "pending", agent, env=env)
    assert json.loads(pending.stdout) == {"agent": ["API_KEY"], "user-alice": ["HERS"]}


def test_times_are_told_in_one_form(tool: RunTool, database: Database) -> None:
    """Whatever the form of the server's own is; one that is no time is null."""
    bring_in_whole(database, "t")
    database.rows(
        f"ALTER DATABASE \"{database.name}\" SET datestyle = 'German'; "
        f"ALTER DATABASE \"{database.name}\" SET timezone = 'Asia/Kolkata'"
    )
    env = {"AGENTFY_DATABASE_URL": database.url}
    form = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
    (team,) = json.loads(tool(NAME, "teams", env=env).stdout)
    assert re.fullmatch(form, team["createdAt"])
    (agent,) = json.loads(tool(NAME, "agents", env=env).stdout)
    assert re.fullmatch(form, agent["updatedAt"])
    age = datetime.now(UTC) - datetime.fromisoformat(agent["updatedAt"])
    assert timedelta(minutes=-5) < age < timedelta(minutes=30)
    database.rows("ALTER TABLE agentfy.agent DISABLE TRIGGER USER")
    database.rows("UPDATE agentfy.agent SET updated_at = 'infinity'")
    (agent,) = json.loads(tool(NAME, "agents", env=env).stdout)
    assert agent["updatedAt"] is None
    assert "t" in on_terminal(NAME, "agents", env=env)


def test_what_is_there_as_tables(database: Database) -> None:
    """On a terminal, whatever the names are."""
    env = {"AGENTFY_DATABASE_URL": database.url}
    agent = bring_in_whole(database, "t\u00e4m %s [b]")
    shown = on_terminal(NAME, "teams", env=env)
    assert re.match(
        r"team +ID +agents +created *\nt\u00e4m %s \[b\] +team-[0-9a-f-]{36} +1 ", shown
    )
    shown = on_terminal(NAME, "agents", env=env)
    assert re.match(r"agent +messages +pending +team +name *\n", shown)
    assert re.search(rf"\n{agent} +10 +2 +t\u00e4m %s \[b\] +Ada *\n", shown)
    shown = on_terminal(NAME, "pending", agent, env=env)
    assert re.fullmatch(r"scope +secret *\nagent +API_KEY *\nuser-alice +HERS *\n", shown)
    shown = on_terminal(NAME, "status", env=env)
    assert f"\nschema version: {HEAD}\n" in shown
    assert "embedded: none\n" in shown
    assert on_terminal(NAME, "migrate", env=env) == f"before: {HEAD}\nafter: {HEAD}\n"


def test_nothing_is_there_as_tables(empty_database: Database) -> None:
    """Headers only."""
    url = ("--db", empty_database.url)
    assert on_terminal(NAME, "teams", *url).split() == ["team", "ID", "agents", "created"]
    assert on_terminal(NAME, "agents", *url).startswith("agent ")


def test_a_newer_schema(tool: RunTool, database: Database) -> None:
    """Its version is told; nothing else is done with it, by any tool."""
    agent = bring_in_whole(database, "t")
    database.rows("UPDATE agentfy.schema_version SET version_num = '9999'")
    env = {"AGENTFY_DATABASE_URL": database.url}
    status = json.loads(tool(NAME, "status", env=env).stdout)
    assert status["schema"] == {"version": "9999", "known": HEAD}
    for name, *arguments in (
        (NAME, "teams"),
        (NAME, "agents", "--team", "t"),
        (NAME, "pending", agent),
        (NAME, "migrate"),
        (NAME, "migrate", "--sql"),
        ("agentfy-export", agent),
        ("agentfy-import", "--team", "t"),
        ("agentfy-import", "--team", "t", "-n"),
    ):
        done = tool(name, *arguments, stdin=zipped(AGENT), env=env)
        assert error_of(done, 1).startswith(f"{name}: refused: schema-newer: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "missing command"),
        (["nonesuch"], "no such command 'nonesuch'"),
        (["pending"], "missing argument 'AGENT'"),
        (["pending", ""], "AGENT is empty"),
        (["agents", "--team", ""], "--team is empty"),
        (["agents", "--team", "\x1b"], "--team holds what is no text"),
        (["status", "--db", "postgresql://u:hunter2@h/d"], "--db holds a password"),
        (["stop", "--db", "x"], "no such option: --db"),
    ],
)
def test_a_mistake_in_the_command_line(tool: RunTool, arguments: list[str], said: str) -> None:
    """It is told before a server is looked for."""
    done = tool(NAME, *arguments, env={"AGENTFY_DATA": "/nonexistent/data"})
    assert error_of(done, 2).startswith(f"{NAME}: usage: {said}")
    assert b"hunter2" not in done.stderr


def test_errors_in_json(tool: RunTool, database: Database) -> None:
    """With the option behind the command, or the variable."""
    url = ("--db", database.url)
    done = tool(NAME, "agents", "--team", "nobody", *url, "--json-errors")
    error_of(done, 1)
    assert json.loads(done.stderr)["error"]["details"]["refusal"] == "team-unknown"
    done = tool(NAME, "pending", "agent-x", *url, env={"AGENTMOVE_ERRORS": "json"})
    error_of(done, 1)
    assert json.loads(done.stderr)["error"]["details"]["refusal"] == "agent-unknown"


def test_the_embedded_server(tool: RunTool) -> None:
    """It is not started to be looked at; a command starts it, and it is stopped once."""
    with scratch() as folder:
        data = folder / "data"
        env = {"AGENTFY_DATA": str(data), "AGENTFY_IDLE": "20"}
        try:
            status = json.loads(tool(NAME, "status", env=env).stdout)
            assert (status["embedded"]["running"], status["server"]) == (False, None)
            assert not data.exists()
            assert tool(NAME, "stop", env=env).stdout == b'{"stopped": false}\n'
            assert not data.exists()
            done = tool(NAME, "teams", env=env)
            assert (done.returncode, done.stdout) == (0, b"[]\n"), done.stderr
            status = json.loads(tool(NAME, "status", env=env).stdout)
            assert status["embedded"]["running"] is True
            assert status["embedded"]["folder"] == str(data)
            assert status["server"]["user"] == "agentfy"
        finally:
            assert tool(NAME, "stop", env=env).stdout == b'{"stopped": true}\n'
        assert tool(NAME, "stop", env=env).stdout == b'{"stopped": false}\n'
