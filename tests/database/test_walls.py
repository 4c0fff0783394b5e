"""Two walls between teams: the program's own WHERE, and row-level security. Each holds alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from agentmove_tools.database import exporting, importing
from agentmove_tools.database.connection import bring_forward
from agentmove_tools.database.schema import HEAD
from agentmove_tools.database.tenant import ROLE, enter_team, enter_team_of, take_role
from agentmove_tools.refusals import MachineError, Refusal
from tests.database.databases import TABLES, Database, Server
from tests.database.whole import (
    EVENTS,
    WHOLE,
    all_rows,
    bring_in_whole,
    rows_in,
    tables_of,
    team_id,
)
from tests.package.packages import ALL, event, package_in, zipped

_DENIED: Final = psycopg.errors.InsufficientPrivilege
_WHOLE_EXPORT: Final = frozenset(ALL.wanted)


def test_the_tables_are_those_that_are_tested(database: Database) -> None:
    """A new table is found by the tests that ask the catalogue, and belongs into the list."""
    with database.connect() as connection:
        assert tables_of(connection) == sorted(TABLES)


# -- the program's own WHERE, alone


@pytest.fixture
def only_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes the role: the user is a superuser, for whom row-level security never holds."""
    for module in (importing, exporting):
        monkeypatch.setattr(module, "take_role", lambda _: None)


_CHANGED: Final = {
    **WHOLE,
    "SOUL.md": b"# Taken over\n",
    "USER.md": b"Mallory\n",
    "MEMORY.md": b"theirs\n",
    "skills/pdf/SKILL.md": b"---\nname: pdf\ndescription: Theirs.\n---\n",
    "skills/pdf/run.sh": b"theirs\n",
    "data/secrets/agent.json": b'["TOKEN", "OTHER"]',
    "data/access.json": b'["web:mallory"]\n',
    "data/sessions/web:alice.jsonl": event("e1", 7, data={"text": "theirs"}) + b"\n",
    "data/usage.json": b'{"tokens": 0}\n',
    "browser-state/main.json": b'{"cookies": ["theirs"]}\n',
}


@pytest.mark.usefixtures("only_first")
@pytest.mark.parametrize("prune", [False, True], ids=["plain", "prune"])
def test_the_same_agent_in_another_team_is_another(database: Database, prune: bool) -> None:
    """Of one external ID, with the same chats, events, skills and names, and all of it changed."""
    theirs = bring_in_whole(database, "victims")
    team = team_id(database, "victims")
    before = all_rows(database, team)
    package = database.archive(theirs, wanted=_WHOLE_EXPORT)
    for files in (WHOLE, _CHANGED, {**_CHANGED, "SOUL.md": b"again"}):
        # the second team's own agent takes no other event of an ID either
        if files is not WHOLE:
            database.rows(
                "DELETE FROM agentfy.chat WHERE team_id <> %s AND \"user\" = 'alice'", (team,)
            )
        done = database.bring_in(zipped(files), "mallory", reading=ALL, prune=prune)
        assert done.agent_id != theirs
        assert done.team.name == "mallory"
        assert all_rows(database, team) == before
    assert "HERS" in done.pending["user-alice"]
    assert "TOKEN" in done.pending["agent"]  # which the victims have entered
    assert database.archive(theirs, wanted=_WHOLE_EXPORT) == package
    taken = database.rows(
        'SELECT "user", app_user_id FROM agentfy.access_user WHERE team_id <> %s', (team,)
    )
    assert taken == [("mallory", None)]


@pytest.mark.usefixtures("only_first")
def test_a_person_is_known_in_their_own_team_only(database: Database) -> None:
    """One who may speak to two teams' agents is a person of the platform in one of them."""
    bring_in_whole(database, "victims")
    database.bring_in(zipped(WHOLE), "victims")
    database.bring_in(zipped(WHOLE), "mallory")
    known = database.rows(
        """
        SELECT team.name, "user", app_user_id IS NOT NULL
        FROM agentfy.access_user JOIN agentfy.team ON team.id = team_id ORDER BY 1 DESC, 2
        """
    )
    assert known == [
        ("victims", "alice", True),
        ("victims", "bob", False),
        ("mallory", "alice", False),
        ("mallory", "bob", False),
    ]


