"""One agent out of the database, as a package (Agent package, section 5).

All is read in one snapshot. The parts go through the same checks as a folder's do, so that what
the platform wrote cannot make a package that no import takes; only the events of a chat that was
imported and not changed since, which its digest says, are taken as they are.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from agentmove_tools.canonical import canonical
from agentmove_tools.database.copying import rows_at_once
from agentmove_tools.database.errors import database_errors
from agentmove_tools.database.tables import Agent
from agentmove_tools.database.tenant import (
    enter_team,
    enter_team_of,
    refuse_concierge,
    take_role,
    unknown_agent,
)
from agentmove_tools.json_values import parse
from agentmove_tools.large_json import LARGE, outline
from agentmove_tools.package.archive_writer import ArchiveWriter
from agentmove_tools.package.config_text import with_id
from agentmove_tools.package.contents import Options, Package, joined
from agentmove_tools.package.fields import of_json, wrong_shape
from agentmove_tools.package.layout import (
    ACCESS,
    BROWSER_STATE,
    CONFIG,
    FIELDS,
    HEARTBEAT,
    SECRETS,
    SESSIONS,
    SKILL_FILE,
    SOUL,
    USAGE,
    USER,
)
from agentmove_tools.package.limits import MAX_EVENTS, MAX_UNPACKED
from agentmove_tools.package.secrets import written
from agentmove_tools.package.session_names import scope_files, session_files
from agentmove_tools.package.sources import Item, MadeSource
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from psycopg import Connection
    from psycopg.rows import TupleRow

    from agentmove_tools.package.contents import File
    from agentmove_tools.package.layout import Part

_LARGE: Final = 4 << 20  # bytes of a content that is fetched in pieces
# Characters or bytes of such a piece: the server unpacks the whole content for each.
_PIECE: Final = 8 << 20


class ExportOptions(NamedTuple):
    """What an export is told.

    ``agent``: the database's ID. ``team``: a name or an ID, of which the agent has to be. ``user``:
    chats and secrets of other users are left out. ``wanted``: which of ``ON_REQUEST`` are parts.
    """

    agent: str
    team: str | None = None
    user: str | None = None
    wanted: frozenset[Part] = frozenset()


class Exported(NamedTuple):
    """An agent's ``package``, and its archive in ``pieces``."""

    package: Package
    pieces: list[bytes]


def export_agent(connection: Connection[TupleRow], options: ExportOptions) -> Exported:
    """The package of one agent, all of it or nothing.

    Raises ``Refusal``: agent-unknown, team-unknown, agent-concierge, agent-id; package-path for a
    name that would lead out; and what a package cannot hold otherwise; and ``MachineError``.
    """
    import psycopg  # noqa: PLC0415 (whoever has a connection has imported it)

    with database_errors(outcome=None):
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        try:
            take_role(connection)
            if options.team is None:
                team = enter_team_of(connection, options.agent)
            else:
                team = enter_team(connection, options.team, create=False)
            rows = _Rows(connection, Agent(team.id, options.agent), options)
            try:
                return _export(rows)
            finally:
                rows.close()
        finally:
            with suppress(psycopg.Error):  # nothing was changed
                connection.rollback()
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                connection.read_only = None


def _export(source: _Rows) -> Exported:
    options = Options(
        external_id=source.external_id,
        told_by="the database knows it as",
        wanted=source.options.wanted,
    )
    package = Package(MadeSource(source.items()), options)
    if package.unknown:
        why = "the name of a row in the database leads there"
        raise Refusal("package-path", why, path=package.unknown[0].encode())
    writer = ArchiveWriter()
    package.begin()
    for file in package.files:
        source.check_part(file)
        trusted = source.trusted_events(file)
        content = package.content(file) if trusted is None else trusted
        writer.add(file.path, content, executable=file.executable)
    return Exported(package, writer.finish())


class _Chat(NamedTuple):
    id: str
    is_trusted: bool
    longest: int  # bytes of an event


