from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

from tests.cli.agents import make_agent, tools
from tests.cli.conftest import RunShell
from tests.cli.test_agentfy_import import error_of
from tests.conftest import RunTool
from tests.database.databases import Database
from tests.database.whole import WHOLE, bring_in_whole
from tests.package.packages import ALL, contents, package_in, zipped

NAME: Final = "agentfy-export"


def test_an_agent_comes_out_as_it_went_in(tool: RunTool, database: Database) -> None:
    """The same bytes each time; what goes on request only then; to a file as to a pipe."""
    agent = bring_in_whole(database, "t\u00e4m %")
    base = (NAME, agent, "--db", database.url)
    done = tool(*base)
    assert (done.returncode, done.stderr) == (0, b"")
    assert tool(*base, "--team", "t\u00e4m %", "-q").stdout == done.stdout
    assert {"data/usage.json", "browser-state/main.json"}.isdisjoint(
        contents(package_in(done.stdout))
    )
    whole = tool(*base, "--with", "usage,browser-state").stdout
    assert contents(package_in(whole, ALL)) == contents(package_in(zipped(WHOLE), ALL))


def test_one_users_part(tool: RunTool, database: Database, tmp_path: Path) -> None:
    """Chats and secrets of others are left out."""
    agent = bring_in_whole(database, "t")
    out = tmp_path / "a.zip"
    done = tool(NAME, agent, "--user", "bob", "-o", out, env={"AGENTFY_DATABASE_URL": database.url})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    found = contents(package_in(out.read_bytes()))
    assert "data/sessions/web:bob.jsonl" in found
    assert {"data/sessions/web:alice.jsonl", "data/secrets/user-alice.json"}.isdisjoint(found)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "missing argument 'AGENT'"),
        ([""], "AGENT is empty: a variable that is not set?"),
        (["a\tb"], "AGENT holds what is no text, or a control character"),
        (["a", "--team", ""], "--team is empty"),
        (["a", "--user", ""], "--user is empty"),
        (["a", "--user", "x" * 1025], "--user is longer than 1024 bytes"),
        (["a", "--with", ""], "--with takes usage and browser-state, not nothing"),
        (["a", "--db", "host=h password=hunter2"], "--db holds a password"),
        (["a", "b"], "got unexpected extra argument"),
    ],
)
def test_a_mistake_in_the_command_line(tool: RunTool, arguments: list[str], said: str) -> None:
    """It is told before a server is looked for."""
    done = tool(NAME, *arguments, env={"AGENTFY_DATA": "/nonexistent/data"})
    assert error_of(done, 2).startswith(f"{NAME}: usage: {said}")
    assert b"hunter2" not in done.stderr


def test_no_such_agent_leaves_the_file(
    tool: RunTool, database: Database, empty_database: Database, tmp_path: Path
) -> None:
    """One that is unknown, of another team, or in a database without any; a concierge."""
    out = tmp_path / "a.zip"
    out.write_bytes(b"old")
    agent = bring_in_whole(database, "t")
    database.rows("INSERT INTO agentfy.team (name) VALUES ('other')")
    for code, url, arguments in (
        ("agent-unknown", database.url, ["agent-\u00e9"]),
        ("agent-unknown", database.url, [agent, "--team", "other"]),
        ("team-unknown", database.url, [agent, "--team", "nobody"]),
        ("agent-unknown", empty_database.url, [agent]),
    ):
        done = tool(NAME, *arguments, "--db", url, "-o", out)
        assert error_of(done, 1).startswith(f"{NAME}: refused: {code}: ")
    database.rows("UPDATE agentfy.agent SET type = 'concierge'")
    done = tool(NAME, agent, "-o", out, "--db", database.url, "--json-errors")
    error_of(done, 1)
    assert json.loads(done.stderr)["error"]["details"] == {"refusal": "agent-concierge"}
    assert out.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.zip"]
    assert empty_database.rows("SELECT to_regnamespace('agentfy')") == [(None,)]


def test_the_whole_way_in_pipes(
    shell: RunShell, database: Database, empty_database: Database, tmp_path: Path
) -> None:
    """A folder into one database, from it into another, and into a folder again."""
    make_agent(tmp_path / ".agent")
    done = shell(
        f"""{tools()}
        id_of() {{ python -c '
import json, sys; print(json.load(sys.stdin)["agent"]["id"])'; }}
        agentfy-pack .agent > a.zip 2>/dev/null || exit 1
        a=$(agentfy-pack .agent |
            agentfy-import --team t --create-team --db "$ONE" | id_of) || exit 2
        b=$(agentfy-export "$a" --db "$ONE" | agentfy-verify |
            agentfy-import --team t --create-team --db "$TWO" | id_of) || exit 3
        agentfy-export "$b" --db "$TWO" > b.zip && cmp a.zip b.zip || exit 4
        agentfy-export "$b" --db "$TWO" | agentfy-unpack out > report || exit 5
        agentfy-pack out | cmp - a.zip || exit 6
        [ "$a" != "$b" ] || exit 7
        agentfy-export nobody --db "$TWO" | agentfy-import --team new --create-team --db "$ONE"
        echo "${{PIPESTATUS[*]}}"
        """,
        env={"ONE": database.url, "TWO": empty_database.url},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"1 1\n"
    assert b"agentfy-import: refused: package-not-zip" in done.stderr
    assert database.rows("SELECT name FROM agentfy.team") == [("t",)]
