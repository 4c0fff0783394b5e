"""The events of a package's sessions into the database (Agent package, sections 1 and 4).

Of a chat that was imported before, the database holds a digest: where the session starts with all
that it is of, only what follows is read, checked and sent. Messages do not change: only new ones
are added. Their places are the file's where it has all that the database has; where the database
has others too, what is there keeps its place and what is new follows.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from agentmove_tools.canonical import canonical
from agentmove_tools.database.copying import copy_rows, rows_at_once
from agentmove_tools.database.tables import CHAT, Counts, take_in, upsert, without_nested_loops
from agentmove_tools.line_hash import LineHash
from agentmove_tools.package.contents import Known
from agentmove_tools.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from psycopg import Connection
    from psycopg.rows import TupleRow

    from agentmove_tools.database.copying import Cell
    from agentmove_tools.database.tables import Agent
    from agentmove_tools.package.contents import File, Package
    from agentmove_tools.package.events import Event


class _Held(NamedTuple):
    """A chat in the database; ``is_new``: since this import."""

    id: str
    digest: bytes | None
    digested: int
    is_new: bool


class _Session:
    """A session that is sent, and what is found out on the way.

    ``known``: its start that is not sent. ``digest``: of all its events, once they are sent.
    """

    def __init__(self, number: int, file: File, held: _Held, known: Known | None) -> None:
        self.number = number
        self.file = file
        self.held = held
        self.known = known
        self.digest = b""
        self.events = 0


class Written(NamedTuple):
    """What became of the chats and their messages."""

    chats: Counts
    messages: Counts


def import_messages(connection: Connection[TupleRow], package: Package, agent: Agent) -> Written:
    """Bring every session of the package in.

    Raises ``Refusal`` as reading them does, and event-duplicate where the database holds another
    event of one ID; ``ChangedMeanwhileError``, and psycopg's errors.
    """
    files = [file for file in package.files if file.part == "session"]
    if not files:
        return Written(Counts(), Counts())
    chats = _chats(connection, files, agent)
    sessions: list[_Session] = []
    known_events = 0
    for file in files:
        held = chats.held[file.chat]
        known, is_all = _known_start(file, held)
        if known is not None:
            known_events += known.events
        if known is not None and is_all:
            package.pass_known(file, known)
        else:
            sessions.append(_Session(len(sessions), file, held, known))
    if not sessions:
        return Written(chats.counts, Counts(came=known_events))
    _lock(connection, sessions, agent)
    connection.execute(
        """
        CREATE TEMPORARY TABLE incoming_message (
            chat bigint, line bigint, place bigint, external_id text COLLATE "C",
            type text COLLATE "C", ts bigint, sender text, text text, name text, tool_use_id text,
            event text
        ) ON COMMIT DROP
        """
    )
    copy_rows(connection, "pg_temp.incoming_message", _rows(package, sessions))
    # one that came otherwise laid out than the one form is found to be the same only now
    same = [each.number for each in sessions if each.digest == each.held.digest]
    if same:
        connection.execute("DELETE FROM pg_temp.incoming_message WHERE chat = ANY(%s)", (same,))
    written, chats_written = _merge(connection, sessions, set(same), agent)
    came = known_events + sum(each.events for each in sessions)
    return Written(
        chats.counts._replace(written=chats.counts.written + chats_written),
        Counts(came=came, written=written),
    )


class ChangedMeanwhileError(Exception):
    """Somebody else changed a chat between two looks at it: the import has to begin again."""


# -- chats


class _Chats(NamedTuple):
    held: dict[tuple[str, str], _Held]
    counts: Counts


def _chats(connection: Connection[TupleRow], files: list[File], agent: Agent) -> _Chats:
    """Make the chats that are missing; all of them as the database has them."""
    with without_nested_loops(connection):
        take_in(connection, CHAT, (file.chat for file in files))
        before = {row[0] for row in _find_chats(connection, agent)}
        counts = upsert(connection, CHAT, agent)
        held = {
            (row[1], row[2]): _Held(row[0], row[3], row[4] or 0, row[0] not in before)
            for row in _find_chats(connection, agent)
        }
    return _Chats(held, counts)


def _find_chats(connection: Connection[TupleRow], agent: Agent) -> list[TupleRow]:
    return connection.execute(
        """
        SELECT held.id, held.channel, held."user", held.digest, held.digested
        FROM agentfy.chat AS held JOIN pg_temp.incoming_chat AS came
            ON held.channel = came.channel AND held."user" = came."user"
        WHERE held.team_id = %s AND held.agent_id = %s
        """,
        agent,
    ).fetchall()


def _lock(connection: Connection[TupleRow], sessions: list[_Session], agent: Agent) -> None:
    """Let nobody else change the chats that are merged, nor a message of theirs."""
    if _changed(connection, sessions, agent, lock="FOR NO KEY UPDATE"):
        raise ChangedMeanwhileError


def _changed(
    connection: Connection[TupleRow], sessions: list[_Session], agent: Agent, lock: str = ""
) -> int:
    """How many chats have another digest than when they were found, or are gone."""
    digests: dict[str, bytes | None] = dict(
        connection.execute(
            f"""
            SELECT id, digest FROM agentfy.chat
            WHERE team_id = %s AND agent_id = %s AND id = ANY(%s)
            ORDER BY id {lock}
            """.encode(),
            (*agent, [each.held.id for each in sessions]),
        ).fetchall()
    )
    return sum(digests.get(each.held.id, b"") != each.held.digest for each in sessions)


# -- what a session starts with


def _known_start(file: File, held: _Held) -> tuple[Known | None, bool]:
    """What of a session the digest in the database is of, and whether that is all of it."""
    if held.digest is None:
        return None, False
    item = file.items[0]
    size = _start_with_digest(item.pieces(), held.digest, held.digested)
    if size is None:
        return None, False
    return Known(held.digested, size), size == item.size


def _start_with_digest(pieces: Iterable[bytes], digest: bytes, lines: int) -> int | None:
    """How many bytes the first ``lines`` lines have, if their digest is this one."""
    hashed = hashlib.sha256()
    size = 0
    for piece in pieces:
        if lines == 0:
            break
        count = piece.count(b"\n")
        if count < lines:
            hashed.update(piece)
            size += len(piece)
            lines -= count
            continue
        end = 0
        for _ in range(lines):
            end = piece.index(b"\n", end) + 1
        hashed.update(memoryview(piece)[:end])
        size += end
        lines = 0
    return size if lines == 0 and hashed.digest() == digest else None


# -- rows


def _rows(package: Package, sessions: list[_Session]) -> Iterator[tuple[Cell, ...]]:
    """The rows of the sessions' events; what is left of each is noted in it."""
    for session in sessions:
        known = session.known
        lines = LineHash(None if known is None else _hash_of_start(session.file, known.size))
        number = session.number
        place = 0
        for event, form in package.events(session.file, forms=True, known=session.known):
            own = (event.id, event.type, event.ts, *_columns(event), form)
            yield (number, event.line, place, *own)
            place += 1
            lines.add(form)
        session.digest = lines.digest()
        session.events = place