class _Rows:
    """The rows of one agent, as the files that they are of."""

    def __init__(
        self, connection: Connection[TupleRow], agent: Agent, options: ExportOptions
    ) -> None:
        self._connection = connection
        self._agent = agent
        self.options = options
        self._parts: dict[str, Part] = {}  # by path, of what could be taken for another
        self._chats: dict[tuple[str, str], _Chat] = {}
        self._size = 0
        self._streams: list[Generator[tuple[str, bytes]]] = []
        self._messages: Generator[tuple[bytes, str]] = _nothing()  # of the chat that is read
        row = connection.execute(
            """
            SELECT type, external_id, config, octet_length(soul), octet_length("user"),
                octet_length(heartbeat)
            FROM agentfy.agent WHERE team_id = %s AND id = %s
            """,
            agent,
        ).fetchone()
        if row is None:
            raise unknown_agent(agent.id)
        kind, self.external_id, self._config, self._soul, self._user, self._heartbeat = row
        refuse_concierge(kind, agent.id)

    def close(self) -> None:
        """Close the cursors that were not read to their ends.

        One that is left to the collector is closed at any moment, also within another operation of
        the connection: that would wait for itself.
        """
        with ExitStack() as stack:
            stack.callback(self._messages.close)
            for stream in self._streams:
                stack.callback(stream.close)

    # -- files

    def items(self) -> list[Item]:
        """All files of the agent, with contents that are fetched as they are read."""
        found = [*self._texts(), *self._secrets(), *self._sessions()]
        found += self._contents(
            "memory",
            """
            SELECT memory.path COLLATE "C" AS path, memory.id,
                false AS executable, octet_length(content) AS size, content
            FROM agentfy.memory WHERE team_id = %s AND agent_id = %s
            """,
        )
        found += self._contents(
            "skill",
            f"""
            SELECT path || '/{SKILL_FILE}' COLLATE "C" AS path, id, false AS executable,
                octet_length(content) AS size, content
            FROM agentfy.skill WHERE team_id = %s AND agent_id = %s
            """,
            part="skill",
        )
        found += self._contents(
            "file",
            """
            SELECT skill.path || '/' || file.path COLLATE "C" AS path, file.id, file.executable,
                octet_length(file.content) AS size, file.content
            FROM agentfy.file JOIN agentfy.skill
                ON skill.id = file.skill_id AND skill.team_id = file.team_id
            WHERE file.team_id = %s AND skill.agent_id = %s
            """,
            part="asset",
        )
        if "browser-state" in self.options.wanted:
            found += self._contents(
                "account",
                f"""
                SELECT '{BROWSER_STATE}' || profile || '.json' COLLATE "C" AS path, id,
                    false AS executable, octet_length(content) AS size, content
                FROM agentfy.account WHERE team_id = %s AND agent_id = %s
                """,
                part="browser-state",
            )
        return found

    def check_part(self, file: File) -> None:
        """Raise ``Refusal`` (package-path) where a file would come back as another part."""
        part = self._parts.get(file.items[0].path, file.part)
        if part != file.part:
            why = f"in the database it is a {part}; from a package it would be a {file.part}"
            raise Refusal("package-path", why, path=file.path.encode())

    def _texts(self) -> Iterator[Item]:
        config = self._config_text()
        yield Item(CONFIG, False, len(config), lambda: (config,))
        for path, column, size in (
            (SOUL, "soul", self._soul),
            (USER, '"user"', self._user),
            (HEARTBEAT, "heartbeat", self._heartbeat),
        ):
            if size is not None:
                self._count(size)
                pieces = partial(self._pieces, "agent", column, self._agent.id, size)
                yield Item(path, False, size, pieces)
        singles = [(ACCESS, "access", "list")]
        if "usage" in self.options.wanted:
            singles.append((USAGE, "usage", "content"))
        for path, table, column in singles:
            row = self._connection.execute(
                f"""
                SELECT id, octet_length({column}) FROM agentfy.{table}
                WHERE team_id = %s AND agent_id = %s AND {column} IS NOT NULL
                """.encode(),
                self._agent,
            ).fetchone()
            if row is not None:
                self._count(row[1])
                pieces = partial(self._pieces, table, column, row[0], row[1])
                yield Item(path, False, row[1], pieces)

    def _config_text(self) -> bytes:
        """The configuration as it came, with the ID where the agent was born in the database."""
        text = str(self._config).encode()
        self._count(len(text))
        if self.external_id != self._agent.id:
            return text
        return with_id(text, self.external_id)

    def _secrets(self) -> Iterator[Item]:
        scopes: dict[str, list[str]] = {}
        rows = self._connection.execute(
            "SELECT scope, name FROM agentfy.secret WHERE team_id = %s AND agent_id = %s",
            self._agent,
        )
        user = self.options.user
        for scope, name in rows:
            if user is None or scope in ("shared", "agent", f"user-{user}"):
                scopes.setdefault(scope, []).append(name)
        for scope, file_name in scope_files(scopes).items():
            text = written(scopes[scope])
            path = SECRETS + file_name
            yield Item(path, False, len(text), partial(_whole, text))

    def _count(self, size: int) -> None:
        """Count what will be in the archive before it is fetched."""
        self._size += size
        if self._size > MAX_UNPACKED:
            raise Refusal("package-unpacked-size", "it has more than a package can hold")

    # -- contents of many rows

    def _contents(self, table: str, query: str, part: Part | None = None) -> Iterator[Item]:
        """The files of a query: path, ID, whether it is executable, size, content."""
        listed = self._connection.execute(
            f"SELECT path, id, executable, size FROM ({query}) AS file ORDER BY path".encode(),
            self._agent,
        ).fetchall()
        if not listed:
            return
        largest = max((size for _, _, _, size in listed if size <= _LARGE), default=0)
        stream = self._stream(table, query, rows_at_once(largest))
        self._streams.append(stream)
        for path, row_id, executable, size in listed:
            self._count(size)
            if part is not None:
                self._parts[path] = part
            if size > _LARGE:
                pieces: Callable[[], Iterable[bytes]] = partial(
                    self._pieces, table, "content", row_id, size
                )
            else:
                pieces = partial(_take, stream, row_id)
            yield Item(path, executable, size, pieces)

    def _stream(self, table: str, query: str, rows: int) -> Generator[tuple[str, bytes]]:
        """The IDs and contents of a query, in the order of their paths, without large ones."""
        with self._connection.cursor(f"export_{table}", binary=True) as cursor:
            cursor.itersize = rows
            cursor.execute(
                f"SELECT id, content FROM ({query}) AS file WHERE size <= {_LARGE}"
                " ORDER BY path".encode(),
                self._agent,
            )
            for row_id, content in cursor:
                yield row_id, content.encode() if isinstance(content, str) else bytes(content)

    def _pieces(self, table: str, column: str, row_id: str, size: int) -> Iterable[bytes]:
        """A content of a row, in pieces where it is large."""
        statement = (
            f"SELECT substr({column}, %s, %s) FROM agentfy.{table} WHERE team_id = %s AND id = %s"
        ).encode()
        if size <= _LARGE:
            statement = (
                f"SELECT {column} FROM agentfy.{table} WHERE team_id = %s AND id = %s"
            ).encode()
            row = self._connection.execute(
                statement, (self._agent.team_id, row_id), binary=True
            ).fetchone()
            content = b"" if row is None else row[0]
            return (content.encode() if isinstance(content, str) else bytes(content),)
        return self._in_pieces(statement, row_id)

    def _in_pieces(self, statement: bytes, row_id: str) -> Iterator[bytes]:
        at = 1
        while True:
            row = self._connection.execute(
                statement, (at, _PIECE, self._agent.team_id, row_id), binary=True
            ).fetchone()
            if row is None or not row[0]:
                return
            yield row[0].encode() if isinstance(row[0], str) else bytes(row[0])
            at += _PIECE

    # -- sessions

    def _sessions(self) -> Iterator[Item]:
        rows = self._connection.execute(
            """
            SELECT chat.channel, chat."user", chat.id, chat.digested = count(message.id) IS TRUE,
                count(message.id), coalesce(sum(octet_length(message.event) + 1), 0)::bigint,
                coalesce(max(octet_length(message.event)), 0)
            FROM agentfy.chat LEFT JOIN agentfy.message
                ON message.chat_id = chat.id AND message.team_id = chat.team_id
            WHERE chat.team_id = %s AND chat.agent_id = %s
                AND (%s::text IS NULL OR chat."user" = %s)
            GROUP BY chat.id
            """,
            (*self._agent, self.options.user, self.options.user),
        ).fetchall()
        if sum(row[4] for row in rows) > MAX_EVENTS:
            raise Refusal("package-entries", f"it has more than {MAX_EVENTS} events")
        names = session_files((row[0], row[1]) for row in rows)
        for channel, user, chat_id, is_trusted, _, size, longest in rows:
            self._count(size)
            self._chats[channel, user] = _Chat(chat_id, is_trusted, longest)
            path = SESSIONS + names[channel, user]
            yield Item(path, False, size, partial(self._written, path, chat_id, longest))

    def trusted_events(self, file: File) -> Iterator[bytes] | None:
        """The content of a session that is as it was imported; None for any other file."""
        chat = self._chats.get(file.chat) if file.part == "session" else None
        if chat is None or not chat.is_trusted:
            return None
        return joined(event for event, _ in self._events(chat.id, chat.longest))

    def _written(self, path: str, chat_id: str, longest: int) -> Iterator[bytes]:
        """The content of a session whose events the platform may have written."""
        rows = enumerate(self._events(chat_id, longest), 1)
        return joined(_one_line(*row, path, number) for number, row in rows)

    def _events(self, chat_id: str, longest: int) -> Iterator[tuple[bytes, str]]:
        """The events of a chat by place, with their external IDs; of one chat at a time."""
        self._messages.close()
        self._messages = self._read_events(chat_id, longest)
        return self._messages

    def _read_events(self, chat_id: str, longest: int) -> Generator[tuple[bytes, str]]:
        with self._connection.cursor("export_message", binary=True) as cursor:
            cursor.itersize = rows_at_once(longest)
            cursor.execute(
                """
                SELECT convert_to(event, 'UTF8'), external_id FROM agentfy.message
                WHERE team_id = %s AND chat_id = %s ORDER BY place
                """,
                (self._agent.team_id, chat_id),
            )
            yield from cursor


def _one_line(event: bytes, external_id: str, path: str, number: int) -> bytes:
    """An event that the platform wrote, as a line, and seen to be of its row's ID.

    With another ID an import would make another message of it.
    """
    field = FIELDS["session"]
    try:
        # laid out in lines it would be taken for many
        line = canonical(event) if b"\n" in event else event
        value = outline(line, ("id",)) if len(line) > LARGE else parse(line)
    except Refusal as refusal:
        raise of_json(refusal, path, field, line=number) from None
    own = value.get("id") if isinstance(value, dict) else None
    if isinstance(own, str) and own != external_id:
        why = f"its id is {own!r}, and the external ID of its row {external_id!r}"
        raise wrong_shape(path, f"{field}.id", why, line=number)
    return line


def _nothing() -> Generator[tuple[bytes, str]]:
    yield from ()


def _whole(text: bytes) -> tuple[bytes]:
    return (text,)


def _take(stream: Iterator[tuple[str, bytes]], wanted: str) -> tuple[bytes]:
    """The content of this row; those before it belong to files that are no parts."""
    for row_id, content in stream:
        if row_id == wanted:
            return (content,)
    raise AssertionError  # the snapshot has it
