"""Databases to test with: each test has one of its own, on a real server of each test process.

The server is the embedded one, in a folder of its own; with ``AGENTFY_TEST_SERVER``, such as
``host=/run/postgresql user=postgres``, it is that one, where a user who may make databases and
roles is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from agentmove_tools.database.connection import bring_forward, connected
from agentmove_tools.database.exporting import Exported, ExportOptions, export_agent
from agentmove_tools.database.imported import Imported
from agentmove_tools.database.importing import ImportOptions, import_package
from agentmove_tools.package.archive_reader import Archive
from agentmove_tools.package.contents import Options, Package
from agentmove_tools.package.sources import ArchiveSource
from tests.database.servers import scratch
from tests.package.packages import PLAIN

_numbers = count()


class Server:
    """A server that databases are made on. ``parameters`` connect to it, but for ``dbname``."""

    def __init__(self, parameters: dict[str, str]) -> None:
        self.parameters = parameters

    def run(self, *statements: sql.Composed) -> None:
        """Run statements outside of any transaction."""
        conninfo = make_conninfo("", **{"dbname": "postgres", **self.parameters})
        with psycopg.connect(conninfo, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    @contextmanager
    def database(self, template: str | None = None) -> Iterator[Database]:
        """A new database, empty or a copy, which is dropped at the end."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        make = sql.SQL("CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8'").format(
            sql.Identifier(name), sql.Identifier(template or "template0")
        )
        self.run(make)
        try:
            yield Database({**self.parameters, "dbname": name})
        finally:
            drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            self.run(drop)


class Database:
    """One database. ``parameters`` connect to it; ``url`` is them for ``AGENTFY_DATABASE_URL``."""

    def __init__(self, parameters: dict[str, str]) -> None:
        self.parameters = parameters
        self.name = parameters["dbname"]

    @property
    def url(self) -> str:
        others = {k: v for k, v in self.parameters.items() if k not in ("user", "dbname")}
        user = quote(self.parameters["user"])
        return f"postgresql://{user}@/{self.name}?{urlencode(others)}"

    @contextmanager
    def connect(self) -> Iterator[Connection[TupleRow]]:
        """A connection as the tools make it: what is not committed is rolled back."""
        with connected(self.parameters, "test") as connection:
            yield connection

    def rows(self, query: str, given: Sequence[Any] = ()) -> list[TupleRow]:
        """Run a query as the owner of the tables, past the wall between teams, and commit."""
        with self.connect() as connection:
            cursor = connection.execute(query.encode(), given)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
            return rows

    def bring_in(
        self,
        package: bytes,
        team: str = "t1",
        *,
        reading: Options = PLAIN,
        **options: Any,  # noqa: ANN401 (of ImportOptions)
    ) -> Imported:
        """Import an archive; the team is made if it is missing."""
        made = Package(ArchiveSource(Archive(package)), reading)
        with self.connect() as connection:
            return import_package(
                connection, made, ImportOptions(team=team, create_team=True, **options)
            )

    def take_out(self, agent: str, **options: Any) -> Exported:  # noqa: ANN401 (of ExportOptions)
        """Export an agent."""
        with self.connect() as connection:
            return export_agent(connection, ExportOptions(agent, **options))

    def archive(self, agent: str, **options: Any) -> bytes:  # noqa: ANN401 (as above)
        """The bytes of an agent's package."""
        return b"".join(self.take_out(agent, **options).pieces)

    def counts(self) -> dict[str, int]:
        """How many rows each table has."""
        return {table: self.rows(f"SELECT count(*) FROM agentfy.{table}")[0][0] for table in TABLES}


TABLES = (
    *("team", "agent", "skill", "file", "memory", "secret", "app_user", "app_user_identity"),
    *("access", "access_user", "chat", "message", "usage", "account"),
)


@pytest.fixture(scope="session")
def db_server() -> Iterator[Server]:
    """The server of this test process."""
    given = os.environ.get("AGENTFY_TEST_SERVER")
    if given:
        yield Server({key: str(value) for key, value in conninfo_to_dict(given).items()})
        return
    from agentmove_tools.database.embedded import hold_server, stop_server

    with scratch() as folder:
        with hold_server(str(folder)) as held:
            parameters = {k: v for k, v in held.parameters.items() if k != "dbname"}
            yield Server(parameters)
        stop_server(str(folder))


@pytest.fixture(scope="session")
def template(db_server: Server) -> Iterator[str]:
    """The name of a database with the schema, to be copied."""
    with db_server.database() as database:
        with database.connect() as connection:
            bring_forward(connection)
        yield database.name


@pytest.fixture
def empty_database(db_server: Server) -> Iterator[Database]:
    """A database without the schema."""
    with db_server.database() as database:
        yield database


@pytest.fixture
def database(db_server: Server, template: str) -> Iterator[Database]:
    """A database with the schema and no rows."""
    with db_server.database(template) as database:
        yield database