def _hash_of_start(file: File, size: int) -> hashlib._Hash:
    hashed = hashlib.sha256()
    for piece in file.items[0].pieces():
        hashed.update(memoryview(piece)[:size])
        size -= len(piece)
        if size <= 0:
            break
    return hashed


def _columns(event: Event) -> tuple[str | None, str | None, str | None, str | None]:
    """What can be asked for of an event: from, text, name, toolUseId; of a large one nothing."""
    data = event.value["data"]
    if not isinstance(data, dict):
        return None, None, None, None
    get = data.get
    kind = event.type
    if kind in ("tool_call", "tool_result"):
        name, use = get("name"), get("toolUseId")
        return (
            None,
            None,
            name if kind == "tool_call" and type(name) is str else None,
            use if type(use) is str else None,
        )
    sender, text = get("from"), get("text")
    return (
        sender if type(sender) is str else None,
        text if type(text) is str else None,
        None,
        None,
    )


# -- merging


def _merge(
    connection: Connection[TupleRow], sessions: list[_Session], same: set[int], agent: Agent
) -> tuple[int, int]:
    """Write what came and is not there; how many messages and chats were written."""
    left = [each for each in sessions if each.number not in same]
    if not left:
        return 0, 0
    connection.execute(
        """
        CREATE TEMPORARY TABLE incoming_session (
            chat bigint PRIMARY KEY, id text COLLATE "C", is_new boolean, is_start_known boolean,
            digest bytea, digested bigint, takes_places boolean, first_place bigint
        ) ON COMMIT DROP
        """
    )
    copy_rows(
        connection,
        "pg_temp.incoming_session",
        (
            (
                each.number,
                each.held.id,
                each.held.is_new,
                each.known is not None,
                each.digest,
                (each.known.events if each.known else 0) + each.events,
                None,
                None,
            )
            for each in left
        ),
    )
    moved = 0
    if all(each.held.is_new for each in left):
        connection.execute(
            "UPDATE pg_temp.incoming_session SET takes_places = true, first_place = 0"
        )
    else:
        connection.execute("ANALYZE pg_temp.incoming_message")
        connection.execute("CREATE INDEX ON pg_temp.incoming_message (chat, external_id)")
        otherwise = _refuse_changed(connection, left, agent)
        _take_places(connection, agent)
        # a digest is of all that a chat has, as it is there and in the order of the file
        connection.execute(
            """
            UPDATE pg_temp.incoming_session SET digest = NULL, digested = NULL
            WHERE NOT takes_places AND NOT is_start_known OR chat = ANY(%s)
            """,
            (list(otherwise),),
        )
        _leave_repeats_out(connection, left, agent)
        moved = _move(connection, agent)
    added = connection.execute(
        """
        INSERT INTO agentfy.message (
            team_id, chat_id, external_id, place, type, ts, sender, text, name, tool_use_id, event
        )
        SELECT %(team)s, session.id, came.external_id,
            CASE WHEN session.takes_places THEN came.place
                ELSE session.first_place
                    + row_number() OVER (PARTITION BY came.chat ORDER BY came.place) - 1 END,
            came.type, came.ts, came.sender, came.text, came.name, came.tool_use_id, came.event
        FROM pg_temp.incoming_message AS came
        JOIN pg_temp.incoming_session AS session USING (chat)
        WHERE session.is_new OR NOT EXISTS (
            SELECT FROM agentfy.message AS held
            WHERE held.team_id = %(team)s AND held.chat_id = session.id
                AND held.external_id = came.external_id
        )
        ORDER BY came.chat, came.place
        """,
        {"team": agent.team_id},
    ).rowcount
    _keep_digests(connection, agent)
    new = sum(each.held.is_new for each in left)
    return moved + added, _changed(connection, left, agent) - new


