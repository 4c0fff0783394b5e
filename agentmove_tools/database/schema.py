"""The schema's version, and bringing it forward (Agent package, section 6)."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Final

from agentmove_tools.refusals import MachineError, Refusal

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.rows import TupleRow

# The newest migration: what this program reads and writes.
HEAD: Final = "0002"
_KNOWN: Final = ("0001", HEAD)
OLDEST_SERVER: Final = 150_000  # views that check the caller's rights

_LOCK: Final = 0x6167656E74667901  # "agentfy" and a 1: of the migrations
# Alembic keeps in globals what it is at.
_ONE_AT_A_TIME: Final = threading.Lock()
_VERSION: Final = "SELECT version_num FROM agentfy.schema_version"


def version_of(connection: Connection[TupleRow]) -> str | None:
    """The version of the database's schema, None where there is none.

    Raises ``Refusal`` (schema-newer), and psycopg's errors.
    """
    version = version_there(connection)
    if version is not None and version not in _KNOWN and version < HEAD:
        raise MachineError(f"the schema's version is {version!r}, which this program never made")
    if version is not None and version > HEAD:
        why = f"it is of version {version}, and this program knows {HEAD}: update agentmove-tools"
        raise Refusal("schema-newer", why)
    return version


def version_there(connection: Connection[TupleRow]) -> str | None:
    """The version of the database's schema, be it known or not, None where there is none."""
    known = connection.execute("SELECT to_regclass('agentfy.schema_version') IS NOT NULL")
    if known.fetchone() != (True,):
        return None
    row = connection.execute(_VERSION).fetchone()
    return None if row is None else str(row[0])


def migrate(connection: Connection[TupleRow]) -> tuple[str | None, str]:
    """Bring the schema forward in the transaction that is open; its version before and after.

    One migrates at a time: others wait. Raises ``Refusal`` (schema-newer), and ``MachineError``
    for a server that is too old, or keeps texts in another encoding than UTF8.
    """
    if connection.info.server_version < OLDEST_SERVER:
        raise MachineError(
            f"the server is PostgreSQL {connection.info.server_version // 10000}, and 15 or newer"
            " is needed"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise MachineError(f"the database's encoding is {encoding}, and UTF8 is needed")
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    version = version_of(connection)
    if version != HEAD:
        connection.execute(sql_from(version).encode())
    return version, HEAD


def sql_from(version: str | None) -> str:
    """The statements that bring a schema of this version forward, of a whole schema for None."""
    from alembic import command  # noqa: PLC0415 (0.4 s, and only a migration needs it)
    from alembic.config import Config  # noqa: PLC0415

    written = io.StringIO()
    config = Config(output_buffer=written, stdout=io.StringIO())
    config.set_main_option("script_location", "agentmove_tools.database:migrations")
    with _ONE_AT_A_TIME:
        command.upgrade(config, f"{version or 'base'}:{HEAD}", sql=True)
    made = "" if version else "CREATE SCHEMA IF NOT EXISTS agentfy;\n\n"
    return made + written.getvalue()
