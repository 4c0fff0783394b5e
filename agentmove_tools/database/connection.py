"""A connection to the database, the embedded one or another, with its schema brought forward."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from agentmove_tools.database.errors import IN_DOUBT, database_errors
from agentmove_tools.database.schema import HEAD, migrate, sql_from, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg import Connection
    from psycopg.rows import TupleRow

# What libpq would take from the environment, none of which is meant for the embedded server.
_OF_LIBPQ: Final = "PG"


@contextmanager
def connected(
    parameters: dict[str, str] | None,
    name: str,
    *,
    waiting: Callable[[str], None] | None = None,
) -> Iterator[Connection[TupleRow]]:
    """A connection to the server that the parameters name, or to the embedded one for None.

    ``name`` is shown in the server's list of connections. ``waiting`` is called with a text when
    the embedded server takes long to start. What is not committed is rolled back at the end. Raises
    ``MachineError``, and ``UsageError`` and ``OSError`` as ``hold_server`` does.
    """
    if parameters is None:
        from agentmove_tools.database.embedded import hold_server  # noqa: PLC0415

        with hold_server(waiting=waiting) as held, _without_libpq_environment():
            connection = _connect(held.parameters, name)
            try:
                yield connection
            finally:
                _close(connection)
        return
    connection = _connect(parameters, name)
    try:
        yield connection
    finally:
        _close(connection)


def _connect(parameters: dict[str, str], name: str) -> Connection[TupleRow]:
    import logging  # noqa: PLC0415 (with psycopg)

    import psycopg  # noqa: PLC0415 (160 ms)
    from psycopg.conninfo import make_conninfo  # noqa: PLC0415 (as above)

    # its warnings would be lines of their own beside the error, which says the same
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    own = {**parameters, "application_name": name, "client_encoding": "UTF8"}
    with database_errors(outcome=None):
        connection = psycopg.connect(make_conninfo("", **own))
    # who has waited for a lock has to see what the other did, whatever the database's default is
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


def _close(connection: Connection[TupleRow]) -> None:
    import psycopg  # noqa: PLC0415 (as above)

    with suppress(psycopg.Error):  # one that is lost has nothing left to give back
        connection.close()


@contextmanager
def _without_libpq_environment() -> Iterator[None]:
    """Connect without what the caller's environment says of other servers."""
    taken = {key: os.environ.pop(key) for key in list(os.environ) if key.startswith(_OF_LIBPQ)}
    try:
        yield
    finally:
        os.environ.update(taken)


def bring_forward(connection: Connection[TupleRow]) -> tuple[str | None, str]:
    """Migrate the schema, and commit; its version before and after.

    Raises ``Refusal`` (schema-newer) and ``MachineError``.
    """
    try:
        with database_errors():
            version = version_of(connection)
            done = (version, HEAD) if version == HEAD else migrate(connection)
        with database_errors(IN_DOUBT):
            connection.commit()
    except BaseException:
        roll_back(connection)
        raise
    return done


def roll_back(connection: Connection[TupleRow]) -> None:
    """Roll back what is open; a connection that is lost has been rolled back."""
    import psycopg  # noqa: PLC0415 (as above)

    with suppress(psycopg.Error):
        connection.rollback()


def has_schema(connection: Connection[TupleRow]) -> bool:
    """Whether there is a schema, which is brought forward if it is an older one.

    What only reads makes none. Raises as ``bring_forward`` does.
    """
    with database_errors(outcome=None):
        version = version_of(connection)
        connection.rollback()
    if version is None:
        return False
    if version != HEAD:
        bring_forward(connection)
    return True


def missing_statements(connection: Connection[TupleRow]) -> str:
    """The statements by which ``bring_forward`` would migrate, to be looked at.

    Raises as it does; nothing is changed.
    """
    with database_errors(outcome=None):
        version = version_of(connection)
        connection.rollback()
    return "" if version == HEAD else sql_from(version)