@pytest.mark.usefixtures("only_first")
def test_another_teams_ids_in_a_package_are_only_texts(database: Database) -> None:
    """As the agent's own ID, as a team, as names of chats, events, skills and persons."""
    theirs = bring_in_whole(database, "victims")
    team, chat, message, skill, person = database.rows(
        """
        SELECT team.id, chat.id, message.id, skill.id, app_user.id
        FROM agentfy.team, agentfy.chat, agentfy.message, agentfy.skill, agentfy.app_user LIMIT 1
        """
    )[0]
    before = all_rows(database, team)
    config = f'{{"id": "{theirs}", "team": "{team}", "teamId": "{team}", "type": "concierge"}}'
    hostile = {
        "SOUL.md": b"theirs",
        "agent.config.json": config.encode(),
        f"skills/{skill}/SKILL.md": b"theirs",
        f"memory/{skill}.md": b"theirs",
        "data/access.json": f'["{person}:{person}"]'.encode(),
        f"data/sessions/{chat}:{person}.jsonl": event(message, 1, team_id=team, chat_id=chat),
        f"data/secrets/user-{person}.json": b'["TOKEN"]',
    }
    hostile[f"data/sessions/{chat}:{person}.jsonl"] += b"\n"
    done = database.bring_in(zipped(hostile), "mallory")
    assert done.agent_id != theirs
    assert done.team.id != team
    assert all_rows(database, team) == before
    types = database.rows("SELECT type FROM agentfy.agent WHERE id = %s", (done.agent_id,))
    assert types == [("agent",)]


@pytest.mark.usefixtures("only_first")
def test_another_teams_agent_cannot_be_named(database: Database) -> None:
    """Neither to be updated nor, with a team, to be exported; it is as if there were none."""
    theirs = bring_in_whole(database, "victims")
    before = all_rows(database)
    with pytest.raises(Refusal) as caught:
        database.bring_in(zipped(WHOLE), "mallory", agent=theirs)
    assert caught.value.code == "agent-unknown"
    assert all_rows(database) == before
    database.rows("INSERT INTO agentfy.team (name) VALUES ('mallory')")
    with pytest.raises(Refusal) as caught:
        database.take_out(theirs, team="mallory")
    assert caught.value.code == "agent-unknown"


@pytest.mark.usefixtures("only_first")
def test_a_concierge_of_another_team_is_no_concern(database: Database) -> None:
    """One of the same external ID neither refuses the import nor is read."""
    theirs = bring_in_whole(database, "victims")
    database.rows("UPDATE agentfy.agent SET type = 'concierge' WHERE id = %s", (theirs,))
    team = team_id(database, "victims")
    before = all_rows(database, team)
    assert database.bring_in(zipped(WHOLE), "mallory").result == "created"
    assert all_rows(database, team) == before


# -- row-level security, alone


