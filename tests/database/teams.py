"""Teams of one database, each for one test: to make a database for each would take longer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg
import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from agentmove_tools.database.imported import Imported
from agentmove_tools.database.importing import ImportOptions, import_package
from agentmove_tools.package.contents import Options, Package
from agentmove_tools.package.pack import pack
from agentmove_tools.package.sources import Item
from agentmove_tools.refusals import Refusal
from tests.database.databases import Database
from tests.package.packages import AGENT, ALL, package_in

# How a row is called in a test, by table; with the agent or the skill that it is of.
_LABELS: Final[Mapping[str, str]] = {
    "team": "held.name",
    "agent": "held.external_id",
    "skill": "held.path",
    "file": "(SELECT path FROM agentfy.skill WHERE skill.id = held.skill_id) || '/' || held.path",
    "memory": "held.path",
    "secret": "held.scope || ' ' || held.name",
    "app_user": "held.name",
    "app_user_identity": "held.channel || ':' || held.\"user\"",
    "access": "''",
    "access_user": "held.channel || ':' || held.\"user\"",
    "chat": "held.channel || ':' || held.\"user\"",
    "message": (
        "(SELECT channel || ':' || \"user\" FROM agentfy.chat WHERE chat.id = held.chat_id)"
        " || ' ' || held.external_id"
    ),
    "usage": "''",
    "account": "held.profile",
}
_ROWS: Final = " UNION ALL ".join(
    f"SELECT trim('{table} ' || {label}), held.xmin::text, held::text FROM agentfy.{table} AS held"
    f" WHERE held.{'id' if table == 'team' else 'team_id'} = %(team)s"
    for table, label in _LABELS.items()
)

# Each row of a team by what it is called: the transaction that wrote it, and all that it holds.
Stand = dict[str, tuple[str, str]]


class SharedDatabase(Database):
    """A database with one connection that is used again and again, one use at a time."""

    _kept: Connection[TupleRow] | None = None

    @contextmanager
    def connect(self) -> Iterator[Connection[TupleRow]]:
        """The connection, as it was when it was made."""
        kept = self._kept
        if kept is None or kept.broken:
            kept = self._kept = psycopg.connect(make_conninfo("", **self.parameters))
            kept.prepare_threshold = None  # temporary tables come and go
        try:
            yield kept
        finally:
            kept.rollback()
            kept.read_only = None
            kept.isolation_level = psycopg.IsolationLevel.READ_COMMITTED

    def close(self) -> None:
        """Give the connection back."""
        if self._kept is not None:
            self._kept.close()


class Team:
    """A team, whose rows no other test touches."""

    def __init__(self, database: Database, name: str) -> None:
        self.database = database
        self.name = name

    @property
    def id(self) -> str:
        """Its ID in the database, once it is there."""
        ((found,),) = self.database.rows(
            "SELECT id FROM agentfy.team WHERE name = %s", (self.name,)
        )
        return str(found)

    def bring_in(
        self,
        files: Mapping[str, bytes],
        *,
        reading: Options = ALL,
        runnable: Sequence[str] = (),
        **options: Any,  # noqa: ANN401 (of ImportOptions)
    ) -> Imported:
        """Import the smallest agent with these files."""
        return self.bring_in_package(package(files, reading, runnable), **options)

    def bring_in_package(
        self,
        made: Package,
        **options: Any,  # noqa: ANN401 (of ImportOptions)
    ) -> Imported:
        """Import a package; the team is made if it is missing."""
        options = {"team": self.name, "create_team": True, **options}
        with self.database.connect() as connection:
            return import_package(connection, made, ImportOptions(**options))

    def refusal_of(
        self,
        files: Mapping[str, bytes],
        *,
        reading: Options = ALL,
        **options: Any,  # noqa: ANN401 (of ImportOptions)
    ) -> Refusal:
        """Why an import is refused, which changes nothing."""
        before = self.stand()
        with pytest.raises(Refusal) as caught:
            self.bring_in(files, reading=reading, **options)
        assert self.stand() == before
        return caught.value

    @property
    def agent(self) -> str:
        """The ID of its only agent."""
        ((found,),) = self.database.rows(
            "SELECT agent.id FROM agentfy.agent JOIN agentfy.team ON team.id = team_id"
            " WHERE team.name = %s",
            (self.name,),
        )
        return str(found)

    def archive(self, **options: Any) -> bytes:  # noqa: ANN401 (of ExportOptions)
        """The package of its only agent, with all that can be asked for."""
        return self.database.archive(self.agent, **{"wanted": ALL.wanted, **options})

    def files(self, **options: Any) -> dict[str, bytes]:  # noqa: ANN401 (of ExportOptions)
        """What is at each path of the package of its only agent."""
        return files_in(self.archive(**options))

    def rows(self, query: str, **given: object) -> list[TupleRow]:
        """Run a query, in which %(team)s is the team's ID and %(agent)s that of its only agent."""
        if "%(agent)s" in query:
            given["agent"] = self.agent
        if "%(team)s" in query:
            given["team"] = self.id
        with self.database.connect() as connection:
            cursor = connection.execute(query.encode(), given)
            found = cursor.fetchall() if cursor.description else []
            connection.commit()
            return found

    def stand(self) -> Stand:
        """Every row of the team."""
        known = self.database.rows("SELECT id FROM agentfy.team WHERE name = %s", (self.name,))
        if not known:
            return {}
        with self.database.connect() as connection:
            rows = connection.execute(_ROWS.encode(), {"team": known[0][0]}).fetchall()
        found: Stand = {}
        for label, xmin, row in sorted(rows, key=lambda row: row[2]):
            name = label
            while name in found:  # of another agent
                name += "'"
            found[name] = (xmin, row)
        return found

    def places(self, chat: str) -> dict[str, int]:
        """The place of each message of a chat, by the ID of its event; of ``channel:user``."""
        return dict(
            self.rows(
                """
                SELECT message.external_id, place FROM agentfy.message
                JOIN agentfy.chat ON chat.id = chat_id
                WHERE chat.team_id = %(team)s AND channel || ':' || "user" = %(chat)s
                ORDER BY place
                """,
                chat=chat,
            )
        )


