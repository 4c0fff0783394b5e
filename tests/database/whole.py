"""An agent with something in every table, and all rows of a database as they stand."""

from __future__ import annotations

from typing import Final

from psycopg import Connection
from psycopg.rows import TupleRow

from tests.database.databases import Database
from tests.package.packages import AGENT, ALL, event, zipped

Rows = dict[str, list[TupleRow]]

EVENTS: Final = b"".join(
    event(f"e{number}", number, data={"text": f"text {number}"}) + b"\n" for number in range(5)
)
WHOLE: Final[dict[str, bytes]] = {
    **AGENT,
    "agent.config.json": (
        b'{"id": "agent-of-tests", "name": "Ada", "accessStrategy": "list",'
        b' "runtimeProfile": "large", "limits": {"tokens": 5}}\n'
    ),
    "USER.md": "Zo\u00eb\n".encode(),
    "HEARTBEAT.md": b"every hour\n",
    "MEMORY.md": b"what counts\n",
    "memory/2026-01-02.md": b"a day\n",
    "skills/pdf/SKILL.md": b"---\nname: pdf\ndescription: Reads PDFs.\n---\n",
    "skills/pdf/run.sh": b"#!/bin/sh\n\0\xff",
    "data/secrets/agent.json": b'["API_KEY", "TOKEN"]',
    "data/secrets/user-alice.json": b'["HERS"]',
    "data/access.json": b'["web:alice", "web:bob"]\n',
    "data/sessions/web:alice.jsonl": EVENTS,
    "data/sessions/web:bob.jsonl": EVENTS,
    "data/usage.json": b'{"tokens": 5}\n',
    "browser-state/main.json": b'{"cookies": []}\n',
}


def bring_in_whole(database: Database, team: str, **changed: bytes) -> str:
    """Import the agent with some rows that no package brings; its ID in the database.

    ``changed``: contents of other files of the agent, by their paths.
    """
    done = database.bring_in(zipped({**WHOLE, **changed}), team, reading=ALL)
    with database.connect() as connection:
        connection.execute(
            """
            WITH person AS (
                INSERT INTO agentfy.app_user (team_id, name) VALUES (%s, 'Alice')
                RETURNING team_id, id
            )
            INSERT INTO agentfy.app_user_identity (team_id, app_user_id, channel, "user")
            SELECT team_id, id, 'web', 'alice' FROM person
            """,
            (done.team.id,),
        )
        connection.execute(
            "UPDATE agentfy.secret SET value = 'sealed' WHERE team_id = %s AND name = 'TOKEN'",
            (done.team.id,),
        )
        connection.commit()
    assert done.agent_id is not None
    return done.agent_id


_TABLES: Final = """
    SELECT relname FROM pg_class WHERE relnamespace = 'agentfy'::regnamespace
        AND relkind IN ('r', 'p') AND relname <> 'schema_version' ORDER BY relname
"""


def tables_of(connection: Connection[TupleRow]) -> list[str]:
    """Every table that holds rows of teams, also one that a test does not know of."""
    return [row[0] for row in connection.execute(_TABLES).fetchall()]


def rows_in(connection: Connection[TupleRow], team: str | None = None) -> Rows:
    """Every row with the transaction that wrote it, by table; of one team if its ID is given."""
    found: Rows = {}
    for table in tables_of(connection):
        column = "id" if table == "team" else "team_id"
        found[table] = connection.execute(
            f"""
            SELECT ctid::text, xmin::text, held::text FROM agentfy.{table} AS held
            WHERE %s::text IS NULL OR {column} = %s ORDER BY ctid
            """.encode(),
            (team, team),
        ).fetchall()
    return found


def all_rows(database: Database, team: str | None = None) -> Rows:
    """As ``rows_in``, for whoever has no connection."""
    with database.connect() as connection:
        return rows_in(connection, team)


def team_id(database: Database, name: str) -> str:
    """The ID of the team of this name."""
    ((found,),) = database.rows("SELECT id FROM agentfy.team WHERE name = %s", (name,))
    return str(found)