class Two:
    """Two teams with the same agent, all of whose tables have rows."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.agent = bring_in_whole(database, "a")
        self.other_agent = bring_in_whole(database, "b")
        self.team = team_id(database, "a")
        self.other = team_id(database, "b")

    @contextmanager
    def behind_wall(self, team: str | None = "a") -> Iterator[Connection[TupleRow]]:
        """A transaction that has taken the role, and a team where one is given.

        It is rolled back at the end, when no row of another team may have changed in it.
        """
        with self.database.connect() as connection:
            before = rows_in(connection, None if team is None else self.other)
            take_role(connection)
            if team is not None:
                enter_team(connection, team, create=False)
            yield connection
            connection.execute("RESET ROLE")
            assert rows_in(connection, None if team is None else self.other) == before


@pytest.fixture(scope="module")
def two(db_server: Server, template: str) -> Iterator[Two]:
    """For tests that commit nothing."""
    with db_server.database(template) as database:
        yield Two(database)


@contextmanager
def denied(
    connection: Connection[TupleRow], *others: type[Exception], match: str | None = None
) -> Iterator[None]:
    """What is done is refused by the server, which undoes it."""
    with pytest.raises((_DENIED, *others), match=match), connection.transaction():
        yield


def _count(connection: Connection[TupleRow], query: str) -> int:
    """How many rows a statement reads or touches; none where the role lacks the right."""
    try:
        with connection.transaction():
            return connection.execute(query.encode()).rowcount
    except _DENIED:
        return 0


def _granted(connection: Connection[TupleRow], table: str, right: str) -> list[str]:
    rows = connection.execute(
        """
        SELECT attname FROM pg_attribute
        WHERE attrelid = %s::regclass AND attnum > 0 AND attgenerated = ''
            AND has_column_privilege(%s, attrelid, attnum, %s)
        ORDER BY attnum
        """,
        (f"agentfy.{table}", ROLE, right),
    )
    return [row[0] for row in rows.fetchall()]


def test_without_a_where_one_team_is_read(two: Two) -> None:
    """Every table has rows of both teams, and only those of the one are there."""
    everywhere = {table: len(rows) for table, rows in all_rows(two.database).items()}
    with two.behind_wall() as connection:
        for table in tables_of(connection):
            columns = sql.SQL(", ").join(map(sql.Identifier, _granted(connection, table, "SELECT")))
            query = sql.SQL("SELECT {} FROM agentfy.{}").format(columns, sql.Identifier(table))
            cursor = connection.execute(query)
            assert cursor.description is not None
            names = [column.name for column in cursor.description]
            teams = [row[names.index(_team_column(table))] for row in cursor]
            assert set(teams) == {two.team}, table
            assert 0 < len(teams) < everywhere[table], table
        views = connection.execute("SELECT DISTINCT team_id FROM agentfy.conversation").fetchall()
        assert views == [(two.team,)]


def test_without_a_where_one_team_is_written(two: Two) -> None:
    """An update of every column that may be set, and a removal, leave the other's rows alone."""
    updated = removed = 0
    with two.behind_wall() as connection:
        for table in tables_of(connection):
            for column in _granted(connection, table, "UPDATE"):
                if column not in ("team_id", "id"):
                    updated += _count(
                        connection, f'UPDATE agentfy.{table} SET "{column}" = "{column}"'
                    )
            removed += _count(connection, f"DELETE FROM agentfy.{table}")
    assert updated > 0
    assert removed > 0


def test_no_row_goes_to_another_team(two: Two) -> None:
    """Neither as a new one nor by an update of its team."""
    tried = 0
    with two.behind_wall() as connection:
        for table in tables_of(connection):
            connection.execute("RESET ROLE")
            read = sql.SQL("SELECT * FROM agentfy.{} WHERE {} = {} LIMIT 1").format(
                sql.Identifier(table), sql.Identifier(_team_column(table)), sql.Literal(two.other)
            )
            cursor = connection.execute(read)
            row = cursor.fetchone()
            assert cursor.description is not None
            assert row is not None, table
            take_role(connection)
            granted = _granted(connection, table, "INSERT")
            own = {
                column.name: value
                for column, value in zip(cursor.description, row, strict=True)
                if column.name in granted and column.name != "id"
            }
            if own:
                tried += 1
                statement = sql.SQL("INSERT INTO agentfy.{} ({}) VALUES ({})").format(
                    sql.Identifier(table),
                    sql.SQL(", ").join(map(sql.Identifier, own)),
                    sql.SQL(", ").join([sql.Placeholder()] * len(own)),
                )
                with denied(connection, match="violates row-level security"):
                    connection.execute(statement, [_given(value) for value in own.values()])
            set_team = sql.SQL("UPDATE agentfy.{} SET {} = {}").format(
                sql.Identifier(table), sql.Identifier(_team_column(table)), sql.Literal(two.other)
            )
            with denied(connection):
                connection.execute(set_team)
    assert tried > 8


def _team_column(table: str) -> str:
    return "id" if table == "team" else "team_id"


def _given(value: object) -> object:
    """A value that was read, as a parameter: one of type json comes as what it holds."""
    return json.dumps(value) if isinstance(value, dict) else value


_MESSAGE: Final = "external_id, place, type, ts, event"