def _refuse_changed(
    connection: Connection[TupleRow], sessions: list[_Session], agent: Agent
) -> set[int]:
    """Raise ``Refusal`` (event-duplicate) where one that is held has another content.

    The numbers of the sessions with events that are held in another layout.
    """
    otherwise: set[int] = set()
    differing = """
        FROM pg_temp.incoming_message AS came
        JOIN pg_temp.incoming_session AS session USING (chat)
        JOIN agentfy.message AS held
            ON held.chat_id = session.id AND held.external_id = came.external_id
        WHERE held.team_id = %s AND NOT session.is_new AND held.event <> came.event
        """
    longest = _number(
        connection,
        "SELECT max(octet_length(held.event) + octet_length(came.event))" + differing,
        (agent.team_id,),
    )
    if longest == 0:
        return otherwise
    with connection.cursor("changed") as cursor:
        cursor.itersize = rows_at_once(longest)
        cursor.execute(
            (
                f"SELECT came.chat, came.line, held.event, came.event {differing}"
                " ORDER BY came.chat, came.line"
            ).encode(),
            (agent.team_id,),
        )
        files = {each.number: each.file for each in sessions}
        for chat, line, held, came in cursor:
            if not _are_equal(held, came):
                raise Refusal(
                    "event-duplicate",
                    "the database holds an event with its id and another content",
                    path=files[chat].items[0].path.encode(),
                    place=f"line {line}",
                    field="message.id",
                    line=line,
                )
            otherwise.add(chat)
    return otherwise