def changes(before: Stand, after: Stand) -> list[str]:
    """The rows that were added (+), removed (-) or written anew (~), sorted."""
    return sorted(
        [f"+{label}" for label in after.keys() - before.keys()]
        + [f"-{label}" for label in before.keys() - after.keys()]
        + [f"~{label}" for label in after.keys() & before.keys() if after[label] != before[label]]
    )


# -- packages


class Files:
    """Files in memory as a package's source: an agent's own folder, or its archive."""

    def __init__(
        self, files: Mapping[str, bytes], runnable: Sequence[str] = (), *, is_folder: bool = True
    ) -> None:
        self._files = files
        self._runnable = frozenset(runnable)
        self.is_folder = is_folder

    def items(self) -> list[Item]:
        return [
            Item(path, path in self._runnable, len(content), lambda content=content: (content,))  # type: ignore[misc]
            for path, content in self._files.items()
        ]

    def passed_over(self) -> list[str]:
        return []


def package(
    files: Mapping[str, bytes], reading: Options = ALL, runnable: Sequence[str] = ()
) -> Package:
    """The package of the smallest agent with these files."""
    return Package(Files({**AGENT, **files}, runnable, is_folder=False), reading)


def packed(
    files: Mapping[str, bytes], reading: Options = ALL, runnable: Sequence[str] = ()
) -> bytes:
    """The archive that is written of the smallest agent with these files."""
    return b"".join(pack(package(files, reading, runnable)))


def files_in(archive: bytes) -> dict[str, bytes]:
    """What a written archive has at each path."""
    read = package_in(archive, ALL)
    return {item.path: b"".join(item.pieces()) for file in read.files for item in file.items}


def lines(*events: bytes) -> bytes:
    """A session of these events."""
    return b"".join(line + b"\n" for line in events)