@pytest.mark.parametrize(
    ("table", "values", "parent"),
    [
        ("message", f"{_MESSAGE}) VALUES (%s, %s, 'x', 99, 'user', 0, '{{}}'", "chat"),
        ("file", "path, content) VALUES (%s, %s, 'x', ''", "skill"),
        ("skill", "path, content) VALUES (%s, %s, 'skills/x', ''", "agent"),
        ("memory", "path, content) VALUES (%s, %s, 'memory/x.md', ''", "agent"),
        ("secret", "scope, name) VALUES (%s, %s, 'agent', 'x'", "agent"),
        ("chat", "channel, \"user\") VALUES (%s, %s, 'x', 'x'", "agent"),
        ("account", "profile, content) VALUES (%s, %s, 'x', ''", "agent"),
    ],
    ids=lambda value: value.partition(",")[0] if isinstance(value, str) else None,
)  # fmt: skip
def test_no_row_hangs_on_another_teams(two: Two, table: str, values: str, parent: str) -> None:
    """A child's team is its parent's, which foreign keys see to, since they pass the wall."""
    insert = f"INSERT INTO agentfy.{table} (team_id, {parent}_id, {values})".encode()
    first = f"SELECT id FROM agentfy.{parent} WHERE team_id = %s LIMIT 1"
    own, others = (two.database.rows(first, (team,))[0][0] for team in (two.team, two.other))
    with two.behind_wall() as connection:
        connection.execute(insert, (two.team, own))
        with denied(connection, psycopg.errors.ForeignKeyViolation, match="foreign key"):
            connection.execute(insert, (two.team, others))


def test_nobody_may_speak_as_another_teams_person(two: Two) -> None:
    """The person that a row of access names is of its own team too, and may go without it."""
    first = "SELECT id FROM agentfy.app_user WHERE team_id = %s"
    own, others = (two.database.rows(first, (team,))[0][0] for team in (two.team, two.other))
    set_person = "UPDATE agentfy.access_user SET app_user_id = %s WHERE \"user\" = 'alice'"
    with two.behind_wall() as connection:
        assert connection.execute(set_person, (own,)).rowcount == 1
        with denied(connection, psycopg.errors.ForeignKeyViolation, match="foreign key"):
            connection.execute(set_person, (others,))
        connection.execute("RESET ROLE")
        connection.execute("DELETE FROM agentfy.app_user WHERE id = %s", (own,))
        left = connection.execute(
            """
            SELECT "user", team_id, app_user_id FROM agentfy.access_user WHERE team_id = %s
            ORDER BY 1
            """,
            (two.team,),
        ).fetchall()
    assert left == [("alice", two.team, None), ("bob", two.team, None)]


@pytest.mark.parametrize("setting", [None, "", "%", "nobody", "team-", "a' OR 'a'='a"])
def test_with_no_team_there_is_nothing(two: Two, setting: str | None) -> None:
    """Nor with what is no team: no row is read, changed, removed or added."""
    with two.behind_wall(None) as connection:
        if setting is not None:
            connection.execute("SELECT set_config('agentfy.team', %s, true)", (setting,))
        for table in tables_of(connection):
            columns = _granted(connection, table, "SELECT")
            assert columns, table
            assert _count(connection, f'SELECT "{columns[0]}" FROM agentfy.{table}') == 0
            for column in _granted(connection, table, "UPDATE"):
                name = f'"{column}"'
                assert _count(connection, f"UPDATE agentfy.{table} SET {name} = {name}") == 0
            assert _count(connection, f"DELETE FROM agentfy.{table}") == 0
        with denied(connection, match="row-level security"):
            connection.execute("INSERT INTO agentfy.team (name) VALUES ('new')")


def test_the_team_ends_with_the_transaction(two: Two) -> None:
    """Neither the role nor the team is left to whoever uses the connection next."""
    with two.database.connect() as connection:
        take_role(connection)
        enter_team(connection, "a", create=False)
        connection.commit()
        row = connection.execute(
            "SELECT current_user, coalesce(current_setting('agentfy.team', true), '')"
        ).fetchone()
    assert row is not None
    assert row[0] != ROLE
    assert row[1] == ""


# -- the role