def _are_equal(held: str, came: str) -> bool:
    """Whether an event that the platform wrote, in whatever layout, is the one that came."""
    try:
        return canonical(held.encode()) == came.encode()
    except Refusal:
        return False


def _take_places(connection: Connection[TupleRow], agent: Agent) -> None:
    """Find which sessions have all that their chats have, and where else what is new begins."""
    connection.execute(
        """
        UPDATE pg_temp.incoming_session AS session SET
            takes_places = NOT is_start_known AND NOT EXISTS (
                SELECT FROM agentfy.message AS held
                WHERE held.team_id = %(team)s AND held.chat_id = session.id AND NOT EXISTS (
                    SELECT FROM pg_temp.incoming_message AS came
                    WHERE came.chat = session.chat AND came.external_id = held.external_id
                )
            ),
            first_place = (
                SELECT coalesce(max(place) + 1, 0) FROM agentfy.message AS held
                WHERE held.team_id = %(team)s AND held.chat_id = session.id
            )
        """,
        {"team": agent.team_id},
    )


def _leave_repeats_out(
    connection: Connection[TupleRow], sessions: list[_Session], agent: Agent
) -> None:
    """Take events out that a session's known start has too; the digest is of what is left."""
    repeats = connection.execute(
        """
        DELETE FROM pg_temp.incoming_message AS came
        USING pg_temp.incoming_session AS session, agentfy.message AS held
        WHERE session.chat = came.chat AND session.is_start_known AND held.team_id = %s
            AND held.chat_id = session.id AND held.external_id = came.external_id
        RETURNING came.chat
        """,
        (agent.team_id,),
    ).fetchall()
    if not repeats:
        return
    left_out = Counter(number for (number,) in repeats)
    hashed: dict[int, hashlib._Hash] = {}
    digested: dict[int, int] = {}
    for session in sessions:
        if session.number in left_out and session.known is not None:
            session.events -= left_out[session.number]
            hashed[session.number] = _hash_of_start(session.file, session.known.size)
            digested[session.number] = session.known.events + session.events
    longest = _number(
        connection, "SELECT max(octet_length(event)) FROM pg_temp.incoming_message", ()
    )
    with connection.cursor("left") as cursor:
        cursor.itersize = rows_at_once(longest)
        cursor.execute(
            """
            SELECT chat, event FROM pg_temp.incoming_message
            WHERE chat = ANY(%s) ORDER BY chat, place
            """,
            (list(hashed),),
        )
        for number, event in cursor:
            hashed[number].update(event.encode() + b"\n")
    with connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE pg_temp.incoming_session SET digest = %s, digested = %s WHERE chat = %s",
            [(hashed[number].digest(), digested[number], number) for number in hashed],
        )


def _number(connection: Connection[TupleRow], query: str, given: tuple[str, ...]) -> int:
    """The number that a query gives, 0 for NULL."""
    row = connection.execute(query.encode(), given).fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


def _move(connection: Connection[TupleRow], agent: Agent) -> int:
    """Put messages that are held into the places that the file has for them; how many."""
    return connection.execute(
        """
        UPDATE agentfy.message AS held SET place = came.place
        FROM pg_temp.incoming_message AS came
        JOIN pg_temp.incoming_session AS session USING (chat)
        WHERE held.team_id = %(team)s AND held.chat_id = session.id
            AND held.external_id = came.external_id AND session.takes_places
            AND held.place <> came.place
        """,
        {"team": agent.team_id},
    ).rowcount


def _keep_digests(connection: Connection[TupleRow], agent: Agent) -> None:
    """Note the digests of the chats that are now as their sessions are."""
    connection.execute(
        """
        UPDATE agentfy.chat AS held SET digest = session.digest, digested = session.digested
        FROM pg_temp.incoming_session AS session
        WHERE held.team_id = %(team)s AND held.agent_id = %(agent)s AND held.id = session.id
            AND session.digest IS NOT NULL AND held.digest IS DISTINCT FROM session.digest
        """,
        {"team": agent.team_id, "agent": agent.id},
    )