def test_the_role_is_nobody(database: Database) -> None:
    """It has no login, no right of the server and no other role."""
    ((*rights, members),) = database.rows(
        """
        SELECT rolcanlogin, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication,
            (SELECT count(*) FROM pg_auth_members WHERE member = pg_roles.oid)
        FROM pg_roles WHERE rolname = %s
        """,
        (ROLE,),
    )
    assert rights == [False] * 6
    assert members == 0
    owned = database.rows("SELECT count(*) FROM pg_class WHERE relowner = %s::regrole", (ROLE,))
    assert owned == [(0,)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT value FROM agentfy.secret",
        "SELECT * FROM agentfy.secret",
        (
            "INSERT INTO agentfy.secret (team_id, agent_id, scope, name, value)"
            " SELECT team_id, agent_id, scope, 'x', 'x' FROM agentfy.secret"
        ),
        "UPDATE agentfy.secret SET value = NULL",
        "UPDATE agentfy.secret SET name = 'x'",
        "UPDATE agentfy.message SET event = '{}'",
        "UPDATE agentfy.message SET ts = 0",
        "UPDATE agentfy.message SET chat_id = chat_id",
        "DELETE FROM agentfy.message",
        "DELETE FROM agentfy.chat",
        "DELETE FROM agentfy.agent",
        "DELETE FROM agentfy.team",
        "UPDATE agentfy.agent SET type = 'concierge'",
        "UPDATE agentfy.agent SET external_id = 'x'",
        "UPDATE agentfy.agent SET team_id = team_id",
        "UPDATE agentfy.team SET name = 'x'",
        (
            "INSERT INTO agentfy.agent (team_id, external_id, soul, config, type)"
            " SELECT id, 'x', '', '', 'concierge' FROM agentfy.team"
        ),
        "INSERT INTO agentfy.app_user (team_id) SELECT id FROM agentfy.team",
        "UPDATE agentfy.app_user SET name = 'x'",
        "DELETE FROM agentfy.app_user_identity",
        "UPDATE agentfy.schema_version SET version_num = '9'",
        "TRUNCATE agentfy.skill CASCADE",
        "ALTER TABLE agentfy.skill DISABLE ROW LEVEL SECURITY",
        "DROP POLICY of_team ON agentfy.skill",
        "CREATE TABLE agentfy.mine (id int)",
        "CREATE FUNCTION agentfy.mine() RETURNS int LANGUAGE sql RETURN 1",
        (
            "CREATE OR REPLACE FUNCTION agentfy.team_of(agent text) RETURNS text"
            " LANGUAGE sql RETURN 'x'"
        ),
        "ALTER ROLE agentfy_tenant BYPASSRLS",
        "SET LOCAL row_security = off; SELECT id FROM agentfy.agent",
    ],
)
def test_what_the_role_may_not_do(two: Two, statement: str) -> None:
    """In its own team either: secrets, what was said, whose an agent is, and the wall itself."""
    with two.behind_wall() as connection, denied(connection):
        connection.execute(statement.encode())


def test_an_entered_secret_is_not_removed(two: Two) -> None:
    """Without a WHERE only the pending ones go."""
    with two.behind_wall() as connection:
        connection.execute("DELETE FROM agentfy.secret")
        left = connection.execute("SELECT name, pending FROM agentfy.secret").fetchall()
    assert left == [("TOKEN", False)]


def test_only_one_function_passes_the_wall(two: Two) -> None:
    """It tells the team of an agent, looks nothing up by the caller's path, and not for anyone."""
    found = two.database.rows(
        """
        SELECT proname, proconfig, has_function_privilege('public', oid, 'EXECUTE')
        FROM pg_proc WHERE prosecdef AND pronamespace = 'agentfy'::regnamespace
        """
    )
    assert found == [("team_of", ["search_path=pg_catalog, pg_temp"], False)]
    with two.behind_wall(None) as connection:
        assert enter_team_of(connection, two.other_agent).id == two.other
        with pytest.raises(Refusal):
            enter_team_of(connection, "agent-00000000-0000-0000-0000-000000000000")


def test_every_view_checks_the_callers_rights(database: Database) -> None:
    """A view of its owner's rights would show every team."""
    found = database.rows(
        """
        SELECT relname, coalesce(reloptions, '{}') @> '{security_invoker=true}' FROM pg_class
        WHERE relnamespace = 'agentfy'::regnamespace AND relkind IN ('v', 'm')
        """
    )
    assert found
    assert all(invoker for _, invoker in found)


# -- when the second wall is down


@pytest.mark.parametrize("table", TABLES)
def test_a_wall_that_was_taken_down_is_noticed(two: Two, table: str) -> None:
    """On whichever table: the role is not taken."""
    with two.database.connect() as connection:
        connection.execute(f"ALTER TABLE agentfy.{table} DISABLE ROW LEVEL SECURITY".encode())
        with pytest.raises(MachineError, match="row-level security does not hold"):
            take_role(connection)


@pytest.mark.parametrize(
    "down",
    [
        "ALTER TABLE agentfy.file DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE agentfy.team DISABLE ROW LEVEL SECURITY",
    ],
)
def test_nothing_is_done_without_the_wall(database: Database, down: str) -> None:
    """Neither an import nor an export."""
    agent = bring_in_whole(database, "a")
    database.rows(down)
    before = all_rows(database)
    with pytest.raises(MachineError, match="row-level security does not hold"):
        database.bring_in(zipped(_CHANGED), "a")
    with pytest.raises(MachineError, match="row-level security does not hold"):
        database.take_out(agent)
    assert all_rows(database) == before


def test_a_wall_that_is_not_to_be_leaned_on_is_no_leak(two: Two) -> None:
    """With row_security off the server refuses what it would have kept back."""
    with two.database.connect() as connection:
        connection.execute("SET row_security = off")
        connection.commit()
        with pytest.raises(MachineError):
            exporting.export_agent(connection, exporting.ExportOptions(two.agent))


# -- names of the caller's own


_SHADOWS: Final = (*TABLES, "schema_version", "pg_class", "conversation")


@pytest.mark.parametrize("schema", ["pg_temp", "mine"])
def test_tables_of_our_names_do_no_harm(database: Database, schema: str) -> None:
    """Temporary ones, and those of a schema before ours: here no name is without its schema."""
    agent = bring_in_whole(database, "a")
    package = database.archive(agent, wanted=_WHOLE_EXPORT)
    made = package_in(zipped({**WHOLE, "SOUL.md": b"new", "data/sessions/x:y.jsonl": EVENTS}))
    with database.connect() as connection:
        if schema == "mine":
            connection.execute("CREATE SCHEMA mine")
            connection.execute("SET search_path = mine, agentfy, pg_catalog")
        for table in _SHADOWS:
            shadow = f"{schema}.{table}"
            kind = "TEMPORARY " if schema == "pg_temp" else ""
            connection.execute(f"CREATE {kind}TABLE {shadow} (id text, name text)".encode())
            connection.execute(f"INSERT INTO {shadow} VALUES ('x', 'x')".encode())
            connection.execute(f"GRANT ALL ON {shadow} TO PUBLIC".encode())
        if schema == "mine":
            connection.execute("GRANT USAGE ON SCHEMA mine TO PUBLIC")
        create = f"CREATE FUNCTION {schema}.team_of(text) RETURNS text LANGUAGE sql RETURN 'x'"
        connection.execute(create.encode())
        connection.commit()
        assert bring_forward(connection) == (HEAD, HEAD)
        done = importing.import_package(connection, made, importing.ImportOptions(team="a"))
        assert done.agent_id == agent
        undone = importing.import_package(
            connection, package_in(package), importing.ImportOptions(team="a", prune=True)
        )
        assert undone.agent_id == agent
        exported = exporting.export_agent(
            connection, exporting.ExportOptions(agent, wanted=_WHOLE_EXPORT)
        )
        for table in _SHADOWS:
            left = connection.execute(f"SELECT * FROM {schema}.{table}".encode()).fetchall()
            assert left == [("x", "x")]
    chat = package_in(b"".join(exported.pieces))
    assert [file.path for file in chat.files if file.path.endswith("x:y.jsonl")]
    assert exported.package.found.config.name == "Ada"
